"""`faircontext analyze`: quantities of the paper's analysis on labelled data sets, run and resumed like `evaluate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from faircontext.cli.evaluate import Evaluate, evaluate
from faircontext.cli.options import parse_options
from faircontext.errors import ArgumentError, unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

    from faircontext.runs.plan import Model, Plan

__all__ = ["Analyze", "run"]


@dataclass(frozen=True, kw_only=True)
class Analyze(Evaluate):
    """Measure quantities of the paper's analysis on labelled data sets; several share an image's features.

    A run is a folder below --out, one per data set. Stopped at any moment, it goes on with --resume. Figures are drawn
    from it by faircontext figures. Exit code 0: all measured; 1: some files were refused; 2: a wrong argument.
    """

    methods: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(name="names")]
    """See: faircontext list analyses. A suffix makes a variant: margin-50, with --set margin-50.masks=50."""
    out: Path = Path("analyses")
    """Folder for the runs."""

    def load(self, methods: Sequence[str]) -> "Model":
        """Load the backbone and create the analyses, which are filed first; see `RunOptions.load`."""
        import faircontext.analysis  # noqa: F401

        return super().load(methods)

    def print_results(self, plan: "Plan", rows: "pa.Table") -> None:  # noqa: ARG002 (the findings need no more)
        """Print the means of what was found, for right and for wrong answers of zero-shot."""
        from faircontext.analysis.summary import describe

        for name in self.methods:
            for line in describe(rows, name):
                print(f"  {line}", flush=True)


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse_options(Analyze, arguments, "analyze")
    from faircontext.analysis import list_analyses

    if not options.methods:
        raise ArgumentError(f"name at least one analysis: {', '.join(list_analyses())}")
    for label in options.methods:
        if label.partition("-")[0] not in list_analyses():
            raise unknown_name("analysis", label, list_analyses())
    return evaluate(options)
