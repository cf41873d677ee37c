"""All figures by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from faircontext.errors import unknown_name
from faircontext.report.plots.ablations import draw_ablations
from faircontext.report.plots.decomposition import draw_decomposition
from faircontext.report.plots.drawing import Drawing
from faircontext.report.plots.ecec import draw_ecec
from faircontext.report.plots.entropy import draw_entropy
from faircontext.report.plots.gain import draw_gain
from faircontext.report.plots.gallery import draw_gallery
from faircontext.report.plots.masks import draw_masks
from faircontext.report.plots.pareto import draw_pareto
from faircontext.report.plots.reliability import draw_reliability
from faircontext.report.plots.scores import draw_scores
from faircontext.report.plots.sources import Material

__all__ = ["PLOTS", "Plot", "choose"]


@dataclass(frozen=True)
class Plot:
    """A figure that can be drawn.

    Attributes:
        draw: draws it, or says what is missing and how it is made.
        shared: whether it does not depend on the settings of runs, so that it is drawn once for all.
    """

    draw: Callable[[Material], Drawing | str]
    shared: bool = False


PLOTS: Mapping[str, Plot] = {
    "scores": Plot(draw_scores),
    "ecec": Plot(draw_ecec),
    "entropy": Plot(draw_entropy),
    "calibration-gain": Plot(draw_gain),
    "masks": Plot(draw_masks),
    "pareto": Plot(draw_pareto),
    "reliability": Plot(draw_reliability),
    "gallery": Plot(draw_gallery),
    "decomposition": Plot(draw_decomposition),
    "ablations": Plot(draw_ablations, shared=True),
}
"""In the order in which they are drawn: the paper's first."""


def choose(names: Sequence[str]) -> dict[str, Plot]:
    """Return figures by name, all of them where no name is given.

    Raises:
        ArgumentError: there is no figure of a name.
    """
    for name in names:
        if name not in PLOTS:
            raise unknown_name("figure", name, PLOTS)
    return {name: plot for name, plot in PLOTS.items() if not names or name in names}
