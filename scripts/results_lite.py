"""Fill docs/results/lite0.md: every method that lite0 runs, on all labelled sets in a folder, from records alone.

Usage: python scripts/results_lite.py ROOT [--out runs/lite0] [--page docs/results/lite0.md] [--limit 20] [--few 10]

Evaluates what is missing (a stopped call goes on where it was), then puts the pooled table between its marks in the
page, and writes the table of each set and the settings beside it. On sets of 1,000 classes, methods that tune text run
on the first `--few` images only: their cost grows with the number of classes.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from page_tables import write_csv
from study_lite import fill

from faircontext.metrics.scores import Comparison, compare_sets, expected_calibration_error
from faircontext.metrics.stats import Accuracy, Interval, holm
from faircontext.runs.groups import group_runs
from faircontext.runs.results import Result
from faircontext.runs.store import Run, load_runs

VIEWS = ("zero_shot", "mta", "zero", "fcl")
TEXT = ("tpt", "ctpt", "rlcf", "tps", "rtpt")
MANY = 1000
SETTINGS = ("fcl.masks=100",)


def evaluate(root: Path, out: Path, names: Sequence[str], methods: Sequence[str], limit: int) -> None:
    settings = [word for word in SETTINGS if word.partition(".")[0] in methods]
    words = [
        *(sys.executable, "-m", "faircontext", "evaluate", "--datasets", *names, "--methods", *methods),
        *("--root", str(root), "--out", str(out), "--limit", str(limit), "--resume"),
        *("--engine-image", "torch"),  # as the runs that are there
        *(["--set", *settings] if settings else []),
    ]
    code = subprocess.run(words, check=False).returncode
    if code not in (0, 1):  # stopped: the page is written from runs that are whole
        raise SystemExit(f"evaluate ended with {code}; the same command goes on")


def sets(root: Path) -> dict[str, int]:
    """Return the labelled sets in a folder, with their numbers of classes."""
    found = sorted(path.parent for path in root.glob("*/labels.csv"))
    return {folder.name: len((folder / "classnames.txt").read_text().splitlines()) for folder in found}


def pooled(results: Mapping[str, Mapping[str, Result]], methods: Sequence[str]) -> Iterator[str]:
    """Yield the table of all sets together."""
    yield (
        "| method | n | accuracy | zero-shot on the same images | difference | over these images (95%) "
        "| over sets like these (95%) | alone right | p |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for method in methods:
        row = [by_method[method] for by_method in results.values() if method in by_method]
        if method == "zero_shot":
            accuracy = Accuracy(sum(int(result.correct.sum()) for result in row), sum(result.n for result in row))
            yield f"| {method} | {accuracy.n} | {cell(accuracy)} | | | | | | |"
            continue
        compared = [result.comparison for result in row if result.comparison is not None]
        comparison, change = Comparison.pooled(compared), compare_sets(compared)
        yield (
            f"| {method} | {comparison.n} | {cell(comparison.accuracy)} | {cell(comparison.reference)} "
            f"| {100 * change.value:+.1f} | {ends(change.images)} | {ends(change.sets)} "
            f"| {comparison.gained} / {comparison.lost} | {comparison.p_value:.3g} |"
        )


def ends(interval: Interval | None) -> str:
    return "" if interval is None else f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f}"


def cell(accuracy: Accuracy) -> str:
    low, high = accuracy.interval
    return f"{100 * accuracy.value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def by_set(results: Mapping[str, Mapping[str, Result]], methods: Sequence[str]) -> dict[str, list[str]]:
    """Return a table per data set, with p-values corrected for the number of sets."""
    corrected = {}
    for method in methods:
        compared = {name: found[method].comparison for name, found in results.items() if method in found}
        names = [name for name, comparison in compared.items() if comparison is not None]
        corrected[method] = dict(zip(names, holm([compared[name].p_value for name in names]), strict=True))
    columns = "classes | method | n | top-1 (95%) | top-5 | ECE | over zero-shot (95%) | alone right | p | p, Holm"
    tables = {}
    for name, by_method in results.items():
        there = [method for method in methods if method in by_method]
        rows = [line(by_method[method], corrected[method].get(name)) for method in there]
        tables[name] = [f"| {columns} | s/image |", "|---" * 11 + "|", *rows]
    return tables


def line(result: Result, p_value: float | None) -> str:
    """Return a method's row on one data set; the p-value is corrected for the number of sets."""
    compared = " | | |"
    if (comparison := result.comparison) is not None:
        change = comparison.difference
        compared = (
            f"{100 * change.value:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f}) | "
            f"{comparison.gained} / {comparison.lost} | {comparison.p_value:.2g} | {p_value:.2g}"
        )
    error = expected_calibration_error(result.confidence, result.correct)
    accuracy = Accuracy(int(result.correct.sum()), result.n)
    return (
        f"| {result.config['dataset']['classes']} | {result.method} | {result.n} | {cell(accuracy)} | "
        f"{100 * result.in_top5.mean():.1f} | {error:.3f} | {compared} | {result.seconds.mean():.2f} |"
    )


def facts(runs: Sequence[Run], results: Mapping[str, Mapping[str, Result]]) -> str:
    """Return in words what was run."""
    config, session = runs[0].document["config"], runs[0].document["sessions"][-1]
    seconds = sum(part.get("seconds", 0.0) for run in runs for part in run.document["sessions"])
    views, versions = config["views"], {**config["versions"], **session["versions"]}
    images = sum(found["zero_shot"].n + found["zero_shot"].unreadable for found in results.values())
    return (
        f"{images} images of {len(results)} sets, at most {config['limit']} of each, drawn by seed {config['seed']}; "
        f"preset `{config['preset']}`, precision {config['backbone']['precision']}, prompts `{config['prompts']}`, "
        f"{views['count']} views of scale {views['scale'][0]:g} to {views['scale'][1]:g}. {session['threads']} "
        f"threads of an {session['processor']}; {seconds / 60:.0f} minutes in all. Versions: "
        + ", ".join(f"{name} {number}" for name, number in versions.items() if number)
        + "."
    )


def write(runs: Sequence[Run], page: Path) -> None:
    """Fill the page, and write what stands beside it."""
    (group,) = group_runs(runs)
    names = dict.fromkeys(run.document["config"]["dataset"]["name"] for run in runs)
    results = {name: group.results[name] for name in names}
    methods = sorted(group.methods, key=("zero_shot", *TEXT, "mta", "zero", "fcl").index)
    settings = {name: found for run in runs for name, found in run.document["config"]["methods"].items() if found}
    blocks = {"facts": facts(runs, results), "pooled": "\n".join(pooled(results, methods))}
    page.write_text(fill(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    write_csv(page.parent / "lite0-sets.csv", by_set(results, methods), "data set")
    (page.parent / "lite0-settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


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
    write(runs, options.page)
    print(f"{options.page}: {len(runs)} runs, {sum(len(run.rows) for run in runs)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
