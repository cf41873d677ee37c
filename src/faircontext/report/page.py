"""A page about runs: what was run, what came of it, and every image, in one HTML file that needs nothing else.

Tables and charts are written here, for each group of runs; images are data, which the page's script shows in pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from faircontext import __version__
from faircontext.bench.records import to_json
from faircontext.bench.store import Run
from faircontext.errors import ArgumentError
from faircontext.report.browse import Panel, Pictures, panels_of, pictures_of
from faircontext.report.charts import Curve, Gain, gains_chart, inline_svg, reliability_chart
from faircontext.report.columns import show
from faircontext.report.described import facts, refused_files, runs_of, runs_table, settings
from faircontext.report.groups import Group, group_runs, method_title, remarks, set_title
from faircontext.report.html import render
from faircontext.report.measures import METRICS
from faircontext.report.pooled import gains_by_set, pooled_bins, pooled_gain, pooled_table
from faircontext.report.results import has_analyses
from faircontext.report.tables import long_table

__all__ = ["EVIDENCE_HINT", "Page", "build_page"]

EVIDENCE_HINT = (
    "No evidence pictures of these images: run faircontext analyze gallery on the same data set with the same "
    "backbone, and name the folder of its runs as well."
)


@dataclass(frozen=True)
class Page:
    """A page, and what is to be said about it.

    Attributes:
        html: its text.
        images: how many images can be browsed.
        pictures: how many of them have a picture.
        notes: a line each.
    """

    html: str
    images: int
    pictures: int
    notes: tuple[str, ...]


def build_page(runs: Sequence[Run], most: int = 1000) -> Page:
    """Write the page of runs.

    Args:
        runs: of methods; and of the analysis `gallery`, whose evidence is shown beside the images that it is about.
        most: how many images get pictures.

    Raises:
        ArgumentError: no run has answered an image, or runs contradict each other; see `group_runs`.
    """
    answers = [run for run in runs if not has_analyses(run)]
    groups = [group for group in group_runs(answers) if any(map(group.row, group.methods))]
    if not groups:
        raise ArgumentError("no run has answered an image; name a folder that faircontext evaluate --out has made")
    panels = [panel for number, group in enumerate(groups) for panel in panels_of(group, number)]
    pictures = pictures_of(panels, [run for run in runs if has_analyses(run)], most)
    images = len({key for panel in panels for key in panel.keys})
    notes = (*remarks(groups), *_picture_notes(pictures, images))
    html = render(
        "report.html",
        groups=[_section(number, group) for number, group in enumerate(groups)],
        images=images,
        runs=len(answers),
        notes=notes,
        refused=list(refused_files(answers)),
        data=_embedded(_data(groups, panels, pictures)),
        version=__version__,
    )
    # A name may hold what is no text: bytes of a file name, or half of a pair of code units.
    return Page(html.encode("utf-8", "backslashreplace").decode(), images, len(pictures.thumbnails), notes)


def _picture_notes(pictures: Pictures, images: int) -> list[str]:
    notes = []
    if pictures.missing:
        notes.append(f"{pictures.missing:,} of {images:,} images are no longer where they were, and have no picture")
    if pictures.left_out:
        notes.append(f"{pictures.left_out:,} of {images:,} images have no picture, so that the page stays small")
    return notes


def _section(number: int, group: Group) -> dict[str, Any]:
    """Return what the template shows of a group."""
    tables = long_table(group)
    heads = [(name, method) for name, found in group.results.items() for method in group.methods if method in found]
    places = {name: place for place, name in enumerate(group.results)}
    return {
        "title": group.title,
        "facts": facts(group),
        "settings": settings(group),
        "runs": runs_table(group),
        "runs_number": len(runs_of(group)),
        "pooled": pooled_table(group),
        "pooled_methods": [method for method in group.methods if group.row(method)],
        "sets": tables,
        "set_rows": [(places[name], method, row) for (name, method), row in zip(heads, tables.rows, strict=True)],
        "charts": [chart for method in group.methods for chart in _charts(number, group, method)],
    }


def _charts(number: int, group: Group, method: str) -> list[dict[str, Any]]:
    """Return the charts of a method."""
    title, results = method_title(method), list(group.row(method).values())
    charts: list[dict[str, Any]] = []
    gains, total = gains_by_set(group, method), pooled_gain(results)
    if total is not None:
        pooled = Gain("all images together", sum(gain.number for gain in gains), total)
        overall = show(total, METRICS["top1"], sign=True)
        caption = (
            f"Gain of {title} over zero-shot, by data set (number of images): {overall} points over all images. Blue: "
            "the interval lies above zero; orange: below."
        )
        svg = inline_svg(gains_chart(gains, pooled), f"g{number}m{group.methods.index(method)}", caption)
        charts.append({"method": method, "caption": caption, "svg": svg})
    bases = [base for result in results if (base := result.zero_shot) is not None]
    named = [("Zero-shot", pooled_bins(bases)), (title, pooled_bins(results))]
    curves = [Curve(name, bins) for name, bins in named if bins is not None]
    if curves:
        caption = (
            f"Reliability of {title}: how often answers of a confidence are right, all images of all data sets "
            "together, with 95% intervals. On the dotted line, confidence is what it says."
        )
        svg = inline_svg(reliability_chart(curves), f"r{number}m{group.methods.index(method)}", caption)
        charts.append({"method": method, "caption": caption, "svg": svg})
    return charts


def _data(groups: Sequence[Group], panels: Sequence[Panel], pictures: Pictures) -> dict[str, Any]:
    """Return what the page's script reads."""
    return {
        "groups": [
            {
                "title": group.title,
                "sets": [set_title(name) for name in group.results],
                "methods": [[name, method_title(name)] for name in group.methods],
            }
            for group in groups
        ],
        "panels": [panel.data for panel in panels],
        "thumbnails": pictures.thumbnails,
        "evidence": pictures.evidence,
        "hint": EVIDENCE_HINT,
    }


def _embedded(data: dict[str, Any]) -> str:
    """Return JSON that a `script` element can hold: nothing in it opens or closes an element or a comment."""
    return to_json(data, indent=None, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
