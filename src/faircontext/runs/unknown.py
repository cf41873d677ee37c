"""None of these: predictions that are withheld where a score of certainty is below a threshold.

Scores, of which more is more certain, are the probability of the prediction, the largest cosine between the image and a
class, and the negative free energy `log sum_c exp(s cos_c)` at the backbone's own scale s (Liu et al., 2020).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faircontext.errors import ArgumentError, and_more, check_choice, reason_of
from faircontext.runs.records import Row

if TYPE_CHECKING:
    from faircontext.runs.answer import AnsweredImage
    from faircontext.types import Prediction

__all__ = ["NONE", "SCORES", "WITHHELD", "Rejection", "UnknownOptions", "is_withheld", "read_thresholds"]

SCORES = ("probability", "cosine", "energy")
"""What a prediction can be judged by."""

_RANGES = {"probability": (0.0, 1.0), "cosine": (-1.0, 1.0), "energy": (-inf, inf)}
"""Of each score."""

NONE = "(unknown)"
"""What is shown to a person in place of a class's name."""

WITHHELD = "none of these: "
"""What a row's `fallback` begins with, or goes on with, where its prediction is withheld."""

SCHEMA_VERSION = 1


def is_withheld(row: Row) -> bool:
    """Return whether an image was answered by "none of these"."""
    return not row.prediction and not row.error


@dataclass(frozen=True)
class Rejection:
    """Withholds predictions whose score is below a threshold; they keep all but the class's name.

    Attributes:
        score: one of `SCORES`.
        thresholds: by what methods are called in rows; without one, scores are recorded and nothing is withheld.
        scale: the backbone's own, for the energy.
    """

    score: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    scale: float = 1.0

    def over(self, answers: "Iterable[AnsweredImage]") -> "Iterator[AnsweredImage]":
        """Yield answers with scores among their diagnostics, and without the predictions that are withheld."""
        for answered in answers:
            if answered.reference is None:
                yield answered
                continue
            scores = [self.scores_of(prediction, answered.reference) for prediction in answered.predictions]
            yield replace(
                answered,
                rows=tuple(self._judge(row, own) for row, own in zip(answered.rows, scores, strict=True)),
                predictions=tuple(
                    replace(
                        prediction, diagnostics={**prediction.diagnostics, **{name: own[name] for name in SCORES[1:]}}
                    )
                    for prediction, own in zip(answered.predictions, scores, strict=True)
                ),
            )

    def scores_of(self, prediction: "Prediction", reference: "Prediction") -> dict[str, float]:
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

    def _judge(self, row: Row, scores: Mapping[str, float]) -> Row:
        least, value = self.thresholds.get(row.method), scores[self.score]
        if least is None or value >= least:
            return row
        reason = f"{WITHHELD}{self.score} {value:.6g} is below {least:.6g}"
        return replace(row, prediction="", fallback=f"{row.fallback}; {reason}" if row.fallback else reason)


def _what_is_wrong(error: Exception) -> str:
    """Return in words why a document holds no thresholds."""
    if isinstance(error, ArgumentError):
        return str(error)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "it is no JSON"
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]!r}"
    return "its entries are of another kind"


def read_thresholds(path: Path) -> dict[str, Any]:
    """Read what `faircontext threshold` has written.

    Raises:
        ArgumentError: it cannot be read, or is something else.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        check_choice("score", document["score"], SCORES)
        thresholds = {str(name): float(value) for name, value in document["thresholds"].items()}
        {**document["run"]}["backbone"]
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {reason_of(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArgumentError(
            f"{path}: is no file of thresholds: {_what_is_wrong(error)}; make it with faircontext threshold RUN --out"
        ) from None
    for name, value in thresholds.items():
        _check_threshold(value, str(value), f"{path}, of {name},", document["score"])
    return {**document, "thresholds": thresholds}


def _check_threshold(value: float, written: str, where: str, score: str) -> None:
    low, high = _RANGES[score]
    if not isfinite(value) or not low <= value <= high:
        within = "" if high == inf else f" from {low:g} to {high:g}"
        raise ArgumentError(f"invalid threshold {written!r} of {where} {score}: must be a number{within}")


@dataclass(frozen=True, kw_only=True)
class UnknownOptions:
    """The option of "none of these"."""

    unknown: str | None = None
    """Answer "none of these" where a score is low: probability=0.3, cosine=0.25 or energy=9.5; or a file that
    faircontext threshold has written. A score alone, such as cosine, is recorded, and nothing is withheld."""

    def rejection(self, methods: Iterable[str], facts: Mapping[str, Any]) -> Rejection | None:
        """Return what withholds predictions, None where that is not asked for.

        Args:
            methods: what they are called in rows.
            facts: `backbone`, `weights`, `prompts` and `logit_scale` of the run, which thresholds of a file must be of.

        Raises:
            ArgumentError: the option has a value that cannot be used, or the file is of other scores.
        """
        if self.unknown is None:
            return None
        scale, score, value = facts["logit_scale"], *self._parse()
        if not isinstance(value, Path):
            return Rejection(score, {} if value is None else dict.fromkeys(methods, value), scale)
        document = read_thresholds(value)
        for name in ("backbone", "weights", "prompts"):
            if document["run"].get(name) != facts[name]:
                was, now = (str(one)[:60] for one in (document["run"].get(name), facts[name]))
                raise ArgumentError(f"{value}: was chosen for {name} {was}, and this run has {now}; choose one anew")
        if missing := [name for name in methods if name not in document["thresholds"]]:
            known = and_more([*document["thresholds"]])
            raise ArgumentError(f"{value}: has no threshold of {and_more(missing)}; it has those of {known}")
        return Rejection(document["score"], {name: document["thresholds"][name] for name in methods}, scale)

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

    def check_unknown(self) -> None:
        """Check what can be checked before a model is loaded; see `rejection`."""
        if self.unknown is not None and isinstance(path := self._parse()[1], Path):
            read_thresholds(path)
