"""Temperatures of methods, fitted on half of a labelled run and measured on the other."""

from collections.abc import Iterable, Mapping
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
        measured: negative log-likelihood and expected calibration error there, before and after.
        confidence: probabilities of the predictions on all labelled images, after.
    """

    temperature: float
    n: int
    measured: Mapping[str, Interval]
    confidence: Float[np.ndarray, " images"]

    def __str__(self) -> str:
        ends = (f"{name} {one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for name, one in self.measured.items())
        return f"temperature {self.temperature:.4g}; on {self.n} images without the fit: {', '.join(ends)}"


def fit_temperatures(run: Run) -> dict[str, Tempered]:
    """Return a temperature for each method of a run; the run's seed draws the halves, the same for all.

    Raises:
        ArgumentError: the run has no probabilities of every class, or nothing can be fitted, see `labelled_rows` and
            `fit_temperature`.
    """
    config = run.document["config"]
    if "scores" not in config.get("stored", ()):
        what = "has no probabilities of every class; make the run with faircontext classify --out RUN --scores FILE"
        raise ArgumentError(f"{run.folder}: {what}")
    return {name: _tempered(run, name) for name in config["methods"] if not is_analysis(name)}


def labelled_rows(run: Run, method: str, tables: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of a method's answers for images with a label.

    Args:
        run: where they are.
        method: what it is called there.
        tables: of the run's rows.

    Raises:
        ArgumentError: there is none, or the run's probabilities have a temperature already.
    """
    if run.document["config"].get("unknown", {}).get("temperatures"):
        raise ArgumentError(f"{run.folder}: was made with temperatures; choose them, and thresholds, on a run without")
    parts = []
    for rows in tables:
        wanted = pc.and_(pc.equal(rows["method"], method), pc.equal(rows["error"], ""))
        parts.append(rows.filter(pc.and_(wanted, pc.is_valid(rows["label_index"]))))
    if not any(map(len, parts)):
        what = "has no labelled image that was answered; choose thresholds on a labelled run"
        raise ArgumentError(f"{run.folder}: {what}")
    return pa.concat_tables(parts)


def _tempered(run: Run, method: str) -> Tempered:
    rows, config = labelled_rows(run, method, run.tables()), run.document["config"]
    flat, n = np.asarray(pc.list_flatten(rows["probabilities"]), np.float64), len(rows)
    if len(flat) != n * config["dataset"]["classes"]:
        raise ArgumentError(f"{run.folder}: lacks probabilities of {method}; delete it, and make the run again")
    before, labels, index = flat.reshape(n, -1), to_numpy(rows["label_index"]), to_numpy(rows["index"])
    fitted, rest = np.split(np.random.default_rng(config["seed"]).permutation(n), [n // 2])
    temperature = fit_temperature(before[fitted], labels[fitted])
    after, measured = temper(before, temperature), dict[str, Interval]()
    for when, values in (("before", before), ("after", after)):
        measured[f"NLL {when}"] = bootstrap_mean(log_losses(values[rest, labels[rest]]))
        measured[f"ECE {when}"] = calibration_error_interval(values[rest, index[rest]], is_correct(rows)[rest])
    return Tempered(temperature, len(rest), measured, after[np.arange(n), index])
