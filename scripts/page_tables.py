"""Tables of results, which scripts print as Markdown, as CSV files beside the pages that sum them up."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def tables_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the Markdown tables of a text: the last line above each that is none of a table, and its lines."""
    title, lines = "", list[str]()
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            yield title, lines
            lines = []
        if line.strip() and not line.startswith("|"):
            title = line.strip("*# ")


def cells_of(line: str) -> list[str]:
    """Return the cells of a line of a Markdown table, without escapes."""
    cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return [re.sub(r"\\([\[\]_|])", r"\1", cell.replace("&amp;", "&").strip()) for cell in cells]


def write_csv(path: Path, parts: Mapping[str, Iterable[str]], column: str = "part") -> None:
    """Write Markdown tables of one header as one file, with a column before that says of which part a row is.

    Parts that the file has and that are not given stay.
    """
    header, rows = list[str](), dict[str, list[list[str]]]()
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            header, *found = csv.reader(file)
        for part, *cells in found:
            rows.setdefault(part, []).append(cells)
    for part, lines in parts.items():
        first, _, *rows[part] = map(cells_of, lines)
        if header not in ([], [column, *first]):
            raise SystemExit(f"{path.name}: {part} has other columns than the rest of the file")
        header = [column, *first]
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerows([header, *([part, *cells] for part, found in rows.items() for cells in found)])
