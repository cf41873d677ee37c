"""A table as columns of records, and its writers: Markdown, LaTeX, CSV, a terminal; HTML pages from templates.

Every text is escaped for its format.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from faircontext.errors import ArgumentError, one_line
from faircontext.metrics.bootstrap import PooledMean
from faircontext.metrics.stats import Interval

Rank = Literal["", "best", "second"]


class MissingError(ArgumentError):
    """Runs lack what a table or a figure shows; the message says what is missing, and how it is made."""


@dataclass(frozen=True)
class Column:
    """What a table shows of its records.

    Attributes:
        heading: of the column.
        key: of the value in a record; one that begins with a line is of tables alone, not of CSV files.
        show: how the value is written.
        optional: what the column is left out for where all its cells are that; None for a column that always stands.
    """

    heading: str
    key: str
    show: Callable[[Any], str] = str
    optional: str | None = None


@dataclass(frozen=True)
class Cell:
    """A cell; `rank` says whether it is the best or second best of its column."""

    text: str = ""
    rank: Rank = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: what stands above it.
        columns: headings.
        rows: cells, as many as headings.
        foot: rows that say something about the columns.
        footnotes: what stands beneath, a line each.
        text_columns: how many columns, from the left, are text; the others are numbers.
        rules: indices of rows after which a line is drawn.
        bars: indices of columns after which a line is drawn.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    foot: tuple[tuple[Cell, ...], ...] = ()
    footnotes: tuple[str, ...] = ()
    text_columns: int = 1
    rules: frozenset[int] = frozenset()
    bars: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[Column],
        records: Iterable[Mapping[str, Any]],
        footnotes: Iterable[str] = (),
        text_columns: int = 1,
        by: Sequence[int] = (),
    ) -> "Table":
        """Return a table with a row per record.

        Args:
            title: what stands above it.
            columns: what is shown.
            records: of the rows.
            footnotes: what stands beneath.
            text_columns: how many columns are text.
            by: indices of columns; between rows in which one of them differs a line is drawn, and one after the text.
        """
        listed = [*records]
        texts = {column: [column.show(record[column.key]) for record in listed] for column in columns}
        columns = [one for one in columns if one.optional is None or {*texts[one]} - {one.optional}]
        rows = tuple(zip(*([Cell(text) for text in texts[column]] for column in columns), strict=True))
        ends = (index for index, (row, below) in enumerate(pairwise(rows)) if any(row[k] != below[k] for k in by))
        bars = frozenset({text_columns - 1} if by else ())
        headings = tuple(column.heading for column in columns)
        return cls(title, headings, rows, (), tuple(footnotes), text_columns, frozenset(ends), bars)


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what CSV files hold of a record.

    An interval has three entries, a pooled mean also the ends of its interval over sets; what is not known (None or
    NaN) is an empty text, and what begins with a line is left out.
    """
    columns: dict[str, Any] = {}
    for name, value in ((name, value) for name, value in record.items() if not name.startswith("_")):
        parts = {name: value}
        interval = value.images if isinstance(value, PooledMean) else value
        if isinstance(interval, Interval):
            parts = {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
        if isinstance(value, PooledMean):
            parts |= {f"{name}_sets_{end}": value.sets and getattr(value.sets, end) for end in ("low", "high")}
        columns |= {key: "" if part is None or part != part else part for key, part in parts.items()}
    return columns


def escape_markdown(text: str) -> str:
    """Return a text as Markdown (and HTML in it) shows it, fit for a cell of a table."""
    escaped = re.sub(r"([\\`*_{}\[\]|~$#])", r"\\\1", one_line(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after the end of a row, a bracket would be its argument
    "]": "{]}",
    "*": "{*}",  # likewise
    "`": r"\textasciigrave{}",
    "Δ": r"$\Delta$",
    "±": r"$\pm$",
    "†": r"\dag{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def escape_latex(text: str) -> str:
    """Return a text as LaTeX shows it, with a minus sign before numbers."""
    escaped = "".join(_LATEX.get(letter, letter) for letter in one_line(text))
    minus = re.sub(r"(?<![\w.)-])-(?=\d)", "$-$", escaped)
    return minus.replace("--", "-{}-").replace("--", "-{}-")  # two hyphens would be a dash


def to_markdown(table: Table) -> str:
    """Write a table as GitHub's Markdown; underlining, which Markdown lacks, is HTML."""
    marks = {"": "{}", "best": "**{}**", "second": "<u>{}</u>"}
    rows = [_marked(row, marks, escape_markdown) for row in (*table.rows, *table.foot)]
    heads = [escape_markdown(column) for column in table.columns]
    width = [max(3, *(len(row[index]) for row in (heads, *rows))) for index in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(size) if index < table.text_columns else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(cells, width, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    ends = ["-" * size if index < table.text_columns else "-" * (size - 1) + ":" for index, size in enumerate(width)]
    footnotes = [f"- {escape_markdown(footnote)}" for footnote in _footnotes(table)]
    head = [f"**{escape_markdown(table.title)}**", "", line(heads), line(ends)]
    return "\n".join([*head, *map(line, rows), *(["", *footnotes] if footnotes else []), ""])


def to_latex(table: Table) -> str:
    r"""Write a table as a LaTeX `table*`; it needs `\usepackage{booktabs}`."""
    marks = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}
    kinds = ["l" if index < table.text_columns else "r" for index in range(len(table.columns))]
    form = "".join(kind + ("|" if index in table.bars else "") for index, kind in enumerate(kinds))
    lines = [
        r"\begin{table*}[t]",
        r"\centering",
        r"\small",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\begin{{tabular}}{{{form}}}",
        r"\toprule",
        " & ".join(map(escape_latex, table.columns)) + r" \\",
        r"\midrule",
    ]
    for index, row in enumerate(table.rows):
        lines.append(" & ".join(_marked(row, marks, escape_latex)) + r" \\")
        if index in table.rules and index < len(table.rows) - 1:
            lines.append(r"\midrule")
    if table.foot:
        lines += [r"\midrule", *(" & ".join(_marked(row, marks, escape_latex)) + r" \\" for row in table.foot)]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if below := _footnotes(table):
        footnotes = "\\\\\n".join(map(escape_latex, below))
        lines += ["", r"\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize\raggedright {footnotes}}}"]
    return "\n".join([*lines, r"\end{table*}", ""])


def _footnotes(table: Table, best: str = "bold", second: str = "underlined") -> list[str]:
    """Return what stands beneath, with a word on how the best are marked."""
    ranked = any(cell.rank for row in table.rows for cell in row)
    return [*([f"Best {best}, second {second}, by what is printed."] if ranked else []), *table.footnotes]


def _marked(row: Sequence[Cell], marks: dict[str, str], escape: Callable[[str], str]) -> list[str]:
    return [marks[cell.rank].format(escape(cell.text)) for cell in row]


def to_terminal(table: Table, width: int | None = None) -> str:
    """Draw a table.

    Args:
        table: the table.
        width: columns of a terminal that shows bold and underlined letters; None for plain text as wide as it gets, in
            which the best is marked `*` and the second `+`.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    plain = width is None
    styles, signs = {"": "", "best": "bold", "second": "underline"}, {"": " ", "best": "*", "second": "+"}

    def text(cell: Cell) -> Text:
        shown = one_line(cell.text)
        return Text(f"{shown}{signs[cell.rank]}") if plain and ranked else Text.assemble((shown, styles[cell.rank]))

    ranked = any(cell.rank for row in table.rows for cell in row)
    title = Text(one_line(table.title), "bold")
    drawn = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for index, column in enumerate(table.columns):
        text_column = index < table.text_columns
        drawn.add_column(
            Text(one_line(column)),
            justify="left" if text_column else "right",
            overflow="fold",
            no_wrap=plain or text_column,
        )
    for index, row in enumerate(table.rows):
        end = index in table.rules or index == len(table.rows) - 1
        drawn.add_row(*map(text, row), end_section=end)
    for row in table.foot:
        drawn.add_row(*map(text, row), style="" if plain else "dim")
    stream = io.StringIO()
    colours: Literal["standard"] | None = None if plain else "standard"
    console = Console(file=stream, width=width or 10_000, color_system=colours, force_terminal=not plain)
    console.print(drawn)
    for footnote in _footnotes(table, *(("*", "+") if plain else ())):
        console.print(Text(one_line(footnote)))
    return re.sub(r"[ \t]+$", "", stream.getvalue(), flags=re.MULTILINE) + "\n"


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Write records as CSV, with the columns of all of them; nothing stands for what one lacks, or is not known."""
    stream, rows = io.StringIO(), [*map(flat, records)]
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(stream, [*columns], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: one_line(v) if isinstance(v, str) else v for key, v in row.items()})
    return stream.getvalue()


def render(template: str, **values: Any) -> str:
    """Return a template of `report/templates`, filled.

    Args:
        template: its file name.
        values: what it shows; a value that the template names and that is not given is an error.
    """
    loader, escape = PackageLoader("faircontext.report"), select_autoescape()  # in pages, not in texts
    environment = Environment(loader=loader, autoescape=escape, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(template).render(**values)
