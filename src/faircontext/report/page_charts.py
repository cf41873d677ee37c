"""Charts of a page: of each method its gains, its reliability, and its risk over coverage, beside zero-shot."""

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from faircontext.report.accuracy_figures import gain_row, gains_figure, reliability_figure
from faircontext.report.paper import TableGroup
from faircontext.report.selective_figures import pooled_selective, risk_coverage_figure
from faircontext.report.stream_figures import position_curves, positions_figure
from faircontext.report.stream_tables import StreamBlock
from faircontext.report.style import inline_svg, styled
from faircontext.report.table_metrics import TOP1
from faircontext.report.tables import pooled_bins, pooled_comparison
from faircontext.runs.groups import method_title

__all__ = ["charts_of", "position_charts"]


def charts_of(index: int, group: TableGroup, method: str) -> list[dict[str, Any]]:
    """Return the charts of a method: its gains by data set and over all images, its reliability, its risk.

    Args:
        index: of the group on the page.
        group: of the results.
        method: what it is called.
    """
    suffix = f"{index}m{group.methods.index(method)}"
    with styled():
        return [
            {"method": method, "caption": caption, "svg": inline_svg(figure, kind + suffix, caption)}
            for kind, figure, caption in _figures(group, method)
        ]


def position_charts(index: int, block: StreamBlock) -> Iterator[dict[str, str]]:
    """Yield the accuracy by position of methods with a memory, if their streams are long enough.

    Args:
        index: of the block on the page.
        block: the results.
    """
    curves, left = position_curves(block.runs, block.datasets)
    if curves:
        caption = (
            "Accuracy by position in the stream, all data sets together: the mean over orders, and below it the gain "
            "over zero-shot on the same images, paired, with 95% intervals. Early images meet an empty memory."
        )
        caption += "".join(f" {line}." for line in left)
        with styled():
            figure = positions_figure(block.runs.settings.backbone, curves)
            yield {"caption": caption, "svg": inline_svg(figure, f"p{index}", caption)}


def _figures(group: TableGroup, method: str) -> Iterator[tuple[str, Figure, str]]:
    title, results, backbone = method_title(method), group.row(method), group.settings.backbone
    comparisons = {name: result.comparison for name, result in results.items()}
    if (pooled := pooled_comparison(comparisons.values())) is not None:
        rows = [gain_row(name, one.difference, one) for name, one in comparisons.items() if one is not None]
        rows.sort(key=lambda row: -row["gain"])
        if several := len(rows) > 1:
            rows.append(gain_row("all images together", pooled.difference, pooled))
        gain = TOP1.show(pooled.difference, sign=True)
        caption = f"Gain of {title} over zero-shot, by data set: {gain} points over all images, with 95% intervals."
        yield "g", gains_figure(f"{title} less zero-shot", backbone, rows, several), caption
    bases = [base for result in results.values() if (base := result.zero_shot) is not None]
    both = {"zero_shot": bases, method: list(results.values())}
    if curves := {name: bins for name, own in both.items() if (bins := pooled_bins(own)) is not None}:
        yield (
            "r",
            reliability_figure("Reliability", backbone, curves),
            f"Reliability of {title}: how often predictions of a confidence are correct, all images of all data "
            "sets together, with 95% intervals. On the dashed line, confidence is what it says.",
        )
    if risks := {name: one for name, own in both.items() if (one := pooled_selective(own)) is not None}:
        yield (
            "c",
            risk_coverage_figure("Risk and coverage", backbone, risks),
            f"Risk of {title}: the share of errors among the predictions that it is surest of, all images of all data "
            "sets together, with 95% intervals. faircontext threshold picks a point of the curve.",
        )
