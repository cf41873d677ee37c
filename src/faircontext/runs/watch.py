"""What is counted and shown while a run goes on: accuracies so far, progress, a look at zero-shot at its beginning."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from faircontext.metrics.stats import Accuracy, chance_p_value
from faircontext.runs.options import Say
from faircontext.runs.plan import Plan
from faircontext.runs.records import Record

__all__ = ["CHECKED", "Watch"]

CHECKED = 100
"""After this many images zero-shot must be better than chance."""

LEVEL = 0.05
"""Of that test."""

LINE_SECONDS = 30.0
"""Where there is no terminal, a line of progress is printed this often."""


class Watch:
    """Accuracies so far, printed as the run goes, and a look at zero-shot after the first images.

    Args:
        plan: what is running.
        warn: takes warnings, a line each.

    Attributes:
        images: answered or unreadable.
        unreadable: files that could not be read.
    """

    def __init__(self, plan: Plan, warn: Say) -> None:
        self._plan, self._warn = plan, warn
        self._first = next(iter(plan.setup.methods))
        self.images = self.unreadable = self._labelled = self._zero_shot = 0
        self._correct = dict.fromkeys(plan.setup.methods, 0)

    def take(self, rows: pa.Table) -> None:
        """Count rows that are there from before."""
        first = rows.filter(pc.equal(rows["method"], self._first))
        self.images += len(first)
        self.unreadable += _count(pc.not_equal(first["error"], ""))
        labelled = first.filter(pc.and_(pc.equal(first["error"], ""), pc.is_valid(first["label_index"])))
        self._labelled += len(labelled)
        self._zero_shot += _count(pc.equal(labelled["zero_shot_index"], labelled["label_index"]))
        correct = rows["method"].filter(pc.fill_null(pc.equal(rows["index"], rows["label_index"]), False))
        for label in self._correct:
            self._correct[label] += _count(pc.equal(correct, label))

    def add(self, records: Sequence[Record]) -> None:
        """Count an image."""
        self.images += 1
        if records[0].error:
            self.unreadable += 1
            return
        if records[0].label_index is None:
            return
        self._labelled += 1
        self._zero_shot += records[0].zero_shot_index == records[0].label_index
        for record in records:
            self._correct[record.method] += record.index == record.label_index
        if self._labelled == CHECKED:
            self._check_chance()

    def _check_chance(self) -> None:
        classes = len(self._plan.dataset.names)
        p_value = chance_p_value(self._zero_shot, self._labelled, classes)
        if p_value > LEVEL:
            name, accuracy = self._plan.dataset.name, Accuracy(self._zero_shot, self._labelled)
            self._warn(
                f"{name}: zero-shot is not better than chance on the first images ({accuracy}; chance "
                f"{100 / classes:.1f}%, p = {p_value:.2g}); check the order of classes (faircontext data check {name})"
                ", the weights, and whether the model knows these classes"
            )

    def status(self) -> str:
        """Return the accuracies so far, without intervals, which results have: a line for many methods stays short."""
        if self._plan.setup.label_rule is not None:
            return f"{self.images - self.unreadable} answered"
        if not self._labelled:
            return "no label is known" if self.images > self.unreadable else "nothing answered yet"
        rates = (f"{name} {100 * correct / self._labelled:.1f}%" for name, correct in self._correct.items())
        return f"{', '.join(rates)} (n = {self._labelled})"

    def follow(self, stream: Iterable[list[Record]], total: int) -> Iterator[list[Record]]:
        """Pass records on, with a bar on a terminal, or a line now and then where there is none."""
        shown = sys.stderr.isatty()
        name, printed, begin = self._plan.dataset.name, time.perf_counter(), time.perf_counter()
        with tqdm(total=total, desc=name, unit="image", disable=not shown, leave=False, dynamic_ncols=True) as bar:
            for n, records in enumerate(stream, 1):
                yield records
                self.add(records)
                bar.set_postfix_str(self.status(), refresh=False)
                bar.update()
                now = time.perf_counter()
                if not shown and now - printed > LINE_SECONDS:
                    printed, rate = now, n / (now - begin)
                    speed = f"{n} of {total} images, {rate:.2f} images/s, {(total - n) / rate / 60:.0f} min left"
                    print(f"{name}: {speed}; {self.status()}", flush=True)


def _count(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0
