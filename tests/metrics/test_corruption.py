"""The mean corruption error, against values that are known by hand and against single images drawn one by one."""

import numpy as np
import pytest

from faircontext import FairContextError
from faircontext.metrics import corruption_errors, mean_corruption_error
from faircontext.metrics.corruption import Outcomes


def answers(*wrong: int, n: int = 10) -> np.ndarray:
    return ~np.isin(np.arange(n), wrong)


def test_it_is_the_mean_of_ratios_of_summed_errors() -> None:
    """fog: 2 + 4 errors to 4 + 8; snow: 3 to 2. So CE is 0.5 and 1.5, and mCE 1."""
    own = {"fog": {1: answers(0, 1), 5: answers(0, 1, 2, 3)}, "snow": {3: answers(4, 5, 6)}}
    other = {"fog": {1: answers(0, 1, 2, 3), 5: answers(*range(8))}, "snow": {3: answers(8, 9)}}
    assert corruption_errors(own, other) == {"fog": 0.5, "snow": 1.5}
    assert mean_corruption_error(own, other).value == 1.0


def test_a_reference_has_100_percent_and_no_width() -> None:
    own = {"fog": {1: answers(0, 3), 2: answers(1)}, "snow": {1: answers(5, 6), 2: answers(7)}}
    interval = mean_corruption_error(own, own)
    assert (interval.value, interval.low, interval.high) == (1.0, 1.0, 1.0)


def test_the_interval_is_of_images_drawn_with_all_their_corruptions() -> None:
    rng = np.random.default_rng(1)
    own, other = ({name: {s: rng.random(60) < p for s in (1, 2)} for name in ("fog", "snow")} for p in (0.6, 0.4))
    interval = mean_corruption_error(own, other, resamples=4000)
    drawn = []
    for _ in range(4000):
        chosen = rng.integers(60, size=60)
        ratios = [
            sum((~own[name][s][chosen]).sum() for s in (1, 2)) / sum((~other[name][s][chosen]).sum() for s in (1, 2))
            for name in own
        ]
        drawn.append(np.mean(ratios))
    low, high = np.quantile(drawn, (0.025, 0.975))
    assert interval.low < interval.value < interval.high
    assert (interval.low, interval.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.03))


def test_without_an_error_of_the_reference_there_is_none() -> None:
    own, other = {"fog": {1: answers(1)}}, {"fog": {1: answers()}}
    assert np.isnan(corruption_errors(own, other)["fog"])
    assert np.isnan([*vars(mean_corruption_error(own, other)).values()]).all()


@pytest.mark.parametrize("other", [{}, {"fog": {2: answers(1)}}, {"snow": {1: answers(1)}}])
def test_other_corruptions_severities_or_images_are_refused(other: Outcomes) -> None:
    with pytest.raises(FairContextError, match="must be of the same corruptions, severities and images"):
        corruption_errors({"fog": {1: answers(1)}}, other)
