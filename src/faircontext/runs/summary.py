"""Counts of a run's answers: accuracies, abstentions, warnings and seconds; none of the answers is kept."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Accuracy
from faircontext.runs.records import ABSTAINED, Answer, is_correct, schema_of, to_numpy, to_table
from faircontext.runs.results import DEPENDENT
from faircontext.types import UNSURE, describe_flat, is_flat, read_diagnostics

_AT_ONCE = 512
"""Answers that are counted together: a table is counted as fast as an answer."""


class Summary:
    """Counts answers as they come, or as they are stored.

    Args:
        methods: what they are called in rows; others are left out.
        columns: further columns that are counted, see `Answer`.
    """

    def __init__(self, methods: Sequence[str], columns: Sequence[str] = ()) -> None:
        self.methods = tuple(methods)
        self._schema = schema_of(columns)
        self._waiting: list[Answer] = []
        self._images = self._unreadable = self._fallbacks = 0
        self._seconds = 0.0
        self._compared = dict.fromkeys(methods, Comparison(0, 0, 0, 0))
        self._warnings: dict[str, tuple[str, int]] = {}
        self._localised, self._flat = Counter[str](), Counter[str]()
        self._abstained, self._given, self._correct = Counter[str](), Counter[str](), Counter[str]()
        self._unsure = Counter[str]()

    def add(self, answers: Sequence[Answer]) -> None:
        """Count the answers for an image."""
        self._waiting += answers
        if len(self._waiting) >= _AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Count what has come."""
        if self._waiting:
            rows, self._waiting = to_table(self._waiting, self._schema), []
            self.add_rows(rows)

    def add_rows(self, rows: pa.Table) -> None:
        """Count stored rows, those of an image together."""
        rows = rows.filter(pc.is_in(rows["method"], pa.array(self.methods)))
        first = rows.filter(pc.equal(rows["method"], self.methods[0]))
        self._images += len(first)
        self._unreadable += _sum(pc.not_equal(first["error"], ""))
        for path, warnings in zip(*_warned(first), strict=True):
            for warning in warnings:
                earlier, n = self._warnings.get(warning, (path, 0))
                self._warnings[warning] = earlier, n + 1
        shared = rows.group_by("position").aggregate([("shared_seconds", "max")])  # each image's work, once
        self._seconds += _sum(shared["shared_seconds_max"]) + _sum(rows["seconds"])
        self._count(rows)

    def _count(self, rows: pa.Table) -> None:
        """Count the predictions of all methods."""
        for label in self.methods:
            part = rows.filter(pc.equal(rows["method"], label))
            fell = pc.and_(pc.not_equal(part["fallback"], ""), pc.invert(pc.starts_with(part["fallback"], ABSTAINED)))
            self._fallbacks += _sum(fell)
            self._abstained[label] += _sum(pc.and_(pc.equal(part["prediction"], ""), pc.equal(part["error"], "")))
            answers = part.filter(pc.not_equal(part["prediction"], ""))
            other = pc.not_equal(answers["index"], answers["zero_shot_index"])
            self._unsure[label] += _sum(pc.or_(pc.less(answers["confidence"], UNSURE), other))
            labelled = part.filter(pc.and_(pc.is_valid(part["index"]), pc.is_valid(part["label_index"])))
            correct, named = is_correct(labelled), np.asarray(to_numpy(pc.not_equal(labelled["prediction"], ""), False))
            if len(labelled):
                more = Comparison.of(correct, is_correct(labelled, "zero_shot_index"))
                self._compared[label] = Comparison.pooled([self._compared[label], more])
            self._given[label] += int(named.sum())
            self._correct[label] += int((named & correct).sum())
            localised = part.filter(pc.match_substring(part["diagnostics"], '"common_mean":'))
            for text in localised["diagnostics"].to_pylist():
                self._localised[label] += 1
                self._flat[label] += is_flat(read_diagnostics(text))

    @property
    def images(self) -> int:
        """How many have been answered or are unreadable."""
        self.settle()
        return self._images

    @property
    def unreadable(self) -> int:
        """How many files have no prediction."""
        self.settle()
        return self._unreadable

    @property
    def labelled(self) -> int:
        """How many images with a prediction have a truth, by the first method."""
        compared = self.comparisons()[self.methods[0]]
        return 0 if compared is None else compared.n

    def warnings(self) -> list[str]:
        """Return what was decided where files were read, a line for each kind, and where common evidence is flat."""
        self.settle()
        return [
            *(
                f"{first}{f' and {n - 1:,} more' * (n > 1)}: {warning}"
                for warning, (first, n) in self._warnings.items()
            ),
            *self.flat_evidence(),
        ]

    def flat_evidence(self) -> list[str]:
        """Return on how many images common evidence is flat, a line for each method."""
        self.settle()
        return [describe_flat(label, flat, self._localised[label]) for label, flat in self._flat.items() if flat]

    def comparisons(self) -> dict[str, Comparison | None]:
        """Compare each method with zero-shot; None where no image has a truth."""
        self.settle()
        return {label: found if found.n else None for label, found in self._compared.items()}

    def document(self) -> dict[str, Any]:
        """Return the comparisons as the JSON file holds them."""
        return {name: _counts(compared) for name, compared in self.comparisons().items()}

    def status(self) -> str:
        """Return the accuracies so far, without intervals, which results have: a line for many methods stays short."""
        accuracies = {name: compared.accuracy for name, compared in self.comparisons().items() if compared is not None}
        if not accuracies:
            return "no label is known" if self.images > self.unreadable else "nothing answered yet"
        rates = ", ".join(f"{name} {100 * accuracy.value:.1f}%" for name, accuracy in accuracies.items())
        return f"{rates} (n = {max(accuracy.n for accuracy in accuracies.values())})"

    def lines(self) -> Iterable[str]:
        """Yield the counts, the accuracies where images have a truth, and how many answers are not to be relied on."""
        yield from self._results()
        answered, several = self.images - self.unreadable, len(self.methods) > 1
        unsure = [
            f"{f'{name} ' * several}{n} of {answered - self._abstained[name]}" for name, n in self._unsure.items() if n
        ]
        if unsure:
            more = "" if self._abstained.total() else "; see --unknown"
            yield f"below {UNSURE:g} or unlike zero-shot: {', '.join(unsure)} answers{more}"

    def _results(self) -> Iterable[str]:
        answered, fallbacks = self.images - self.unreadable, self._fallbacks
        yield f"\n{answered} answered, {self.unreadable} unreadable, {fallbacks} fell back; {self._seconds:.1f} s"
        for name in (name for name, n in self._abstained.items() if n):
            others = f"; of the others {Accuracy(self._correct[name], n)} are right" if (n := self._given[name]) else ""
            yield f"{name:12} none of these: {Accuracy(self._abstained[name], answered)}{others}"
        for index, (name, comparison) in enumerate(self.comparisons().items()):
            if comparison is None:
                return
            if index == 0:
                yield f"{'zero-shot':12} {comparison.reference}"
            if name != "zero_shot":
                yield f"{name:12} {comparison.accuracy}"
                yield (
                    f"  paired: {name} alone right on {comparison.gained}, zero-shot alone right on "
                    f"{comparison.lost}; exact McNemar p = {comparison.p_value:.3g}"
                    f"{f', {DEPENDENT}' if _has_memory(name) else ''}"
                )


def _has_memory(label: str) -> bool:
    from faircontext.runs.option_parts import stream_labels

    return bool(stream_labels([label]))


def _warned(rows: pa.Table) -> tuple[list[str], list[list[str]]]:
    """Return the images with warnings, and these."""
    noted = rows.filter(pc.greater(pc.list_value_length(rows["warnings"]), 0))
    return noted["path"].to_pylist(), noted["warnings"].to_pylist()


def _sum(values: pa.ChunkedArray) -> Any:
    return pc.sum(values).as_py() or 0


def _counts(compared: Comparison | None) -> dict[str, Any] | None:
    """Return a comparison as the JSON file holds it."""
    if compared is None:
        return None
    accuracies = {"zero_shot": compared.reference, "method": compared.accuracy}
    counts = {name: {"correct": accuracy.correct, "n": accuracy.n} for name, accuracy in accuracies.items()}
    return {**counts, "gained": compared.gained, "lost": compared.lost, "p_value": compared.p_value}
