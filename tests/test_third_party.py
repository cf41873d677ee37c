"""What other packages name by entry points and get wrong: a note or a line that names them, and all else goes on."""

import subprocess
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 5}, "name of a DatasetSpec is of type int, not str"),
        ({"folders": ()}, r"invalid folders \(\) of shapes: must be a tuple of one folder or more"),
        ({"folders": "shapes"}, "invalid folders 'shapes' of shapes: must be a tuple"),
        ({"inner": ()}, r"invalid inner \(\) of shapes"),
        ({"images": {"val": 3}}, "invalid classes, images or paper of shapes: must be numbers, of images by split"),
        ({"images": 4}, "invalid classes, images or paper of shapes"),
        ({"classes": "2"}, "invalid classes, images or paper of shapes"),
        ({"classes": -1}, "invalid classes, images or paper of shapes"),
        ({"regime": "odd"}, "regime of shapes='odd' is not possible"),
        ({"read": "shapes.read"}, "invalid read 'shapes.read' of shapes: must be a function"),
    ],
    ids=str,
)
def test_a_data_set_is_checked_where_it_is_declared(changes: dict[str, object], message: str) -> None:
    assert DatasetSpec(**SPEC).count("val") == 4  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=f"^{message}"):
        DatasetSpec(**SPEC | changes)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("name", "method", "message"),
    [
        (7, Plain, "a method cannot be called 7; names match"),
        ("mean-view", Plain, "a method cannot be called 'mean-view'"),
        ("a,b", Plain, "a method cannot be called 'a,b'"),
        ("all", Plain, "a method cannot be called 'all'"),
        ("fcl", Plain, "method 'fcl' is registered twice"),
        ("plain", len, "method 'plain': <built-in function len> must derive from Method and define __call__"),
        ("plain", dict, "method 'plain': <class 'dict'> must derive from Method"),
        ("plain", WithoutCall, "method 'plain': .*WithoutCall'> must derive from Method and define __call__"),
        ("plain", WithoutDefault, "method 'plain': every field needs a default; share has none"),
    ],
    ids=str,
)
def test_a_method_is_checked_where_it_is_registered(name: str, method: type[Method], message: str) -> None:
    before = METHODS.names()
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        register_method(name, "one of a test")(method)
    assert METHODS.names() == before


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
            "faircontext.methods": {"silent": "odd_package:Silent"},
            "faircontext.backbones": BACKBONES,
            "faircontext.datasets": {"odd": "odd_package:data_sets"},
        },
    )
    (tmp_path / "site" / "odd_package.py").write_text(PACKAGE)
    return lambda *commands: run(tmp_path / "site", [list(command) for command in commands])


CLASSIFY = ("classify", "photo.png", "--labels", "cat,dog")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((*CLASSIFY, "--backbone", "raising"), "backbone 'raising' of odd-dist failed: KeyError: 'weights'"),
        (
            (*CLASSIFY, "--backbone", "no_model"),
            "backbone 'no_model' of odd-dist failed: TypeError: it returns str, not Backbone",
        ),
        (
            (*CLASSIFY, "--method", "silent", "--backbone", "BACKBONE"),
            "method 'silent' of odd-dist failed: TypeError: it returns NoneType, not Prediction",
        ),
        (
            ("data", "check", "nothing", "--root", "data"),
            "data set 'nothing' of odd-dist failed: TypeError: it returns NoneType, not Dataset",
        ),
        (
            ("data", "check", "raises", "--root", "data"),
            "data set 'raises' of odd-dist failed: ZeroDivisionError: division by zero",
        ),
        (
            ("data", "check", "texts", "--root", "data"),
            "data set 'texts' of odd-dist failed: TypeError: its samples must be of the type Sample, and their paths "
            "of the type Path",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_fails_later_is_a_line_that_names_the_package(
    odd: Callable[..., subprocess.CompletedProcess[str]],
    tiny_folder: Callable[[str], Path],
    command: tuple[str, ...],
    message: str,
) -> None:
    done = odd([word.replace("BACKBONE", f"local-dir:{tiny_folder('clip')}") for word in command])
    assert done.returncode != 0
    assert message in (done.stderr + done.stdout).splitlines()[-1]
    assert "Traceback" not in done.stderr


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
