"""What is said at the end of a run on photos: counts, accuracies, and warnings; counted as answers or rows come."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.metrics.scores import Comparison, Tally
from faircontext.metrics.stats import Accuracy
from faircontext.runs.answer import AnsweredImage
from faircontext.runs.records import to_numpy
from faircontext.runs.results import DEPENDENT
from faircontext.runs.stream_options import stream_labels
from faircontext.runs.unknown import WITHHELD, is_withheld
from faircontext.types import describe_flat, is_flat, read_diagnostics

__all__ = ["Totals", "summary_of"]


class Totals:
    """Counts of images; none of them is stored.

    Args:
        methods: what they are called in rows.

    Attributes:
        images: answered or unreadable.
        unreadable: files that have no prediction.
    """

    def __init__(self, methods: Sequence[str]) -> None:
        self._tallies = {label: Tally() for label in methods}
        self._warnings: dict[str, tuple[str, int]] = {}
        self.images = self.unreadable = self._fallbacks = 0
        self._seconds = 0.0
        self._localised, self._flat = Counter[str](), Counter[str]()
        self._withheld, self._given, self._correct = Counter[str](), Counter[str](), Counter[str]()

    def add(self, answered: AnsweredImage) -> None:
        """Count an image."""
        self.images += 1
        self.unreadable += bool(answered.error)
        self._take_warnings(answered.path, answered.warnings)
        for row in answered.rows:
            self._fallbacks += bool(row.fallback) and not row.fallback.startswith(WITHHELD)
            self._seconds += row.seconds
        self._seconds += max((row.shared_seconds or 0.0 for row in answered.rows), default=0.0)
        # An unreadable file has no prediction.
        for label, prediction, row in zip(self._tallies, answered.predictions, answered.rows, strict=False):
            withheld = is_withheld(row)
            known = not withheld and answered.label is not None
            self._count_given(label, withheld, known, known and prediction.index == answered.label)
            if answered.label is not None and answered.reference is not None:
                self._tallies[label].add(prediction.index == answered.label, answered.reference.index == answered.label)
            self._take_diagnostics(label, prediction.diagnostics)

    def add_rows(self, rows: pa.Table) -> None:
        """Count stored rows; those of other methods are left out."""
        asked = rows.filter(pc.is_in(rows["method"], pa.array([*self._tallies])))
        shared = asked.group_by("position").aggregate([("shared_seconds", "max")])  # each image's work, once
        self._seconds += pc.sum(shared["shared_seconds_max"]).as_py() or 0.0
        for rank, label in enumerate(self._tallies):
            own = rows.filter(pc.equal(rows["method"], label))
            fell = pc.and_(pc.not_equal(own["fallback"], ""), pc.invert(pc.starts_with(own["fallback"], WITHHELD)))
            self._fallbacks += pc.sum(fell).as_py() or 0
            self._seconds += pc.sum(own["seconds"]).as_py() or 0.0
            if rank == 0:
                self.images += len(own)
                self.unreadable += pc.sum(pc.not_equal(own["error"], "")).as_py() or 0
                noted = own.filter(pc.greater(pc.list_value_length(own["warnings"]), 0))
                for path, warnings in zip(noted["path"].to_pylist(), noted["warnings"].to_pylist(), strict=True):
                    self._take_warnings(path, warnings)
            known = own.filter(pc.and_(pc.is_valid(own["index"]), pc.is_valid(own["label_index"])))
            index, reference, truth = (to_numpy(known[name]) for name in ("index", "zero_shot_index", "label_index"))
            self._tallies[label].add_all(np.asarray(index == truth), np.asarray(reference == truth))
            given = np.asarray(to_numpy(pc.not_equal(known["prediction"], ""), False))
            withheld = pc.and_(pc.equal(own["prediction"], ""), pc.equal(own["error"], ""))
            correct = int((given & (index == truth)).sum())
            self._count_given(label, pc.sum(withheld).as_py() or 0, int(given.sum()), correct)
            localised = own.filter(pc.match_substring(own["diagnostics"], '"common_mean":'))
            for text in localised["diagnostics"].to_pylist():
                self._take_diagnostics(label, read_diagnostics(text))

    def _count_given(self, label: str, withheld: int, given: int, correct: int) -> None:
        """Count predictions that are withheld, and of labelled images those that are given and correct."""
        self._withheld[label] += withheld
        self._given[label] += given
        self._correct[label] += correct

    def _take_warnings(self, path: str, warnings: Iterable[str]) -> None:
        for warning in warnings:
            first, n = self._warnings.get(warning, (path, 0))
            self._warnings[warning] = first, n + 1

    def _take_diagnostics(self, label: str, diagnostics: Mapping[str, Any]) -> None:
        self._localised[label] += "common_mean" in diagnostics
        self._flat[label] += is_flat(diagnostics)

    def warnings(self) -> list[str]:
        """Return what was decided where files were read, a line for each kind, and where common evidence is flat."""
        return [
            *(
                f"{first}{f' and {n - 1:,} more' * (n > 1)}: {warning}"
                for warning, (first, n) in self._warnings.items()
            ),
            *(describe_flat(label, flat, self._localised[label]) for label, flat in self._flat.items() if flat),
        ]

    def comparisons(self) -> dict[str, Comparison | None]:
        """Compare each method with zero-shot; None where no image has a truth."""
        return {label: tally.comparison() for label, tally in self._tallies.items()}

    def summary(self) -> dict[str, Any]:
        """Return the comparisons as the JSON file holds them."""
        return {name: summary_of(compared) for name, compared in self.comparisons().items()}

    def print(self) -> None:
        """Print the counts, and the accuracies where images have a truth."""
        answered, fallbacks, seconds = self.images - self.unreadable, self._fallbacks, self._seconds
        print(f"\n{answered} answered, {self.unreadable} unreadable, {fallbacks} fell back; {seconds:.1f} s")
        for name in (name for name, n in self._withheld.items() if n):
            others = f"; of the others {Accuracy(self._correct[name], n)} are right" if (n := self._given[name]) else ""
            print(f"{name:12} none of these: {Accuracy(self._withheld[name], answered)}{others}")
        memory = stream_labels(self._tallies)
        for index, (name, comparison) in enumerate(self.comparisons().items()):
            if comparison is None:
                return
            if index == 0:
                print(f"{'zero-shot':12} {comparison.reference}")
            if name != "zero_shot":
                print(f"{name:12} {comparison.accuracy}")
                print(
                    f"  paired: {name} alone right on {comparison.gained}, zero-shot alone right on "
                    f"{comparison.lost}; exact McNemar p = {comparison.p_value:.3g}"
                    f"{f', {DEPENDENT}' if name in memory else ''}"
                )


def summary_of(compared: Comparison | None) -> dict[str, Any] | None:
    """Return a comparison as the JSON file holds it."""
    if compared is None:
        return None
    accuracies = {"zero_shot": compared.reference, "method": compared.accuracy}
    counts = {name: {"correct": one.correct, "n": one.n} for name, one in accuracies.items()}
    return {**counts, "gained": compared.gained, "lost": compared.lost, "p_value": compared.p_value}
