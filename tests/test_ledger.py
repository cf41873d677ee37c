"""Seconds of methods: their own, and those of what they share, on a clock that only the work itself moves."""

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from torch import Tensor

from faircontext import FCL, ZERO, Backbone, LabelSpace, Method, ViewRecipe, ZeroShot
from faircontext.datasets.spec import Sample
from faircontext.imageio import DecodedImage
from faircontext.ledger import Ledger, time
from faircontext.runs.answer import Predictor, answer_images
from faircontext.runs.records import Answer, to_table
from faircontext.runs.rows import batches_of

VIEWS = 32


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed, in a list."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def backbone(
    tiny: Callable[[str], Backbone], clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Backbone]:
    """A model whose every encoded image takes a second, and nothing else any."""
    backbone = tiny("clip")
    encode = backbone.encode_parts

    def slowly(parts: Iterator[Tensor]) -> Tensor:
        features = encode(parts)
        clock[0] += len(features)
        return features

    monkeypatch.setattr(backbone, "encode_parts", slowly)
    return backbone


def rows_of(backbone: Backbone, methods: dict[str, Method]) -> dict[str, Answer]:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    labels = LabelSpace(["cat", "dog", "house"], backbone)
    items, recipe = [Sample("a.png", Path("a.png"))], ViewRecipe(count=VIEWS)
    (answered,) = answer_images(items, Predictor(labels, methods, recipe), read=lambda _: DecodedImage(pixels))
    return {row.method: row for row in answered.answers}


def test_seconds_are_the_same_in_every_order_of_methods(backbone: Backbone) -> None:
    methods = {
        "zero_shot": ZeroShot(),
        "zero": ZERO(),
        "fcl-4": FCL(masks=4, k=2, calibrate=True),
        "fcl-8": FCL(masks=8, k=2, calibrate=True),
    }
    seen = set()
    for names in (*permutations(methods),)[::5]:
        rows = rows_of(backbone, {name: methods[name] for name in names})
        seen.add(tuple((rows[name].seconds, rows[name].shared_seconds) for name in methods))
    (found,) = seen
    (plain, _, few, many) = (shared for _, shared in found)
    assert found[0] == (0.0, 1.0)  # a view's share of their batch
    assert found[1] == (0.0, VIEWS)
    assert (few - VIEWS, many - VIEWS) == (4.0 + 1, 8.0 + 1)  # masked images, and the common evidence of the pair
    assert plain == 1.0


def test_what_a_shared_thing_is_made_from_counts_once_for_who_uses_it(clock: list[float]) -> None:
    ledger = Ledger()

    def explore() -> str:
        with ledger.computing("exploration"):
            with ledger.computing("views"):
                clock[0] += 4
            ledger.use("views", 0.5)
            clock[0] += 1
        clock[0] += 8
        ledger.use("exploration")
        return "first"

    assert ledger.measure(explore) == ("first", 8.0, 3.0)
    assert ledger.measure(lambda: ledger.use("exploration")) == (None, 0.0, 3.0)
    assert ledger.measure(lambda: ledger.use("views")) == (None, 0.0, 4.0)
    assert ledger.measure(lambda: None) == (None, 0.0, 0.0)


def test_rows_of_an_earlier_version_are_read_without_shared_seconds(tmp_path: Path) -> None:
    record = Answer(path="a.png", method="fcl", seconds=1.5, dataset="set", config="abc", position=0)
    pq.write_table(to_table([record]).drop_columns(["shared_seconds"]), tmp_path / "rows.parquet")
    for columns in (None, ["shared_seconds", "seconds"]):
        (rows,) = batches_of([tmp_path / "rows.parquet"], columns)
        assert (rows["seconds"].to_pylist(), rows["shared_seconds"].to_pylist()) == ([1.5], [None])
