"""Temperatures of methods, fitted on half of a labelled run and measured on the other."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from faircontext.errors import ArgumentError
from faircontext.metrics.bootstrap import bootstrap_mean
from faircontext.metrics.scores import log_losses
from faircontext.metrics.stats import Interval
from faircontext.metrics.temperature import calibration_error_interval, fit_temperature, temper
from faircontext.runs.records import is_analysis, is_correct, to_numpy
from faircontext.runs.store import Run


@dataclass(frozen=True, eq=False)
class Tempered:
    """What a temperature does to a method.

    Attributes:
        temperature: fitted on half of the labelled images.
        n: of the other half, which is measured.
        nll: negative log-likelihood there, before and after, with bootstrap intervals.
        ece: expected calibration error, the same.
        confidence: probabilities of the predictions on all labelled images, after.
    """

    temperature: float
    n: int
    nll: tuple[Interval, Interval]
    ece: tuple[Interval, Interval]
    confidence: Float[np.ndarray, " images"]

    def __str__(self) -> str:
        nll, ece = (" to ".join(_show(one) for one in pair) for pair in (self.nll, self.ece))
        return f"temperature {self.temperature:.4g}: NLL {nll}, ECE {ece} (n = {self.n}, not those of the fit)"


def _show(value: Interval) -> str:
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def fit_temperatures(run: Run) -> dict[str, Tempered]:
    """Return a temperature for each method of a run; the run's seed draws the halves, the same for all.

    Raises:
        ArgumentError: the run has no probabilities of every class, no labels, or has temperatures already; or nothing
            can be fitted, see `fit_temperature`.
    """
    config = run.document["config"]
    if config.get("unknown", {}).get("temperatures"):
        raise ArgumentError(f"{run.folder}: was made with temperatures; fit them on a run without")
    if "scores" not in config.get("stored", ()):
        what = "has no probabilities of every class; make the run with faircontext classify --out RUN --scores FILE"
        raise ArgumentError(f"{run.folder}: {what}")
    return {name: _tempered(run, name) for name in config["methods"] if not is_analysis(name)}


def labelled_rows(run: Run, method: str, tables: Iterator[pa.Table]) -> pa.Table:
    """Return the rows of a method's answers for images with a label.

    Raises:
        ArgumentError: there is none.
    """
    parts = []
    for rows in tables:
        wanted = pc.and_(pc.equal(rows["method"], method), pc.equal(rows["error"], ""))
        parts.append(rows.filter(pc.and_(wanted, pc.is_valid(rows["label_index"]))))
    if not any(map(len, parts)):
        what = "has no labelled image that was answered; choose thresholds on a labelled run"
        raise ArgumentError(f"{run.folder}: {what}")
    return pa.concat_tables(parts)


def _tempered(run: Run, method: str) -> Tempered:
    rows, classes = labelled_rows(run, method, run.tables()), run.document["config"]["dataset"]["classes"]
    flat = np.asarray(pc.list_flatten(rows["probabilities"]), np.float32)
    if len(flat) != len(rows) * classes:
        raise ArgumentError(f"{run.folder}: lacks probabilities of {method}; delete it, and make the run again")
    before, labels = flat.reshape(len(rows), classes), to_numpy(rows["label_index"])
    order = np.random.default_rng(run.document["config"]["seed"]).permutation(len(rows))
    fitted, others = order[: len(rows) // 2], order[len(rows) // 2 :]
    temperature = fit_temperature(before[fitted], labels[fitted])
    after, at, correct = temper(before, temperature), (np.arange(len(rows)), to_numpy(rows["index"])), is_correct(rows)
    nll, ece = list[Interval](), list[Interval]()
    for values in (before, after):
        exact = np.clip(values[others].astype(np.float64), 0, 1)
        nll.append(bootstrap_mean(log_losses(exact[np.arange(len(others)), labels[others]])))
        ece.append(calibration_error_interval(exact[np.arange(len(others)), at[1][others]], correct[others]))
    return Tempered(temperature, len(others), (nll[0], nll[1]), (ece[0], ece[1]), after[at])
