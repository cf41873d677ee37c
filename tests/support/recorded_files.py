"""What commands print and write as JSON values that can be compared: without times, hardware, versions and pictures."""

import base64
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

__all__ = ["lines_of", "read_file"]

LEFT_OUT = "left out"

OCCASION = frozenset(
    "seconds shared_seconds images_per_second started created host working_directory system processor processors "
    "hardware versions faircontext peak_memory_mb peak_device_memory_mb".split()
)
"""Entries of JSON files that say when, where and with what a command ran; they stay, their values go."""

OCCASION_FACTS = ("Time", "Machine", "Versions")
"""What the page calls such facts; the line after each holds its value."""

MAP_SIDE = 56
"""Side of the evidence maps that rows of the analysis `gallery` and the numbers of two figures hold."""

_TIME = re.compile(r"\d[\d,]*(?:\.\d+)?(?= (?:s|seconds|minutes|min|hours|images/s)\b)")
_PROGRESS = re.compile(r": [\d,]+ of [\d,]+ images, TIME images/s, TIME min left; ")
_VERSION = re.compile(r"(?<=faircontext )\d+(?:\.\w+)+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{200,}=*")


def lines_of(text: str) -> list[str]:
    """Return the lines of a text without times and the package's version.

    Lines of progress are left out: `evaluate` prints one every 30 seconds, so that how many there are depends on how
    fast a machine is.
    """
    lines = [_VERSION.sub("VERSION", _TIME.sub("TIME", line)) for line in text.splitlines()]
    return [line for line in lines if not _PROGRESS.search(line)]


def read_file(path: Path) -> Any:
    """Return what a file says; of a picture, that it is there: the numbers that it shows are in a file beside it."""
    if path.suffix == ".parquet":
        return _rows(path)
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: _summary(arrays[name]) for name in arrays.files}
    if path.suffix in (".pdf", ".png"):
        return "written"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return _plain(json.loads(text))
    return {".csv": _table, ".html": _page}.get(path.suffix, lines_of)(text)


def _rows(path: Path) -> dict[str, Any]:
    """Return a run's rows without seconds, by column; diagnostics by method, since methods have different ones."""
    table = pq.read_table(path)
    kinds = {field.name: str(field.type) for field in table.schema}
    rows = [_plain(row) for row in table.drop_columns(["seconds", "shared_seconds"]).to_pylist()]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["method"], []).append(_plain(json.loads(row.pop("diagnostics"))))
    diagnostics = {method: _by_column(rows) for method, rows in found.items()}
    return {"kinds": kinds, "columns": _by_column(rows), "diagnostics": diagnostics}


def _by_column(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of rows by their names, which files then hold once."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, "absent") for row in rows] for name in names}


def _table(text: str) -> list[str]:
    """Return the lines of a CSV file; seconds beside paths are those that images took, others are given costs."""
    rows = [*csv.reader(text.splitlines())]
    if {"path", "seconds"} <= {*rows[0]}:
        timed = {index for index, name in enumerate(rows[0]) if name in OCCASION}
        rows[1:] = [[LEFT_OUT if index in timed else cell for index, cell in enumerate(row)] for row in rows[1:]]
    return [",".join(row) for row in rows]


def _page(text: str) -> dict[str, Any]:
    """Return the text of an HTML page, and the data of its script."""
    reader = _PageReader()
    reader.feed(text)
    data = json.loads(reader.data or "{}")
    for panel in data.get("panels", ()):
        for found in panel["methods"].values():  # thousandths as integers; as proportions they have a tolerance
            found["confidence"] = found["confidence"] and [value and value / 1000 for value in found["confidence"]]
    lines: list[str] = []
    for line in _without_minutes(reader.lines):
        lines.append(LEFT_OUT if lines and lines[-1] in OCCASION_FACTS else line)
    return {"data": _plain(data), "text": lines_of("\n".join(lines))}


def _without_minutes(lines: Sequence[str]) -> list[str]:
    """Return the lines of a page without the column of tables that says how long runs took."""
    found, place = [], None
    for line in lines:
        cells = line.split(" | ")
        if "Minutes" in cells:
            place = cells.index("Minutes")
        elif len(cells) == 1:
            place = None
        elif place is not None:
            cells[place] = LEFT_OUT
        found.append(" | ".join(cells))
    return found


class _PageReader(HTMLParser):
    """Reads the lines of a page, one for each paragraph or row of a table; scripts, styles and drawings are none.

    Attributes:
        lines: the text; cells have bars between them.
        data: what stands in the element with the id `data`.
    """

    _HIDDEN = ("script", "style", "svg")
    _INLINE = ("a", "b", "code", "em", "i", "small", "span", "strong", "sub", "sup", "td", "th", "u")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.data = ""
        self._words: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag in self._HIDDEN:
            self._hidden.append("data" if ("id", "data") in attrs else tag)
        elif tag in ("td", "th") and self._words:
            self._words.append("|")
        elif tag not in self._INLINE:
            self._end_line()

    def handle_endtag(self, tag: str) -> None:
        if tag in self._HIDDEN:
            self._hidden.pop()
        elif tag not in self._INLINE:
            self._end_line()

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._words += data.split()
        elif self._hidden == ["data"]:
            self.data += data

    def _end_line(self) -> None:
        self.lines += [" ".join(self._words)] if self._words else []
        self._words = []


def _plain(value: Any, key: str = "") -> Any:
    """Return a JSON value without what tells occasions apart, and with a few numbers for each picture or map."""
    if key in OCCASION:
        return LEFT_OUT
    if isinstance(value, Mapping):
        return {name: _plain(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        is_map = len(value) == MAP_SIDE and all(isinstance(row, list) and len(row) == MAP_SIDE for row in value)
        return _summary(np.array(value)) if is_map else [_plain(inner, key) for inner in value]
    if isinstance(value, str) and _BASE64.fullmatch(value):
        return _picture(base64.b64decode(value))
    return value


def _picture(content: bytes) -> Any:
    """Return a summary of a JPEG file, or of evidence maps in half precision."""
    if not content.startswith(b"\xff\xd8"):
        return _summary(np.frombuffer(content, "<f2").reshape(-1, MAP_SIDE, MAP_SIDE))
    with Image.open(io.BytesIO(content)) as picture:
        return _summary(np.asarray(picture).transpose(2, 0, 1) / 255.0)


def _summary(array: np.ndarray) -> Any:
    """Return a small array as it is, and of a large one its shape and the means of its halves, or of its quarters.

    A picture or map that is turned or moved has other means.
    """
    if array.size <= 64:
        return array.tolist()
    axes = (-2, -1) if array.ndim > 1 else (-1,)
    blocks = [array.astype(np.float64)]
    for axis in axes:
        blocks = [half for block in blocks for half in np.array_split(block, 2, axis=axis)]
    return {"shape": [*array.shape], "means": [block.mean(axes).tolist() for block in blocks]}
