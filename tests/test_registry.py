import pytest

from faircontext.errors import ArgumentError, Registry


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
