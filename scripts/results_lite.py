"""Make docs/results/lite0.md: every method that lite0 runs, on all labelled sets in a folder, from records alone.

Usage: python scripts/results_lite.py ROOT [--out runs/lite0] [--page docs/results/lite0.md] [--limit 20] [--few 10]

Evaluates what is missing (a stopped call goes on where it was), then writes the page. On sets of 1,000 classes, methods
that tune text run on the first `--few` images only: their cost grows with the number of classes.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.runs.store import Run, load_runs
from faircontext.bench.summary import outcomes, summarise
from faircontext.metrics.stats import Accuracy, discordant, holm, mcnemar_exact, paired_bootstrap

VIEWS = ("zero_shot", "mta", "zero", "fcl")
TEXT = ("tpt", "ctpt", "rlcf", "tps", "rtpt")
MANY = 1000
SETTINGS = ("fcl.masks=100",)


def evaluate(root: Path, out: Path, names: Sequence[str], methods: Sequence[str], limit: int) -> None:
    settings = [word for word in SETTINGS if word.partition(".")[0] in methods]
    words = [
        *(sys.executable, "-m", "faircontext", "evaluate", "--datasets", *names, "--methods", *methods),
        *("--root", str(root), "--out", str(out), "--limit", str(limit), "--resume"),
        *(["--set", *settings] if settings else []),
    ]
    code = subprocess.run(words, check=False).returncode
    if code not in (0, 1):  # stopped: the page is written from runs that are whole
        raise SystemExit(f"evaluate ended with {code}; the same command goes on")


def sets(root: Path) -> dict[str, int]:
    """Return the labelled sets in a folder, with their numbers of classes."""
    found = sorted(path.parent for path in root.glob("*/labels.csv"))
    return {folder.name: len((folder / "classnames.txt").read_text().splitlines()) for folder in found}


def join(runs: Sequence[Run]) -> dict[str, tuple[pa.Table, int]]:
    """Return, by data set, the rows of all its runs and the number of classes."""
    found: dict[str, tuple[pa.Table, int]] = {}
    for run in runs:
        facts = run.document["config"]["dataset"]
        rows = run.rows
        if facts["name"] in found:  # zero-shot is in every run
            earlier, _ = found[facts["name"]]
            known = pa.array(earlier["method"].unique())
            rows = pa.concat_tables([earlier, rows.filter(pc.invert(pc.is_in(rows["method"], known)))])
        found[facts["name"]] = rows, facts["classes"]
    return found


def pooled(joined: dict[str, tuple[pa.Table, int]], methods: Sequence[str]) -> Iterator[str]:
    """Yield the table of all sets together."""
    yield "| method | n | accuracy | zero-shot on the same images | difference (95%) | alone right | p |"
    yield "|---|---|---|---|---|---|---|"
    for method in methods:
        tables = [
            rows.filter(pc.and_(pc.equal(rows["method"], method), pc.equal(rows["error"], "")))
            for rows, _ in joined.values()
        ]
        right = outcomes(pa.concat_tables(tables))
        own, zero = right["method"], right["zero_shot"]
        gained, lost = discordant(own, zero)
        first, second = Accuracy(int(own.sum()), len(own)), Accuracy(int(zero.sum()), len(zero))
        if method == "zero_shot":
            yield f"| {method} | {len(own)} | {cell(first)} | | | | |"
            continue
        change = paired_bootstrap(own, zero)
        yield (
            f"| {method} | {len(own)} | {cell(first)} | {cell(second)} | {100 * change.value:+.1f} "
            f"({100 * change.low:+.1f} to {100 * change.high:+.1f}) | {gained} / {lost} | "
            f"{mcnemar_exact(gained, lost):.3g} |"
        )


def cell(accuracy: Accuracy) -> str:
    low, high = accuracy.interval
    return f"{100 * accuracy.value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def by_set(joined: dict[str, tuple[pa.Table, int]], methods: Sequence[str]) -> Iterator[str]:
    """Yield a table per data set, with p-values corrected for the number of sets."""
    summaries = {name: summarise(rows, classes) for name, (rows, classes) in joined.items()}
    corrected = {}
    for method in methods:
        names = [name for name in summaries if method in summaries[name]]
        corrected[method] = dict(zip(names, holm([summaries[name][method].p_value for name in names]), strict=True))
    for name, (rows, classes) in joined.items():
        refused = len(set(rows.filter(pc.not_equal(rows["error"], ""))["path"].to_pylist()))
        yield f"### {name}\n\n{classes} classes{f'; {refused} files refused' if refused else ''}.\n"
        yield "| method | n | top-1 (95%) | top-5 | ECE | over zero-shot (95%) | alone right | p | p, Holm | s/image |"
        yield "|---|---|---|---|---|---|---|---|---|---|"
        for method in methods:
            if method not in summaries[name]:
                continue
            summary = summaries[name][method]
            change = summary.difference
            compared = (
                f"{100 * change.value:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f}) | "
                f"{summary.gained} / {summary.lost} | {summary.p_value:.2g} | {corrected[method][name]:.2g}"
            )
            yield (
                f"| {method} | {summary.top1.number} | {cell(summary.top1)} | {100 * summary.top5.value:.1f} | "
                f"{summary.ece:.3f} | {' | | | ' if method == 'zero_shot' else compared} | {summary.seconds:.2f} |"
            )
        yield ""


def page(runs: Sequence[Run], command: str) -> str:
    joined = join(runs)
    config, session = runs[0].document["config"], runs[0].document["sessions"][-1]
    methods = list(dict.fromkeys(method for rows, _ in joined.values() for method in rows["method"].to_pylist()))
    methods.sort(key=("zero_shot", *TEXT, "mta", "zero", "fcl").index)
    settings = {name: found for run in runs for name, found in run.document["config"]["methods"].items() if found}
    seconds = sum(part.get("seconds", 0.0) for run in runs for part in run.document["sessions"])
    views, versions = config["views"], {**config["versions"], **session["versions"]}
    images = sum(len(set(rows["path"].to_pylist())) for rows, _ in joined.values())
    lines = [
        "# lite0 on nineteen small sets" if len(joined) == 19 else f"# lite0 on {len(joined)} small sets",
        "",
        "Every method that the embedded model `lite0` can run, on labelled pictures under natural shift: styles,",
        "cameras, textures, contexts, fine-grained classes. lite0 is not CLIP: see [The lite backbone](../lite.md).",
        "The sets are small; read the intervals before the figures, and the pooled table before those of single sets.",
        "",
        "```",
        command,
        "```",
        "",
        f"{images} images, at most {config['limit']} of each set, drawn by seed {config['seed']}; preset "
        f"`{config['preset']}`, precision {config['backbone']['precision']}, prompts `{config['prompts']}`, "
        f"{views['number']} views of scale {views['scale'][0]:g} to {views['scale'][1]:g}. {session['threads']} "
        f"threads of an {session['processor']}; {seconds / 60:.0f} minutes in all. Versions: "
        + ", ".join(f"{name} {number}" for name, number in versions.items() if number)
        + ".",
        "",
        "TTL and the tuning of RLCF's encoder need a vision transformer or float32 weights: they are not here. RLCF",
        "takes its rewards from lite0 itself.",
        "",
        "## All sets together",
        "",
        *pooled(joined, methods),
        "",
        "Intervals of accuracies are Wilson's, of differences by paired bootstrap; p is the exact McNemar test on the",
        "same images, zero-shot being measured in the same run. *Alone right*: images that the method alone has right,",
        "and those that zero-shot alone has right. On sets of 1,000 classes the methods that tune text ran on fewer",
        "images; each row's zero-shot is on that row's images.",
        "",
        "## Each set",
        "",
        *by_set(joined, methods),
        "## Settings",
        "",
        "| method | setting | value |",
        "|---|---|---|",
        *(f"| {name} | {key} | {value} |" for name, found in settings.items() for key, value in found.items()),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/lite0"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/lite0.md"))
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--few", type=int, default=10)
    options = parser.parse_args()
    found = sets(options.root)
    few = [name for name, classes in found.items() if classes < MANY]
    many = [name for name, classes in found.items() if classes >= MANY]
    evaluate(options.root, options.out / "few-classes", few, (*VIEWS, *TEXT), options.limit)
    evaluate(options.root, options.out / "many-classes", many, VIEWS, options.limit)
    evaluate(options.root, options.out / "many-classes-text", many, TEXT, options.few)
    runs = load_runs(options.out)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    command = f"python scripts/results_lite.py DATA --limit {options.limit} --few {options.few}"
    options.page.write_text(page(runs, command), encoding="utf-8")
    print(f"{options.page}: {len(runs)} runs, {int(np.sum([len(run.rows) for run in runs]))} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
