"""Carry out the study of docs/results/study.md and put its tables, between their marks, into that page.

Usage: python scripts/study_lite.py ROOT [--model FOLDER] [--out ablations] [--page docs/results/study.md]

ROOT holds the labelled sets, FOLDER a trained open_clip model. A stopped call goes on where it was; what is there is
not run again. Results are copied beside the page. `--tables-only` runs nothing.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from faircontext.analysis.summary import describe
from faircontext.bench.store import load_runs

EXPERIMENTS = ("lite0-text", "lite0-evidence", "lite0-views", "lite0-masks", "lite0-prompts")
TRAINED = ("trained-text", "trained-evidence")
ANALYSES = {
    "evidence": (("evidence", "decomposition", "margin", "gallery"), 20, ()),
    "entropy": (("entropy",), 2, ("views=6", "masks=50")),
    "stability": (("stability",), 3, ("masks=200", "fewer=25,50,100")),
}
"""Folder, analyses, images of each set, settings."""


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


def percent(found: Mapping[str, Any], value: str, low: str, high: str, sign: str = "") -> str:
    return f"{100 * found[value]:{sign}.1f} ({100 * found[low]:{sign}.1f} to {100 * found[high]:{sign}.1f})"


def change(found: Mapping[str, Any]) -> str:
    return percent(found, "difference", "difference_low", "difference_high", "+")


def table(document: Mapping[str, Any]) -> Iterator[str]:
    reference = document["reference"]
    yield f"| variant | changes | n | top-1 (95%) | over {reference} (95%) | alone right | p | over zero-shot (95%) |"
    yield "|---|---|---|---|---|---|---|---|"
    for found in document["variants"]:
        if not found["n"]:
            continue
        changes = ", ".join(f"{key}={json.dumps(value)}" for key, value in found["changes"].items()).replace('"', "")
        own = "" if found["label"] == reference else change(found)
        pair = "" if found["label"] == reference else f"{found['gained']} / {found['lost']}"
        p_value = "" if found["label"] == reference else f"{found['p_value']:.2g}"
        yield (
            f"| {found['label']} | {changes} | {found['n']} | {percent(found, 'accuracy', 'low', 'high')} | {own} "
            f"| {pair} | {p_value} | {change(found['zero_shot'])} |"
        )


def facts(document: Mapping[str, Any]) -> str:
    meta, info = document["meta_info"], document["run_info"]
    versions = ", ".join(f"{name} {number}" for name, number in meta["versions"][0].items())
    backbone = meta["backbones"][0]
    asked = info["experiment"]
    return (
        f"{len(meta['datasets'])} sets, at most {asked['limit']} images of each, seed {asked['seed']}; "
        f"{Path(backbone['name']).name} in {backbone['precision']}, preset `{asked['preset']}`, prompts "
        f"`{asked['prompts']}`, settings {json.dumps(asked['settings'])}; {info['seconds'] / 60:.0f} minutes on "
        f"{'; '.join(meta['hardware'])}; {versions}. Numbers by set: [{document['name']}.results.json]"
        f"({document['name']}.results.json)."
    )


def analysis_lines(folder: Path) -> Iterator[str]:
    for place, (names, _, _) in ANALYSES.items():
        if not (folder / place).exists():
            continue
        rows = pa.concat_tables([run.rows for run in load_runs(folder / place)])
        for name in names:
            if name != "gallery":
                yield from describe(rows, name)


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
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("ablations"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/study.md"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tables-only", action="store_true")
    options = parser.parse_args()
    if not options.tables_only:
        carry_out(options)
    blocks = {}
    for name in (*EXPERIMENTS, *TRAINED):
        place = options.out / name / f"{name}.results.json"
        if place.exists():
            text = without_folders(place.read_text(encoding="utf-8"))
            document = json.loads(text)
            (options.page.parent / place.name).write_text(text, encoding="utf-8")
            blocks[name] = "\n".join([facts(document), "", *table(document)])
    lines = [*analysis_lines(options.out / "analyses")]
    if lines:
        blocks["analyses"] = "\n".join(["```", *lines, "```"])
    options.page.write_text(fill(options.page.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    print(f"{options.page}: {', '.join(blocks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
