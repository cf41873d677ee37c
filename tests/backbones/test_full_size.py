"""Architectures of full size with random weights from a file; no process should need much memory for them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch

from faircontext import FCL, Episode, LabelSpace, ViewRecipe, create_backbone
from helpers import assert_valid, give_memory_back
from tiny_clip import native_text

NAMES = ("cat", "dog", "cup of coffee", "snail")
TEMPLATE = "a photo of a {}."
MOMENTS = (open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "contexts", "ensemble"),
    [("ViT-B-32", ("cl", "cl-hp"), True), ("ViT-B-16", ("cl",), False), ("RN50", ("cl-hp",), False)],
)
def test_a_model_comes_back_from_a_file_and_answers(
    architecture: str,
    contexts: tuple[str, ...],
    ensemble: bool,
    tmp_path: Path,
    make_image: Callable[..., np.ndarray],
) -> None:
    torch.manual_seed(0)
    full = open_clip.create_model(architecture).eval()
    torch.save(full.state_dict(), tmp_path / "weights.pt")
    pixels = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(values)[:, None, None] for values in MOMENTS)
    with torch.no_grad():
        images = full.encode_image((pixels - mean) / std, normalize=True)
    texts = native_text(full, [TEMPLATE.format(name) for name in NAMES], 77)
    del full  # two models at once, and the weights of a third, are much memory
    give_memory_back()
    backbone = create_backbone(architecture, str(tmp_path / "weights.pt"), precision="fp32")
    assert backbone.name == f"{architecture}:{tmp_path / 'weights.pt'}"
    assert (backbone.mean, backbone.std) == MOMENTS
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    torch.testing.assert_close(backbone.encode_text(prompts), texts, rtol=0, atol=1e-6)
    torch.testing.assert_close(backbone.encode_image(pixels), images, rtol=0, atol=2e-5)
    recipe, image = ViewRecipe(count=8), make_image(0, 300, 400)
    episode = Episode(image, LabelSpace(NAMES, backbone), recipe)
    for context in contexts:
        prediction = FCL(masks=16, context=context)(episode)
        assert_valid(prediction, len(NAMES))
        assert prediction.fallback is None
    if ensemble:
        several = Episode(image, LabelSpace(NAMES, backbone, (TEMPLATE, "art of the {}.")), recipe)
        several.known["view_features"] = episode.view_features  # the same image: encoded once for this test
        assert_valid(FCL(masks=16)(several), len(NAMES))
