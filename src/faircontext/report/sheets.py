"""A table as cells and notes, written as Markdown, LaTeX or for a terminal; every text is escaped for its format."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from faircontext.errors import one_line

__all__ = ["Cell", "Rank", "Sheet", "escape_latex", "escape_markdown", "to_latex", "to_markdown", "to_terminal"]

Rank = Literal["", "best", "second"]


@dataclass(frozen=True)
class Cell:
    """A cell; `rank` says whether it is the best or second best of its column."""

    text: str = ""
    rank: Rank = ""


@dataclass(frozen=True)
class Sheet:
    """A table.

    Attributes:
        title: what stands above it.
        columns: headings.
        rows: cells, as many as headings.
        foot: rows that say something about the columns.
        notes: what stands beneath, a line each.
        words: how many columns, from the left, are words; the others are numbers.
        rules: numbers of rows after which a line is drawn.
        bars: numbers of columns after which a line is drawn.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    foot: tuple[tuple[Cell, ...], ...] = ()
    notes: tuple[str, ...] = ()
    words: int = 1
    rules: frozenset[int] = frozenset()
    bars: frozenset[int] = frozenset()


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
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def escape_latex(text: str) -> str:
    """Return a text as LaTeX shows it, with a minus sign before numbers."""
    escaped = "".join(_LATEX.get(letter, letter) for letter in one_line(text))
    minus = re.sub(r"(?<![\w.)-])-(?=\d)", "$-$", escaped)
    return minus.replace("--", "-{}-").replace("--", "-{}-")  # two hyphens would be a dash


def to_markdown(sheet: Sheet) -> str:
    """Write a table as GitHub's Markdown; underlining, which Markdown lacks, is HTML."""
    marks = {"": "{}", "best": "**{}**", "second": "<u>{}</u>"}
    rows = [_marked(row, marks, escape_markdown) for row in (*sheet.rows, *sheet.foot)]
    heads = [escape_markdown(column) for column in sheet.columns]
    width = [max(3, *(len(row[place]) for row in (heads, *rows))) for place in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(size) if place < sheet.words else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(cells, width, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    ends = ["-" * size if place < sheet.words else "-" * (size - 1) + ":" for place, size in enumerate(width)]
    notes = [f"- {escape_markdown(note)}" for note in _notes(sheet)]
    head = [f"**{escape_markdown(sheet.title)}**", "", line(heads), line(ends)]
    return "\n".join([*head, *map(line, rows), *(["", *notes] if notes else []), ""])


def to_latex(sheet: Sheet) -> str:
    r"""Write a table as a LaTeX `table*`; it needs `\usepackage{booktabs}`."""
    marks = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}
    kinds = ["l" if place < sheet.words else "r" for place in range(len(sheet.columns))]
    form = "".join(kind + ("|" if place in sheet.bars else "") for place, kind in enumerate(kinds))
    lines = [
        r"\begin{table*}[t]",
        r"\centering",
        r"\small",
        rf"\caption{{{escape_latex(sheet.title)}}}",
        rf"\begin{{tabular}}{{{form}}}",
        r"\toprule",
        " & ".join(map(escape_latex, sheet.columns)) + r" \\",
        r"\midrule",
    ]
    for place, row in enumerate(sheet.rows):
        lines.append(" & ".join(_marked(row, marks, escape_latex)) + r" \\")
        if place in sheet.rules and place < len(sheet.rows) - 1:
            lines.append(r"\midrule")
    if sheet.foot:
        lines += [r"\midrule", *(" & ".join(_marked(row, marks, escape_latex)) + r" \\" for row in sheet.foot)]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if notes_below := _notes(sheet):
        notes = "\\\\\n".join(map(escape_latex, notes_below))
        lines += ["", r"\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize\raggedright {notes}}}"]
    return "\n".join([*lines, r"\end{table*}", ""])


def _notes(sheet: Sheet, best: str = "bold", second: str = "underlined") -> list[str]:
    """Return what stands beneath, with a word on how the best are marked."""
    ranked = any(cell.rank for row in sheet.rows for cell in row)
    return [*([f"Best {best}, second {second}, by what is printed."] if ranked else []), *sheet.notes]


def _marked(row: Sequence[Cell], marks: dict[str, str], escape: Callable[[str], str]) -> list[str]:
    return [marks[cell.rank].format(escape(cell.text)) for cell in row]


def to_terminal(sheet: Sheet, width: int | None = None) -> str:
    """Draw a table.

    Args:
        sheet: the table.
        width: columns of a terminal that shows bold and underlined letters; None for plain text as wide as it gets, in
            which the best is marked `*` and the second `+`.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = width is None
    styles, signs = {"": "", "best": "bold", "second": "underline"}, {"": " ", "best": "*", "second": "+"}

    def text(cell: Cell) -> Text:
        shown = one_line(cell.text)
        return Text(f"{shown}{signs[cell.rank]}") if plain and ranked else Text.assemble((shown, styles[cell.rank]))

    ranked = any(cell.rank for row in sheet.rows for cell in row)
    title = Text(one_line(sheet.title), "bold")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for place, column in enumerate(sheet.columns):
        word = place < sheet.words
        table.add_column(
            Text(one_line(column)), justify="left" if word else "right", overflow="fold", no_wrap=plain or word
        )
    for place, row in enumerate(sheet.rows):
        end = place in sheet.rules or place == len(sheet.rows) - 1
        table.add_row(*map(text, row), end_section=end)
    for row in sheet.foot:
        table.add_row(*map(text, row), style="" if plain else "dim")
    stream = io.StringIO()
    colours: Literal["standard"] | None = None if plain else "standard"
    console = Console(file=stream, width=width or 10_000, color_system=colours, force_terminal=not plain)
    console.print(table)
    for note in _notes(sheet, *(("*", "+") if plain else ())):
        console.print(Text(one_line(note)))
    return re.sub(r"[ \t]+$", "", stream.getvalue(), flags=re.MULTILINE) + "\n"
