"""What an analysis has found, in lines: means with intervals, for right and for wrong answers of zero-shot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.analysis.decomposition import reconstruction_bound
from faircontext.metrics.correlation import Kind, clustered_correlation
from faircontext.metrics.stats import Interval, bootstrap_mean
from faircontext.types import read_diagnostics

__all__ = ["Finding", "describe", "findings", "view_correlation"]


@dataclass(frozen=True)
class Finding:
    """What an analysis found for one image.

    Attributes:
        dataset: its data set.
        path: the image.
        right: whether zero-shot's answer is right.
        values: the diagnostics.
    """

    dataset: str
    path: str
    right: bool
    values: Mapping[str, Any]


def findings(rows: pa.Table, label: str) -> list[Finding]:
    """Return what was found for the images of a run that have an answer.

    Args:
        rows: of the run.
        label: what the analysis is called there.
    """
    kept = rows.filter(pc.and_(pc.equal(rows["method"], label), pc.equal(rows["error"], "")))
    columns = ("dataset", "path", "label_index", "index", "diagnostics")
    return [
        Finding(row["dataset"], row["path"], row["index"] == row["label_index"], read_diagnostics(row["diagnostics"]))
        for row in kept.select(columns).to_pylist()
    ]


def view_correlation(found: Sequence[Finding]) -> dict[Kind, Interval]:
    """Return the correlations of entropy and EUEC over views, those that are defined; see `clustered_correlation`.

    Args:
        found: of the analysis `entropy`.
    """
    images = [np.array([image.values["entropy"], image.values["euec"]]) for image in found if "euec" in image.values]
    images = [image[:, np.isfinite(image).all(0)] for image in images]
    if not sum(image.shape[1] for image in images):
        return {}
    views = np.concatenate(images, axis=1)
    clusters = np.repeat(np.arange(len(images)), [image.shape[1] for image in images])
    kinds: tuple[Kind, ...] = get_args(Kind)
    values = {kind: clustered_correlation(views[0], views[1], clusters, kind) for kind in kinds}
    return {kind: value for kind, value in values.items() if value is not None}


def describe(rows: pa.Table, label: str) -> list[str]:
    """Return the lines of one analysis.

    Args:
        rows: of a run.
        label: what the analysis is called there.
    """
    found = findings(rows, label)
    lines = [f"{label}: {len(found)} images, {sum(image.right for image in found)} of them right"]
    names = dict.fromkeys(name for image in found for name, value in image.values.items() if isinstance(value, float))
    means = {}
    for name in names:
        parts = []
        for title, chosen in (("all", (True, False)), ("right", (True,)), ("wrong", (False,))):
            values = np.array([image.values[name] for image in found if image.right in chosen and name in image.values])
            values = values[np.isfinite(values)]  # in half precision a model may answer with what is no number
            if len(values):
                mean = bootstrap_mean(values)
                means[name, title] = mean.value
                parts.append(f"{title} {mean.value:.4f} ({mean.low:.4f} to {mean.high:.4f}, n = {len(values)})")
        lines.append(f"  {name}: {'; '.join(parts) or 'no finite value'}")
    lines += _convergence(found)
    if ("cos_composed", "all") in means:
        cosines = [means[name, "all"] for name in ("cos_common", "cos_unique_1", "cos_unique_2")]
        lines.append(
            f"  cos_composed: at most {reconstruction_bound(*cosines):.4f} with these three means; the paper reports "
            f"0.8705, where its three means allow at most {reconstruction_bound(0.7283, 0.6390, 0.6516):.4f}"
        )
    views = sum(len(image.values.get("euec", ())) for image in found)
    for kind, value in view_correlation(found).items():
        known = not math.isnan(value.low)
        interval = f"({value.low:+.3f} to {value.high:+.3f})" if known else "(no interval: too few images)"
        lines.append(f"  entropy and EUEC over {views} views: {kind} {value.value:+.3f} {interval}")
    return lines


def _convergence(found: Sequence[Finding]) -> list[str]:
    """Return a line for each number of masks at which maps were compared with those of all masks."""
    values: dict[float, list[float]] = {}
    for image in found:
        compared = zip(image.values.get("masks", ()), image.values.get("convergence", ()), strict=True)
        for number, value in list(compared)[:-1]:  # the last compares all masks with themselves
            values.setdefault(number, []).append(value)
    lines = []
    for number, correlations in sorted(values.items()):
        mean = bootstrap_mean(np.array(correlations))
        shown = f"{mean.value:.4f} ({mean.low:.4f} to {mean.high:.4f}, n = {len(correlations)})"
        lines.append(f"  convergence with {number:.0f} masks: {shown}")
    return lines
