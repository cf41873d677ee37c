from pathlib import Path

import pytest

from faircontext.errors import ArgumentError, FairContextWarning, Registry


@pytest.fixture
def shapes() -> Registry[type]:
    registry: Registry[type] = Registry("shape")
    for name in ("square", "circle", "squircle"):
        registry.register(name)(type(name, (), {}))
    return registry


def test_the_decorator_returns_what_it_registers():
    registry: Registry[type] = Registry("shape")

    @registry.register("ring")
    class Ring:
        pass

    assert isinstance(Ring, type)
    assert registry["ring"] is Ring


def test_names_come_in_order_of_registration(shapes):
    assert list(shapes) == shapes.names() == ["square", "circle", "squircle"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("squ*", ["square", "squircle"]),
        ("*irc*", ["circle", "squircle"]),
        ("circle", ["circle"]),
        ("?????e", ["square", "circle"]),
        ("[c]*", ["circle"]),
        ("SQU*", []),
        ("", []),
    ],
)
def test_names_match_shell_patterns(shapes, pattern, names):
    assert shapes.names(pattern) == names


def test_an_unknown_name_is_refused_with_the_close_ones(shapes):
    with pytest.raises(ArgumentError, match=r"^unknown shape 'sqare'; did you mean 'square'"):
        shapes["sqare"]


def test_a_name_is_given_once(shapes):
    with pytest.raises(ValueError, match=r"^shape 'circle' is registered twice$"):
        shapes.register("circle")
    assert shapes.names() == ["square", "circle", "squircle"]


def test_entry_points_come_last_and_those_that_cannot_be_used_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other_shapes.py").write_text("oval = 'an oval'\nring = 'a ring'\n")
    (tmp_path / "leaving_shapes.py").write_text("raise SystemExit('no\\nlicence')\n")
    info = tmp_path / "some_shapes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-shapes\nVersion: 1.0\n")
    points = (
        "oval = other_shapes:oval\nleaving = leaving_shapes\nring = other_shapes:ring\nabsent = other_shapes:absent\n"
    )
    (info / "entry_points.txt").write_text(f"[faircontext.shapes]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    registry: Registry[str] = Registry("shape", "faircontext.shapes", lambda name, loaded: {name: loaded})
    registry.register("ring")("my ring")
    with pytest.warns(FairContextWarning) as warned:
        assert registry.names() == ["ring", "oval"]
    assert [str(warning.message) for warning in warned] == [
        r"shape 'leaving' of some-shapes is left out: leaving_shapes: SystemExit: no\nlicence, at "
        f"{tmp_path / 'leaving_shapes.py'}:1; FAIRCONTEXT_TRACEBACK=1 shows the traceback",
        "shape 'ring' of some-shapes is left out: other_shapes:ring: ValueError: shape 'ring' is registered twice",
        "shape 'absent' of some-shapes is left out: other_shapes:absent: AttributeError: module 'other_shapes' has no "
        "attribute 'absent'",
    ]
    assert (registry["oval"], registry["ring"]) == ("an oval", "my ring")  # without a second warning
