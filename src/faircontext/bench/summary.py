"""What a run's rows say about each method: accuracies, calibration, and the paired comparison with zero-shot."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faircontext.metrics.calibration import brier_score, expected_calibration_error, negative_log_likelihood
from faircontext.metrics.classification import mean_per_class
from faircontext.metrics.stats import Accuracy, Interval, discordant, mcnemar_exact, paired_bootstrap

__all__ = ["Summary", "outcomes", "summarise"]


@dataclass(frozen=True)
class Summary:
    """One method on one data set; all figures but `with_refused` are over the images that could be read.

    Attributes:
        top1: accuracy.
        with_refused: the same where a refused file counts as a wrong answer.
        top5: whether the true class is among the five best.
        per_class: mean over classes of the accuracy on their images.
        ece: expected calibration error, 20 right-closed bins.
        brier: Brier score.
        nll: negative log-likelihood, in nats.
        zero_shot: accuracy of zero-shot on the same images.
        difference: of the method's accuracy less zero-shot's, with a paired bootstrap interval.
        gained: images that the method alone has right.
        lost: images that zero-shot alone has right.
        p_value: of the exact paired test (McNemar).
        fallbacks: images that were answered with less than the method's full procedure.
        seconds: mean per image.
    """

    top1: Accuracy
    with_refused: Accuracy
    top5: Accuracy
    per_class: float
    ece: float
    brier: float
    nll: float
    zero_shot: Accuracy
    difference: Interval
    gained: int
    lost: int
    p_value: float
    fallbacks: int
    seconds: float

    def describe(self, name: str) -> str:
        """Return the summary in a line."""
        refused = self.with_refused.number - self.top1.number
        words = [str(self.top1)]
        if refused:
            words.append(f"{100 * self.with_refused.value:.1f}% with the {refused} refused counted as wrong")
        if name != "zero_shot":
            low, high = 100 * self.difference.low, 100 * self.difference.high
            words.append(
                f"{100 * self.difference.value:+.1f} over zero-shot (95% interval {low:+.1f} to {high:+.1f}; alone "
                f"right on {self.gained}, zero-shot alone on {self.lost}; exact McNemar p = {self.p_value:.3g})"
            )
        words.append(f"top-5 {100 * self.top5.value:.1f}%, ECE {self.ece:.3f}, {self.seconds:.2f} s per image")
        return "; ".join(words)


def summarise(rows: pa.Table, classes: int) -> dict[str, Summary]:
    """Return a summary per method, in the rows' order; methods without an image that could be read are left out.

    Args:
        rows: of one run, see `faircontext.bench.schema.SCHEMA`. Classes are compared by index, not by name.
        classes: C.
    """
    found = {}
    for method in dict.fromkeys(rows["method"].to_pylist()):
        own = rows.filter(pc.equal(rows["method"], method))
        answered = own.filter(pc.equal(own["error"], ""))
        if len(answered):
            found[method] = _summarise(answered, len(own), classes)
    return found


def outcomes(rows: pa.Table) -> Mapping[str, np.ndarray]:
    """Return which answers are right, per image: those of the method, and those of zero-shot.

    Args:
        rows: of one method, none of them refused.
    """
    label = rows["label_index"].to_numpy()
    return {"method": rows["index"].to_numpy() == label, "zero_shot": rows["zero_shot_index"].to_numpy() == label}


def _summarise(rows: pa.Table, number: int, classes: int) -> Summary:
    right = outcomes(rows)
    method, zero_shot = right["method"], right["zero_shot"]
    label, index = rows["label_index"].to_numpy(), rows["index"].to_numpy()
    true = rows["label_probability"].to_numpy()
    gained, lost = discordant(method, zero_shot)
    in_top5 = [truth in top for truth, top in zip(label.tolist(), rows["top5"].to_pylist(), strict=True)]
    return Summary(
        Accuracy(int(method.sum()), len(rows)),
        Accuracy(int(method.sum()), number),
        Accuracy(sum(in_top5), len(rows)),
        mean_per_class(index, label, classes),
        expected_calibration_error(rows["confidence"].to_numpy(), method),
        brier_score(true, rows["probability_norm"].to_numpy()),
        negative_log_likelihood(true),
        Accuracy(int(zero_shot.sum()), len(rows)),
        paired_bootstrap(method, zero_shot),
        gained,
        lost,
        mcnemar_exact(gained, lost),
        int(pc.sum(pc.not_equal(rows["fallback"], "")).as_py()),
        float(np.mean(rows["seconds"].to_numpy())),
    )
