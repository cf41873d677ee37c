"""Measure how well scores tell images of known classes from others: a fifth of the classes of each set is left out.

    python scripts/study_unknown.py DATA OUT.json
    python scripts/study_unknown.py --summary OUT.json

What is compared, and how it is judged, stands in docs/results/unknown.md. Images are answered one by one; a run that is
stopped goes on with those that are not in the file yet.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faircontext import Episode, FairContextError, LabelSpace, create_backbone, create_method
from faircontext.datasets import Dataset, load_dataset
from faircontext.files import to_json, write_whole
from faircontext.imageio import load_image
from faircontext.metrics import auroc, auroc_draws
from faircontext.metrics.bootstrap import percentile_interval
from faircontext.runs.orders import choose
from faircontext.runs.unknown import SCORES, Abstention

SETS = ("caltech101_coop_test", "office_caltech10_amazon", "dtd10_all", "clothing10_test")
IMAGES = 80
"""Of each set, of known and unknown classes together, drawn by the seed."""

SEED = 0


def left_out(classes: int) -> set[int]:
    """Return a fifth of the classes, drawn by the seed."""
    return {*np.random.default_rng([SEED, classes]).permutation(classes)[: round(classes / 5)].tolist()}


def measure(root: Path, out: Path) -> None:
    """Answer the images of all sets, and write the scores of each as they come."""
    backbone = create_backbone("lite0")
    methods = {name: create_method(name, preset="recommended", backbone=backbone) for name in ("zero_shot", "fcl")}
    recipe, rule = backbone.view_recipe("recommended"), Abstention("probability", {}, backbone.logit_scale)
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"] if out.exists() else []
    done = {(row["set"], row["image"]) for row in rows}
    for dataset in (load_dataset(name, root) for name in SETS):
        unknown = left_out(len(dataset.names))
        labels = LabelSpace([name for index, name in enumerate(dataset.names) if index not in unknown], backbone)
        for sample in images_of(dataset):
            if (dataset.name, sample.key) in done:
                continue
            try:
                episode = Episode(load_image(sample.path), labels, recipe, SEED)
            except FairContextError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            predictions = {name: methods[name](episode) for name in ("fcl", "zero_shot")}
            reference = predictions["zero_shot"]
            row = {"set": dataset.name, "image": sample.key, "known": sample.label not in unknown}
            for name, prediction in predictions.items():
                row[name] = rule.scores_of(prediction, reference)
                row[name]["correct"] = labels.names[prediction.index] == dataset.names[sample.label]
            rows.append(row)
            write_whole(out, to_json({"rows": rows}) + "\n")


def images_of(dataset: Dataset) -> list[Any]:
    """Return the images of a set that are measured."""
    return [dataset.samples[int(position)] for position in choose(len(dataset.samples), SEED, IMAGES)]


def summarise(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return lines of a table: AUROC by set and score, and FCL less zero-shot, paired by image."""
    lines, draws = [], {score: list[np.ndarray]() for score in SCORES}
    values = {score: list[float]() for score in SCORES}
    for seed, name in enumerate(SETS):  # another seed for each: their resamples are independent
        own = [row for row in rows if row["set"] == name]
        for score in SCORES:
            pairs = {
                m: tuple(np.array([r[m][score] for r in own if r["known"] == k]) for k in (True, False))
                for m in ("zero_shot", "fcl")
            }
            known, unknown = map(len, pairs["fcl"])
            one, two = (auroc(*pairs[method], seed=seed) for method in ("zero_shot", "fcl"))
            change = auroc_draws(*pairs["fcl"], seed=seed) - auroc_draws(*pairs["zero_shot"], seed=seed)
            draws[score].append(change)
            values[score].append(two.value - one.value)
            shown = [f"{v.value:.3f} ({v.low:.3f} to {v.high:.3f})" for v in (one, two)]
            lines.append(
                f"| {name} | {score} | {known} + {unknown} | {shown[0]} | {shown[1]} | "
                f"{_with(values[score][-1], change)} |"
            )
    for score in SCORES:
        mean = _with(float(np.mean(values[score])), np.mean(draws[score], 0))
        lines.append(f"| mean of {len(SETS)} sets | {score} | {len(rows)} | | | {mean} |")
    return lines


def _with(value: float, draws: np.ndarray) -> str:
    interval = percentile_interval(value, draws)
    return f"{value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


if __name__ == "__main__":
    if sys.argv[1] == "--summary":
        print("\n".join(summarise(json.loads(Path(sys.argv[2]).read_text())["rows"])))
    else:
        measure(Path(sys.argv[1]), Path(sys.argv[2]))
