"""TPS: shifted prototypes against plain NumPy, and prototypes of templates and descriptors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from faircontext import TPS, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot, create_method
from faircontext.backbones.open_clip import TextEncoder
from faircontext.backbones.prompts import prompt_set
from faircontext.calibrate import Descent
from faircontext.errors import ArgumentError, LabelError
from faircontext.methods.tps import descriptor_prompt
from helpers import assert_valid
from oracles import losses_of_baselines as oracle

NAMES = ("dog", "fire_truck", "Cat")
DESCRIPTORS = {
    "cat": ["whiskers", "a small carnivore", "often seen asleep"],
    "Fire truck": ["used by firefighters", "wheels"],
    "dog": ["has a tail", "four legs", "may bark", "can swim"],
    "horse": ["hooves"],
}
SENTENCES = {
    "dog": [
        "dog, which has a tail",
        "dog, which has four legs",
        "dog, which may bark",
        "dog, which can swim",
    ],
    "fire_truck": ["fire truck, which is used by firefighters", "fire truck, which has wheels"],
    "Cat": ["Cat, which has whiskers", "Cat, which is a small carnivore", "Cat, which often seen asleep"],
}


@pytest.fixture(scope="module")
def new_episode(backbone: Backbone, make_image: Callable[..., np.ndarray]) -> Callable[..., Episode]:
    def make(names: tuple[str, ...] = NAMES, image: int = 0) -> Episode:
        return Episode(make_image(image), LabelSpace(names, backbone), ViewRecipe(count=64))

    return make


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("descriptors") / "things.json"
    path.write_text(json.dumps(DESCRIPTORS))
    return str(path)


def doubles(tensor: Tensor) -> np.ndarray:
    return tensor.double().numpy()


@pytest.fixture(scope="module")
def means(backbone: Backbone) -> dict[str, np.ndarray]:
    """Prototypes from means over templates and over descriptors, which are not normalised before they are averaged."""
    templates = doubles(LabelSpace(NAMES, backbone, prompt_set("imagenet80")).text).mean(0)
    descriptors = np.stack([doubles(LabelSpace(SENTENCES[name], backbone, ("{}",)).text[0]).mean(0) for name in NAMES])
    micro = (templates + descriptors) / 2
    return {"templates": oracle.unit(templates), "descriptors": oracle.unit(descriptors), "micro": oracle.unit(micro)}


# The shift


@pytest.mark.parametrize(
    "settings_", [{}, {"steps": 3}, {"rho": 0.3, "lr": 0.02, "weight_decay": 0.5, "steps": 2}], ids=str
)
def test_answers_agree_with_the_slow_reimplementation(new_episode: Callable[..., Episode], settings_: dict) -> None:
    episode, method = new_episode(), TPS(**settings_)
    views, base = doubles(episode.view_features), doubles(episode.labels.zero_shot_text)
    scale = episode.backbone.logit_scale
    shift, optimizer = np.zeros_like(base), oracle.AdamW(method.lr, method.weight_decay)
    losses = []
    for _ in range(method.steps):
        kept = oracle.kept_views(scale * views @ oracle.shifted(base, shift).T, method.rho)  # anew at every step
        losses.append(oracle.shift_loss(views[kept], base, shift, scale))
        gradient = oracle.slope(lambda d, k=kept: oracle.shift_loss(views[k], base, d, scale), shift)
        shift = optimizer.step(shift, gradient)
    prediction = method(episode)
    expected = oracle.softmax(scale * oracle.shifted(base, shift) @ views[0])
    np.testing.assert_allclose(prediction.probabilities, expected, rtol=0, atol=1e-4)
    assert (prediction.probabilities - ZeroShot()(episode).probabilities).abs().max() > 0.01
    diagnostics = prediction.diagnostics
    assert [diagnostics[f"loss_{step}"] for step in range(method.steps)] == pytest.approx(losses, abs=1e-4)
    assert diagnostics["views"] == tuple(kept)
    assert diagnostics["steps"] == method.steps
    moved = np.linalg.norm(oracle.shifted(base, shift) - base, axis=1).mean()
    assert diagnostics["text_shift"] == pytest.approx(moved, abs=1e-4)
    assert prediction.fallback is None


def test_views_are_selected_again_at_every_step(new_episode: Callable[..., Episode]) -> None:
    first, last = (set(TPS(steps=steps, lr=0.1)(new_episode()).diagnostics["views"]) for steps in (1, 5))
    assert len(first) == len(last) == 6
    assert first != last


def test_a_common_shift_changes_logits_because_prototypes_are_normalised_again(
    new_episode: Callable[..., Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    amount = 0.3 * torch.nn.functional.normalize(torch.randn(32, generator=torch.Generator().manual_seed(0)), dim=-1)

    def add(parameters: list[Tensor], *_: Any, **__: Any) -> Descent:
        """Add the same to every class's shift."""
        parameters[0].data += amount
        return Descent((0.0,))

    monkeypatch.setattr("faircontext.methods.tuning.minimise", add)
    episode = new_episode()
    views, base = doubles(episode.view_features), doubles(episode.labels.zero_shot_text)
    logits = episode.backbone.logit_scale * oracle.shifted(base, np.tile(doubles(amount), (3, 1))) @ views[0]
    prediction = TPS()(episode)
    np.testing.assert_allclose(prediction.probabilities, oracle.softmax(logits), rtol=0, atol=1e-5)
    assert (prediction.probabilities - ZeroShot()(episode).probabilities).abs().max() > 0.005
    equal = new_episode(("cat", "cat", "cat"))
    assert TPS()(equal).probabilities.tolist() == ZeroShot()(equal).probabilities.tolist() == pytest.approx([1 / 3] * 3)


def test_the_text_tower_is_not_run_once_prototypes_are_known(
    new_episode: Callable[..., Episode],
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    make_image: Callable[..., np.ndarray],
) -> None:
    episode = new_episode()
    method = TPS(prototypes="micro", descriptors=file)
    method(episode)
    monkeypatch.setattr(TextEncoder, "forward", lambda *_: pytest.fail("the text tower was run"))
    assert_valid(method(Episode(make_image(1), episode.labels, ViewRecipe(count=8))), 3)


# Prototypes


@pytest.mark.parametrize(
    ("descriptor", "prompt"),
    [
        *(("an animal", "lemur, which is an animal"), ("arboreal", "lemur, which is arboreal")),
        *(
            (text, f"lemur, which {text}")
            for text in ("has rings", "often shy", "typically grey", "may jump", "can climb")
        ),
        *(("used to climbing", "lemur, which is used to climbing"), ("ringed tail", "lemur, which has ringed tail")),
    ],
)
def test_a_descriptor_becomes_a_sentence_by_its_first_word(descriptor: str, prompt: str) -> None:
    assert descriptor_prompt("lemur", descriptor) == prompt


@pytest.mark.parametrize("prototypes", ["templates", "descriptors", "micro"])
def test_prototypes_are_means_that_are_normalised_last(
    backbone: Backbone, means: dict[str, np.ndarray], new_episode: Callable[..., Episode], file: str, prototypes: str
) -> None:
    expected = means
    logits = backbone.logit_scale * expected[prototypes] @ doubles(new_episode().z)
    prediction = TPS(prototypes=prototypes, descriptors=file, steps=0)(new_episode())
    np.testing.assert_allclose(prediction.probabilities, oracle.softmax(logits), rtol=0, atol=1e-5)
    assert (prediction.probabilities - ZeroShot()(new_episode()).probabilities).abs().max() > 1e-3
    early = oracle.unit(expected["templates"] + expected["descriptors"])  # normalised before they are averaged
    assert np.abs(early - expected["micro"]).max() > 1e-4
    assert (TPS(prototypes=prototypes, descriptors=file)(new_episode()).probabilities != prediction.probabilities).all()


def test_a_fallback_answers_by_the_chosen_prototypes(
    backbone: Backbone,
    means: dict[str, np.ndarray],
    new_episode: Callable[..., Episode],
    file: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("faircontext.methods.tps.marginal_entropy", lambda rows: rows.sum() * float("nan"))
    prediction = TPS(prototypes="micro", descriptors=file)(new_episode())
    assert prediction.fallback is not None
    logits = backbone.logit_scale * means["micro"] @ doubles(new_episode().z)
    np.testing.assert_allclose(prediction.probabilities, oracle.softmax(logits), rtol=0, atol=1e-5)


# What is refused


def test_descriptors_are_read_as_descriptions_are_before_any_image(backbone: Backbone, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"dog": ["tail"], "cat": ["whiskers"]}')
    with pytest.raises(LabelError, match=f"^{path}: lacks prompts of 'fire_truck'; give each class at least one$"):
        TPS(prototypes="descriptors", descriptors=str(path)).check_labels(LabelSpace(NAMES, backbone))


def test_the_official_preset_needs_a_descriptor_file(file: str) -> None:
    with pytest.raises(ArgumentError, match=r"^prototypes='micro' needs descriptors= a JSON file of .*$"):
        create_method("tps", preset="official")
    assert create_method("tps", preset="official", descriptors=file) == TPS(prototypes="micro", descriptors=file)
    assert create_method("tps", preset="official", prototypes="prompts") == TPS()
