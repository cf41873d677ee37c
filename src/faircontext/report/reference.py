"""Accuracies that others report, which lie in the folder `reported`, and measured ones beside them.

The paper gives neither intervals nor predictions per image, so the interval of a difference is that of the measured
accuracy alone; its own sampling error comes on top. Accuracies of methods with a memory come from several papers with
different prompts and settings, often by way of others, and mostly of settings that were chosen for each data set: each
stands with its source. A difference is information, never a verdict.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

from faircontext.datasets.spec import CATALOGUE
from faircontext.errors import unknown_name
from faircontext.metrics.orders import accuracy_over_orders
from faircontext.metrics.stats import Interval
from faircontext.report.benchmarks import (
    OOD,
    SETS,
    TOP1,
    Column,
    StreamBlock,
    TableGroup,
    columns_of,
    dataset_title,
    marked_title,
    tuned_note,
)
from faircontext.report.render import Field, MissingError, Table
from faircontext.runs.groups import method_title
from faircontext.runs.records import method_of
from faircontext.runs.stream_results import StreamResult

__all__ = [
    "ONLINE",
    "PaperComparison",
    "Published",
    "TABLES",
    "compare_with_paper",
    "compare_with_published",
    "comparison_table",
    "list_reported",
    "published_accuracies",
    "published_table",
    "read_reported",
    "reported_accuracies",
]

TABLES: Mapping[tuple[str, str], str] = {
    ("ViT-B-16", "natural-shift"): "natural_shift_vit_b16",
    ("ViT-B-32", "natural-shift"): "natural_shift_vit_b32",
    ("ViT-B-16", "fine-grained"): "fine_grained_vit_b16",
}
"""Where the paper's accuracies of a backbone on a benchmark are."""

ONLINE = {"ViT-B-16": "online_vit_b16"}
"""Where the accuracies of methods with a memory, with a backbone, are."""

_REPORTED = files("faircontext.report").joinpath("reported")


def list_reported() -> list[str]:
    """Return the names of the tables."""
    names = (entry.name for entry in _REPORTED.iterdir())
    return sorted(name.removesuffix(".csv") for name in names if name.endswith(".csv"))


def read_reported(name: str) -> list[dict[str, str]]:
    """Return a table's rows; cells are text, as they are printed there.

    Args:
        name: one of `list_reported()`.

    Raises:
        ArgumentError: there is no such table.
    """
    if name not in list_reported():
        raise unknown_name("reported table", name, list_reported())
    text = _REPORTED.joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def reported_accuracies(backbone: str, benchmark: str) -> dict[str, dict[str, float]]:
    """Return the paper's top-1 accuracies in percent, by method and column.

    Methods are called as in the paper, zero-shot `CLIP` and FCL with a hard prompt `FCL-HP`. Columns are names of data
    sets, `avg` and, for natural shift, `ood_avg`.

    Args:
        backbone: an architecture; `-quickgelu`, which says how OpenAI's weights compute, may follow.
        benchmark: `natural-shift` or `fine-grained`.

    Raises:
        ArgumentError: the paper has no such table.
    """
    known = {name for name, _ in TABLES}
    plain = backbone.removesuffix("-quickgelu")
    if plain not in known:
        raise MissingError(f"the paper reports no accuracy of {backbone}; it has {' and '.join(sorted(known))}")
    if (plain, benchmark) not in TABLES:
        raise MissingError(f"the paper reports no {benchmark} accuracy of {backbone}")
    rows = read_reported(TABLES[plain, benchmark])
    return {row.pop("method"): {column: float(value) for column, value in row.items()} for row in rows}


def _less(measured: Interval, reported: float) -> Interval:
    """Return what was measured less what is reported."""
    return Interval(*(end - reported for end in vars(measured).values()))


@dataclass(frozen=True)
class PaperComparison:
    """A column of the table, a method, its images, and its accuracy as measured and as reported, as proportions."""

    column: Column
    method: str
    n: int
    measured: Interval
    reported: float

    @property
    def difference(self) -> Interval:
        """What was measured less what is reported."""
        return _less(self.measured, self.reported)


def _reported_method(group: TableGroup, name: str) -> str | None:
    """Return what the paper calls a method of a group's runs, None for a variant that the paper's tables lack."""
    base = method_of(name)
    settings = next(results[name].settings for results in group.results.values() if name in results)
    if base == "fcl" and settings.get("context") == "cl-hp":
        return "FCL-HP"
    return {"zero_shot": "CLIP"}.get(name, method_title(name)) if base == name else None


def compare_with_paper(group: TableGroup) -> Iterator[PaperComparison]:
    """Yield comparisons by column and method, the means where the group has all of the paper's columns.

    Raises:
        ArgumentError: the paper has no table of the group's backbone and data sets.
    """
    reported = reported_accuracies(group.settings.backbone, group.benchmark)
    keys = {(name,): name for name in group.results} | {tuple(SETS[group.benchmark]): "avg", OOD: "ood_avg"}
    for column in columns_of(group):
        key = None if column.gained else keys.get(column.sets)
        for method in group.methods if key else ():
            results, theirs = column.results(group, method), reported.get(_reported_method(group, method) or "", {})
            if key in theirs and (ours := TOP1.measure(results)) is not None:
                yield PaperComparison(column, method, sum(result.n for result in results), ours, theirs[key] / 100)


def _reservations(group: TableGroup) -> Iterator[str]:
    """Yield in what a group's runs differ from the paper's, a line each."""
    counts = {name: entry.paper for name, entry in CATALOGUE.items()}
    for name, results in group.results.items():
        listed = next(iter(results.values())).config["dataset"]["listed"]
        if listed != counts.get(name, listed):
            yield f"{dataset_title(name)}: the paper counts {counts[name]:,} images; this split has {listed:,}."
    if group.settings.pretrained != "openai":
        yield f"The paper's weights are openai; these are {group.settings.pretrained or 'others'}."
    if group.settings.preset != "paper":
        yield f"The paper's settings are those of preset paper; these are of preset {group.settings.preset}."
    if group.settings.prompts != "single":
        prompts = group.settings.prompts
        yield f'The paper\'s prompt is "a photo of a {{}}." alone (prompts single); these runs have {prompts}.'


def comparison_table(group: TableGroup) -> Table:
    """Return a table of comparisons with the paper.

    Raises:
        MissingError: the paper has none of the accuracies.
    """
    comparisons = list(compare_with_paper(group))
    if not comparisons:
        raise MissingError(f"the paper reports none of the methods of {group.settings.backbone} that were run")
    fields: tuple[Field[PaperComparison], ...] = (
        Field("Data set", "", lambda one: one.column.heading),
        Field("Method", "", lambda one: one.method, method_title),
        Field("n", "", lambda one: one.n, "{:,}".format),
        Field("Measured [95%]", "", lambda one: one.measured, TOP1.show),
        Field("Paper", "", lambda one: one.reported, TOP1.format),
        Field("Difference [95%]", "", lambda one: one.difference, partial(TOP1.show, sign=True)),
    )
    title = f"Top-1 accuracy measured, and reported by the paper: {group.title}"
    intervals = "Percent, with 95% intervals of what was measured; the paper gives none of its own."
    notes = (f"{intervals} For information: a difference is no verdict.", *_reservations(group))
    return Table.of(title, fields, comparisons, notes, text_columns=2, by=(0,))


@dataclass(frozen=True)
class Published:
    """An accuracy as it was published.

    Attributes:
        method: as tables call it.
        dataset: name of the data set.
        accuracy: as a proportion.
        source: key of the table `online_sources`.
        tuned: whether the settings were chosen for each data set: `yes` or `unknown`.
        prompts: `templates`, one or several by data set, `templates and descriptions`, `learnt` or `unknown`.
    """

    method: str
    dataset: str
    accuracy: float
    source: str
    tuned: str
    prompts: str


def published_accuracies(backbone: str) -> list[Published]:
    """Return what was published of methods with a memory; nothing for a backbone without any.

    Args:
        backbone: an architecture; `-quickgelu`, which says how OpenAI's weights compute, may follow.
    """
    if (table := ONLINE.get(backbone.removesuffix("-quickgelu"))) is None:
        return []
    return [
        Published(
            row["method"],
            row["dataset"],
            float(row["value"]) / 100,
            *(row[name] for name in ("source", "tuned_per_set", "prompts")),
        )
        for row in read_reported(table)
    ]


def compare_with_published(block: StreamBlock) -> Iterator[tuple[StreamResult, Published]]:
    """Yield results on a data set with each accuracy that was published of the method there; not of variants."""
    known = published_accuracies(block.runs.settings.backbone)
    for (scope, method), found in block.results.items():
        yield from ((found, one) for one in known if (one.dataset, one.method) == (scope, method_title(method)))


def published_table(block: StreamBlock) -> Table:
    """Return a table of accuracies that were measured and published.

    Raises:
        MissingError: none is known as published.
    """
    pairs = [(found, one, accuracy_over_orders(found.correct).mean) for found, one in compare_with_published(block)]
    if not pairs:
        backbone = block.runs.settings.backbone
        raise MissingError(f"no accuracy of these methods with a memory, on {backbone}, is known as published")
    fields: tuple[Field[tuple[StreamResult, Published, Interval]], ...] = (
        Field("Data set", "", lambda pair: pair[1].dataset, dataset_title),
        Field("Method", "", lambda pair: marked_title(pair[0].all, pair[0].method)),
        Field("Source", "", lambda pair: pair[1].source),
        Field("Tuned per set", "", lambda pair: pair[1].tuned),
        Field("Prompts", "", lambda pair: pair[1].prompts),
        Field("n", "", lambda pair: pair[0].correct.shape[1], "{:,}".format),
        Field("Measured [95%]", "", lambda pair: pair[2], TOP1.show),
        Field("Published", "", lambda pair: pair[1].accuracy, TOP1.format),
        Field("Difference [95%]", "", lambda pair: _less(pair[2], pair[1].accuracy), partial(TOP1.show, sign=True)),
    )
    sources = {row["source"]: f"{row['title']} ({row['kind']})" for row in read_reported("online_sources")}
    notes = (
        "Percent, with 95% intervals of what was measured; published numbers are of one order, mostly of settings "
        "chosen for each data set, and of the prompts that stand beside them. A difference is no verdict.",
        *(f"{name}: {sources[name]}." for name in dict.fromkeys(one.source for _, one, _ in pairs)),
        *tuned_note((method_title(f.method), dataset_title(name)) for f, *_ in pairs for name in f.tuned),
    )
    title = f"Top-1 accuracy measured, mean of orders, and published: {block.title}"
    return Table.of(title, fields, pairs, notes, text_columns=5, by=(0,))
