"""The paper's tables: their columns, their metrics with intervals, and the numbers that they report.

Reported numbers lie in the folder `reported`. Each metric but the calibration error is a mean over images, so that each
comparison is paired image by image.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from math import isnan, nan

import numpy as np
from jaxtyping import Bool, Float

from faircontext.errors import ArgumentError, unknown_name
from faircontext.metrics.calibration import expected_calibration_error
from faircontext.metrics.scores import brier_scores, log_losses
from faircontext.metrics.selective import aurc, aurc_draws
from faircontext.metrics.stats import ENDS, Interval, average_interval, paired_bootstrap, wilson_interval
from faircontext.runs.groups import RunGroup
from faircontext.runs.results import Result

__all__ = [
    "METRICS",
    "MISSING",
    "OOD",
    "SETS",
    "TABLES",
    "TOP1",
    "Column",
    "Metric",
    "TableGroup",
    "columns_of",
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

    benchmark: str
    datasets: tuple[str, ...]

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
    listed = {name for sets in SETS.values() for name in sets}
    tables = []
    for group in groups:
        for index, benchmark in enumerate((*SETS, "own")):
            order = SETS.get(benchmark) or [name for name in group.results if name not in listed]
            if names := tuple(name for name in order if name in group.results):
                key = (group.settings.backbone, index, *map(str, group.settings[1:]))
                tables.append((key, TableGroup(group.settings, group.runs, benchmark, names)))
    return [table for _, table in sorted(tables, key=lambda keyed: keyed[0])]


Scores = Float[np.ndarray, " images"] | Bool[np.ndarray, " images"]

MISSING = "-"
"""Stands for a value that is not known."""


@dataclass(frozen=True)
class Metric:
    """What is measured of a method's results, one for each data set, each of which weighs the same.

    Attributes:
        title: what it is called.
        score: what it is the mean of over images; None for a metric of all images together.
        higher: whether more is better.
        percent: whether it is shown in percent.
        counts: whether it is a share of images, so that scores are true or false.
        predictions_only: whether it depends on predictions alone, not on probabilities.
        whole: what it is of all images together, where it is no mean.
        draws: the same for resamples of the images, drawn by a seed; None where resampling changes it.
    """

    title: str
    score: Callable[[Result], Scores] | None
    higher: bool = False
    percent: bool = False
    counts: bool = False
    predictions_only: bool = False
    whole: Callable[[Result], float] | None = None
    draws: Callable[[Result, int], Float[np.ndarray, " resamples"]] | None = None

    @property
    def has_interval(self) -> bool:
        """Whether it comes with an interval."""
        return self.score is not None or self.draws is not None

    def known(self, result: Result) -> bool:
        """Return whether a result tells the metric: not without images, or probabilities where they are needed."""
        return result.n > 0 and (self.predictions_only or not result.predictions_only)

    def value(self, result: Result) -> float:
        """Return the metric of a result without its interval; it must be `known`."""
        if self.whole is not None:
            return self.whole(result)
        assert self.score is not None
        return float(self.score(result).mean())

    def measure(self, results: Sequence[Result]) -> Interval | None:
        """Return the mean with its 95% interval; None where a result does not tell the metric, or there is none.

        The interval is Wilson's for a share of the images of one data set, else a bootstrap interval. The expected
        calibration error has none (NaN): resampled, it is larger than on the images themselves.
        """
        if not results or not all(map(self.known, results)):
            return None
        if self.score is None:
            drawn = [self._drawn(result, seed) for seed, result in enumerate(results)]
            return self._interval([self.value(result) for result in results], drawn)
        scores = [self.score(result) for result in results]
        if self.counts and len(scores) == 1:
            return Interval(float(scores[0].mean()), *wilson_interval(int(scores[0].sum()), results[0].n))
        return average_interval(scores, resamples=self._resamples)

    def gain(self, results: Sequence[Result]) -> Interval | None:
        """Return the mean of the metric less zero-shot's, paired by image, with its 95% bootstrap interval.

        None for zero-shot itself, or where a result, or zero-shot's on its images, does not tell the metric.
        """
        pairs = [(result, base) for result in results if (base := result.zero_shot) is not None]
        if not pairs or len(pairs) < len(results) or not all(self.known(result) for pair in pairs for result in pair):
            return None
        if self.score is None:
            changes = [self.value(own) - self.value(base) for own, base in pairs]
            drawn = [self._drawn(own, seed) - self._drawn(base, seed) for seed, (own, base) in enumerate(pairs)]
            return self._interval(changes, drawn)
        scores = [(self.score(own), self.score(base)) for own, base in pairs]
        if len(scores) == 1:
            return paired_bootstrap(*scores[0], resamples=self._resamples)
        return average_interval([own.astype(np.float64) - base for own, base in scores], resamples=self._resamples)

    def _drawn(self, result: Result, seed: int) -> Float[np.ndarray, " resamples"]:
        """Return resamples of a data set; with a seed of its own they are independent of another set's."""
        return np.full(1, nan) if self.draws is None else self.draws(result, seed)

    @staticmethod
    def _interval(values: Sequence[float], draws: Sequence[Float[np.ndarray, " resamples"]]) -> Interval:
        """Return the mean over data sets, with the interval that resamples of each give."""
        low, high = np.quantile(np.mean(draws, axis=0), ENDS)
        return Interval(float(np.mean(values)), float(low), float(high))

    @property
    def _resamples(self) -> int:
        """Of the bootstrap; fewer where scores have many values, since each resample then costs all images."""
        return 9999 if self.predictions_only or self.counts else 999

    def format(self, value: float, sign: bool = False) -> str:
        """Return a value as it is printed: percent with two decimals, or four decimals."""
        plus = "+" if sign else ""
        return format(100 * value, f"{plus}.2f") if self.percent else format(value, f"{plus}.4f")

    def show(self, interval: Interval | None, sign: bool = False) -> str:
        """Return a value with its interval, where it has one, as it is printed."""
        if interval is None:
            return MISSING
        value, low, high = (self.format(end, sign) for end in (interval.value, interval.low, interval.high))
        return value if isnan(interval.low) else f"{value} [{low}, {high}]"


def _mean_per_class(result: Result) -> Scores:
    """Return scores with which every class weighs the same; class sizes are taken as given."""
    _, codes, sizes = np.unique(result.labels, return_inverse=True, return_counts=True)
    weights: Scores = result.n / (len(sizes) * sizes[codes])
    return np.where(result.correct, weights, 0.0)


METRICS: Mapping[str, Metric] = {
    "top1": Metric("top-1 accuracy (%)", lambda result: result.correct, True, True, True, True),
    "top5": Metric("top-5 accuracy (%)", lambda result: result.in_top5, True, True, True),
    "mean_per_class": Metric("mean of the classes' accuracies (%)", _mean_per_class, True, True, predictions_only=True),
    "ece": Metric(
        "expected calibration error (%, 20 bins)",
        None,
        percent=True,
        whole=lambda result: expected_calibration_error(result.confidence, result.correct),
    ),
    "aurc": Metric(
        "area under the curve of risk over coverage (%)",
        None,
        percent=True,
        whole=lambda result: aurc(result.confidence, result.correct),
        draws=lambda result, seed: aurc_draws(result.confidence, result.correct, seed=seed),
    ),
    "brier": Metric("Brier score", lambda result: brier_scores(result.label_probability, result.probability_norm)),
    "nll": Metric("negative log-likelihood (nats)", lambda result: log_losses(result.label_probability)),
}
TOP1 = METRICS["top1"]


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
