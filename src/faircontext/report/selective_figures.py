"""Risk over coverage: how wrong a method is on the images that it is surest of, and the area under that curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from matplotlib.figure import Figure

from faircontext.metrics.bootstrap import percentile_interval
from faircontext.metrics.selective import RiskCoverage, aurc, aurc_draws, risk_coverage
from faircontext.metrics.stats import Interval
from faircontext.report.style import COLUMN, FigureResult, colours_of, interval_columns, new_figure
from faircontext.runs.groups import RunGroup, method_title
from faircontext.runs.results import Result
from faircontext.runs.sidecars import Sidecars

__all__ = ["Selective", "draw_risk_coverage", "pooled_selective", "risk_coverage_figure"]


@dataclass(frozen=True)
class Selective:
    """A method's predictions by their confidence: the curve, and the area under it with its 95% bootstrap interval."""

    curve: RiskCoverage
    area: Interval


def pooled_selective(results: Sequence[Result]) -> Selective | None:
    """Return risk over coverage of all predictions; None where there are none, or not their probabilities."""
    known = [r for r in results if r.n and not r.predictions_only and np.isfinite(r.confidence).all()]
    if not known:
        return None
    score, correct = (np.concatenate([getattr(r, name) for r in known]) for name in ("confidence", "correct"))
    area = percentile_interval(aurc(score, correct), aurc_draws(score, correct))
    return Selective(risk_coverage(score, correct), area)


def draw_risk_coverage(group: RunGroup, _: Sidecars) -> FigureResult | str:
    """Draw a curve per method, the images of all data sets together, by the probability of the prediction."""
    pooled = {method: pooled_selective([*group.row(method).values()]) for method in group.methods}
    if not (curves := {method: one for method, one in pooled.items() if one is not None}):
        return "needs runs with confidences: faircontext evaluate --datasets NAMES --methods fcl --root DATA"
    title = "Risk and coverage" + (f" ({len(group.results)} sets together)" if len(group.results) > 1 else "")
    rows = [row for method, one in curves.items() for row in _rows(method, one)]
    return FigureResult(risk_coverage_figure(title, group.title, curves), rows)


def _shown(curve: RiskCoverage) -> Int[np.ndarray, " points"]:
    """Return the points at, or next after, each percent of the images."""
    wanted = np.ceil(np.arange(1, 101) / 100 * curve.n)
    return np.unique(np.searchsorted(curve.answered, wanted))


def _rows(method: str, one: Selective) -> list[dict[str, Any]]:
    rows = []
    for index in _shown(one.curve):
        point = one.curve.at(int(index))
        shares = {"coverage": point.coverage.value, "answered": point.risk.n, "threshold": point.threshold}
        risk = interval_columns("risk", Interval(point.risk.value, *point.risk.interval))
        rows.append(
            {"method": method, "n": one.curve.n, **shares, **risk, **interval_columns("aurc", one.area, "aurc_")}
        )
    return rows


def risk_coverage_figure(title: str, subtitle: str, curves: Mapping[str, Selective]) -> Figure:
    """Draw risk over coverage, with pointwise Wilson intervals; the legend has the areas with theirs."""
    figure = new_figure(COLUMN, 2.6 + 0.13 * len(curves), title, subtitle)
    axis = figure.subplots()
    for (method, one), colour in zip(curves.items(), colours_of([*curves]), strict=True):
        points = [one.curve.at(int(index)) for index in _shown(one.curve)]
        coverage, risk = ([100 * getattr(p, name).value for p in points] for name in ("coverage", "risk"))
        low, high = ([100 * p.risk.interval[end] for p in points] for end in (0, 1))
        area = [100 * end for end in (one.area.value, one.area.low, one.area.high)]
        label = f"{method_title(method)}: AURC {area[0]:.1f} ({area[1]:.1f} to {area[2]:.1f}), n = {one.curve.n:,}"
        axis.fill_between(coverage, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(coverage, risk, color=colour, linewidth=1.1, label=label)
    axis.set(xlim=(0, 100), ylim=(0, None))
    axis.set_xlabel("coverage: images answered (%), surest first")
    axis.set_ylabel("risk: of these, wrong (%), 95%")
    axis.grid(axis="y")
    figure.legend(loc="outside lower left", fontsize=6.5, frameon=False)
    return figure
