"""An image with the answers of all methods, and the decision that is made on them before they are written.

Here that is the usual one: the class that ranks first stands. Others derive from `Decision`; no other module knows
which there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import Float

from faircontext.errors import ArgumentError
from faircontext.runs.records import UNKNOWN, Answer
from faircontext.runs.results import describe_results
from faircontext.runs.store import Run
from faircontext.runs.summary import Summary
from faircontext.types import Prediction

if TYPE_CHECKING:
    from torch import Tensor

    from faircontext.labels import LabelSpace
else:
    Tensor = Any  # a run is read without torch


@dataclass(frozen=True)
class AnsweredImage:
    """All methods' answers for one image.

    Attributes:
        answers: what is written, one for each method.
        predictions: what they were made from, in the same order; none where the file is unreadable.
        reference: zero-shot's prediction.
        features: of the plain view, unit norm; None where the file is unreadable.
    """

    answers: tuple[Answer, ...]
    predictions: tuple[Prediction, ...] = ()
    reference: Prediction | None = None
    features: Float[Tensor, " dim"] | None = None

    @property
    def path(self) -> str:
        """The image."""
        return self.answers[0].path

    @property
    def error(self) -> str:
        """Why the file is unreadable, or empty."""
        return self.answers[0].error


@dataclass(frozen=True, kw_only=True)
class DecisionOptions:
    """What options say of the decision: here the usual one.

    Options of others derive from this. They are parts of the same options, and each hands on to the next, by `super()`,
    what is not asked of it.
    """

    group: ClassVar[str] = "decision"

    @property
    def several(self) -> bool:
        """Whether an image may have several labels."""
        return False

    @property
    def decisions(self) -> tuple[str, ...]:
        """Options that ask for another decision than the usual one."""
        return ()

    def check_decision(self, methods: Sequence[str]) -> None:  # noqa: ARG002
        """Check what can be checked before a model is loaded.

        Args:
            methods: what they are called; or `all` alone.

        Raises:
            ArgumentError: a value cannot be used, or several decisions are asked for.
        """
        if len(self.decisions) > 1:
            first, second = self.decisions[:2]
            raise ArgumentError(f"{second} is not possible with {first}: an answer has one decision; leave one out")

    def decision_for(self, labels: "LabelSpace", methods: Sequence[str], prompts: str) -> "Decision":  # noqa: ARG002
        """Return the decision that is asked for.

        Args:
            labels: the label space.
            methods: what they are called in rows.
            prompts: what they are called in runs.

        Raises:
            FairContextError: it is not possible with these.
        """
        return Decision()


class Decision:
    """Takes the class that ranks first.

    Attributes:
        several: whether an image may have several labels.
        columns: further columns of a run's rows, see `Answer`.
        cell_names: further columns of the CSV file.
    """

    several: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ()
    cell_names: ClassVar[tuple[str, ...]] = ()

    @property
    def config(self) -> Mapping[str, Any]:
        """What the configuration of a run says of it; nothing of the usual one, so that hashes of runs stay."""
        return {}

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the JSON document says of it."""
        return self.config

    @property
    def summary(self) -> str:
        """What is said of it before a run, in a line; empty for the usual one."""
        return ""

    def temper(self, method: str, prediction: Prediction) -> Prediction:  # noqa: ARG002
        """Return the prediction from which a method's answer is made; `method` is what it is called in rows."""
        return prediction

    def decide(self, image: AnsweredImage) -> AnsweredImage:
        """Return an image with the answers that are to be written."""
        return image

    def entry(self, answer: Answer, names: Sequence[str]) -> dict[str, Any]:
        """Return an answer as JSON documents have it; `names` are those of the classes."""
        return answer.entry(names)

    def cells(self, answer: Answer) -> Mapping[str, str]:  # noqa: ARG002
        """Return the further cells of an answer's row in the CSV file."""
        return {}

    def count(self, methods: Sequence[str], classes: int) -> Summary:  # noqa: ARG002
        """Return what counts answers.

        Args:
            methods: what they are called in rows.
            classes: how many there are.
        """
        return Summary(methods)

    def describe(self, run: Run) -> Iterator[str]:
        """Yield what a run has measured, a line each."""
        return describe_results(run)

    def heading(self, methods: Sequence[str]) -> str:
        """Return the heading of the lines that are shown, one for each image."""
        titles = methods if len(methods) > 1 else ("prediction",)
        return _in_columns([(title, "prob.") for title in titles], "zero-shot", methods)

    def line(self, answers: Sequence[Answer], names: Sequence[str]) -> str:  # noqa: ARG002
        """Return what is shown of the answers for an image that could be read."""
        pairs = [(answer.prediction or UNKNOWN, f"{answer.confidence:.3f}") for answer in answers]
        return _in_columns(pairs, answers[0].zero_shot, [answer.method for answer in answers])


def _in_columns(pairs: Sequence[tuple[str, str]], zero_shot: str, methods: Sequence[str]) -> str:
    """Return a line of each method's class and probability, which tells more of an answer than its votes do.

    Zero-shot's class stands beside them, unless it is one of several methods.
    """
    wide = 12 if len(methods) > 1 else 20
    beside = [f"{zero_shot:{wide}.{wide}}"] * (len(methods) == 1 or "zero_shot" not in methods)
    return "  ".join([*(f"{name:{wide}.{wide}} {probability:>5}" for name, probability in pairs), *beside])
