"""Measure methods on corrupted and attacked images, print the tables, and write them as CSV files.

    python scripts/study_robustness.py DATA OUT [--model local-dir:MODEL]

DATA holds the data sets, OUT takes the runs, MODEL is a trained checkpoint of open_clip for the second round of
attacks. A run that is stopped goes on; what is there is not run again. What is compared, and how it is judged, is in
docs/results/robustness.md, beside which the files go.
"""

import argparse
from pathlib import Path

from page_tables import tables_of, write_csv

from faircontext.report import write_tables
from faircontext.runs import EvaluateOptions, find_runs
from faircontext.runs.evaluate import evaluate

SETS = ("caltech101_coop_test", "pacs_photo", "office_caltech10_amazon")
METHODS = ("fcl", "rtpt", "mta", "zero", "tpt")
CORRUPTIONS = ("none", "gaussian_noise:3", "defocus_blur:3", "fog:3", "jpeg_compression:3")
ATTACKS = ("none", "pgd:1", "pgd:4")


def parts(root: Path, out: Path, model: str | None) -> dict[Path, EvaluateOptions]:
    """Return what is run, by the folder of its runs."""
    common = {"root": root, "methods": METHODS, "resume": True, "threads": 1}
    exact = {**common, "attack": ATTACKS, "limit": 12, "engine_image": "torch", "precision": "fp32"}
    asked = {
        "corruptions": {**common, "datasets": SETS, "corrupt": CORRUPTIONS, "limit": 20},
        "attacks": {**exact, "datasets": SETS},
    }
    if model is not None:
        trained = {"datasets": ("caltech101_coop_test", "clothing10_test"), "set": ("fcl.masks=100",)}
        asked["attacks-trained"] = {**exact, **trained, "backbone": model}
    return {out / name: EvaluateOptions(**options, out=out / name) for name, options in asked.items()}


def write_beside(text: str, name: str, beside: Path) -> None:
    """Write the tables of a part: of each shift, means over corruptions, and of all sets together by shift."""
    pooled = {}
    for title, lines in tables_of(text):
        if title.startswith("Top-1 accuracy by shift"):
            write_csv(beside / f"robustness-{name}.csv", {name: lines})
        elif title.startswith("Mean over"):
            write_csv(beside / f"robustness-{name}-mean.csv", {name: lines})
        else:
            pooled[title.rpartition(", ")[2]] = lines
    if pooled:
        write_csv(beside / f"robustness-{name}-pooled.csv", pooled, "shift")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--beside", type=Path, default=Path("docs/results"), help="folder of the CSV files")
    parser.add_argument("--tables", action="store_true", help="print the tables of what is there, and run nothing")
    given = parser.parse_args()
    for folder, options in parts(given.data, given.out, given.model).items():
        if not given.tables:
            evaluate(options, print, print)
        if folder.exists():
            text = write_tables(find_runs([folder]), "shift", "md", "top1", print)
            write_beside(text, folder.name, given.beside)
            print(text)


if __name__ == "__main__":
    main()
