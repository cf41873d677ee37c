"""What an analysis has found, in lines: means with intervals, for right and for wrong answers of zero-shot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.analysis.decomposition import reconstruction_bound
from faircontext.analysis.pointing import cells_of
from faircontext.metrics.correlation import Kind, clustered_correlation
from faircontext.metrics.stats import Interval, bootstrap_mean
from faircontext.types import read_diagnostics

__all__ = ["Finding", "Pointed", "describe", "findings", "pointed", "view_correlation"]


@dataclass(frozen=True)
class Finding:
    """What an analysis found for one image.

    Attributes:
        dataset: its data set.
        path: the image.
        right: whether zero-shot's answer is right.
        candidates: classes that evidence was measured for.
        values: the diagnostics.
    """

    dataset: str
    path: str
    right: bool
    candidates: tuple[int, ...]
    values: Mapping[str, Any]


def findings(rows: pa.Table, label: str) -> list[Finding]:
    """Return what was found for the images of a run that have an answer.

    Args:
        rows: of the run.
        label: what the analysis is called there.
    """
    kept = rows.filter(pc.and_(pc.equal(rows["method"], label), pc.equal(rows["error"], "")))
    columns = ("dataset", "path", "label_index", "index", "candidates", "diagnostics")
    return [
        Finding(
            row["dataset"],
            row["path"],
            row["index"] == row["label_index"],
            tuple(row["candidates"]),
            read_diagnostics(row["diagnostics"]),
        )
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
    lines += _convergence(found) + _localisation(found)
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


@dataclass(frozen=True)
class Pointed:
    """Where the evidence maps of a collage's classes are high, on average over the classes that it shows.

    Attributes:
        cells: how many of its cells show a candidate, and so have a map.
        means: over these of `auc`, `pointing` and `energy`, each in the class's own cell.
    """

    cells: int
    means: Mapping[str, float]


def pointed(image: Finding) -> Pointed | None:
    """Compare what the analysis `pointing` found with where the classes are, which a collage's file name says.

    Args:
        image: what was found for it.

    Returns:
        None where the file's name is not that of a collage with as many cells as were measured, or no class that it
        shows is a candidate.
    """
    cells, count = cells_of(image.path), int(image.values.get("side", 0)) ** 2
    if cells is None or cells.size != count:
        return None
    own = [
        image.candidates.index(label) * count + place
        for place, label in enumerate(cells.ravel().tolist())
        if label in image.candidates
    ]
    if not own:
        return None
    names = ("auc", "pointing", "energy")
    return Pointed(len(own), {name: float(np.mean([image.values[name][at] for at in own])) for name in names})


def _localisation(found: Sequence[Finding]) -> list[str]:
    """Return lines on how well maps point at the cells of collages; intervals draw collages again, not cells."""
    measured = [image for image in found if "side" in image.values]
    known = [(image, truth) for image in measured if (truth := pointed(image))]
    lines = []
    if len(known) < len(measured):
        lines.append(
            f"  {len(measured) - len(known)} of {len(measured)} images are left out: their names are not those of "
            f"collages of {measured[0].values['side']} x {measured[0].values['side']} cells (--set side=3 for 3 x 3; "
            "faircontext data collage makes them)"
        )
    if not known:
        return lines
    cells, shown = sum(truth.cells for _, truth in known), sum(int(image.values["side"]) ** 2 for image, _ in known)
    by_cell = float(np.mean([image.values["side"] ** -2.0 for image, _ in known]))
    for name, chance in (("auc", 0.5), ("pointing", by_cell), ("energy", by_cell)):
        mean = bootstrap_mean(np.array([truth.means[name] for _, truth in known]))
        lines.append(
            f"  {name} in the class's own cell: {mean.value:.4f} ({mean.low:.4f} to {mean.high:.4f}, n = {len(known)} "
            f"collages, {cells} cells; by chance {chance:.4f})"
        )
    if cells < shown:
        lines.append(f"  {shown - cells} cells are left out: their classes are no candidates; raise k")
    return lines
