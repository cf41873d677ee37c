"""Which class a word names: equal first, then alike; and labels that count from 1."""

import unicodedata

import pytest

from faircontext.names import ClassIndex, count_from_one, normalise


def decompose(name: str) -> str:
    return unicodedata.normalize("NFD", name)


@pytest.mark.parametrize(
    ("names", "word", "found"),
    [
        (("Crane", "crane"), "crane", (1,)),
        (("Crane", "crane"), "Crane", (0,)),
        (("Crane", "crane"), "CRANE", (0, 1)),
        (("Crane", "dog"), "crane", (0,)),
        (("polar bear", "polar_bear"), "polar_bear", (1,)),
        (("missile", "cat", "missile"), "missile", (0, 2)),
        (("Café", "café"), decompose("café"), (1,)),
        (("Café", "café"), decompose("CAFÉ"), (0, 1)),
        ((decompose("café"),), "café", (0,)),
        (("1", "2", "3"), "01", (0,)),
        (("1", "01"), "01", (1,)),
        (("1", "01"), "001", (0, 1)),
        (("1", "2"), "3", ()),
        (("cat",), "1", ()),
        (("cat", "9" * 5000), "9" * 5000, (1,)),
        ((), "cat", ()),
    ],
)
def test_the_name_that_is_nearest_counts(names: tuple[str, ...], word: str, found: tuple[int, ...]) -> None:
    index = ClassIndex(names)
    assert index.find_all(word) == found
    assert index.find(word) == (found[0] if found else None)


@pytest.mark.parametrize(
    "pair",
    [("café", decompose("café")), ("polar_bear", "Polar Bear"), (" cat ", "CAT"), ("Straße", "STRASSE")],
)
def test_names_that_are_alike_are_normalised_alike(pair: tuple[str, str]) -> None:
    assert normalise(pair[0]) == normalise(pair[1])


def test_labels_that_never_use_0_are_told_with_their_counts() -> None:
    names = ("cat", "dog", "eel")
    assert count_from_one({2, 1}, names) == (
        "they run from 1 to 2 for 3 class names, so that class 0, 'cat', has no image; count from 0"
    )
    assert count_from_one({0, 2}, names) == count_from_one(set(), names) == ""
