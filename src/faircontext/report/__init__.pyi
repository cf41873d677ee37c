from .benchmarks import (
    METRICS as METRICS,
    Published as Published,
    StreamBlock as StreamBlock,
    list_reported as list_reported,
    published_accuracies as published_accuracies,
    read_reported as read_reported,
    reported_accuracies as reported_accuracies,
    split_by_benchmark as split_by_benchmark,
    stream_blocks as stream_blocks,
)
from .evidence_figures import EvidenceRow as EvidenceRow, evidence_figure as evidence_figure
from .explain import (
    Explanation as Explanation,
    evidence_row as evidence_row,
    explain_image as explain_image,
    explain_in_words as explain_in_words,
    write_explanation as write_explanation,
)
from .figures import FIGURES as FIGURES, draw_figures as draw_figures, load_groups as load_groups
from .images import overlay as overlay, overlay_weights as overlay_weights
from .page import Page as Page, build_page as build_page
from .render import (
    Table as Table,
    to_csv as to_csv,
    to_latex as to_latex,
    to_markdown as to_markdown,
    to_terminal as to_terminal,
)
from .style import FigureResult as FigureResult, save_figure as save_figure
from .tables import (
    compare_with_paper as compare_with_paper,
    long_records as long_records,
    long_table as long_table,
    paper_records as paper_records,
    paper_table as paper_table,
    pooled_table as pooled_table,
    stream_tables as stream_tables,
    write_tables as write_tables,
)
