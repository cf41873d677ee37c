"""Figure (c) of the paper: what unique evidence contributes to a view (EUEC), against the entropy of the view.

The views of one image are not independent, so intervals come from drawing images again, each with all of its views.
"""

import numpy as np
from jaxtyping import Float

from faircontext.metrics.correlation import clustered_correlation
from faircontext.metrics.stats import Interval
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.sources import AnalysisRow, Material, needs_analysis
from faircontext.report.plots.style import BLACK, BLUE, COLUMN, VERMILION, new_figure

__all__ = ["draw_entropy"]

_RESAMPLES = 400
_BINS = 8


def _views(row: AnalysisRow) -> Float[np.ndarray, "views 3"]:
    columns = [row.diagnostics[name] for name in ("views", "entropy", "euec")]
    return np.array(list(zip(*columns, strict=True)), np.float64).reshape(-1, 3)


def draw_entropy(material: Material) -> Drawing | str:
    """Draw a point per view, the means of equally many views from low to high entropy, and the correlations."""
    found = material.analysis("entropy", _views)
    points = [np.column_stack([np.full(len(views), image), views]) for image, (_, views) in enumerate(found)]
    table = np.concatenate(points) if points else np.zeros((0, 4))
    kept = table[np.isfinite(table).all(1)]
    if not len(kept):
        return needs_analysis("entropy")
    images, entropy, euec = kept[:, 0].astype(np.int64), kept[:, 2], kept[:, 3]
    pearson = clustered_correlation(entropy, euec, images, "pearson", resamples=_RESAMPLES)
    spearman = clustered_correlation(entropy, euec, images, "spearman", resamples=_RESAMPLES)
    figure = new_figure(COLUMN, 2.75, "Unique evidence against entropy", material.title)
    axis = figure.subplots()
    right = np.array([row.answer == row.label for row, _ in found])[images]
    for chosen, colour, text in ((right, BLUE, "zero-shot right"), (~right, VERMILION, "zero-shot wrong")):
        axis.plot(entropy[chosen], euec[chosen], "o", color=colour, alpha=0.35, markersize=2.2, markeredgewidth=0)
        views = f"{text} ({int(chosen.sum()):,} views of {len(np.unique(images[chosen])):,} images)"
        axis.plot([], [], "o", color=colour, markersize=3, label=views)
    if len(kept) >= 2 * _BINS:
        parts = np.array_split(np.argsort(entropy, kind="stable"), _BINS)
        means = np.array([[entropy[part].mean(), euec[part].mean()] for part in parts])
        axis.plot(*means.T, "-", color=BLACK, linewidth=1, label="mean of each eighth of the views")
    axis.set_xlabel("entropy of the view (nats)")
    axis.set_ylabel("EUEC (cosine)")
    lines = [f"Pearson {_show(pearson)}", f"Spearman {_show(spearman)}"]
    axis.set_title("\n".join(lines), fontsize=7, loc="left", linespacing=1.3)
    axis.grid()
    figure.legend(loc="outside lower left", handletextpad=0.3, borderaxespad=0.2)
    dropped = len(table) - len(kept)
    notes = (f"{dropped} views without finite values are left out",) if dropped else ()
    rows = [
        {
            "dataset": found[image][0].dataset,
            "path": found[image][0].path,
            "view": int(view),
            "entropy": float(bits),
            "euec": float(value),
            "zero_shot_right": bool(found[image][0].answer == found[image][0].label),
        }
        for image, (view, bits, value) in zip(images.tolist(), kept[:, 1:], strict=True)
    ]
    return Drawing(figure, rows, (*notes, *lines))


def _show(found: Interval | None) -> str:
    if found is None:
        return "correlation is not defined: a quantity does not vary"
    if not np.isfinite(found.low):
        return f"r = {found.value:+.2f} (one image: no interval)"
    return f"r = {found.value:+.2f} (95%: {found.low:+.2f} to {found.high:+.2f})"
