"""A page about runs: what was run, what came of it, and every image, in one HTML file that needs nothing else.

Tables and charts are written here, for each group of runs. Images are data, which the page's script shows in pieces:
columns in place of objects, each text and picture once. A panel is one run: its images, the classes that occur, and by
method a prediction, a confidence, votes, a fallback and an outcome for each image; unreadable files are not among them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow.compute as pc
from matplotlib.figure import Figure

from faircontext import __version__
from faircontext.errors import ArgumentError, and_more, counted
from faircontext.files import to_json
from faircontext.metrics.scores import compare_sets
from faircontext.report.benchmarks import (
    TOP1,
    StreamBlock,
    TableGroup,
    dataset_title,
    split_by_benchmark,
    stream_blocks,
)
from faircontext.report.figures import gains_figure, positions_figure, reliability_figure, risk_coverage_figure
from faircontext.report.images import RunImages, add_thumbnails, image_place
from faircontext.report.render import Column, MissingError, Table, render
from faircontext.report.style import inline_svg, styled
from faircontext.report.tables import class_table, label_table, long_table, pooled_table, stream_tables
from faircontext.runs.groups import group_runs, incomplete
from faircontext.runs.label_results import is_multi_label, read_label_result
from faircontext.runs.records import method_title
from faircontext.runs.results import class_names, has_analyses
from faircontext.runs.store import Run
from faircontext.runs.stream_results import split_streams

OUTCOMES = {"fixed": "0", "broke": "1", "right": "2", "wrong": "3", "unlabelled": "4"}
"""What a method did to zero-shot's prediction of an image, and its sign in the data; `.` where there is none."""

_EVIDENCE_HINT = (
    "No evidence pictures of these images: run faircontext analyze gallery on the same data set with the same "
    "backbone, and name the folder of its runs as well."
)

_SEVERAL_HINT = (
    "images that may have several labels are in tables alone: the page shows pictures of runs with one label an image"
)


@dataclass(frozen=True)
class Page:
    """A page as HTML, how many images it has, how many of these have a picture, and warnings, a line each."""

    html: str
    images: int
    pictures: int
    warnings: tuple[str, ...]


def build_page(runs: Sequence[Run], most: int = 1000) -> Page:
    """Write the page of runs.

    Args:
        runs: of methods; and of the analysis `gallery`, whose evidence is shown beside the images that it is about.
        most: how many images get pictures.

    Raises:
        ArgumentError: no run has answered an image, or runs contradict each other; see `group_runs`.
    """
    answers = [run for run in runs if not has_analyses(run)]
    several = [run for run in answers if is_multi_label(run)]
    alike = group_runs([run for run in answers if run not in several])
    groups = [group for group in split_by_benchmark(alike) if group.answered]
    if not groups and not several:
        raise ArgumentError("no run has answered an image; name a folder that faircontext evaluate --out has made")
    panels = [panel for index, group in enumerate(groups) for panel in _panels_of(index, group)]
    images = len({key for panel in panels for key in panel.keys}) + sum(len(run.rows) for run in several)
    shown = add_thumbnails(panels, [run for run in runs if has_analyses(run)], most)
    warnings = (
        *(line for group in groups for line in incomplete(group)),
        *shown.warnings,
        *([_SEVERAL_HINT] if several else []),
    )
    titles = [
        {
            "title": group.title,
            "sets": [dataset_title(name) for name in group.results],
            "methods": [[name, method_title(name)] for name in group.methods],
        }
        for group in groups
    ]
    data = {
        "groups": titles,
        "panels": [panel.data for panel in panels],
        "thumbnails": shown.thumbnails,
        "evidence": shown.evidence,
        "hint": _EVIDENCE_HINT,
    }
    html = render(
        "report.html",
        groups=[_section(index, group) for index, group in enumerate(groups)],
        images=images,
        runs=len(answers),
        warnings=warnings,
        unreadable=_unreadable_files(answers),
        label_tables=_label_tables(several),
        streams=[_stream_section(index, block) for index, block in enumerate(stream_blocks(split_streams(alike)[1]))],
        data=_embedded(data),
        version=__version__,
    )
    # A name may hold what is no text: bytes of a file name, or half of a pair of code units.
    return Page(html.encode("utf-8", "backslashreplace").decode(), images, len(shown.thumbnails), warnings)


def _label_tables(runs: Sequence[Run]) -> list[Table]:
    """Return the tables of runs whose images may have several labels: of all, and of the classes of each."""
    results = [*map(read_label_result, runs)]
    return [label_table(results), *map(class_table, results), _runs_table(runs)] if results else []


def _stream_section(index: int, block: StreamBlock) -> dict[str, Any]:
    """Return what the template shows of methods with a memory on a benchmark, over all orders."""
    return {"tables": stream_tables(block), "charts": [*position_charts(index, block)]}


def _embedded(data: dict[str, Any]) -> str:
    """Return JSON that a `script` element can hold: nothing in it opens or closes an element or a comment."""
    return to_json(data, indent=None, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def _panels_of(group_index: int, group: TableGroup) -> Iterator[RunImages]:
    """Yield the panels of a group, by data set."""
    for index, (name, results) in enumerate(group.results.items()):
        by_run: dict[int, tuple[Run, list[str]]] = {}
        for method in (method for method in group.methods if method in results):
            run = results[method].run
            by_run.setdefault(id(run), (run, []))[1].append(method)
        for run, methods in by_run.values():
            yield _panel(run, methods, {"group": group_index, "set": index, "title": dataset_title(name)})


_COLUMNS = ["path", "label_index", "zero_shot_index", "index", "confidence", "votes", "fallback", "prediction"]

_LEAST_SURE = 60
"""So many images without a label, those that the page shows first, get pictures before others."""


def _panel(run: Run, methods: Sequence[str], head: dict[str, Any]) -> RunImages:
    rows = run.rows.filter(pc.equal(run.rows["error"], ""))
    by_method: dict[str, dict[str, dict[str, Any]]] = {}
    for method in methods:
        answers = rows.filter(pc.equal(rows["method"], method)).select(_COLUMNS).to_pylist()
        by_method[method] = {row["path"]: row for row in answers}
    images = {path: row for answers in by_method.values() for path, row in answers.items()}
    known = (row[name] for answers in by_method.values() for row in answers.values() for name in _COLUMNS[1:4])
    classes, names = sorted({*known} - {None}), class_names(run)
    local = {index: position for position, index in enumerate(classes)}
    predictions = {
        method: _predictions(
            [row if (row := answers.get(path)) and row["index"] is not None else None for path in images], local
        )
        for method, answers in by_method.items()
    }
    data = head | {
        "names": [names[index] for index in classes],
        "paths": [*images],
        "labels": [local.get(row["label_index"], -1) for row in images.values()],
        "zero": [local.get(row["zero_shot_index"], -1) for row in images.values()],
        "methods": predictions,
    }
    place = image_place(run)
    keys = [(place, path) for path in images]
    changed = {OUTCOMES["fixed"], OUTCOMES["broke"]}
    first = {
        key
        for answers in predictions.values()
        for key, sign in zip(keys, answers["outcome"], strict=True)
        if sign in changed
    }
    first |= {keys[position] for answers in predictions.values() for position in _least_sure(answers)}
    return RunImages(run, keys, first, data)


def _least_sure(columns: Mapping[str, Any]) -> list[int]:
    """Return the positions of the images without a label that a method is least sure of."""
    unlabelled = [position for position, sign in enumerate(columns["outcome"]) if sign == OUTCOMES["unlabelled"]]
    sure = columns["confidence"] or [0] * len(columns["outcome"])
    return sorted(unlabelled, key=lambda position: sure[position] or 0)[:_LEAST_SURE]


def _predictions(rows: Sequence[Mapping[str, Any] | None], local: Mapping[int, int]) -> dict[str, Any]:
    """Return a method's columns over the images of a panel, None for a column of nothing."""
    known = [(position, row) for position, row in enumerate(rows) if row is not None]

    def column(value: Callable[[Mapping[str, Any]], Any], otherwise: Any = None) -> list[Any]:
        values = [otherwise] * len(rows)
        for position, row in known:
            values[position] = value(row)
        return values

    fallbacks = [*dict.fromkeys(("", *(row["fallback"] or "" for _, row in known)))]
    confidence = column(lambda row: None if row["confidence"] is None else round(1000 * row["confidence"]))
    votes, fallback = column(itemgetter("votes")), column(lambda row: fallbacks.index(row["fallback"] or ""), 0)
    outcomes = column(
        lambda row: OUTCOMES[outcome_of(row["index"], row["zero_shot_index"], row["label_index"])], otherwise="."
    )
    return {
        "answers": column(lambda row: local[row["index"]], -1),
        "confidence": confidence if any(value is not None for value in confidence) else None,
        "votes": votes if any(value is not None for value in votes) else None,
        "fallback": {"names": fallbacks, "indices": fallback} if len(fallbacks) > 1 else None,
        "outcome": "".join(outcomes),
        "withheld": [position for position, row in known if not row["prediction"]],
    }


def outcome_of(prediction: int, zero_shot: int, label: int | None) -> str:
    """Return what a method did to zero-shot's prediction, one of `OUTCOMES`; classes are known by index."""
    if label is None:
        return "unlabelled"
    if prediction == label:
        return "right" if zero_shot == label else "fixed"
    return "broke" if zero_shot == label else "wrong"


def _section(index: int, group: TableGroup) -> dict[str, Any]:
    """Return what the template shows of a group."""
    sets, runs = long_table(group), _runs_of(group)
    heads = [
        (position, method)
        for position, results in enumerate(group.results.values())
        for method in group.methods
        if method in results
    ]
    return {
        "title": group.title,
        "facts": _facts(group, runs),
        "settings": [*_settings(group)],
        "runs": _runs_table(runs),
        "n_runs": len(runs),
        "labelled": any(result.n for results in group.results.values() for result in results.values()),
        "pooled": pooled_table(group),
        "pooled_methods": [method for method in group.methods if group.row(method)],
        "sets": sets,
        "set_rows": [(*head, row) for head, row in zip(heads, sets.rows, strict=True)],
        "charts": [chart for method in group.methods for chart in charts_of(index, group, method)],
    }


def _runs_of(group: TableGroup) -> list[Run]:
    """Return the runs that a group's results come from, each once."""
    return [*{id(r.run): r.run for results in group.results.values() for r in results.values()}.values()]


def _minutes(run: Run) -> float:
    """Return how long a run took, all its sessions together."""
    return sum(float(session.get("seconds") or 0.0) for session in run.document["sessions"]) / 60


def _facts(group: TableGroup, runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return what was run, by name; where runs differ, all values."""
    configs, settings = [run.document["config"] for run in runs], group.settings
    sessions = [session for run in runs for session in run.document["sessions"]]
    machine = ("processor", "processors", "system")
    rows = [
        ("Backbone", [settings.backbone]),
        ("Weights", [settings.pretrained or "the backbone's own"]),
        ("Hash of the weights", [str(c["backbone"].get("weights") or "")[:12] for c in configs]),
        ("Precision", [settings.precision]),
        ("Device", [str(c["backbone"].get("device", "")) for c in configs]),
        ("Preset", [settings.preset]),
        ("Prompts", [f"{settings.prompts}: {_templates(c['templates'])}" for c in configs if c.get("templates")]),
        ("Seed", [str(settings.seed)]),
        ("Shift of the images", [settings.shift]),
        ("Order of the images", [settings.stream]),
        ("Views", [_words(c.get("views", {})) for c in configs]),
        ("Versions", [_words(c.get("versions", {}) | _versions(run)) for c, run in zip(configs, runs, strict=True)]),
        ("Machine", [_words({name: one[name] for name in machine if one.get(name)}) for one in sessions]),
        ("Time", [f"{counted(round(sum(map(_minutes, runs))), 'minute')} in {counted(len(runs), 'run')}"]),
    ]
    return [(name, "; ".join(known)) for name, values in rows if (known := [v for v in dict.fromkeys(values) if v])]


def _templates(templates: Sequence[str]) -> str:
    return and_more([f"“{template}”" for template in templates], 3)


def _versions(run: Run) -> dict[str, str]:
    return {name: v for session in run.document["sessions"] for name, v in session.get("versions", {}).items()}


def _words(values: Mapping[str, Any]) -> str:
    """Return values by name in words; a stroke stands between the items of a list."""

    def word(value: Any) -> str:
        if isinstance(value, list):
            return "/".join(f"{item:.4g}" if isinstance(item, float) else str(item) for item in value)
        return "none" if value is None else str(value)

    return ", ".join(f"{name} {word(value)}" for name, value in values.items())


def _settings(group: TableGroup) -> Iterator[tuple[str, str]]:
    """Yield the settings of each method; where they differ between data sets, a line for each."""
    for method in group.methods:
        sets_of: dict[str, list[str]] = {}
        for name, results in group.results.items():
            if method in results:
                sets_of.setdefault(_words(results[method].settings) or "no settings", []).append(dataset_title(name))
        for text, sets in sets_of.items():
            yield method_title(method), text if len(sets_of) == 1 else f"{', '.join(sets)}: {text}"


def _runs_table(runs: Sequence[Run]) -> Table:
    """Return a table with a row per run."""
    columns = (
        Column("Data set", "name", dataset_title),
        Column("Split", "split"),
        Column("Methods", "methods", lambda methods: ", ".join(map(method_title, methods))),
        Column("Images", "seen"),
        Column("Classes", "classes", "{:,}".format),
        Column("Minutes", "minutes", "{:,.1f}".format),
        Column("Complete", "complete", lambda complete: "yes" if complete else "no"),
    )
    configs = [run.document["config"] for run in runs]
    records = (
        config["dataset"]
        | {"methods": config["methods"], "minutes": _minutes(run), "complete": run.complete}
        | {"seen": f"{len(set(run.rows['path'].to_pylist())):,} of {config['dataset']['listed']:,}"}
        for run, config in zip(runs, configs, strict=True)
    )
    return Table.of("Runs", columns, records, text_columns=3)


def _unreadable_files(runs: Iterable[Run]) -> list[tuple[str, str, str]]:
    """Return data set, path and reason of each file that had no answer, once for each data set."""
    reasons: dict[tuple[str, str], str] = {}
    for run in runs:
        name = dataset_title(run.document["config"]["dataset"]["name"])
        for path, reason in zip(run.rows["path"].to_pylist(), run.rows["error"].to_pylist(), strict=True):
            if reason:
                reasons.setdefault((name, path), reason)
    return [(*key, reason) for key, reason in reasons.items()]


def charts_of(index: int, group: TableGroup, method: str) -> list[dict[str, Any]]:
    """Return the charts of a method: its gains by data set and over all images, its reliability, its risk.

    Args:
        index: of the group on the page.
        group: of the results.
        method: what it is called.
    """
    suffix = f"{index}m{group.methods.index(method)}"
    with styled():
        return [
            {"method": method, "caption": caption, "svg": inline_svg(figure, kind + suffix, caption)}
            for kind, figure, caption in _figures(group, method)
        ]


def position_charts(index: int, block: StreamBlock) -> Iterator[dict[str, Any]]:
    """Yield the accuracy by position of methods with a memory, if their streams are long enough.

    Args:
        index: of the block on the page.
        block: the results.
    """
    with suppress(MissingError), styled():
        chart = positions_figure(block.runs.settings.backbone, [(block.runs, block.datasets)])
        caption = (
            "Accuracy by position in the stream, all data sets together: the mean over orders, and below it the gain "
            "over zero-shot on the same images, paired, with 95% intervals. Early images meet an empty memory."
        )
        caption += "".join(f" {line.removesuffix('.')}." for line in chart.warnings)
        svg, width = inline_svg(chart.figure, f"p{index}", caption), chart.figure.get_figwidth()
        yield {"caption": caption, "svg": svg, "width": width}


def _figures(group: TableGroup, method: str) -> Iterator[tuple[str, Figure, str]]:
    title, results, backbone = method_title(method), group.row(method), group.settings.backbone
    gains = {name: result.comparison for name, result in results.items() if result.comparison is not None}
    if gains:
        pooled = compare_sets([*gains.values()])
        over_sets = "" if pooled.sets is None else f", {TOP1.ends(pooled.sets, sign=True)} over sets like these"
        gain = f"{TOP1.show(pooled.images, sign=True)} points over all images{over_sets}, with 95% intervals"
        figure = gains_figure(title, "zero-shot", backbone, gains, ("all images together", pooled)).figure
        yield "g", figure, f"Gain of {title} over zero-shot, by data set: {gain}."
    bases = [base for result in results.values() if (base := result.zero_shot) is not None]
    both = {"zero_shot": bases, method: list(results.values())}
    together = "all images of all data sets together, with 95% intervals"
    with suppress(MissingError):
        yield (
            "r",
            reliability_figure("", backbone, both).figure,
            f"Reliability of {title}: how often predictions of a confidence are correct, {together}. On the dashed "
            "line, confidence is what it says.",
        )
        yield (
            "c",
            risk_coverage_figure("", backbone, both).figure,
            f"Risk of {title}: the share of errors among the predictions that it is surest of, {together}. "
            "faircontext threshold picks a point of the curve.",
        )
