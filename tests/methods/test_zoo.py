"""What is tested of each method in the same way; see `SPEC`."""

from collections.abc import Callable, Mapping
from importlib import import_module

import numpy as np
import pytest
import torch

from faircontext import Backbone, Episode, LabelSpace, ViewRecipe, create_method, list_methods
from faircontext.errors import ArgumentError
from helpers import assert_same_answer, assert_valid
from zoo import SPEC

NAMES = ("cat", "dog", "rocket", "cup of coffee", "snail")
WITH_LOSS = [name for name, spec in SPEC.items() if spec.seam]
UNTUNED = [name for name in WITH_LOSS if SPEC[name].untuned]
NO_STEP = ({"lr": 0.0}, {"lr": 0.0, "steps": 3}, {"steps": 0})


@pytest.fixture(scope="module")
def episode(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> Episode:
    return Episode(make_image(0), LabelSpace(NAMES, tiny("clip")), ViewRecipe(count=40))


def test_the_table_has_every_method_in_the_order_of_the_papers_tables() -> None:
    assert [name for name in SPEC if name in list_methods()] == list_methods() == list(SPEC)


@pytest.mark.parametrize("name", SPEC)
def test_the_defaults_are_the_papers_or_the_repositorys(name: str) -> None:
    spec = SPEC[name]
    assert spec.kind().settings() == spec.defaults == create_method(name).settings()
    if spec.official is not None:
        assert create_method(name, preset="official") == spec.kind(**spec.official)


@pytest.mark.parametrize(
    ("name", "dataset", "settings"),
    [
        ("tda", "caltech101", {"alpha": 5.0, "beta": 5.0}),
        ("tda", "imagenet_sketch", {"alpha": 2.363, "beta": 7.45, "views": "confident"}),
        ("dmn", "dtd", {"mix": 10.0}),
        ("boostadapter", "imagenet", {"alpha": 2.0, "beta": 5.0, "delta": 3}),
        ("boostadapter", "imagenet_sketch", {"alpha": 2.363, "beta": 7.45, "delta": 1, "views": "confident"}),
        ("boostadapter", "ucf101", {"alpha": 3.0, "beta": 8.0, "delta": 0}),
        ("dpe", "imagenet_a", {"lr": 3e-4, "lam": 2.5, "answer": "confident"}),
        ("dpe", "imagenet_r", {"a": 3.0, "b": 8.0, "lr": 6e-4, "lam": 0.0}),
        ("dpe", "sun397", {"b": 3.0, "lr": 2e-4, "lam": 0.2, "views": "plain"}),
    ],
)
def test_the_preset_official_has_what_the_authors_chose_for_a_data_set(
    name: str, dataset: str, settings: Mapping[str, object]
) -> None:
    spec = SPEC[name]
    assert create_method(name, preset="official", dataset=dataset) == spec.kind(**spec.official, **settings)
    assert create_method(name, preset="official", dataset="my_photos") == spec.kind(**spec.official)
    assert create_method(name, preset="paper", dataset=dataset) == spec.kind()
    first, value = next(iter(settings.items()))  # what is given goes before the preset
    changed = {**settings, first: type(value)(2)}
    given = create_method(name, preset="official", dataset=dataset, **{first: changed[first]})
    assert given == spec.kind(**spec.official, **changed)


@pytest.mark.parametrize(
    ("name", "setting", "value"), [(name, *pair) for name, spec in SPEC.items() for pair in spec.invalid]
)
def test_a_value_that_is_not_possible_is_refused_by_name(name: str, setting: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=f"^{setting}=.* is not possible; .*$"):
        create_method(name, **{setting: value})


@pytest.mark.parametrize("settings", NO_STEP, ids=str)
@pytest.mark.parametrize("name", UNTUNED)
def test_without_a_step_the_answer_is_the_untuned_one(name: str, settings: dict, episode: Episode) -> None:
    spec = SPEC[name]
    prediction, expected = spec.kind(**{**spec.small, **settings})(episode), spec.reference(episode)
    torch.testing.assert_close(prediction.probabilities, expected.probabilities, rtol=0, atol=1e-6)
    assert prediction.index == expected.index
    assert prediction.fallback is None


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("name", WITH_LOSS)
def test_a_loss_that_is_not_a_number_falls_back(
    name: str, step: int, episode: Episode, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, calls = SPEC[name], []
    module, _, function = spec.seam.rpartition(".")
    loss = getattr(import_module(module), function)

    def breaking(*args: object, **options: object) -> torch.Tensor:
        calls.append(step)
        return loss(*args, **options) * (float("nan") if len(calls) == step + 1 else 1.0)

    monkeypatch.setattr(spec.seam, breaking)
    prediction = spec.kind(**{**spec.small, "steps": 3})(episode)
    assert prediction.fallback == f"the loss was not finite: {spec.fallback}"
    assert len(calls) > step
    assert_same_answer(prediction, spec.reference(episode))
    assert_valid(prediction, len(NAMES))
