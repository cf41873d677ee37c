"""The paper's tables: their columns, and the numbers that they report, which lie in the folder `reported`."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

from faircontext.errors import ArgumentError, unknown_name
from faircontext.runs.groups import RunGroup
from faircontext.runs.results import Result

__all__ = [
    "OOD",
    "SETS",
    "TABLES",
    "TableGroup",
    "dataset_title",
    "list_reported",
    "read_reported",
    "reported_accuracies",
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


def list_reported() -> list[str]:
    """Return the names of the tables."""
    folder = files("faircontext.report").joinpath("reported")
    return sorted(entry.name.removesuffix(".csv") for entry in folder.iterdir() if entry.name.endswith(".csv"))


def read_reported(name: str) -> list[dict[str, str]]:
    """Return a table's rows; cells are text, as the paper prints them.

    Args:
        name: one of `list_reported()`.

    Raises:
        ArgumentError: there is no such table.
    """
    if name not in list_reported():
        raise unknown_name("reported table", name, list_reported())
    text = files("faircontext.report").joinpath("reported", f"{name}.csv").read_text(encoding="utf-8")
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

    benchmark: str
    datasets: tuple[str, ...]

    @cached_property
    def results(self) -> Mapping[str, Mapping[str, Result]]:
        """By data set and method, in the order of the table."""
        whole = super().results
        return {name: whole[name] for name in self.datasets}

    @property
    def title(self) -> str:
        """What all have in common, in words."""
        kinds = {
            "natural-shift": "natural distribution shifts",
            "fine-grained": "fine-grained sets",
            "own": "other sets",
        }
        settings = self.settings
        weights = ", ".join(word for word in (settings.pretrained, settings.precision) if word)
        return (
            f"{settings.backbone} ({weights}) on {kinds[self.benchmark]}; preset {settings.preset}, prompts "
            f"{settings.prompts}, seed {settings.seed}"
        )


def split_by_benchmark(groups: Sequence[RunGroup]) -> list[TableGroup]:
    """Return the groups of tables, by backbone and benchmark."""
    found = []
    for group in groups:
        known = {name: benchmark for benchmark, sets in SETS.items() for name in sets}
        for number, benchmark in enumerate((*SETS, "own")):
            order = [*SETS.get(benchmark, {})] or [name for name in group.results if name not in known]
            if names := tuple(name for name in order if name in group.results):
                found.append((number, TableGroup(group.settings, group.runs, benchmark, names)))
    found.sort(key=lambda one: (one[1].settings.backbone, one[0], *map(str, one[1].settings[1:])))
    return [group for _, group in found]
