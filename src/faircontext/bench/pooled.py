"""Variants compared with a reference, paired by image and pooled over data sets: every image weighs the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from faircontext.metrics.stats import Accuracy, discordant, mcnemar_exact, paired_bootstrap
from faircontext.runs.store import Run

__all__ = ["Answers", "compare_pooled", "read_answers"]

Key = tuple[str, str]
"""Data set and image."""


@dataclass(frozen=True)
class Answers:
    """What one method answered on the images of several runs; images of refused files are left out.

    Attributes:
        correct: whether the answer is right, by image.
        zero_shot: whether zero-shot's is, on the same images.
        settings: of the method, in full.
        fallbacks: how many answers came with less than the full procedure.
    """

    correct: Mapping[Key, bool]
    zero_shot: Mapping[Key, bool]
    settings: Mapping[str, Any]
    fallbacks: int


def read_answers(runs: Sequence[Run], label: str) -> Answers:
    """Return a method's answers in some runs, by what the method is called in their rows."""
    correct: dict[Key, bool] = {}
    zero_shot: dict[Key, bool] = {}
    settings: Mapping[str, Any] = {}
    fallbacks = 0
    columns = ("dataset", "path", "label_index", "index", "zero_shot_index", "fallback")
    for run in runs:
        if label not in run.document["config"]["methods"]:
            continue
        settings = run.document["config"]["methods"][label]
        rows = run.rows.filter(pc.and_(pc.equal(run.rows["method"], label), pc.equal(run.rows["error"], "")))
        for row in rows.select(columns).to_pylist():
            key = row["dataset"], row["path"]
            correct[key] = row["index"] == row["label_index"]
            zero_shot[key] = row["zero_shot_index"] == row["label_index"]
            fallbacks += bool(row["fallback"])
    return Answers(correct, zero_shot, settings, fallbacks)


def compare_pooled(own: Mapping[Key, bool], other: Mapping[Key, bool]) -> dict[str, Any]:
    """Return accuracy, paired difference and exact test on the images that both have, all together and by data set.

    Args:
        own: whether a method's answer is right, by data set and image.
        other: the same of what it is compared with.

    Returns:
        `n`, `accuracy` with its 95% Wilson interval (`low`, `high`), `difference` with its paired bootstrap interval
        (`difference_low`, `difference_high`), `gained` and `lost` (images that one of both alone has right), `p_value`
        of McNemar's exact test, and `datasets`: for each its `n`, `correct`, `other_correct`, `gained`, `lost`. All
        numbers but the counts are None without an image.
    """
    keys = sorted(own.keys() & other.keys())
    if not keys:
        return {"n": 0, **dict.fromkeys(_NUMBERS), "gained": 0, "lost": 0, "p_value": None, "datasets": {}}
    first = np.array([own[key] for key in keys])
    second = np.array([other[key] for key in keys])
    gained, lost = discordant(first, second)
    accuracy, change = Accuracy(int(first.sum()), len(keys)), paired_bootstrap(first, second)
    low, high = accuracy.interval
    numbers = (accuracy.value, low, high, change.value, change.low, change.high)
    return {
        "n": len(keys),
        **dict(zip(_NUMBERS, numbers, strict=True)),
        "gained": gained,
        "lost": lost,
        "p_value": mcnemar_exact(gained, lost),
        "datasets": _by_dataset(keys, first, second),
    }


_NUMBERS = ("accuracy", "low", "high", "difference", "difference_low", "difference_high")


def _by_dataset(keys: Sequence[Key], first: np.ndarray, second: np.ndarray) -> dict[str, dict[str, int]]:
    names = np.array([name for name, _ in keys])
    found = {}
    for name in dict.fromkeys(names.tolist()):
        own, other = first[names == name], second[names == name]
        gained, lost = discordant(own, other)
        found[name] = {
            "n": len(own),
            "correct": int(own.sum()),
            "other_correct": int(other.sum()),
            "gained": gained,
            "lost": lost,
        }
    return found
