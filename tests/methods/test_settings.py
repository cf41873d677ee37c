"""How methods are created: names, presets, settings from Python and from words of a command line."""

import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from faircontext import FCL, Backbone, ZeroShot, create_method, list_methods
from faircontext.errors import ArgumentError
from faircontext.methods.base import METHODS, register_method
from faircontext.runs.build import parse_settings
from zoo import SPEC

RECOMMENDED = {
    "masks": 100,
    "beta": 5.0,
    "lr": 0.006,
    "grids": (3, 4, 5, 6, 7),
    "estimator": "least-squares",
    "smoothing": 0.15,
}


def test_the_recommended_preset_is_the_backbones(lite: Backbone) -> None:
    method = create_method("fcl", preset="recommended", backbone=lite)
    assert method.settings() == {**SPEC["fcl"].defaults, **RECOMMENDED}
    assert create_method("zero_shot", preset="recommended", backbone=lite) == ZeroShot()


def test_a_subclass_takes_the_recommended_settings_of_the_class_that_it_extends(
    lite0: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(METHODS, "_entries", {name: METHODS[name] for name in METHODS})  # what is registered here, goes

    @dataclass(frozen=True)
    class Mine(FCL):
        share: float = 0.5

    register_method("mine", "of a third party")(Mine)
    register_method("apart", "the same, with settings of its own")(type("Apart", (Mine,), {"recommended_as": "apart"}))
    fcl, mine, apart = (
        create_method(name, preset="recommended", backbone=lite0).settings() for name in ("fcl", "mine", "apart")
    )
    assert mine == {**fcl, "share": 0.5}
    assert apart == {**FCL().settings(), "share": 0.5}
    monkeypatch.setattr(lite0, "recommended", {**lite0.recommended, "mine": {"masks": 7}})
    assert create_method("mine", preset="recommended", backbone=lite0) == Mine(masks=7)


def test_settings_override_the_preset(lite: Backbone) -> None:
    method = create_method("fcl", preset="recommended", backbone=lite, masks=50, k=3)
    assert method.settings() == {**SPEC["fcl"].defaults, **RECOMMENDED, "masks": 50, "k": 3}


def test_the_recommended_preset_needs_a_backbone() -> None:
    with pytest.raises(ArgumentError, match='preset="recommended" depends on the backbone; pass backbone='):
        create_method("fcl", preset="recommended")


def test_methods_are_listed_by_pattern() -> None:
    assert {"fcl", "zero_shot"} <= set(list_methods())
    assert list_methods("zero*") == ["zero_shot", "zero"]
    assert list_methods("nothing") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "flc"}, "unknown method 'flc'; did you mean 'fcl'"),
        ({"name": "xyz"}, "unknown method 'xyz'; known: .*fcl.*mta.*tda"),
        ({"name": "fcl", "mask": 3}, "unknown setting of fcl 'mask'; did you mean 'masks'"),
        ({"name": "zero_shot", "masks": 3}, "unknown setting of zero_shot 'masks'; it has none"),
        ({"name": "fcl", "preset": "papers"}, "preset='papers' is not possible; use one of 'paper', 'recommended'"),
    ],
)
def test_unknown_names_are_refused_with_the_close_ones(arguments: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        create_method(**arguments)


UNTYPED = [
    *(("context", "cl-hq"), ("aggregation", "median"), ("occluder", "white"), ("evidence_scaling", "sum")),
    *(("pair_weight", "papers"), ("hp_base", "soft"), ("hp_init", "zero"), ("gamma", (0.2, 0.5, 0.8))),
    *(("k", 2.5), ("masks", 7.5), ("steps", "2"), ("rho", "0.3"), ("grids", 7), ("lr", None), ("calibrate", "no")),
]
SCRIPT = f"""
from faircontext import create_method
for number, (name, value) in enumerate({UNTYPED}):
    try:
        print(number, "taken:", create_method("fcl_variants", **{{name: value}}).settings()[name])
    except Exception as error:
        print(number, f"{{type(error).__name__}}: {{error}}")
try:
    create_method("fcl", gamma=(0.2, 0.8))
except Exception as error:
    print("moved", error)
"""


@pytest.fixture(scope="module")
def outcomes() -> list[str]:
    """What happens to values that no type checker has seen: here the tests' own would come before ours."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return [line.partition(" ")[2] for line in done.stdout.splitlines()]


@pytest.mark.process
@pytest.mark.parametrize("number", range(len(UNTYPED)), ids=[f"{name}={value}" for name, value in UNTYPED])
def test_a_value_of_the_wrong_type_is_refused_by_name(outcomes: list[str], number: int) -> None:
    name, value = UNTYPED[number]
    assert outcomes[number].startswith(f"ArgumentError: {name}={value!r} is not possible; ")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *(("masks=50", 50), ("masks=auto", "auto"), ("k= 3", 3), ("rho=0.25", 0.25), ("rho=1", 1.0), ("lr=1e-3", 1e-3)),
        *(("beta=none", None), ("beta=None", None), ("beta=20", 20.0), ("area=none", None)),
        *(("calibrate=false", False), ("calibrate=True", True), ("context=cl-hp", "cl-hp"), ("pairs=top3", "top3")),
        *(("grids=7", (7,)), ("grids=7,", (7,)), ("grids=7,9,11", (7, 9, 11))),
        *(("gamma=0.3", 0.3), ("gamma=0.2,0.8", (0.2, 0.8))),
    ],
)
def test_words_are_read_by_the_types_of_the_settings(word: str, value: object) -> None:
    parsed = parse_settings("fcl_variants", (word,))
    assert parsed == {word.partition("=")[0]: value}
    assert [type(item) for item in parsed.values()] == [type(value)]
    create_method("fcl_variants", budget=50, **parsed)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("masks", "'masks' is not a setting; write name=value"),
        ("masks=", "masks= is not possible; it takes a whole number"),
        ("rho=much", "rho=much is not possible; it takes a number"),
        ("beta=some", "beta=some is not possible; it takes a number or none"),
        ("calibrate=1", "calibrate=1 is not possible; it takes true or false"),
        ("context=tokens", "context=tokens is not possible; it takes cl or cl-hp"),
        ("grids=7,a", "grids=7,a is not possible; it takes whole numbers with commas between"),
        ("masks=many", "masks=many is not possible; it takes a whole number or auto"),
        ("estimator=centred", "estimator=centred is not possible; it takes paper or covariance or least-squares"),
        ("gamma=a,b", "gamma=a,b is not possible; it takes a number or numbers with commas between"),
    ],
)
def test_words_that_cannot_be_read_are_refused_by_name(word: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_settings("fcl_variants", (word,))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("proxy=mean", "'proxy' is not a setting of fcl; the method fcl_variants takes it"),
        ("gamma=0.2,0.8", "gamma=0.2,0.8 is not possible; it takes a number; the method fcl_variants takes it"),
        ("masks=auto", "masks=auto is not possible; it takes a whole number; the method fcl_variants takes it"),
    ],
)
def test_what_moved_to_the_variants_is_refused_with_where_it_is(word: str, message: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        parse_settings("fcl", (word,))
    assert str(refused.value) == message
    assert "fcl_variants" not in list_methods()


def test_a_method_is_made_anew_from_the_settings_of_a_run_of_earlier_versions() -> None:
    assert create_method("fcl", proxy="evidence", pairs="all", masks=8) == create_method("fcl", masks=8)
    with pytest.raises(ArgumentError, match="'proxy' is not a setting of fcl; the method fcl_variants takes it"):
        create_method("fcl", proxy="image")


def test_a_setting_that_came_later_is_recorded_where_it_is_not_the_default() -> None:
    plain, anchored = create_method("fcl_variants"), create_method("fcl_variants", anchor="unique")
    assert "anchor" not in plain.settings()
    assert anchored.settings() == {**plain.settings(), "anchor": "unique"}
    votes = create_method("fcl_margins", anchor="unique", lambda_com=0.5).settings()
    assert votes == {**create_method("fcl_margins").settings(), "anchor": "unique", "lambda_com": 0.5}
    assert create_method("fcl_margins", **votes).settings() == votes
    with pytest.raises(ArgumentError, match="'anchor' is not a setting of fcl; the method fcl_variants takes it"):
        create_method("fcl", anchor="unique")


@pytest.mark.process
def test_a_value_that_only_the_variants_take_is_refused_with_where_it_is(outcomes: list[str]) -> None:
    assert outcomes[-1] == "gamma=(0.2, 0.8) is not possible; it takes a number; the method fcl_variants takes it"


def test_a_setting_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'masks=5': fcl has a value of masks already; give it once"):
        parse_settings("fcl", ("masks=4", "k=2", "masks=5"))


@pytest.mark.parametrize("word", ["gamma=nan", "grids=,", "mask=3", "=3", "lr=inf"])
def test_words_that_can_be_read_but_not_used_are_refused_on_creation(word: str) -> None:
    with pytest.raises(ArgumentError):
        create_method("fcl", **parse_settings("fcl", (word,)))


@pytest.mark.parametrize("word", ["name=fcl", "preset=paper", "backbone=lite0"])
def test_arguments_of_create_method_are_not_settings(word: str) -> None:
    with pytest.raises(ArgumentError, match=f"unknown setting of fcl '{word.partition('=')[0]}'"):
        parse_settings("fcl", (word,))


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "k": st.integers(1, 10**6),
        "masks": st.integers(1, 100_000),
        "steps": st.integers(0, 100),
        "rho": st.floats(0, 1, exclude_min=True),
        "beta": st.none() | st.floats(1e-6, 1e6),
        "lr": st.floats(0, 1e3),
        "lambda_cal": st.floats(0, 1e3),
        "calibrate": st.booleans(),
        "grids": st.lists(st.integers(2, 50), min_size=1).map(tuple),
        "gamma": st.floats(1e-3, 1) | st.tuples(st.floats(1e-3, 0.5), st.floats(0.5, 1)),
        "occluder": st.sampled_from(["black", "mean", "blur"]),
        "pair_weight": st.sampled_from(["paper", "inverse", "uniform"]),
    },
)


@given(VALUES)
def test_settings_survive_being_written_and_read(settings: dict) -> None:
    words = []
    for name, value in settings.items():
        words.append(f"{name}={','.join(map(repr, value)) if isinstance(value, tuple) else value}")
    method = create_method("fcl_variants", **parse_settings("fcl_variants", tuple(words)))
    assert method.settings() == {**create_method("fcl_variants").settings(), **settings}


def test_none_is_nothing_also_where_a_word_is_possible() -> None:
    assert parse_settings("rlcf", ("reward=none",)) == {"reward": None}
    assert parse_settings("rlcf", ("reward=lite1",)) == {"reward": "lite1"}
    assert parse_settings("tps", ("descriptors=none",)) == {"descriptors": None}
