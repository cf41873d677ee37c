from .csv_tables import (
    compare_with_paper as compare_with_paper,
    long_records as long_records,
    paper_records as paper_records,
    write_tables as write_tables,
)
from .demo import EvidenceRow as EvidenceRow, evidence_figure as evidence_figure, evidence_row as evidence_row
from .explain import explain_image as explain_image, write_explanation as write_explanation
from .explanation import Explanation as Explanation, explain_in_words as explain_in_words
from .figures import FIGURES as FIGURES, draw_figures as draw_figures, load_groups as load_groups
from .page import Page as Page, build_page as build_page
from .paper import (
    list_reported as list_reported,
    read_reported as read_reported,
    reported_accuracies as reported_accuracies,
    split_by_benchmark as split_by_benchmark,
)
from .pictures import overlay as overlay, overlay_weights as overlay_weights
from .published import Published as Published, published_accuracies as published_accuracies
from .render import (
    Table as Table,
    to_csv as to_csv,
    to_latex as to_latex,
    to_markdown as to_markdown,
    to_terminal as to_terminal,
)
from .stream_tables import (
    StreamBlock as StreamBlock,
    stream_blocks as stream_blocks,
    stream_tables as stream_tables,
)
from .style import FigureResult as FigureResult, save_figure as save_figure
from .table_metrics import METRICS as METRICS
from .tables import long_table as long_table, paper_table as paper_table, pooled_table as pooled_table
