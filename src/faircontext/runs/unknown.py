"""None of these: methods abstain where a score of certainty is below a threshold; probabilities may have a temperature.

Scores, of which more is more certain, are the probability of the prediction, the largest cosine between the image and a
class, and the negative free energy `log sum_c exp(s cos_c)` at the backbone's own scale s (Liu et al., 2020).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from faircontext.errors import ArgumentError, and_more
from faircontext.files import to_json
from faircontext.metrics.bootstrap import bootstrap_mean
from faircontext.metrics.scores import calibration_error_interval, fit_temperature, log_losses, temper
from faircontext.metrics.selective import OperatingPoint, threshold_for_coverage, threshold_for_risk
from faircontext.metrics.stats import Accuracy
from faircontext.runs.decisions import AnsweredImage, Decision, DecisionOptions
from faircontext.runs.records import ABSTAINED, Answer, is_analysis, is_correct, to_numpy
from faircontext.runs.store import Run
from faircontext.types import Prediction, read_diagnostics

if TYPE_CHECKING:
    from faircontext.labels import LabelSpace
    from faircontext.runs.documents import ThresholdFile

SCORES = ("probability", "cosine", "energy")
"""What a prediction can be judged by."""

_RANGES = {"probability": (0.0, 1.0), "cosine": (-1.0, 1.0), "energy": (-inf, inf)}
"""Of each score."""

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Abstention(Decision):
    """Abstains where the score of a prediction is below a threshold; the answer keeps all but the class's name.

    Attributes:
        score: one of `SCORES`.
        thresholds: by what methods are called in rows; without one, scores are recorded and no method abstains.
        scale: the backbone's own, for the energy.
        temperatures: by what methods are called in rows; without one, probabilities stay.
    """

    score: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    scale: float = 1.0
    temperatures: Mapping[str, float] = field(default_factory=dict)

    @property
    def config(self) -> Mapping[str, Any]:
        """What the configuration of a run says of it."""
        tempered = {"temperatures": dict(self.temperatures)} if self.temperatures else {}
        return {"unknown": {"score": self.score, "thresholds": dict(self.thresholds), **tempered}}

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the JSON document says of it."""
        return {"unknown": {**self.config["unknown"], "scale": self.scale}}

    def temper(self, method: str, prediction: Prediction) -> Prediction:
        """Return a prediction with the method's temperature."""
        if (temperature := self.temperatures.get(method)) is None:
            return prediction
        stored = prediction.probabilities.numpy().astype(np.float32)  # what temperatures are fitted on
        exact = temper(stored, temperature)
        return replace(prediction, probabilities=prediction.probabilities.new_tensor(exact))

    def decide(self, image: AnsweredImage) -> AnsweredImage:
        """Return an image with scores among the diagnostics of its answers, and without predictions of low score."""
        if image.reference is None:
            return image
        pairs = zip(image.answers, image.predictions, strict=True)
        return replace(image, answers=tuple(self._judge(*pair, image.reference) for pair in pairs))

    def scores_of(self, prediction: Prediction, reference: Prediction) -> dict[str, float]:
        """Return all scores of a prediction.

        Args:
            prediction: of a method.
            reference: zero-shot's, whose cosines stand in for those of a method that has none of its own.
        """
        cosines = reference.cosines if prediction.cosines is None else prediction.cosines
        if cosines is None:
            raise ArgumentError("zero-shot's prediction has no cosines; use the score probability")
        energy = float((self.scale * cosines.double()).logsumexp(-1))
        return {"probability": prediction.confidence, "cosine": float(cosines.max()), "energy": energy}

    def _judge(self, answer: Answer, prediction: Prediction, reference: Prediction) -> Answer:
        scores = self.scores_of(prediction, reference)
        diagnostics = {**prediction.diagnostics, **{name: scores[name] for name in SCORES[1:]}}
        answer = replace(answer, diagnostics=to_json(diagnostics, indent=None, ensure_ascii=True))
        least, value = self.thresholds.get(answer.method), scores[self.score]
        if least is None or np.float32(value) >= np.float32(least):  # `threshold` prints the digits of these
            return answer
        reason = f"{ABSTAINED}{self.score} {value:.6g} is below {least:.6g}"
        return replace(answer, prediction="", fallback=f"{answer.fallback}; {reason}" if answer.fallback else reason)


def read_thresholds(path: Path) -> "ThresholdFile":
    """Read what `faircontext threshold` has written.

    Raises:
        ArgumentError: it cannot be read, or is something else.
    """
    from faircontext.runs.documents import ThresholdFile, read_entries

    file = read_entries(ThresholdFile, path, "file of thresholds", "make it with faircontext threshold RUN --out")
    for name, value in file.thresholds.items():
        _check_threshold(value, str(value), f"{path}, of {name},", file.score)
    return file


def _check_threshold(value: float, written: str, where: str, score: str) -> None:
    low, high = _RANGES[score]
    if not isfinite(value) or not low <= value <= high:
        within = "" if high == inf else f" from {low:g} to {high:g}"
        raise ArgumentError(f"invalid threshold {written!r} of {where} {score}: must be a number{within}")


@dataclass(frozen=True, kw_only=True)
class UnknownOptions(DecisionOptions):
    """The option of "none of these"."""

    group: ClassVar[str] = "decision"
    files: ClassVar[tuple[str, ...]] = ("unknown",)

    unknown: str | None = None
    """Withhold predictions with a low score: probability=0.3, cosine=0.25 or energy=9.5, or a file written by
    faircontext threshold. A score without a value, such as cosine, is recorded only."""

    @property
    def decisions(self) -> tuple[str, ...]:
        """See `DecisionOptions`."""
        return (*(() if self.unknown is None else ("--unknown",)), *super().decisions)

    def check_decision(self, methods: Sequence[str]) -> None:
        """See `DecisionOptions`; a file of thresholds is read."""
        super().check_decision(methods)
        if self.unknown is not None and isinstance(path := self._parse()[1], Path):
            read_thresholds(path)

    def decision_for(self, labels: "LabelSpace", methods: Sequence[str], prompts: str) -> Decision:
        """See `DecisionOptions`; thresholds of a file must be of the same model, prompts and methods."""
        if self.unknown is None:
            return super().decision_for(labels, methods, prompts)
        backbone, (score, value) = labels.backbone, self._parse()
        scale = backbone.logit_scale
        if not isinstance(value, Path):
            return Abstention(score, {} if value is None else dict.fromkeys(methods, value), scale)
        file = read_thresholds(value)
        wanted = {"backbone": backbone.name, "weights": backbone.weights_hash, "prompts": prompts}
        for name, now in wanted.items():
            if (was := getattr(file.run, name)) != now:
                was, now = str(was)[:60], str(now)[:60]
                raise ArgumentError(f"{value}: was chosen for {name} {was}, and this run has {now}; choose one anew")
        known = file.thresholds or file.temperatures
        if missing := [name for name in methods if name not in known]:
            what = "temperature" if file.temperatures else "threshold"
            raise ArgumentError(f"{value}: has no {what} of {and_more(missing)}; it has those of {and_more([*known])}")
        chosen = (file.thresholds, file.temperatures)
        thresholds, temperatures = ({name: of[name] for name in methods if name in of} for of in chosen)
        return Abstention(file.score, thresholds, scale, temperatures)

    def _parse(self) -> tuple[str, float | Path | None]:
        """Return the score and its threshold, or the file that has both."""
        word = self.unknown or ""
        score, equals, number = word.partition("=")
        if score not in SCORES:
            if equals or not word.lower().endswith(".json"):
                raise ArgumentError(
                    f"--unknown {word}: write SCORE=THRESHOLD with one of {', '.join(SCORES)}, or name a file that "
                    "faircontext threshold has written, which ends in .json"
                )
            return "", Path(word)
        if not equals:
            return score, None
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        _check_threshold(value, number, "--unknown", score)
        return score, value


def choose_thresholds(
    run: Run, score: str, coverage: float | None, risk: float | None, temperature: bool = False
) -> tuple[dict[str, OperatingPoint], dict[str, Any]]:
    """Choose a threshold for each method of a labelled run, and return them with the file that `--unknown` reads.

    Args:
        run: where scores and labels are.
        score: one of `SCORES`.
        coverage: least share of the images that is answered; None where `risk` is given.
        risk: largest share of wrong predictions among the answered; None where `coverage` is given.
        temperature: whether the file also has temperatures, see `_fit`; then both may be None.

    Raises:
        ArgumentError: not exactly one of the two is given, the run has no labels or lacks the score, or no threshold
            has so little risk.
    """
    asked = {name: share for name, share in (("coverage", coverage), ("risk", risk)) if share is not None}
    if len(asked) > 1 or not (asked or temperature):
        raise ArgumentError("give either --coverage, the share of images to answer, or --risk, the share of errors")
    if run.document["config"].get("unknown", {}).get("temperatures"):
        raise ArgumentError(f"{run.folder}: was made with temperatures; choose them, and thresholds, on a run without")
    points, temperatures, calibration = dict[str, OperatingPoint](), dict[str, float](), dict[str, Any]()
    for method in (name for name in run.document["config"]["methods"] if not is_analysis(name)):
        rows = _labelled_rows(run, method, run.tables() if temperature else [run.rows])
        confidence, correct = to_numpy(rows["confidence"]), is_correct(rows)
        if temperature:
            temperatures[method], calibration[method], confidence = _fit(run, rows)
        scores = confidence if score == SCORES[0] or not asked else _scores(run, rows, score)
        values = scores.astype(np.float32)  # as `Abstention` compares them
        if coverage is not None:
            points[method] = threshold_for_coverage(values, correct, coverage)
        elif risk is not None:
            points[method] = threshold_for_risk(values, correct, risk)
    document = _document(run, score, points, asked)
    return points, document | ({"temperatures": temperatures, "calibration": calibration} if temperature else {})


def _labelled_rows(run: Run, method: str, tables: Iterable[pa.Table]) -> pa.Table:
    wanted = (pc.field("method") == method) & (pc.field("error") == "") & pc.field("label_index").is_valid()
    rows = [table.filter(wanted) for table in tables]
    if not any(map(len, rows)):
        raise ArgumentError(
            f"{run.folder}: has no labelled image that was answered; choose thresholds on a labelled run"
        )
    return pa.concat_tables(rows)


def _fit(run: Run, rows: pa.Table) -> tuple[float, dict[str, Any], Float[np.ndarray, " images"]]:
    """Fit a temperature on half of the images, which the run's seed draws.

    Returns:
        The temperature, the calibration of the other half before and after, and the confidence of all images after.
    """
    config, n, correct = run.document["config"], len(rows), is_correct(rows)
    flat = np.asarray(pc.list_flatten(rows["probabilities"])) if "probabilities" in rows.column_names else np.empty(0)
    if len(flat) != n * config["dataset"]["classes"]:
        what = "has no probabilities of every class; make the run with faircontext classify --out RUN --scores FILE"
        raise ArgumentError(f"{run.folder}: {what}")
    before, labels, index = flat.reshape(n, -1), to_numpy(rows["label_index"]), to_numpy(rows["index"])
    fitted, rest = np.split(np.random.default_rng(config["seed"]).permutation(n), [n // 2])
    temperature, calibration = fit_temperature(before[fitted], labels[fitted]), dict[str, Any](n=len(rest))
    after = temper(before, temperature).astype(np.float32)
    for when, values in (("before", before), ("after", after)):
        error = calibration_error_interval(values[rest, index[rest]], correct[rest])
        calibration[f"NLL {when}"] = vars(bootstrap_mean(log_losses(values[rest, labels[rest]])))
        calibration[f"ECE {when}"] = vars(error)
    return temperature, calibration, after[np.arange(n), index]


def _scores(run: Run, rows: pa.Table, score: str) -> np.ndarray:
    values = [read_diagnostics(text).get(score) for text in rows["diagnostics"].to_pylist()]
    if any(value is None for value in values):
        raise ArgumentError(f"{run.folder}: has no {score} of its predictions; make the run with --unknown {score}")
    return np.array(values, np.float64)


def _document(run: Run, score: str, points: Mapping[str, OperatingPoint], asked: Mapping[str, float]) -> dict[str, Any]:
    config = run.document["config"]
    dataset, backbone = config["dataset"], config["backbone"]
    return {
        "schema_version": SCHEMA_VERSION,
        "score": score,
        "thresholds": {name: point.threshold for name, point in points.items()},
        "asked": dict(asked),
        "run": {
            "dataset": dataset["name"],
            "classes": dataset["classes"],
            "backbone": backbone["name"],
            "weights": backbone.get("weights"),
            "prompts": config["prompts"],
            "seed": config["seed"],
        },
        "measured": {
            name: {"coverage": _measured(point.coverage), "risk": _measured(point.risk)}
            for name, point in points.items()
        },
    }


def _measured(share: Accuracy) -> dict[str, Any]:
    return {"value": share.value, "n": share.n, "interval": list(share.interval)}
