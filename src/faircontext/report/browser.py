"""The images of a page, as data that its script shows: columns in place of objects, each text and picture once.

A panel is one run: its images, the classes that occur, and by method an answer, a confidence, votes, a fallback and an
outcome for each image. Refused files are not among the images.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image
from faircontext.report.paper import TableGroup, dataset_title
from faircontext.report.pictures import StoredKey, choose, draw_stored, find_stored, stored_key, thumbnails
from faircontext.runs.store import Run

__all__ = ["OUTCOMES", "Panel", "Pictures", "class_titles", "outcomes_of", "panels_of", "pictures_of"]

OUTCOMES = {"fixed": "0", "broke": "1", "right": "2", "wrong": "3"}
"""What a method did to zero-shot's answer on an image, and its sign in the data; `.` where there is no answer."""

ImageKey = tuple[str, str]
"""Folder of the data set, and path in it."""


@dataclass(frozen=True)
class Panel:
    """A run's images as they are browsed.

    Attributes:
        run: where they come from.
        keys: of the images.
        data: what the page's script reads; pictures are added by `pictures_of`.
    """

    run: Run
    keys: Sequence[ImageKey]
    data: dict[str, Any]

    @property
    def changed(self) -> set[ImageKey]:
        """Images that a method fixed or broke."""
        signs = {OUTCOMES["fixed"], OUTCOMES["broke"]}
        marks = [found["outcome"] for found in self.data["methods"].values()]
        return {key for key, *row in zip(self.keys, *marks, strict=True) if not signs.isdisjoint(row)}


@dataclass(frozen=True)
class Pictures:
    """Pictures of a page.

    Attributes:
        thumbnails: JPEG files in base64.
        evidence: names of two candidates with pictures of their evidence.
        missing: how many files are gone or cannot be read any more.
        left_out: how many images get no picture, as there would be too many.
    """

    thumbnails: list[str]
    evidence: list[dict[str, Any]]
    missing: int
    left_out: int


def panels_of(group: TableGroup, number: int) -> Iterator[Panel]:
    """Yield the panels of a group, by data set.

    Args:
        group: the results.
        number: the group's, in the page.
    """
    for place, (name, results) in enumerate(group.results.items()):
        taken: dict[int, tuple[Run, list[str]]] = {}
        for method in (method for method in group.methods if method in results):
            run = results[method].run
            taken.setdefault(id(run), (run, []))[1].append(method)
        for run, methods in taken.values():
            yield _panel(run, methods, {"group": number, "set": place, "title": dataset_title(name)})


def _panel(run: Run, methods: Sequence[str], head: dict[str, Any]) -> Panel:
    rows = run.rows.filter(pc.equal(run.rows["error"], ""))
    rows = rows.filter(pc.is_in(rows["method"], pa.array(methods, pa.string())))
    table = {name: rows[name].to_pylist() for name in _COLUMNS}
    places = {path: place for place, path in enumerate(dict.fromkeys(table["path"]))}
    classes = sorted({index for name in _CLASSES for index in table[name] if index is not None})
    titles, local = class_titles(run), {index: place for place, index in enumerate(classes)}
    labels, first = [-1] * len(places), [-1] * len(places)
    for path, label, zero_shot in zip(table["path"], table["label_index"], table["zero_shot_index"], strict=True):
        labels[places[path]], first[places[path]] = local.get(label, -1), local.get(zero_shot, -1)
    data = head | {
        "names": [titles.get(index, f"class {index}") for index in classes],
        "paths": [*places],
        "labels": labels,
        "zero": first,
        "methods": {method: _answers(method, table, places, local) for method in methods},
    }
    folder = str(run.document.get("folder", ""))
    return Panel(run, [(folder, path) for path in places], data)


_CLASSES = ("label_index", "zero_shot_index", "index")
_COLUMNS = ("path", "method", "confidence", "votes", "fallback", *_CLASSES)


def _answers(method: str, table: dict[str, list[Any]], places: dict[str, int], local: dict[int, int]) -> dict[str, Any]:
    """Return a method's columns over the images of a panel."""
    number = len(places)
    found: dict[str, Any] = {"answers": [-1] * number, "confidence": [None] * number, "votes": [None] * number}
    outcome, fallbacks, fallback = ["."] * number, [""], [0] * number
    for row, name in enumerate(table["method"]):
        if name != method or table["index"][row] is None:
            continue
        place, index = places[table["path"][row]], table["index"][row]
        found["answers"][place] = local[index]
        if table["confidence"][row] is not None:
            found["confidence"][place] = round(1000 * table["confidence"][row])
        found["votes"][place] = table["votes"][row]
        outcome[place] = OUTCOMES[outcomes_of(index, table["zero_shot_index"][row], table["label_index"][row])]
        if table["fallback"][row]:
            if table["fallback"][row] not in fallbacks:
                fallbacks.append(table["fallback"][row])
            fallback[place] = fallbacks.index(table["fallback"][row])
    for column in ("confidence", "votes"):  # a column of nothing is not written
        if not any(value is not None for value in found[column]):
            found[column] = None
    found["fallback"] = {"names": fallbacks, "places": fallback} if len(fallbacks) > 1 else None
    return found | {"outcome": "".join(outcome)}


def outcomes_of(answer: int, zero_shot: int, label: int) -> str:
    """Return what a method did to zero-shot's answer, one of `OUTCOMES`; classes are known by index."""
    if answer == label:
        return "right" if zero_shot == label else "fixed"
    return "broke" if zero_shot == label else "wrong"


def class_titles(run: Run) -> dict[int, str]:
    """Return what a run's classes are called, by index; where two have one name, the index tells them apart."""
    names = dict(enumerate(run.document["config"].get("names", ())))
    if not names:  # a run without them still has those that occur
        for column, title in (("label_index", "label"), ("zero_shot_index", "zero_shot"), ("index", "prediction")):
            pairs = zip(run.rows[column].to_pylist(), run.rows[title].to_pylist(), strict=True)
            names |= {index: name for index, name in pairs if index is not None}
    counts = Counter(names.values())
    return {index: name if counts[name] == 1 else f"{name} (class {index})" for index, name in names.items()}


def pictures_of(panels: Sequence[Panel], analyses: Sequence[Run], most: int) -> Pictures:
    """Read and draw the pictures of panels, and note in their data which image has which.

    Args:
        panels: the images; what several panels share is read once.
        analyses: runs that may have kept evidence.
        most: how many images get pictures.
    """
    stored = find_stored(analyses)
    readers: dict[ImageKey, Callable[[Path], DecodedImage]] = {}
    first: set[ImageKey] = set()
    for panel in panels:
        readers |= dict.fromkeys(panel.keys, _reader(panel.run))
        first |= panel.changed | {key for key in panel.keys if stored_key(panel.run, key[1]) in stored}
    chosen = choose([*readers], first, most)
    # A run that does not say where its images are has none that could be read.
    files = [(Path(folder) / path if folder else None, readers[folder, path]) for folder, path in chosen]
    found = {key: text for key, text in zip(chosen, thumbnails(files), strict=True) if text is not None}
    numbers = dict.fromkeys(chosen, -2) | {key: number for number, key in enumerate(found)}
    evidence = _draw(panels, stored, {*chosen})
    for panel in panels:
        panel.data["pictures"] = [numbers.get(key, -1) for key in panel.keys]
    return Pictures([*found.values()], evidence, len(chosen) - len(found), len(readers) - len(chosen))


def _draw(
    panels: Sequence[Panel], stored: Mapping[StoredKey, tuple[Run, dict[str, Any]]], chosen: Collection[ImageKey]
) -> list[dict[str, Any]]:
    """Draw the evidence of images that get pictures, each once, and note its number beside each place in a panel."""
    numbers: dict[StoredKey, int] = {}
    drawn: list[dict[str, Any]] = []
    for panel in panels:
        panel.data["evidence"] = {}
        for place, key in enumerate(panel.keys):
            stored_as = stored_key(panel.run, key[1])
            if key not in chosen or stored_as not in stored:
                continue
            if stored_as not in numbers:
                numbers[stored_as] = len(drawn)
                names, pictures = draw_stored(*stored[stored_as])
                drawn.append({"names": names, "pictures": pictures})
            panel.data["evidence"][place] = numbers[stored_as]
    return drawn


def _reader(run: Run) -> Callable[[Path], DecodedImage]:
    """Return what reads a run's images as the run did."""
    config = run.document["config"]
    return partial(read_image, exif=config.get("exif", True), max_pixels=config.get("max_pixels", MAX_PIXELS))
