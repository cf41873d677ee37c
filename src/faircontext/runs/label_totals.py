"""What is said at the end of a run on photos that may have several labels; see `Totals`.

For every labelled image the log-odds of all classes are held, since average precision ranks them: four bytes a class.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.metrics.multi_label import score_of
from faircontext.runs.answer import AnsweredImage
from faircontext.runs.label_results import LabelMetrics, label_arrays
from faircontext.runs.totals import Totals

__all__ = ["LabelTotals"]


class LabelTotals(Totals):
    """Counts images and the labels that they are given.

    Args:
        methods: what they are called in rows.
        classes: how many there are.
        threshold: from which score on a label is given.
    """

    def __init__(self, methods: Sequence[str], classes: int, threshold: float) -> None:
        super().__init__(methods)
        self._classes, self._threshold = classes, threshold
        self._logits, self._targets = array("f"), array("b")
        self._labels = self._empty = 0

    def add(self, answered: AnsweredImage) -> None:
        """Count an image."""
        self.images += 1
        self.unreadable += bool(answered.error)
        self._seconds += sum(row.seconds for row in answered.rows)
        self._take_warnings(answered.path, answered.warnings)
        if (logits := answered.label_logits) is None:
            return
        self._count(logits[None])
        if answered.labels is not None:
            targets = np.zeros(self._classes, np.bool_)
            targets[[*answered.labels]] = True
            self._hold(logits, targets)

    def add_rows(self, rows: pa.Table) -> None:
        """Count stored rows."""
        self.images += len(rows)
        self.unreadable += pc.sum(pc.not_equal(rows["error"], "")).as_py() or 0
        self._seconds += pc.sum(rows["seconds"]).as_py() or 0.0
        noted = rows.filter(pc.greater(pc.list_value_length(rows["warnings"]), 0))
        for path, warnings in zip(noted["path"].to_pylist(), noted["warnings"].to_pylist(), strict=True):
            self._take_warnings(path, warnings)
        whole = rows.filter(pc.equal(rows["error"], ""))
        self._count(np.asarray(pc.list_flatten(whole["label_logits"]), np.float32).reshape(-1, self._classes))
        self._hold(*label_arrays(whole.filter(pc.is_valid(whole["targets"])), self._classes, "these rows"))

    def _count(self, logits: np.ndarray) -> None:
        given = (score_of(logits) >= self._threshold).sum(1)
        self._labels += int(given.sum())
        self._empty += int((given == 0).sum())

    def _hold(self, logits: np.ndarray, targets: np.ndarray) -> None:
        self._logits.frombytes(np.ascontiguousarray(logits, np.float32).tobytes())
        self._targets.frombytes(np.ascontiguousarray(targets).tobytes())

    @property
    def metrics(self) -> LabelMetrics:
        """Of the labelled images so far."""
        logits = np.array(self._logits, np.float32).reshape(-1, self._classes)
        return LabelMetrics(logits, np.array(self._targets, np.bool_).reshape(-1, self._classes), self._threshold)

    def summary(self) -> dict[str, Any]:
        """Return the metrics as the JSON file holds them."""
        return {"zero_shot": self.metrics.summary()}

    def print(self) -> None:
        """Print the counts, and the metrics where labels are known."""
        answered, metrics = self.images - self.unreadable, self.metrics
        mean = f", {self._labels / answered:.2f} labels an image, {self._empty} with none" if answered else ""
        print(f"\n{answered} answered, {self.unreadable} unreadable{mean}; {self._seconds:.1f} s")
        if metrics.n:
            print(f"{'zero_shot':12} {metrics}")
