"""What is counted of answers, and said at the end."""

import pytest

from faircontext.runs.records import Answer
from faircontext.runs.summary import Summary


def answer(method: str, probability: float, index: int, prediction: str = "a class") -> Answer:
    """Return an answer where zero-shot's class is the first."""
    return Answer("a.png", "", "a class", prediction, None, probability, method, index=index, zero_shot_index=0)


SURE, LOW, UNLIKE, EDGE = (0.7, 0), (0.59, 0), (0.9, 1), (0.6, 0)


@pytest.mark.parametrize(
    ("given", "withheld", "last"),
    [
        ([SURE, LOW, UNLIKE, EDGE], 0, "below 0.6 or unlike zero-shot: 2 of 4 answers; see --unknown"),
        ([LOW], 0, "below 0.6 or unlike zero-shot: 1 of 1 answers; see --unknown"),
        ([SURE, UNLIKE], 3, "below 0.6 or unlike zero-shot: 1 of 2 answers"),
        ([SURE, EDGE], 0, ""),
        ([], 2, ""),
    ],
)
def test_answers_that_are_less_to_be_relied_on_are_counted(
    given: list[tuple[float, int]], withheld: int, last: str
) -> None:
    summary = Summary(["fcl"])
    for probability, index in given:
        summary.add([answer("fcl", probability, index)])
    for _ in range(withheld):
        summary.add([answer("fcl", 0.2, 1, "")])
    summary.add([Answer("bad.png", method="fcl", error="it is empty")])
    lines = [line for line in summary.lines() if line.startswith("below ")]
    assert lines == ([last] if last else [])


def test_each_of_several_methods_is_named() -> None:
    summary = Summary(["zero_shot", "tpt", "fcl"])
    summary.add([answer("zero_shot", *SURE), answer("tpt", *UNLIKE), answer("fcl", *LOW)])
    assert [*summary.lines()][-1] == "below 0.6 or unlike zero-shot: tpt 1 of 1, fcl 1 of 1 answers; see --unknown"
