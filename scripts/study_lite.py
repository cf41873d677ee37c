"""Carry out the study of docs/results/study.md: fill its tables between their marks, and write the others beside it.

Usage: python scripts/study_lite.py ROOT [--confirm FURTHER] [--model FOLDER] [--out ablations]
    [--page docs/results/study.md]

ROOT holds the labelled sets, FURTHER further images of some of them, on which nothing is chosen, FOLDER a trained
open_clip model. A stopped call goes on where it was; what is there is not run again. Beside the page go the results of
each experiment, `study.csv` with a row for each variant of all of them, and what analyses print. `--tables-only` runs
nothing.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from page_tables import write_csv

from faircontext.metrics.stats import holm
from faircontext.runs.analyses import analysis_rows, describe_analysis
from faircontext.runs.store import load_runs

EXPERIMENTS = (
    "lite0-text",
    "lite0-evidence",
    "lite0-views",
    "lite0-masks",
    "lite0-prompts",
    "lite0-area",
    "lite0-fast",
)
TRAINED = ("trained-text", "trained-evidence")
CONFIRMED, CONFIRMED_TRAINED = "lite0-localisation", "trained-localisation"
CONTROLS = ("image", "grey", "black", "mean")
"""Variants that the localisation test compares with the reference, corrected for their number."""

ANALYSES = {
    "evidence": (("evidence", "decomposition", "margin", "gallery"), 20, ()),
    "entropy": (("entropy",), 2, ("views=6", "masks=50")),
    "stability": (("stability",), 3, ("masks=200", "fewer=25,50,100")),
}
"""Folder, analyses, images of each set, settings."""

CONFIRMED_ANALYSES: dict[str, tuple[int | None, tuple[str, ...]]] = {
    "ambiguity": (None, ("ambiguity.area=0.25",)),
    "evidence": (40, ()),
    "entropy": (2, ("entropy.views=6",)),
}
"""Analyses of the further images: images of each set, or None for all, and settings."""


def run(*words: str) -> None:
    code = subprocess.run((sys.executable, "-m", "faircontext", *words), check=False).returncode
    if code not in (0, 1):
        raise SystemExit(f"faircontext {words[0]} ended with {code}; the same call goes on")


def carry_out(options: argparse.Namespace) -> None:
    where = ("--root", str(options.root), "--threads", str(options.threads))
    for name in EXPERIMENTS:
        run("ablate", name, *where, "--out", str(options.out))
    for name in TRAINED if options.model else ():
        run("ablate", name, *where, "--out", str(options.out), "--backbone", f"local-dir:{options.model}")
    sets = sorted(path.parent.name for path in options.root.glob("*/labels.csv"))
    for folder, (names, limit, settings) in ANALYSES.items():
        place = ("--out", str(options.out / "analyses" / folder), "--features", str(options.out / "features"))
        changed = ("--set", *settings) if settings else ()
        words = ("analyze", *names, "--datasets", *sets, *where, "--limit", str(limit), *place, *changed, "--resume")
        run(*words)
    if options.confirm:
        confirm(options)


def confirm(options: argparse.Namespace) -> None:
    """Run what is reported on the further images."""
    where = ("--root", str(options.confirm), "--threads", str(options.threads))
    out = options.out / "confirmed"
    run("ablate", CONFIRMED, *where, "--out", str(out))
    if options.model:
        run("ablate", CONFIRMED_TRAINED, *where, "--out", str(out), "--backbone", f"local-dir:{options.model}")
    sets = sorted(path.parent.name for path in options.confirm.glob("*/labels.csv"))
    for name, (limit, settings) in CONFIRMED_ANALYSES.items():
        place = ("--out", str(out / "analyses" / name), "--features", str(out / "features"), "--resume")
        few = () if limit is None else ("--limit", str(limit))
        run("analyze", name, "--datasets", *sets, *where, *few, *place, *(("--set", *settings) if settings else ()))


def percent(found: Mapping[str, Any], value: str, low: str, high: str, sign: str = "") -> str:
    return f"{100 * found[value]:{sign}.1f} ({100 * found[low]:{sign}.1f} to {100 * found[high]:{sign}.1f})"


def change(found: Mapping[str, Any]) -> str:
    return percent(found, "difference", "difference_low", "difference_high", "+")


def table(document: Mapping[str, Any]) -> Iterator[str]:
    reference = document["reference"]
    yield "| variant | changes | n | top-1 (95%) | over reference (95%) | alone right | p | over zero-shot (95%) |"
    yield "|---|---|---|---|---|---|---|---|"
    for found in document["variants"]:
        if not found["n"]:
            continue
        changes = ", ".join(f"{key}={json.dumps(value)}" for key, value in found["changes"].items()).replace('"', "")
        own = "reference" if found["label"] == reference else change(found)
        pair = "" if found["label"] == reference else f"{found['gained']} / {found['lost']}"
        p_value = "" if found["label"] == reference else f"{found['p_value']:.2g}"
        yield (
            f"| {found['label']} | {changes} | {found['n']} | {percent(found, 'accuracy', 'low', 'high')} | {own} "
            f"| {pair} | {p_value} | {change(found['zero_shot'])} |"
        )


def facts(document: Mapping[str, Any]) -> str:
    meta, info = document["meta_info"], document["run_info"]
    backbone = meta["backbones"][0]
    asked = info["experiment"]
    images = "all images" if asked["limit"] is None else f"at most {asked['limit']} images of each"
    return (
        f"{len(meta['datasets'])} sets, {images}, seed {asked['seed']}; "
        f"{Path(backbone['name']).name} in {backbone['precision']}, preset `{asked['preset']}`, prompts "
        f"`{asked['prompts']}`, settings {json.dumps(asked['settings'])}; {info['seconds'] / 60:.0f} minutes on "
        f"{'; '.join(meta['hardware'])}. Numbers by set, versions: [{document['name']}.results.json]"
        f"({document['name']}.results.json)."
    )


def corrected(document: Mapping[str, Any]) -> str:
    """Return the p-values of the controls, corrected for their number."""
    found = {one["label"]: one["p_value"] for one in document["variants"] if one["label"] in CONTROLS and one["n"]}
    pairs = zip(found, holm([*found.values()]), strict=True)
    return "Holm's p of the controls: " + ", ".join(f"{name} {value:.2g}" for name, value in pairs) + "."


def analysis_lines(folder: Path, analyses: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for place, names in analyses.items():
        if not (folder / place).exists():
            continue
        runs = load_runs(folder / place)
        for name in names:
            if name != "gallery":
                yield from describe_analysis([row for run in runs for row in analysis_rows(run, name)], name)


def without_folders(text: str) -> str:
    """Return results in which a local model goes by its folder's name: where it lies is this machine's own."""
    return re.sub(r'local-dir:[^"]*/([^"/]+)/?(?=")', r"local-dir:\1", text)


def fill(text: str, blocks: Mapping[str, str]) -> str:
    """Put each block between its marks."""
    for name, block in blocks.items():
        marks = re.compile(rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
        if not marks.search(text):
            raise SystemExit(f"the page has no marks for {name}")
        text = marks.sub(lambda found, block=block: f"{found[1]}\n{block}\n\n{found[2]}", text)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--confirm", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("ablations"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/study.md"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tables-only", action="store_true")
    options = parser.parse_args()
    if not options.tables_only:
        carry_out(options)
    blocks, tables, beside = {}, dict[str, list[str]](), options.page.parent
    confirmed = options.out / "confirmed"
    for name in (*EXPERIMENTS, *TRAINED, CONFIRMED, CONFIRMED_TRAINED):
        folder = confirmed if name in (CONFIRMED, CONFIRMED_TRAINED) else options.out
        place = folder / name / f"{name}.results.json"
        if place.exists():
            text = without_folders(place.read_text(encoding="utf-8"))
            document = json.loads(text)
            (beside / place.name).write_text(text, encoding="utf-8")
            tables[name] = [*table(document)]
            if name == CONFIRMED:
                blocks[name] = "\n".join([facts(document), "", *tables[name], "", corrected(document)])
    if tables:
        write_csv(beside / "study.csv", tables, "experiment")
    for title, folder, analyses in (
        ("study-analyses", options.out, {place: names for place, (names, _, _) in ANALYSES.items()}),
        ("study-confirmed-analyses", confirmed, {name: (name,) for name in CONFIRMED_ANALYSES}),
    ):
        if lines := [*analysis_lines(folder / "analyses", analyses)]:
            (beside / f"{title}.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    options.page.write_text(fill(options.page.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    print(f"{options.page}: {', '.join(blocks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
