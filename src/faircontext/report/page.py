"""A page about runs: what was run, what came of it, and every image, in one HTML file that needs nothing else.

Tables and charts are written here, for each group of runs; images are data, which the page's script shows in pieces.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from faircontext import __version__
from faircontext.errors import ArgumentError
from faircontext.files import to_json
from faircontext.report.accuracy_figures import gain_row, gains_figure, reliability_figure
from faircontext.report.browser import Panel, Pictures, panels_of, pictures_of
from faircontext.report.measures import METRICS, show
from faircontext.report.paper import TableGroup, dataset_title, split_by_benchmark
from faircontext.report.render import Cell, Table, render
from faircontext.report.style import inline_svg, styled
from faircontext.report.tables import long_table, pooled_bins, pooled_comparison, pooled_table
from faircontext.runs.groups import group_runs, incomplete, method_title
from faircontext.runs.results import has_analyses
from faircontext.runs.store import Run

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
    groups = [group for group in split_by_benchmark(group_runs(answers)) if any(map(group.row, group.methods))]
    if not groups:
        raise ArgumentError("no run has answered an image; name a folder that faircontext evaluate --out has made")
    panels = [panel for number, group in enumerate(groups) for panel in panels_of(group, number)]
    pictures = pictures_of(panels, [run for run in runs if has_analyses(run)], most)
    images = len({key for panel in panels for key in panel.keys})
    notes = (*(line for group in groups for line in incomplete(group)), *_picture_notes(pictures, images))
    html = render(
        "report.html",
        groups=[_section(number, group) for number, group in enumerate(groups)],
        images=images,
        runs=len(answers),
        notes=notes,
        refused=list(_unreadable_files(answers)),
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


def _section(number: int, group: TableGroup) -> dict[str, Any]:
    """Return what the template shows of a group."""
    tables = long_table(group)
    heads = [(name, method) for name, found in group.results.items() for method in group.methods if method in found]
    places = {name: place for place, name in enumerate(group.results)}
    return {
        "title": group.title,
        "facts": _facts(group),
        "settings": _settings(group),
        "runs": _runs_table(group),
        "runs_number": len(_runs_of(group)),
        "pooled": pooled_table(group),
        "pooled_methods": [method for method in group.methods if group.row(method)],
        "sets": tables,
        "set_rows": [(places[name], method, row) for (name, method), row in zip(heads, tables.rows, strict=True)],
        "charts": [chart for method in group.methods for chart in _charts(number, group, method)],
    }


def _charts(number: int, group: TableGroup, method: str) -> list[dict[str, Any]]:
    """Return the charts of a method: its gains by data set and over all images, and its reliability."""
    title, results = method_title(method), group.row(method)
    prefix, charts = f"{number}m{group.methods.index(method)}", list[dict[str, Any]]()

    def add(kind: str, figure: Figure, caption: str) -> None:
        charts.append({"method": method, "caption": caption, "svg": inline_svg(figure, kind + prefix, caption)})

    with styled():
        if (pooled := pooled_comparison(list(results.values()))) is not None:
            found = {name: result.comparison for name, result in results.items()}
            rows = [gain_row(name, one.difference, one) for name, one in found.items() if one is not None]
            rows.sort(key=lambda row: -row["gain"])
            rows.append(gain_row("all images together", pooled.difference, pooled))
            overall = show(pooled.difference, METRICS["top1"], sign=True)
            caption = (
                f"Gain of {title} over zero-shot, by data set: {overall} points over all images, with 95% intervals."
            )
            add("g", gains_figure(f"{title} less zero-shot", group.settings.backbone, rows, True), caption)
        bases = [base for result in results.values() if (base := result.zero_shot) is not None]
        named = {"zero_shot": pooled_bins(bases), method: pooled_bins(list(results.values()))}
        curves = {name: bins for name, bins in named.items() if bins is not None}
        if curves:
            caption = (
                f"Reliability of {title}: how often predictions of a confidence are correct, all images of all data "
                "sets together, with 95% intervals. On the dashed line, confidence is what it says."
            )
            add("r", reliability_figure("Reliability", group.settings.backbone, curves), caption)
    return charts


def _data(groups: Sequence[TableGroup], panels: Sequence[Panel], pictures: Pictures) -> dict[str, Any]:
    """Return what the page's script reads."""
    return {
        "groups": [
            {
                "title": group.title,
                "sets": [dataset_title(name) for name in group.results],
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


def _runs_of(group: TableGroup) -> list[Run]:
    """Return the runs that a group's results come from, each once."""
    found = {id(r.run): r.run for results in group.results.values() for r in results.values()}
    return list(found.values())


def _minutes(run: Run) -> float:
    """Return how long a run took, all its sessions together."""
    return sum(float(session.get("seconds") or 0.0) for session in run.document.get("sessions", [])) / 60


def _facts(group: TableGroup) -> list[tuple[str, str]]:
    """Return what was run, by name; where runs differ, all that was found."""
    runs = _runs_of(group)
    configs = [run.document["config"] for run in runs]
    sessions = [session for run in runs for session in run.document.get("sessions", [])]
    weights = [str(found["weights"])[:12] for c in configs if (found := c["backbone"]).get("weights")]
    rows = [
        ("Backbone", [group.settings.backbone]),
        ("Weights", [group.settings.pretrained] if group.settings.pretrained else ["the backbone's own"]),
        ("Hash of the weights", weights),
        ("Precision", [group.settings.precision]),
        ("Device", [str(c["backbone"]["device"]) for c in configs if "device" in c["backbone"]]),
        ("Preset", [group.settings.preset]),
        ("Prompts", [f"{group.settings.prompts}: {_some(c['templates'])}" for c in configs if c.get("templates")]),
        ("Seed", [str(group.settings.seed)]),
        ("Views", [_views(c["views"]) for c in configs if "views" in c]),
        ("Versions", [_versions(c, run) for c, run in zip(configs, runs, strict=True)]),
        ("Machine", [_machine(session) for session in sessions]),
        ("Time", [f"{sum(map(_minutes, runs)):,.0f} minutes in {len(runs)} run{'s' if len(runs) != 1 else ''}"]),
    ]
    return [(name, "; ".join(found)) for name, values in rows if (found := [v for v in dict.fromkeys(values) if v])]


def _some(templates: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(f"“{template}”" for template in templates[:most])
    return shown + (f" and {len(templates) - most} more" if len(templates) > most else "")


def _views(views: Mapping[str, Any]) -> str:
    scale = " to ".join(f"{end:g}" for end in views.get("scale", ()))
    return ", ".join(
        words
        for words, there in (
            (f"{views.get('number')} of each image", "number" in views),
            (f"crops of {scale} of its area", bool(scale)),
            (f"flipped with probability {views.get('flip')}", "flip" in views),
            (f"AugMix {views.get('augmix')}", "augmix" in views),
        )
        if there
    )


def _versions(config: Mapping[str, Any], run: Run) -> str:
    found = dict(config.get("versions", {}))
    for session in run.document.get("sessions", []):
        found |= session.get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _machine(session: Mapping[str, Any]) -> str:
    words = [str(session[name]) for name in ("processor", "system") if session.get(name)]
    if session.get("processors"):
        words.insert(1, f"{session['processors']} processors")
    return ", ".join(words)


def _settings(group: TableGroup) -> list[tuple[str, str]]:
    """Return the settings of each method; where they differ between data sets, a line for each."""
    lines = []
    for method in group.methods:
        found: dict[str, list[str]] = {}
        for name, results in group.results.items():
            if method in results:
                values = results[method].settings
                text = ", ".join(f"{key} {_short(value)}" for key, value in values.items()) or "no settings"
                found.setdefault(text, []).append(dataset_title(name))
        for text, sets in found.items():
            lines.append((method_title(method), text if len(found) == 1 else f"{', '.join(sets)}: {text}"))
    return lines


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(map(str, value))
    return "none" if value is None else str(value)


def _runs_table(group: TableGroup) -> Table:
    """Return a table with a row per run."""
    rows = []
    for run in _runs_of(group):
        config, title = run.document["config"], dataset_title(run.document["config"]["dataset"]["name"])
        images = len(set(run.rows["path"].to_pylist()))
        cells = (
            title,
            config["dataset"]["split"],
            ", ".join(method_title(name) for name in config["methods"]),
            f"{images:,} of {config['dataset']['listed']:,}",
            f"{config['dataset']['classes']:,}",
            f"{_minutes(run):,.1f}",
            "yes" if run.complete else "no",
        )
        rows.append(tuple(map(Cell, cells)))
    columns = ("Data set", "Split", "Methods", "Images", "Classes", "Minutes", "Complete")
    return Table("Runs", columns, tuple(rows), words=3)


def _unreadable_files(runs: Iterable[Run]) -> Iterator[tuple[str, str, str]]:
    """Yield data set, path and reason of each file that had no answer, once for each data set."""
    seen = set()
    for run in runs:
        name = dataset_title(run.document["config"]["dataset"]["name"])
        columns = (run.rows[column].to_pylist() for column in ("path", "error"))
        for path, reason in zip(*columns, strict=True):
            if reason and (name, path) not in seen:
                seen.add((name, path))
                yield name, path, reason
