"""What people look at: tables, figures and pages of runs, and explanations of single images.

The names below are the public interface. They are imported on first use: reading runs needs NumPy and Arrow, while
explaining an image needs a model.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faircontext.report.csv_tables import compare_with_paper, long_records, paper_records, write_tables
    from faircontext.report.demo import EvidenceRow, evidence_figure, evidence_row
    from faircontext.report.explain import Explanation, explain_image, explain_in_words, write_explanation
    from faircontext.report.figures import FIGURES, draw_figures, load_groups
    from faircontext.report.page import Page, build_page
    from faircontext.report.paper import METRICS, list_reported, read_reported, reported_accuracies, split_by_benchmark
    from faircontext.report.pictures import overlay, overlay_weights
    from faircontext.report.render import Table, to_csv, to_latex, to_markdown, to_terminal
    from faircontext.report.style import FigureResult, save_figure
    from faircontext.report.tables import long_table, paper_table, pooled_table

_NAMES = {
    "csv_tables": ("write_tables", "compare_with_paper", "paper_records", "long_records"),
    "tables": ("paper_table", "long_table", "pooled_table"),
    "render": ("Table", "to_markdown", "to_latex", "to_csv", "to_terminal"),
    "paper": ("METRICS", "list_reported", "read_reported", "reported_accuracies", "split_by_benchmark"),
    "figures": ("FIGURES", "load_groups", "draw_figures"),
    "style": ("FigureResult", "save_figure"),
    "pictures": ("overlay", "overlay_weights"),
    "page": ("Page", "build_page"),
    "explain": ("Explanation", "explain_image", "explain_in_words", "write_explanation"),
    "demo": ("EvidenceRow", "evidence_row", "evidence_figure"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "write_tables",
    "compare_with_paper",
    "paper_records",
    "long_records",
    "paper_table",
    "long_table",
    "pooled_table",
    "Table",
    "to_markdown",
    "to_latex",
    "to_csv",
    "to_terminal",
    "METRICS",
    "list_reported",
    "read_reported",
    "reported_accuracies",
    "split_by_benchmark",
    "FIGURES",
    "load_groups",
    "draw_figures",
    "FigureResult",
    "save_figure",
    "overlay",
    "overlay_weights",
    "Page",
    "build_page",
    "Explanation",
    "explain_image",
    "explain_in_words",
    "write_explanation",
    "EvidenceRow",
    "evidence_row",
    "evidence_figure",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'faircontext.report' has no attribute {name!r}")
    return getattr(import_module(f"faircontext.report.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(__all__)
