"""Results by benchmark in the columns of the paper's tables: what is measured, what is reported, what is to be said.

Metrics that are means over images are compared image by image with zero-shot's. Accuracies that others report lie in
the folder `reported`. The paper gives neither intervals nor predictions per image. Accuracies of methods with a memory
come from several papers with different prompts and settings, often by way of others, and mostly of settings that were
chosen for each data set: each stands with its source.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from math import isnan, nan
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from faircontext.errors import counted, unknown_name
from faircontext.metrics.bootstrap import PooledMean, average_interval, pool, pool_draws
from faircontext.metrics.scores import (
    Comparison,
    brier_scores,
    compare_sets,
    expected_calibration_error,
    log_losses,
)
from faircontext.metrics.selective import aurc, aurc_draws
from faircontext.metrics.stats import Accuracy, Interval
from faircontext.report.render import MissingError
from faircontext.runs.groups import RunGroup, RunSettings
from faircontext.runs.records import method_title
from faircontext.runs.results import DEPENDENT, TUNED, Result
from faircontext.runs.stream_results import StreamResult, StreamRuns

Scores = Float[np.ndarray, " images"] | Bool[np.ndarray, " images"]

MISSING = "-"
"""Stands for a value that is not known."""

UNKNOWN = Interval(nan, nan, nan)
"""An estimate that is not known."""

NO_GAIN = PooledMean(UNKNOWN, None, 0, 0)
"""A difference that is not known."""


def known_or_missing(form: str = "{}", missing: str = MISSING) -> Callable[[Any], str]:
    """Return what writes a value in a form, and a text for None or NaN."""
    return lambda value: missing if value is None or value != value else form.format(value)


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
            return self._of_draws([(result,) for result in results]).images
        scores = [self.score(result) for result in results]
        if self.counts and len(scores) == 1:
            return Accuracy(int(scores[0].sum()), len(scores[0])).estimate
        return average_interval(scores, self._resamples)

    def gain(self, results: Sequence[Result]) -> PooledMean | None:
        """Return the mean of the metric less zero-shot's, paired by image, each data set weighing the same.

        Where all resamples agree, a share of images has a score interval (see `compare_sets`), and another metric none
        (NaN). None for zero-shot itself, or where a result, or zero-shot's on its images, does not tell the metric.
        """
        pairs = [(result, base) for result in results if (base := result.zero_shot) is not None]
        known = all(self.known(result) for pair in pairs for result in pair)
        if not pairs or len(pairs) < len(results) or not known:
            return None
        if self.score is None:
            return self._of_draws(pairs)
        scores = [(self.score(method), self.score(base)) for method, base in pairs]
        if self.counts:
            return compare_sets([Comparison.of(method, base) for method, base in scores], "set")
        return pool([method.astype(np.float64) - base for method, base in scores], "set", self._resamples)

    @property
    def _resamples(self) -> int:
        """Fewer where scores have many values, since each then costs all images."""
        return 9999 if self.predictions_only or self.counts else 999

    def _of_draws(self, sets: Sequence[tuple[Result, ...]]) -> PooledMean:
        """Return the mean over data sets of a result, or of a result less another, of a metric of whole sets."""
        value_of, draws, unknown = self.whole, self.draws, np.full(1, nan)
        assert value_of is not None
        values = [_less([value_of(result) for result in one]) for one in sets]
        # With a seed of its own, resamples of a data set are independent of another set's.
        drawn = [
            unknown if draws is None else _less([draws(result, seed) for result in one])
            for seed, one in enumerate(sets)
        ]
        return pool_draws(values, drawn, sum(one[0].n for one in sets))

    def format(self, value: float, sign: bool = False) -> str:
        """Return a value as it is printed: percent with two decimals, or four decimals."""
        plus = "+" if sign else ""
        return format(100 * value, f"{plus}.2f") if self.percent else format(value, f"{plus}.4f")

    def show(self, interval: Interval | None, sign: bool = False) -> str:
        """Return a value with its interval, where it has one, as it is printed."""
        if interval is None or isnan(interval.value):
            return MISSING
        value = self.format(interval.value, sign)
        return value if isnan(interval.low) else f"{value} {self.ends(interval, sign)}"

    def ends(self, interval: Interval | None, sign: bool = False) -> str:
        """Return the ends of an interval as they are printed, without the value."""
        if interval is None or isnan(interval.low):
            return MISSING
        return f"[{self.format(interval.low, sign)}, {self.format(interval.high, sign)}]"


def _less(values: Sequence[Any]) -> Any:
    """Return a value, or the first of two less the second."""
    return values[0] if len(values) == 1 else values[0] - values[1]


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


SETS: Mapping[str, Mapping[str, str]] = {
    benchmark: {row["dataset"]: row["heading"] for row in read_reported("columns") if row["benchmark"] == benchmark}
    for benchmark in ("natural-shift", "fine-grained")
}
"""The columns of the paper's tables by benchmark, with their headings, in the paper's order."""

OOD = ("imagenet_a", "imagenet_sketch", "imagenet_r", "imagenet_v2")
"""Columns of which OOD Avg. is the mean (table `tab:tta_imagenet_vitb16`)."""

ALL_SETS = "all sets"
"""Stands for the images of all data sets of a table together, each weighing the same."""

TUNED_MARK = "†"
"""Stands after the name of a method where settings were tuned, see `TUNED`."""


def dataset_title(name: str) -> str:
    """Return the heading that the paper gives a data set, its name where it is none of the paper's."""
    return next((sets[name] for sets in SETS.values() if name in sets), name)


@dataclass(frozen=True)
class TableGroup(RunGroup):
    """A group's results on one benchmark, which one table shows, in the order of the paper's columns.

    Attributes:
        benchmark: `natural-shift`, `fine-grained` or `own`.
        whole: the group, of all benchmarks, which has read the results.
        datasets: names, those that there are results of.
    """

    benchmark: str = field(kw_only=True)
    whole: RunGroup = field(kw_only=True)
    datasets: tuple[str, ...] = field(kw_only=True)

    @cached_property
    def results(self) -> Mapping[str, Mapping[str, Result]]:
        """By data set and method, in the order of the table."""
        return {name: self.whole.results[name] for name in self.datasets}

    @property
    def answered(self) -> bool:
        """Whether an image has been answered, with or without a label."""
        return any(result.n + result.unlabelled for results in self.results.values() for result in results.values())

    @property
    def title(self) -> str:
        """What all have in common, in words."""
        return _title(self.settings, self.benchmark)


def split_by_benchmark(groups: Sequence[RunGroup]) -> list[TableGroup]:
    """Return the groups of tables, by backbone and benchmark."""
    tables = []
    for group in groups:
        for benchmark, names in _by_benchmark(group.results).items():
            key = (group.settings.backbone, (*SETS, "own").index(benchmark), *map(str, group.settings[1:]))
            table = TableGroup(
                group.settings, group.runs, group.memory, benchmark=benchmark, whole=group, datasets=names
            )
            tables.append((key, table))
    return [table for _, table in sorted(tables, key=lambda keyed: keyed[0])]


@dataclass(frozen=True)
class StreamBlock:
    """Runs of methods with a memory on one benchmark.

    Attributes:
        runs: the runs.
        benchmark: see `TableGroup`.
        datasets: those of the benchmark, in the order of its table.
    """

    runs: StreamRuns
    benchmark: str
    datasets: tuple[str, ...]

    @property
    def title(self) -> str:
        """What all have in common, in words."""
        return _title(self.runs.settings, self.benchmark)

    @property
    def scopes(self) -> dict[str, Sequence[str]]:
        """Each data set, then all together where there are several, by name."""
        return scopes_of(self.datasets)

    @cached_property
    def results(self) -> dict[tuple[str, str], StreamResult]:
        """Results by scope and method."""
        return {
            (scope, method): result
            for scope, datasets in self.scopes.items()
            for method in self.runs.methods
            if (result := self.runs.result(method, datasets)) is not None
        }


def stream_blocks(streams: Sequence[StreamRuns]) -> list[StreamBlock]:
    """Return the blocks of runs, by benchmark."""
    return [
        StreamBlock(runs, benchmark, datasets)
        for runs in streams
        for benchmark, datasets in _by_benchmark(runs.datasets).items()
    ]


def _by_benchmark(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return data sets by benchmark, in the order of its table; those of none are `own`, as they come."""
    known, listed = [*names], {name for sets in SETS.values() for name in sets}
    parts = {benchmark: tuple(name for name in sets if name in known) for benchmark, sets in SETS.items()}
    parts["own"] = tuple(name for name in known if name not in listed)
    return {benchmark: sets for benchmark, sets in parts.items() if sets}


def _title(settings: RunSettings, benchmark: str) -> str:
    """Return what runs on a benchmark have in common, in words."""
    kinds = {"natural-shift": "natural distribution shifts", "fine-grained": "fine-grained sets", "own": "other sets"}
    weights = ", ".join(word for word in (settings.pretrained, settings.precision) if word)
    return (
        f"{settings.backbone} ({weights}) on {kinds[benchmark]}; preset {settings.preset}, prompts "
        f"{settings.prompts}, seed {settings.seed}{settings.shift and f'; {settings.shift}'}"
        f"{settings.stream and f', {settings.stream}'}"
    )


def scopes_of(datasets: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return each data set, then all together where there are several, by what the row is of."""
    single: dict[str, Sequence[str]] = {name: (name,) for name in datasets}
    return single | {ALL_SETS: datasets} if len(single) > 1 else single


def settings_record(settings: RunSettings, others: Sequence[RunSettings]) -> dict[str, Any]:
    """Return what a group's runs share, for CSV; shift and order of images only where some group (`others`) has any."""
    record = settings._asdict()
    for name in ("shift", "stream"):
        if not any(getattr(other, name) for other in others):
            del record[name]
    return record


@dataclass(frozen=True)
class Scope:
    """What a column of the paper's tables is of: a data set, or the mean over some; `name` is what CSV files have."""

    name: str
    heading: str
    sets: tuple[str, ...]

    def results(self, group: TableGroup, method: str) -> list[Result]:
        """Return a method's results on the data sets, nothing where one is missing."""
        row = group.row(method)
        return [row[name] for name in self.sets] if all(name in row for name in self.sets) else []

    def comparable(self, group: TableGroup) -> bool:
        """Return whether all methods that have results here have them on the same images."""
        rows = [results for method in group.methods if (results := self.results(group, method))]
        return all(one.same_images(two) for row in rows[1:] for one, two in zip(rows[0], row, strict=True))


def paper_scopes(group: TableGroup) -> list[Scope]:
    """Return what the columns of a group's table are of: its data sets, their mean, and the paper's OOD Avg."""
    singles = [Scope(name, dataset_title(name), (name,)) for name in group.results]
    if len(singles) == 1:
        return singles
    total = len(SETS.get(group.benchmark, ()))
    heading = f"Avg. ({len(singles)} of {total})" if len(singles) < total else "Avg."
    ood = [Scope("ood_avg", "OOD Avg.", OOD)] if all(name in group.results for name in OOD) else []
    return [*singles, Scope("avg", heading, tuple(group.results)), *ood]


def pooled_answers(results: Sequence[Result]) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]] | None:
    """Return confidences of all predictions and whether they are correct; None without any, or without confidences."""
    known = [r for r in results if r.n and not r.predictions_only and np.isfinite(r.confidence).all()]
    if not known:
        return None
    return np.concatenate([r.confidence for r in known]), np.concatenate([r.correct for r in known])


def marked_title(results: Iterable[Result], method: str) -> str:
    """Return what a method is called, with a mark where its settings were tuned for a data set."""
    return method_title(method) + (TUNED_MARK if any(result.tuned for result in results) else "")


def memory_notes(results: Iterable[Result]) -> Iterator[str]:
    """Yield which of some results are of methods with a memory, and which have settings tuned for their data set."""
    known = [*results]
    if memory := dict.fromkeys(method_title(result.method) for result in known if result.has_memory):
        orders = sorted({str(result.config["stream"]["order"]) for result in known if result.has_memory})
        yield (
            f"With a memory, in order {' and '.join(orders)}: {', '.join(memory)}. Answers depend on the order, and on "
            "images that were seen before; those of the others do not. Intervals and tests are "
            f"{DEPENDENT}."
        )
    yield from tuned_note((method_title(r.method), dataset_title(r.dataset)) for r in known if r.tuned)


def tuned_note(tuned: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what the mark means, with the methods and their data sets, where there are any."""
    sets: dict[str, dict[str, None]] = {}
    for method, dataset in tuned:
        sets.setdefault(method, {})[dataset] = None
    if sets:
        where = "; ".join(f"{method} on {', '.join(names)}" for method, names in sets.items())
        yield f"{TUNED_MARK} {TUNED}: {where}."


def coverage(group: TableGroup) -> Iterator[str]:
    """Yield, for each data set that was not measured in full, how much of it was; or that the split is another."""
    for name, results in group.results.items():
        by_run = {id(result.run): result for result in results.values()}
        for result in by_run.values():
            if parts := ", ".join(shortfalls(result)):
                where = f" ({result.run.folder})" if len(by_run) > 1 else ""
                yield f"{dataset_title(name)}{where}: {parts}."


def shortfalls(result: Result) -> Iterator[str]:
    """Yield in what a result is not of a whole data set of the test split."""
    config, seen = result.config, result.seen
    listed, images = config["dataset"]["listed"], config["dataset"]["images"]
    if seen < listed:
        share = 100 * seen / listed
        yield f"{f'{share:.0f}' if share >= 1 else f'{share:.2g}'}% of {counted(listed, 'image')}"
    if images < listed:
        yield f"{images:,} of them are there"
    if result.unlabelled:
        yield f"{result.unlabelled:,} without a label, which count in no accuracy"
    if config["limit"] is not None and config["limit"] < images:
        yield f"limit {config['limit']:,}"
    if config["shard"] is not None:
        yield f"shard {config['shard'][0]} of {config['shard'][1]}"
    if not result.run.complete:
        yield f"not complete ({seen:,} of {result.expected:,} so far)"
    if config["dataset"]["split"] not in ("test", "all"):
        yield f"split {config['dataset']['split']}"


TABLES: Mapping[tuple[str, str], str] = {
    ("ViT-B-16", "natural-shift"): "natural_shift_vit_b16",
    ("ViT-B-32", "natural-shift"): "natural_shift_vit_b32",
    ("ViT-B-16", "fine-grained"): "fine_grained_vit_b16",
}
"""Where the paper's accuracies of a backbone on a benchmark are."""

ONLINE = {"ViT-B-16": "online_vit_b16"}
"""Where the accuracies of methods with a memory, with a backbone, are."""


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
