"""What other packages name by entry points and get wrong: a note or a line that names them, and all else goes on."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from coop_trees import draw
from faircontext import Episode, Method, Prediction
from faircontext.datasets.spec import DatasetSpec
from faircontext.errors import ArgumentError, FairContextError, Registry
from faircontext.methods.base import METHODS, register_method
from packages import install, run

SPEC = {"name": "shapes", "title": "Shapes", "folders": ("shapes",), "classes": 2, "images": {"test": 4}}


BAD_DATA_SETS: list[tuple[dict[str, object], str]] = [
    ({"name": 5}, "name of a DatasetSpec is of type int, not str"),
    ({"folders": ()}, r"invalid folders \(\) of shapes: must be a tuple of folders, one at least"),
    ({"folders": "shapes"}, "invalid folders 'shapes' of shapes: must be a tuple"),
    ({"inner": ()}, r"invalid inner \(\) of shapes"),
    ({"images": {"val": 3}}, "invalid classes, images or paper of shapes: must be numbers, of images by split"),
    ({"images": 4}, "invalid classes, images or paper of shapes"),
    ({"classes": "2"}, "invalid classes, images or paper of shapes"),
    ({"classes": -1}, "invalid classes, images or paper of shapes"),
    ({"regime": "odd"}, "regime of shapes='odd' is not possible"),
    ({"read": "shapes.read"}, "invalid read 'shapes.read' of shapes: must be a function"),
]
"""What a package declares wrongly of its data set, and the line."""


@pytest.mark.process
def test_a_data_set_is_checked_where_it_is_declared(refusals: dict[str, list[str]]) -> None:
    assert DatasetSpec(**SPEC).count("val") == 4  # type: ignore[arg-type]
    for (_, message), line in zip(BAD_DATA_SETS, refusals["data sets"], strict=True):
        assert re.match(message, line)


@dataclass(frozen=True)
class Plain(Method):
    def __call__(self, episode: Episode) -> Prediction:
        raise NotImplementedError


@dataclass(frozen=True)
class WithoutDefault(Plain):
    share: float


@dataclass(frozen=True)
class WithoutCall(Method):
    pass


BAD_METHODS: list[tuple[object, object, str]] = [
    (7, Plain, "a method cannot be called 7; names match"),
    ("mean-view", Plain, "a method cannot be called 'mean-view'"),
    ("a,b", Plain, "a method cannot be called 'a,b'"),
    ("all", Plain, "a method cannot be called 'all'"),
    ("fcl", Plain, "method 'fcl' is registered twice"),
    ("plain", len, "method 'plain': <built-in function len> must derive from Method and define __call__"),
    ("plain", dict, "method 'plain': <class 'dict'> must derive from Method"),
    ("plain", WithoutCall, "method 'plain': .*WithoutCall'> must derive from Method and define __call__"),
    ("plain", WithoutDefault, "method 'plain': every field needs a default; share has none"),
]
"""Name and class of what a package registers wrongly as its method, and the line."""


@pytest.mark.process
def test_a_method_is_checked_where_it_is_registered(refusals: dict[str, list[str]]) -> None:
    for (_, _, message), line in zip(BAD_METHODS, refusals["methods"], strict=True):
        assert re.match(message, line)


def refuse() -> dict[str, list[str]]:
    """Declare each of these, and return the lines."""
    lines: dict[str, list[str]] = {"data sets": [], "methods": []}
    before = METHODS.names()
    for changes, _ in BAD_DATA_SETS:
        with pytest.raises(ArgumentError) as error:
            DatasetSpec(**SPEC | changes)  # type: ignore[arg-type]
        lines["data sets"].append(str(error.value))
    for name, method, _ in BAD_METHODS:
        with pytest.raises((TypeError, ValueError)) as error:
            register_method(name, "one of a test")(method)  # type: ignore[arg-type, type-var]
        lines["methods"].append(str(error.value))
    assert METHODS.names() == before
    return lines


@pytest.fixture(scope="module")
def refusals() -> dict[str, list[str]]:
    """The lines, of a process without the tests' run-time checker, which would refuse wrong types first."""
    code = "import json, test_third_party; print(json.dumps(test_third_party.refuse()))"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    lines: dict[str, list[str]] = json.loads(done.stdout)
    return lines


def test_of_an_entry_point_that_is_left_out_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "some-shapes", {"faircontext.shapes": {"pair": "math:pi", "odd": "math:e"}})
    monkeypatch.syspath_prepend(tmp_path)
    names = {"pair": ["oval", "ring"], "odd": ["star", "oval"]}
    registry: Registry[float] = Registry(
        "shape", "faircontext.shapes", lambda name, loaded: dict.fromkeys(names[name], loaded)
    )
    with pytest.warns(UserWarning, match="shape 'odd' of some-shapes is left out: .*'oval' is registered twice$"):
        assert registry.names() == ["oval", "ring"]
    with (
        pytest.raises(FairContextError, match=r"^shape 'ring' of some-shapes failed: KeyError: 'x'$"),
        registry.blamed("ring"),
    ):
        raise KeyError("x")
    with pytest.raises(FairContextError, match=r"failed: ValueError: one\\ntwo$"), registry.blamed("ring"):
        raise ValueError("one\ntwo")
    with pytest.raises(KeyError), registry.blamed("another"):
        raise KeyError("x")


PACKAGE = """
from dataclasses import dataclass
from pathlib import Path

from faircontext import Episode, Method
from faircontext.datasets import Dataset, DatasetSpec, Sample
from faircontext.methods.base import register_method


@register_method("silent", "answers nothing")
@dataclass(frozen=True)
class Silent(Method):
    def __call__(self, episode: Episode):
        return None


@register_method("odd_sizes", "fails within PyTorch")
@dataclass(frozen=True)
class OddSizes(Method):
    def __call__(self, episode: Episode):
        return episode.labels.zero_shot_text @ episode.z[1:]


def raising(pretrained, **options):
    raise KeyError("weights")


def no_model(pretrained, **options):
    return "a model"


def read_text(folder, split):
    return Dataset("texts", folder, "x", split, ("a", "b"), (Sample("1", "1.png", 0),))


def data_sets():
    spec = dict(title="t", folders=("shapes",), classes=2, images={"test": 4})
    yield DatasetSpec(name="nothing", read=lambda folder, split: None, **spec)
    yield DatasetSpec(name="raises", read=lambda folder, split: 1 / 0, **spec)
    yield DatasetSpec(name="texts", read=read_text, **spec)
"""

BACKBONES = {
    "raising": "odd_package:raising",
    "no_model": "odd_package:no_model",
    "ViT-B-16": "odd_package:raising",
    "no blanks": "odd_package:raising",
}


@pytest.fixture
def odd(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs commands beside a package whose parts fail when they are used."""
    draw(tmp_path / "photo.png")
    draw(tmp_path / "data/shapes/circle/1.png")
    draw(tmp_path / "data/shapes/square/1.png")
    install(
        tmp_path / "site",
        "odd-dist",
        {
            "faircontext.methods": {"silent": "odd_package:Silent", "odd_sizes": "odd_package:OddSizes"},
            "faircontext.backbones": BACKBONES,
            "faircontext.datasets": {"odd": "odd_package:data_sets"},
        },
    )
    (tmp_path / "site" / "odd_package.py").write_text(PACKAGE)
    return lambda *commands: run(tmp_path / "site", [list(command) for command in commands])


CLASSIFY = ("classify", "photo.png", "--labels", "cat,dog")


def line_of(text: str) -> int:
    """Return the number of the package's line that holds a text."""
    return next(number for number, line in enumerate(PACKAGE.splitlines(), 1) if text in line)


FAILURES = {
    "backbone 'raising' of odd-dist failed: KeyError: 'weights'": (*CLASSIFY, "--backbone", "raising"),
    "backbone 'no_model' of odd-dist failed: TypeError: it returns str, not Backbone": (
        *CLASSIFY,
        "--backbone",
        "no_model",
    ),
    "method 'silent' of odd-dist failed: TypeError: it returns NoneType, not Prediction": (
        *CLASSIFY,
        *("--method", "silent", "--backbone", "BACKBONE"),
    ),
    f"package.py:{line_of('zero_shot_text @')}; FAIRCONTEXT_TRACEBACK=1 shows the traceback": (
        *CLASSIFY,
        *("--method", "odd_sizes", "--backbone", "BACKBONE"),
    ),
    **{
        f"data set '{name}' of odd-dist failed: {reason}": ("data", "check", name, "--root", "data")
        for name, reason in (
            ("nothing", "TypeError: it returns NoneType, not Dataset"),
            ("raises", "ZeroDivisionError: division by zero, at "),
            ("texts", "TypeError: its samples must be of the type Sample, and their paths of the type Path"),
        )
    },
}
"""Lines and the commands that end with them."""


@pytest.mark.process
def test_what_fails_later_is_a_line_that_names_the_package(
    odd: Callable[..., subprocess.CompletedProcess[str]],
    tiny_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone = f"local-dir:{tiny_folder('clip')}"
    done = odd(*([word.replace("BACKBONE", backbone) for word in command] for command in FAILURES.values()))
    *lines, codes = done.stderr.splitlines()
    assert codes == f"exit codes: {[2, 2, 2, 2, 1, 1, 1]}"
    for message in FAILURES:
        assert sum(message in line for line in [*lines, *done.stdout.splitlines()]) == 1
    assert "Traceback" not in done.stderr
    monkeypatch.setenv("FAIRCONTEXT_TRACEBACK", "1")
    shown = odd(["data", "check", "raises", "--root", "data"])
    assert shown.stderr.count("Traceback") == 1
    assert re.search(r'odd_package.py", line \d+, in <lambda>\n', shown.stderr)


@pytest.mark.process
def test_names_that_are_taken_or_cannot_be_given_are_left_out(
    odd: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = odd(["list", "backbones", "*-B-16"], ["list", "backbones", "r*"])
    assert done.returncode == 0
    assert done.stdout.split().count("ViT-B-16") == 1
    assert "raising" in done.stdout
    assert done.stderr.splitlines() == [
        "note: backbone 'ViT-B-16' of odd-dist is left out: odd_package:raising: ValueError: open_clip has an "
        "architecture of this name",
        "note: backbone 'no blanks' of odd-dist is left out: odd_package:raising: ValueError: a backbone cannot be "
        "called 'no blanks'; names match [A-Za-z0-9][A-Za-z0-9_.-]*",
    ]
