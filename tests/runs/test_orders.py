"""Orders and arrangements of a stream: the same images, one class after another, or in clusters."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, strategies as st

from faircontext.perturbations import Attack, Corruption
from faircontext.runs.orders import Arrangement, arrange, run_name

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 60), st.integers(0, 9), st.sampled_from(get_args(Arrangement)))
def test_every_order_has_the_same_images(seed: int, n: int, order: int, arrangement: str) -> None:
    rng = np.random.default_rng(seed)
    positions, labels = rng.permutation(1000)[:n], rng.integers(0, 4, n)
    arranged = arrange(positions, order, arrangement, labels)
    assert sorted(arranged.tolist()) == sorted(positions.tolist())
    assert arranged.tolist() == arrange(positions, order, arrangement, labels).tolist()
    if arrangement == "shuffled":
        assert (arranged.tolist() == positions.tolist()) or order > 0
    if arrangement == "sorted":
        label = dict(zip(positions.tolist(), labels.tolist(), strict=True))
        runs = 1 + np.count_nonzero(np.diff([label[position] for position in arranged.tolist()]))
        assert runs == len({*labels.tolist()})


def test_correlated_streams_lie_between_sorted_and_shuffled() -> None:
    labels = np.repeat(np.arange(20), 50)
    positions = np.random.default_rng(0).permutation(1000)
    changes = {
        name: np.mean(
            [np.count_nonzero(np.diff(labels[arrange(positions, r, name, labels[positions])])) for r in range(5)]
        )
        for name in get_args(Arrangement)
    }
    assert changes["sorted"] == 19
    assert 100 < changes["correlated"] < 0.9 * changes["shuffled"]
    assert changes["shuffled"] == pytest.approx(999 * 19 / 20, rel=0.02)


def test_folders_are_called_by_what_differs() -> None:
    assert run_name("dtd") == "dtd"
    assert run_name("dtd", (1, 4)) == "dtd-shard-1-of-4"
    assert run_name("dtd", perturbation=Corruption("fog", 3)) == "dtd-fog-3"
    assert run_name("dtd", (0, 2), Attack(4)) == "dtd-pgd-4-shard-0-of-2"
    assert run_name("dtd", order=0) == "dtd-order-0"
    assert run_name("dtd", order=2, arrangement="correlated") == "dtd-correlated-order-2"
    assert run_name("dtd", None, Corruption("fog", 3), 1) == "dtd-fog-3-order-1"
