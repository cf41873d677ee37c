"""Runs with known answers that tests of the report read: pictured ones, of accuracies, of analyses, of an ablation."""

import json
from pathlib import Path

import numpy as np

from made_analyses import analysis_run, gallery_row
from made_pages import write_images, write_pictured
from made_runs import write_run

RIGHT = {"zero_shot": range(10), "fcl": range(2, 15)}
"""Of 20 images FCL breaks the first two and fixes five; eight stay right and five wrong."""


def pictured(folder: Path) -> None:
    """Write a run of 20 images that lie beside it."""
    write_pictured(folder / "runs" / "mine", write_images(folder / "images", 20), "mine", RIGHT, 20)


def accuracy_runs(folder: Path) -> None:
    """Write two sets of 20 images; FCL gains 2 and 4 over exploration alone, which is in runs of its own."""
    settings = {"fcl": {"masks": 400, "k": 10}, "fcl-few": {"masks": 50, "k": 10}, "fcl-100": {"masks": 100, "k": 10}}
    for number, name in enumerate(("dtd", "eurosat")):
        right = {"zero_shot": range(8), "fcl": range(12 + 2 * number), "fcl-few": range(10), "fcl-100": range(11)}
        write_run(folder / "fcl" / name, name, right, settings=settings)
        explore = {"fcl-explore": {"masks": 400, "k": 10, "calibrate": False}}
        write_run(folder / "explore" / name, name, {"zero_shot": range(8), "fcl-explore": range(10)}, settings=explore)


def analyses(folder: Path) -> None:
    """Write every analysis that a figure shows, of eight images."""
    rng = np.random.default_rng(0)
    analysis_run(folder / "evidence", "evidence", [{"ecec": 0.2 + 0.1 * (n % 2)} for n in range(8)])
    entropy = [rng.random(5).tolist() for _ in range(8)]
    views = [{"views": [0.0, 1.0, 2.0, 3.0, 4.0], "entropy": e, "euec": [0.3 - 0.1 * v for v in e]} for e in entropy]
    analysis_run(folder / "entropy", "entropy", views)
    parts = {"cos_common": 0.7, "cos_unique_1": 0.6, "cos_unique_2": 0.65, "cos_composed": 0.8}
    analysis_run(folder / "decomposition", "decomposition", [parts] * 8)
    analysis_run(folder / "gallery", "gallery", [gallery_row(n) for n in range(8)])


def experiment(folder: Path, views: int, masks: int) -> Path:
    """Write what `ablate` leaves: passes with zero-shot in each, a cell with other prompts, and the results beside."""
    name, same = folder.name, {"views": {"count": views}}
    settings = {"fcl-base": {"masks": masks}, "fcl-explore": {"masks": masks, "calibrate": False}}
    base = {"zero_shot": range(8), "fcl-base": range(12), "fcl-explore": range(9)}
    write_run(folder / "single" / "001" / "dtd", "dtd", base, settings=settings, **same)
    write_run(folder / "single" / "002" / "dtd", "dtd", {"zero_shot": range(8), "fcl-late": range(11)}, **same)
    other = {"zero_shot": range(7), "fcl-seven": range(13)}
    write_run(folder / "generic7" / "001" / "dtd", "dtd", other, prompts="generic7", **same)
    variant = {"label": "base", "n": 20, "accuracy": 0.6, "low": 0.4, "high": 0.8, "difference": 0.0}
    none = dict.fromkeys(("accuracy", "low", "high", "difference"), None)
    document = {"name": name, "reference": "base", "variants": [variant, {"label": "gone", "n": 0, **none}]}
    (folder / f"{name}.results.json").write_text(json.dumps(document))
    return folder
