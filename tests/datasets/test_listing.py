"""A long list of images gives back what it was given, in any process, and takes a few bytes of memory an image."""

import pickle
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from faircontext.datasets.listing import ImageList, size_of
from faircontext.datasets.spec import Sample
from faircontext.errors import FairContextError
from faircontext.sources import Cell, Member, Remote

KEYS = st.text(st.characters(blacklist_characters="\0"), min_size=1, max_size=12)
SOURCES = st.one_of(
    KEYS.map(Path),
    st.builds(Member, KEYS, KEYS, st.integers(0, 2**40), st.integers(0, 2**40)),
    st.builds(Cell, KEYS, KEYS, st.integers(0, 99), st.integers(0, 99), st.integers(0, 9999)),
    st.builds(Remote, KEYS),
)
TRUTHS = st.none() | st.integers(0, 999) | st.lists(st.integers(0, 999), max_size=3).map(tuple)
FACTS = st.lists(st.tuples(KEYS, SOURCES, TRUTHS), max_size=8)
"""Of samples, which are made in the test: what checks types in tests draws numbers that hypothesis must not see."""


def made(facts: list[tuple]) -> list[Sample]:
    return [Sample.of(*each) for each in facts]


@given(FACTS)
def test_what_goes_in_comes_out_here_and_in_another_process(facts: list[tuple]) -> None:
    samples = made(facts)
    images = ImageList(samples)
    assert len(images) == len(samples)
    for found in (images, pickle.loads(pickle.dumps(images))):
        assert [*found] == samples == [found[index] for index in range(len(samples))]
        assert found[1:] == samples[1:]


@given(FACTS, st.data())
def test_each_name_stays_once_where_it_stands_first_with_its_one_label(facts: list[tuple], data: st.DataObject) -> None:
    doubled = made([*facts, *data.draw(st.permutations(facts))])
    first = {sample.key: sample for sample in reversed(doubled)}
    known = {sample.key: {s.truth for s in doubled if s.key == sample.key} - {None} for sample in doubled}
    if any(len(truths) > 1 for truths in known.values()):
        with pytest.raises(FairContextError, match=r"has two labels in l.csv; take one of them away$"):
            ImageList(doubled).without_doubles("l.csv")
        return
    expected = [
        Sample.of(key, first[key].path, next(iter(known[key]), None))
        for key in dict.fromkeys(sample.key for sample in doubled)
    ]
    assert [*ImageList(doubled).without_doubles()] == expected


def test_labels_may_be_set_later() -> None:
    images = ImageList([Sample("a.png", Path("a.png"), None), Sample("b.png", Path("b.png"), 3)])
    images.set_label(0, 2)
    images.set_label(1, None)
    assert [sample.label for sample in images] == [2, None]
    images.set_label(0, (1, 4))
    images.set_label(1, ())
    assert [sample.labels for sample in images] == [(1, 4), ()]
    assert [sample.label_set for sample in images] == [(1, 4), ()]
    assert [sample.label for sample in images] == [None, None]


def test_names_with_stray_bytes_and_paths_that_are_written_otherwise_stay_as_they_are() -> None:
    samples = [Sample("\udcff\n.png", Path("\udcff\n.png"), None), Sample("./a//b.png", Path("a/b.png"), None)]
    assert [*ImageList(samples)] == samples


def test_a_position_outside_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        ImageList()[0]


@pytest.mark.slow
def test_an_image_costs_a_few_bytes() -> None:
    path = Path("photos/a/long/folder/name/of/a/holiday") / "image.jpg"
    tracemalloc.start()
    images = ImageList()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20_000):
        images.append(Sample(str(path), path, None))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown / len(images) < 20 < sys.getsizeof(str(path))


def test_the_digest_depends_on_names_sizes_labels_and_order(tmp_path: Path) -> None:
    for name, size in (("a.png", 3), ("b.png", 4)):
        (tmp_path / name).write_bytes(bytes(size))
    samples = [Sample(name, tmp_path / name, 0) for name in ("a.png", "b.png")]
    digest = ImageList(samples).digest()
    assert ImageList(samples).digest() == digest
    others = [samples[::-1], samples[:1], [samples[0], Sample("b.png", tmp_path / "b.png", 1)]]
    assert digest not in [ImageList(other).digest() for other in others]
    (tmp_path / "b.png").write_bytes(bytes(5))
    assert ImageList(samples).digest() != digest
    assert size_of(tmp_path / "gone") == -1
