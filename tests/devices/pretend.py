"""Every method and command on the pretend accelerator, beside the CPU; `tests/test_accelerator.py` runs it in parts.

The device stays in the process that it is installed in, so the file has a name that pytest does not collect.
"""

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import faircontext.analysis
from accelerator import NAME, Traffic, install, traffic
from faircontext import (
    FCL,
    Backbone,
    Episode,
    LabelSpace,
    Method,
    Prediction,
    ViewRecipe,
    create_backbone,
    create_method,
    list_methods,
)
from faircontext.cli import main
from faircontext.errors import ArgumentError
from faircontext.methods import EvidenceMethod
from faircontext.methods.base import METHODS
from faircontext.methods.stream import is_stream
from faircontext.methods.variants import FCLVariants
from faircontext.runs.store import load_run
from helpers import read_arrays

install()

CLASSES = ("cat", "dog", "missile", "house", "snail", "guitar")
METHODS_OF_ALL = (*list_methods(), *faircontext.analysis.list_analyses())
TOLERANCE = 1e-5
TRANSFORMERS = ("clip", "siglip2", "altclip")
"""A causal encoder, one with a shape for each picture, and one whose positions come from the padding."""

Spaces = Callable[[str, str], LabelSpace]


@pytest.fixture(scope="session")
def folders(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that names a tiny model of open_clip, or of transformers ("transformers:KIND")."""

    @cache
    def name(model: str) -> str:
        scheme, _, kind = model.rpartition(":")
        if not scheme:
            return f"local-dir:{tiny_folder(kind)}"
        tiny = pytest.importorskip("tiny_transformers")
        return f"transformers:{tiny.write(tmp_path_factory.mktemp('transformers') / kind, kind)}"

    return name


@pytest.fixture(scope="session")
def space(folders: Callable[[str], str]) -> Spaces:
    """Return a function that gives the label space of a model on a device, with itself as the reward model."""

    @cache
    def make(model: str, device: str) -> LabelSpace:
        backbone = create_backbone(folders(model), precision="fp32", engine="torch", device=device)
        made = LabelSpace(CLASSES, backbone)
        made.others["teacher"] = LabelSpace(CLASSES, backbone)
        return made

    return make


def picture(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (5, 5, 3)).repeat(10, 0).repeat(12, 1).astype(np.uint8)


def answer(method: Method, labels: LabelSpace, views: int = 16) -> Prediction:
    return method(Episode(picture(), labels, ViewRecipe(count=views, scale=(0.3, 1.0))))


def counted(method: Method, labels: LabelSpace, views: int = 16) -> Traffic:
    """Return the copies of one image's answer; constants of the label space are there from an earlier one."""
    with traffic() as copies:
        answer(method, labels, views)
    return copies


def small(name: str, **settings: object) -> Method:
    """Return a method with few masks, where it has masks."""
    few = {"masks": 24, "k": 3} if issubclass(METHODS[name], EvidenceMethod) else {}
    few |= {"reward": "teacher"} if name.startswith("rlcf") else {}
    return create_method(name, **{**few, **settings})


def assert_close(found: Prediction, expected: Prediction) -> None:
    assert found.index == expected.index
    assert found.candidates == expected.candidates
    assert found.fallback == expected.fallback
    tensors = (found.probabilities, found.ranking, found.votes, found.cosines)
    assert {tensor.device.type for tensor in tensors if tensor is not None} == {"cpu"}
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=TOLERANCE)
    assert found.diagnostics.keys() == expected.diagnostics.keys()


def test_the_device_is_another_and_refuses_tensors_of_the_cpu(space: Spaces) -> None:
    features = space("clip", NAME).zero_shot_text
    assert features.device == torch.device(NAME, 0)
    for mix in (
        lambda: features + torch.ones(features.shape),
        lambda: features @ torch.ones(32, 2),
        lambda: torch.cat([features, torch.ones(1, 32)]),
        lambda: features.index_select(0, torch.tensor([0])),
        lambda: torch.where(features > 0, features, torch.ones(features.shape)),
        lambda: torch.nn.functional.conv2d(features[None, None], torch.ones(1, 1, 3, 3)),
        lambda: torch.ones(9)[torch.tensor([1], device=NAME)],
    ):
        with pytest.raises(RuntimeError, match="device"):
            mix()
    with pytest.raises(TypeError, match="numpy"):
        features.numpy()


def test_copies_are_counted_with_the_line_that_makes_them() -> None:
    values = torch.arange(6.0, device=NAME)
    with traffic() as copies:
        float(values[1])
        values.tolist()
        values[values > 2]
        values.unique()
        torch.equal(values, values)
        values[torch.tensor([1])] = torch.ones(1).to(NAME)
        (values + 1).view(2, 3).T.exp_().sum(0)
    assert copies.down.total() == 5
    assert copies.up.total() == 2


@pytest.mark.parametrize("name", METHODS_OF_ALL)
def test_every_method_answers_as_on_the_cpu(name: str, space: Spaces) -> None:
    method = small(name)
    assert_close(answer(method, space("clip", NAME)), answer(method, space("clip", "cpu")))


VARIANTS = {
    "drop": {"occluder": "drop"},
    "blur": {"occluder": "blur"},
    "mean colour": {"occluder": "mean"},
    "cl-hp": {"context": "cl-hp", "hp_init": "normal"},
    "least squares": {"estimator": "least-squares"},
    "smoothed": {"estimator": "covariance", "smoothing": 0.05, "pairs": "top3"},
    "area": {"area": 0.3, "evidence_scaling": "minmax"},
    "control": {"proxy": "mean"},
    "safe": {"safe": True, "safe_openness": 0.999},
    "auto": {"masks": "auto", "budget": 64},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_setting_of_fcl_answers_as_on_the_cpu(variant: str, space: Spaces) -> None:
    method = small("fcl_variants", **VARIANTS[variant])
    assert_close(answer(method, space("clip", NAME)), answer(method, space("clip", "cpu")))


@pytest.mark.parametrize("model", ["resnet", "coca", "siglip", *(f"transformers:{kind}" for kind in TRANSFORMERS)])
def test_models_of_other_kinds_answer_as_on_the_cpu(model: str, space: Spaces) -> None:
    for method in (small("fcl"), small("tpt")):
        assert_close(answer(method, space(model, NAME)), answer(method, space(model, "cpu")))


def test_several_templates_and_descriptions_answer_as_on_the_cpu(space: Spaces) -> None:
    own = {"descriptions": [[f"a {name}.", f"one {name} on a table."] for name in CLASSES]}
    for asked in ({"templates": ("a photo of a {}.", "art of the {}.")}, own):
        spaces = [LabelSpace(CLASSES, space("clip", device).backbone, **asked) for device in (NAME, "cpu")]
        found, expected = (answer(small("fcl", context="cl-hp"), labels) for labels in spaces)
        assert_close(found, expected)


def test_a_lower_precision_is_tried_on_the_device(folders: Callable[[str], str]) -> None:
    backbone = create_backbone(folders("clip"), precision="bf16", engine="torch", device=NAME)
    assert (backbone.precision, backbone.image_encoder.conv1.weight.device.type) == ("bf16", NAME)
    labels = LabelSpace(CLASSES, backbone)
    assert answer(small("ttl"), labels).fallback is None  # its upper blocks are copied to float32


def same_counts(copies: Iterable[Traffic], direction: str = "down") -> None:
    """Assert that equally many copies were made, line by line."""
    first, *others = copies
    for other in others:
        assert getattr(other, direction) == getattr(first, direction), f"{first}\n{other}"


@pytest.mark.parametrize("variant", ["paper", *VARIANTS])
def test_copies_do_not_grow_with_masks(variant: str, space: Spaces) -> None:
    labels, settings = space("clip", NAME), {"k": 3, **VARIANTS.get(variant, {})}
    numbers = [{"masks": masks} for masks in ((50, 100, 200) if variant in ("paper", "drop") else (32, 80))]
    if variant == "auto":  # decides after each block of masks whether there are enough
        numbers = [{"budget": budget, "reliability": 0.01} for budget in (50, 100)]
    methods = [FCLVariants(**{**settings, **number}) for number in numbers]
    answer(methods[0], labels)
    copies = [counted(method, labels) for method in methods]
    if variant == "area":  # the search for a temperature ends when it has found
        for one in copies:
            found = [what for what in one.down if what.startswith("evidence.py:") and not what.endswith("copy")]
            assert sum(one.down.pop(what) for what in found) <= 60 * 8
    same_counts(copies)
    same_counts(copies, "up")


@pytest.mark.parametrize("name", list_methods())
def test_copies_do_not_grow_with_views(name: str, space: Spaces) -> None:
    labels, method = space("clip", NAME), small(name)
    answer(method, labels)
    copies = [counted(method, labels, views) for views in (16, 32)]
    if name == "mta":  # its loops end when a step is short
        assert max(one.down.total() for one in copies) <= 10 + (1 + 2 * method.iterations) * method.iterations * 2
        return
    same_counts(copies)
    same_counts(copies, "up")


def test_copies_of_several_images_are_theirs_alone(space: Spaces) -> None:
    labels = space("clip", NAME)
    answer(FCL(masks=24, k=3), labels)
    same_counts([counted(FCL(masks=24, k=3), labels) for _ in range(2)])


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with two pictures each."""
    folder = tmp_path_factory.mktemp("data") / "shapes"
    for number, name in enumerate(("cat", "dog", "guitar")):
        (folder / name).mkdir(parents=True)
        for seed in range(2):
            Image.fromarray(picture(2 * number + seed)).save(folder / name / f"{seed}.png")
    return folder


@pytest.fixture
def command(folders: Callable[[str], str], tmp_path: Path) -> Callable[..., dict[str, Path]]:
    """Return a function that runs a command on both devices, each with an output of its own."""

    def run(*words: object, out: str) -> dict[str, Path]:
        outs = {}
        for device in ("cpu", NAME):
            outs[device] = tmp_path / device / out
            model = ("--backbone", folders("clip"), "--precision", "fp32", "--engine-image", "torch")
            more = ("--device", device, "--views", "count=8", "--json" if out.endswith("json") else "--out")
            (tmp_path / device).mkdir()
            assert main([*map(str, words), *model, *more, str(outs[device])]) == 0
        return outs

    return run


def test_classify(command: Callable[..., dict[str, Path]], photos: Path) -> None:
    words = ("classify", photos / "cat", "--labels", "cat,dog,guitar", "--method", "tpt,fcl", "--set", "fcl.masks=16")
    expected, found = (json.loads(path.read_text()) for path in command(*words, out="answers.json").values())
    assert (expected["run"].pop("device"), found["run"].pop("device")) == ("cpu", f"{NAME}:0")
    assert len(found["answers"]) == 2 * 2
    assert_alike(found["answers"], expected["answers"])


def assert_alike(found: Any, expected: Any, path: str = "") -> None:
    """Assert that two documents are alike: numbers nearly, all else exactly, and times not at all."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key in expected:
            if "seconds" not in key:
                assert_alike(found[key], expected[key], f"{path}/{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), path
        for position, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_alike(one, other, f"{path}/{position}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4), path
    else:
        assert found == expected, path


def test_evaluate(command: Callable[..., dict[str, Path]], photos: Path) -> None:
    where = ("--datasets", "shapes", "--root", photos.parent, "--limit", 2, "--workers", 0)
    words = ("evaluate", *where, "--methods", "all", "--set", "fcl.masks=16")
    expected, found = (load_run(path / "shapes").rows for path in command(*words, out="runs").values())
    assert expected.num_rows == found.num_rows == 2 * sum(not is_stream(name) for name in list_methods())
    for column in ("path", "method", "prediction", "zero_shot", "votes", "error", "fallback"):
        assert found[column].to_pylist() == expected[column].to_pylist(), column
    np.testing.assert_allclose(found["confidence"].to_numpy(), expected["confidence"].to_numpy(), rtol=0, atol=1e-5)


def test_explain(command: Callable[..., dict[str, Path]], photos: Path) -> None:
    words = ("explain", photos / "cat" / "0.png", "--labels", "cat,dog,guitar", "--set", "masks=16")
    outs = command(*words, out="why")
    expected, found = (read_arrays(path / "pieces" / "arrays.npz") for path in outs.values())
    assert set(found) == set(expected)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-4, err_msg=name)
    assert (outs[NAME] / "index.html").exists()


@pytest.mark.parametrize("device", ["nothing", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device: str, folders: Callable[[str], str]) -> None:
    with pytest.raises(ArgumentError, match=f"^device='{device}' is not possible: .*; use for example cpu$"):
        create_backbone(folders("clip"), device=device)


def test_the_default_backbone_answers_as_on_the_cpu() -> None:
    answers = []
    for device in (NAME, "cpu"):
        backbone: Backbone = create_backbone("lite0", precision="fp32", engine="torch", device=device)
        labels = LabelSpace(CLASSES, backbone)
        answers.append([answer(method, labels, 8) for method in (small("zero_shot"), small("fcl"), small("tps"))])
    for found, expected in zip(*answers, strict=True):
        assert found.index == expected.index
        torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=0, atol=1e-4)
