"""A method on all images of a group's data sets together, beside zero-shot on the same images."""

from collections.abc import Iterator, Sequence

import numpy as np

from faircontext.metrics.calibration import Reliability, reliability
from faircontext.metrics.stats import Interval, discordant, holm, mcnemar_exact, paired_bootstrap, wilson_interval
from faircontext.report.charts import Gain
from faircontext.report.columns import MISSING, show
from faircontext.report.groups import Group, method_title, set_title
from faircontext.report.measures import METRICS, gain
from faircontext.report.results import Result
from faircontext.report.sheets import Cell, Sheet

__all__ = ["gains_by_set", "pooled_bins", "pooled_gain", "pooled_table"]

_TOP1 = METRICS["top1"]


def pooled_gain(results: Sequence[Result]) -> Interval | None:
    """Return a method's accuracy less zero-shot's over all images, each weighing the same; None for zero-shot."""
    pairs = [(result.correct, base.correct) for result in results if (base := result.zero_shot) is not None]
    if not pairs:
        return None
    own, theirs = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return paired_bootstrap(own, theirs)


def pooled_bins(results: Sequence[Result]) -> Reliability | None:
    """Return the reliability of all answers; None where there are none, or not their probabilities."""
    if not results or any(result.answers_only for result in results):
        return None
    return reliability(
        np.concatenate([result.confidence for result in results]),
        np.concatenate([result.correct for result in results]),
    )


def gains_by_set(group: Group, method: str) -> list[Gain]:
    """Return a method's gain on each data set; nothing for zero-shot."""
    found = [(name, result, gain([result], _TOP1)) for name, result in group.row(method).items()]
    return [Gain(set_title(name), result.number, value) for name, result, value in found if value is not None]


def pooled_table(group: Group) -> Sheet:
    """Return a table with a row per method: all images of all data sets, each weighing the same.

    p is McNemar's exact test, by itself and by Holm's method over the methods.
    """
    rows = {method: list(group.row(method).values()) for method in group.methods}
    rows = {method: results for method, results in rows.items() if results}
    changed = {
        method: discordant(np.concatenate([r.correct for r in results]), np.concatenate([b.correct for b in bases]))
        for method, results in rows.items()
        if (bases := [r.zero_shot for r in results if r.zero_shot is not None])
    }
    raw = {method: mcnemar_exact(*found) for method, found in changed.items()}
    adjusted = dict(zip(raw, holm(list(raw.values())), strict=True)) if raw else {}
    cells = []
    for method, results in rows.items():
        tests = []
        if method in changed:
            gained, lost = changed[method]
            difference = show(pooled_gain(results), _TOP1, sign=True)
            tests = [difference, f"+{gained:,} -{lost:,}", f"{raw[method]:.2g}", f"{adjusted[method]:.2g}"]
        cells.append(
            tuple(map(Cell, [method_title(method), *_accuracy(results), *(tests or [MISSING] * 4), *_means(results)]))
        )
    return Sheet(
        title="All data sets together",
        columns=(
            *("Method", "Sets", "n", "Top-1 [95%]", "Δ [95%]", "Gained/lost", "p", "p (Holm)"),
            *("Mean Δ of sets [95%]", "ECE"),
        ),
        rows=tuple(cells),
        notes=(
            "Percent. Every image weighs the same, but in the mean over data sets, where each set does. Top-1 has "
            "Wilson's interval. Δ is over zero-shot on the same images, with a paired bootstrap interval; gained and "
            "lost are images; p is McNemar's exact test, then by Holm's method over the methods. ECE has 20 bins.",
            *_apart(list(rows.values())),
        ),
    )


def _apart(rows: Sequence[Sequence[Result]]) -> Iterator[str]:
    """Yield that methods answered different images, where they did."""
    images = [[(result.config["dataset"]["name"], result.positions.tolist()) for result in row] for row in rows]
    if any(other != images[0] for other in images):
        yield "Methods answered different images: compare them by Δ, which is on each one's own images."


def _accuracy(results: Sequence[Result]) -> list[str]:
    number = sum(result.number for result in results)
    right = sum(int(result.correct.sum()) for result in results)
    return [f"{len(results)}", f"{number:,}", show(Interval(right / number, *wilson_interval(right, number)), _TOP1)]


def _means(results: Sequence[Result]) -> list[str]:
    bins = pooled_bins(results)
    return [
        show(gain(results, _TOP1), _TOP1, sign=True),
        MISSING if bins is None else METRICS["ece"].show(bins.expected_calibration_error),
    ]
