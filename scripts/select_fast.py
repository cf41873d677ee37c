"""Apply the registered rule for a preset `fast` to the runs of the experiment lite0-fast, and count encoded images.

Usage: python scripts/select_fast.py ablations/lite0-fast [--base base] [--candidates fast-80 fast-85 fast-90]

The first candidate that encodes at least 60% fewer images than the base, and whose accuracy minus the base's has its
95% interval (paired bootstrap) within one point, is chosen: see docs/results/study.md. Padding is not counted.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch

from faircontext.methods import FCLVariants
from faircontext.metrics.bootstrap import paired_bootstrap
from faircontext.metrics.scores import Comparison
from faircontext.runs.store import load_runs

SAVED = 0.6
"""Least share of the base's encoded images that a candidate saves."""

MARGIN = 0.01
"""How far the interval of the difference may reach, either way."""


@dataclass(frozen=True)
class Answers:
    """What one variant did on images, in one order for all variants."""

    correct: np.ndarray
    changed: np.ndarray
    calibrated: np.ndarray
    encoded: np.ndarray


def pairs_of(settings: Mapping[str, Any], classes: int) -> int:
    """Return how many pairs of candidates are encoded where an image is calibrated."""
    ranking = torch.arange(min(settings["k"], classes))
    return FCLVariants(pairs=settings["pairs"]).choose_pairs(ranking).shape[1]


def encoded(row: Mapping[str, Any], settings: Mapping[str, Any], views: int, classes: int) -> int:
    """Return how many images one answer encoded: all views, and masks and pairs where the image was calibrated."""
    masks = json.loads(row["diagnostics"]).get("evidence_masks")
    return views if masks is None else views + int(masks) + pairs_of(settings, classes)


def read(folder: Path, labels: Sequence[str]) -> dict[str, Answers]:
    """Read what each variant did on the images that all of them have answered."""
    found: dict[str, dict[tuple[str, str], tuple[bool, int, bool, int]]] = {label: {} for label in labels}
    for run in load_runs(folder):
        config = run.document["config"]
        dataset = config["dataset"]
        for label in labels:
            settings = config["methods"].get(f"fcl-{label}")
            if settings is None:
                continue
            rows = run.rows.filter(
                pc.and_(pc.equal(run.rows["method"], f"fcl-{label}"), pc.equal(run.rows["error"], ""))
            )
            for row in rows.to_pylist():
                count = encoded(row, settings, config["views"]["count"], dataset["classes"])
                key = dataset["name"], row["path"]
                calibrated = count > config["views"]["count"]
                found[label][key] = row["index"] == row["label_index"], row["index"], calibrated, count
    shared = sorted(set.intersection(*(set(own) for own in found.values())))
    first = found[labels[0]]
    return {
        label: Answers(
            np.array([own[key][0] for key in shared], bool),
            np.array([own[key][1] != first[key][1] for key in shared], bool),
            np.array([own[key][2] for key in shared], bool),
            np.array([own[key][3] for key in shared]),
        )
        for label, own in found.items()
    }


def passes(own: Answers, base: Answers) -> bool:
    """Tell whether a candidate meets both conditions of the rule."""
    change = paired_bootstrap(own.correct, base.correct)  # as it was registered
    saved = 1 - own.encoded.mean() / base.encoded.mean()
    return bool(saved >= SAVED and change.low > -MARGIN and change.high < MARGIN)


def chosen(answers: Mapping[str, Answers], base: str, candidates: Sequence[str]) -> str | None:
    """Return the first candidate that meets the rule, or None."""
    return next((name for name in candidates if passes(answers[name], answers[base])), None)


def table(answers: Mapping[str, Answers], base: str) -> Iterator[str]:
    """Yield a Markdown table of what each variant encoded, and how its answers differ from the base's."""
    yield "| variant | n | images encoded | fewer | calibrated | other answers | top-1 over base (95%) | alone right |"
    yield "|---|---|---|---|---|---|---|---|"
    reference = answers[base]
    for label, own in answers.items():
        compared = Comparison.of(own.correct, reference.correct)
        change = compared.difference
        fewer = 1 - own.encoded.mean() / reference.encoded.mean()
        cells = [
            label,
            str(len(own.correct)),
            f"{own.encoded.mean():.1f}",
            f"{100 * fewer:.1f}%",
            f"{100 * own.calibrated.mean():.0f}%",
            str(int(own.changed.sum())),
            f"{100 * change.value:+.2f} ({100 * change.low:+.2f} to {100 * change.high:+.2f})",
            f"{compared.gained} / {compared.lost}",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table and what the rule says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base", default="base")
    parser.add_argument("--candidates", nargs="+", default=["fast-80", "fast-85", "fast-90"])
    parser.add_argument("--others", nargs="*", default=["explore", "safe"])
    options = parser.parse_args()
    answers = read(options.folder, [options.base, *options.others, *options.candidates])
    for line in table(answers, options.base):
        print(line)
    print(f"\nchosen by the rule: {chosen(answers, options.base, options.candidates)}")


if __name__ == "__main__":
    main()
