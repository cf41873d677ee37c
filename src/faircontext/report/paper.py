"""The paper's tables: their columns, and the numbers that they report, which lie in the folder `reported`."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any

from faircontext.errors import ArgumentError, unknown_name
from faircontext.metrics.stats import Interval
from faircontext.report.table_metrics import Metric
from faircontext.runs.groups import RunGroup, RunSettings
from faircontext.runs.results import Result

__all__ = [
    "OOD",
    "SETS",
    "TABLES",
    "Column",
    "TableGroup",
    "columns_of",
    "dataset_title",
    "list_reported",
    "read_reported",
    "reported_accuracies",
    "sets_by_benchmark",
    "settings_record",
    "settings_title",
    "split_by_benchmark",
]

SETS: Mapping[str, Mapping[str, str]] = {
    "natural-shift": {
        "imagenet": "ImageNet",
        "imagenet_a": "ImageNet-A",
        "imagenet_sketch": "ImageNet-K",
        "imagenet_r": "ImageNet-R",
        "imagenet_v2": "ImageNet-V",
    },
    "fine-grained": {
        "fgvc_aircraft": "Aircraft",
        "caltech101": "Caltech101",
        "stanford_cars": "Cars",
        "dtd": "DTD",
        "eurosat": "EuroSAT",
        "oxford_flowers": "Flowers",
        "food101": "Food101",
        "oxford_pets": "Pets",
        "sun397": "SUN397",
        "ucf101": "UCF101",
    },
}
"""The columns of the paper's tables by benchmark, with their headings, in the paper's order."""

OOD = ("imagenet_a", "imagenet_sketch", "imagenet_r", "imagenet_v2")
"""Columns of which OOD Avg. is the mean (table `tab:tta_imagenet_vitb16`)."""

TABLES: Mapping[tuple[str, str], str] = {
    ("ViT-B-16", "natural-shift"): "natural_shift_vit_b16",
    ("ViT-B-32", "natural-shift"): "natural_shift_vit_b32",
    ("ViT-B-16", "fine-grained"): "fine_grained_vit_b16",
}
"""Where the accuracies of a backbone on a benchmark are."""

_REPORTED = files("faircontext.report").joinpath("reported")


def list_reported() -> list[str]:
    """Return the names of the tables."""
    names = (entry.name for entry in _REPORTED.iterdir())
    return sorted(name.removesuffix(".csv") for name in names if name.endswith(".csv"))


def read_reported(name: str) -> list[dict[str, str]]:
    """Return a table's rows; cells are text, as the paper prints them.

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
        raise ArgumentError(f"the paper reports no accuracy of {backbone}; it has {' and '.join(sorted(known))}")
    if (plain, benchmark) not in TABLES:
        raise ArgumentError(f"the paper reports no {benchmark} accuracy of {backbone}")
    rows = read_reported(TABLES[plain, benchmark])
    return {row.pop("method"): {column: float(value) for column, value in row.items()} for row in rows}


def dataset_title(name: str) -> str:
    """Return the heading that the paper gives a data set, its name where it is none of the paper's."""
    return next((sets[name] for sets in SETS.values() if name in sets), name)


@dataclass(frozen=True)
class TableGroup(RunGroup):
    """A group's results on one benchmark, which one table shows, in the order of the paper's columns.

    Attributes:
        benchmark: `natural-shift`, `fine-grained` or `own`.
        datasets: names, those that there are results of.
    """

    benchmark: str = field(kw_only=True)
    datasets: tuple[str, ...] = field(kw_only=True)

    @cached_property
    def results(self) -> Mapping[str, Mapping[str, Result]]:
        """By data set and method, in the order of the table."""
        whole = super().results
        return {name: whole[name] for name in self.datasets}

    @property
    def answered(self) -> bool:
        """Whether an image has been answered, with or without a label."""
        return any(result.n + result.unlabelled for results in self.results.values() for result in results.values())

    @property
    def title(self) -> str:
        """What all have in common, in words."""
        return settings_title(self.settings, self.benchmark)


def split_by_benchmark(groups: Sequence[RunGroup]) -> list[TableGroup]:
    """Return the groups of tables, by backbone and benchmark."""
    tables = []
    for group in groups:
        for benchmark, names in sets_by_benchmark(group.results).items():
            key = (group.settings.backbone, (*SETS, "own").index(benchmark), *map(str, group.settings[1:]))
            table = TableGroup(group.settings, group.runs, group.memory, benchmark=benchmark, datasets=names)
            tables.append((key, table))
    return [table for _, table in sorted(tables, key=lambda keyed: keyed[0])]


def sets_by_benchmark(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return data sets by benchmark, in the order of its table; those of none are `own`, as they come."""
    known, listed = [*names], {name for sets in SETS.values() for name in sets}
    parts = {benchmark: tuple(name for name in sets if name in known) for benchmark, sets in SETS.items()}
    parts["own"] = tuple(name for name in known if name not in listed)
    return {benchmark: sets for benchmark, sets in parts.items() if sets}


def settings_title(settings: RunSettings, benchmark: str) -> str:
    """Return what runs on a benchmark have in common, in words."""
    kinds = {"natural-shift": "natural distribution shifts", "fine-grained": "fine-grained sets", "own": "other sets"}
    weights = ", ".join(word for word in (settings.pretrained, settings.precision) if word)
    return (
        f"{settings.backbone} ({weights}) on {kinds[benchmark]}; preset {settings.preset}, prompts "
        f"{settings.prompts}, seed {settings.seed}{settings.shift and f'; {settings.shift}'}"
        f"{settings.stream and f', {settings.stream}'}"
    )


def settings_record(settings: RunSettings, held: Sequence[RunSettings]) -> dict[str, Any]:
    """Return what a group's runs share, for CSV; shift and order of images only where some group (`held`) has any."""
    record = settings._asdict()
    for name in ("shift", "stream"):
        if not any(getattr(other, name) for other in held):
            del record[name]
    return record


@dataclass(frozen=True)
class Column:
    """What a column of the paper's tables shows: a mean over data sets, or its gain over zero-shot."""

    heading: str
    sets: tuple[str, ...]
    gained: bool = False

    def results(self, group: TableGroup, method: str) -> list[Result]:
        """Return a method's results on the column's data sets, nothing where one is missing."""
        row = group.row(method)
        return [row[name] for name in self.sets] if all(name in row for name in self.sets) else []

    def values(self, group: TableGroup, metric: Metric) -> list[Interval | None]:
        """Return the column's values, by method."""
        value = metric.gain if self.gained else metric.measure
        return [value(self.results(group, method)) for method in group.methods]

    def comparable(self, group: TableGroup) -> bool:
        """Return whether all methods that have results in this column have them on the same images."""
        rows = [results for method in group.methods if (results := self.results(group, method))]
        return all(one.same_images(two) for row in rows[1:] for one, two in zip(rows[0], row, strict=True))


def columns_of(group: TableGroup) -> list[Column]:
    """Return the columns of a group's table: its data sets, their mean, the paper's OOD Avg., and gains."""
    singles = [Column(dataset_title(name), (name,)) for name in group.results]
    if len(singles) == 1:
        return [*singles, Column("Δ", singles[0].sets, gained=True)]
    whole = len(SETS.get(group.benchmark, ()))
    heading = f"Avg. ({len(singles)} of {whole})" if len(singles) < whole else "Avg."
    averages = [Column(heading, tuple(group.results))]
    if all(name in group.results for name in OOD):
        averages.append(Column("OOD Avg.", OOD))
    pairs = [(column, Column(f"Δ {column.heading}", column.sets, gained=True)) for column in averages]
    return [*singles, *(column for pair in pairs for column in pair)]
