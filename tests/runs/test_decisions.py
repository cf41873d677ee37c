"""A decision that no module of the package knows: its options, what it makes of answers, and what is recorded of it."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from faircontext import FairContextError
from faircontext.cli.options import parse_options
from faircontext.labels import LabelSpace
from faircontext.runs.classify import classify
from faircontext.runs.decisions import AnsweredImage, Decision, DecisionOptions
from faircontext.runs.options import ClassifyOptions
from faircontext.runs.records import Answer
from faircontext.runs.store import load_run


@dataclass(frozen=True)
class Shortened(Decision):
    """Shortens the names of predictions."""

    letters: int

    cell_names: ClassVar[tuple[str, ...]] = ("letters",)

    @property
    def config(self) -> Mapping[str, Any]:
        """What the configuration of a run says of it."""
        return {"shortened": {"letters": self.letters}}

    def decide(self, image: AnsweredImage) -> AnsweredImage:
        """Return an image with shorter predictions."""
        answers = (replace(answer, prediction=answer.prediction[: self.letters]) for answer in image.answers)
        return replace(image, answers=tuple(answers))

    def cells(self, answer: Answer) -> Mapping[str, str]:
        """Return the further cells of an answer's row in the CSV file."""
        return {"letters": str(len(answer.prediction))}


@dataclass(frozen=True, kw_only=True)
class ShortenedOptions(DecisionOptions):
    """The option of it."""

    letters: int | None = None
    """Of a prediction."""

    @property
    def decisions(self) -> tuple[str, ...]:
        """See `DecisionOptions`."""
        return (*(() if self.letters is None else ("--letters",)), *super().decisions)

    def decision_for(self, labels: LabelSpace, methods: Sequence[str], prompts: str) -> Decision:
        """See `DecisionOptions`."""
        usual = super().decision_for(labels, methods, prompts)
        return usual if self.letters is None else Shortened(self.letters)


@dataclass(frozen=True, kw_only=True)
class Options(ShortenedOptions, ClassifyOptions):
    """Options of `classify` with those of the decision."""


@pytest.mark.parametrize("stored", [False, True])
def test_a_decision_of_somebody_else_is_carried_by_every_part(
    stored: bool, picture_set: Path, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    words = f"--labels square,circle --method zero_shot --precision fp32 --letters 2 --limit 3 --csv {tmp_path}/a.csv"
    words += f" --json {tmp_path}/a.json --backbone local-dir:{tiny_folder('clip')}"
    words += f" --out {tmp_path / 'run'}" if stored else ""
    options = parse_options(Options, words.split(), "classify")
    options.check()
    assert classify(options, [str(picture_set)], (), print) == 0
    with (tmp_path / "a.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == 3
    assert {(row["prediction"], row["letters"]) for row in rows} <= {("sq", "2"), ("ci", "2")}
    assert json.loads((tmp_path / "a.json").read_text())["run"]["shortened"] == {"letters": 2}
    if stored:
        run = load_run(tmp_path / "run")
        assert run.document["config"]["shortened"] == {"letters": 2}
        assert {len(text) for text in run.rows["prediction"].to_pylist()} == {2}


def test_two_decisions_on_one_answer_are_refused() -> None:
    options = Options(labels="a,b", method="zero_shot", letters=2, multi_label=True)
    with pytest.raises(
        FairContextError, match="--multi-label is not possible with --letters: an answer has one decision"
    ):
        options.check()
