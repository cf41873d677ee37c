"""Models of transformers as backbones: features are the library's own, with gradients, and all methods run."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from faircontext import FCL, Backbone, Episode, LabelSpace, ViewRecipe, create_backbone, create_method, list_methods
from faircontext.backbones import base
from faircontext.backbones.base import ADAPTABLE_BLOCKS, TRAINABLE_TOWER
from faircontext.cli import main
from faircontext.errors import ArgumentError, LabelError
from helpers import assert_identical, assert_valid, same_bits
from tiny_transformers import KINDS, POSITIONS, load, native_images, native_text, native_text_of, write

NAMES = ("dog", "fire truck", "three-toed sloth", "a very long name of a thing that nobody has ever seen")
TEMPLATE = "a photo of a {}."

Make = Callable[[str], Backbone]
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return cache(lambda kind: write(tmp_path_factory.mktemp("models") / kind, kind))


@pytest.fixture(scope="module")
def made(folder: Folder) -> Make:
    return cache(lambda kind: create_backbone(f"transformers:{folder(kind)}", precision="fp32"))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def copied(folder: Folder, tmp_path: Path) -> Folder:
    return lambda kind: Path(shutil.copytree(folder(kind), tmp_path / f"copy-{kind}"))


def ids_of(backbone: Backbone, texts: Any) -> list[list[int]]:
    return [backbone._token_ids(text) for text in texts]


# Features


def test_text_features_are_those_of_the_library(kind: str, made: Make, folder: Folder) -> None:
    backbone = made(kind)
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    expected = native_text(folder(kind), prompts.texts)
    assert prompts.length == 4
    assert float((expected[0] - expected[1]).abs().max()) > 1e-3
    for context in (None, backbone.context(prompts)):  # the second is what CL starts from
        torch.testing.assert_close(backbone.encode_text(prompts, context), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("placement", ["replace", "prepend"])
def test_learnable_tokens_stand_where_written_tokens_would(
    placement: Any, kind: str, made: Make, folder: Folder
) -> None:
    backbone = made(kind)
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    start = backbone.start
    words = backbone._token_ids("the drawing of my large")[start:-1]
    skipped = start + (prompts.length if placement == "replace" else 0)
    rows = [row[:start] + words + row[skipped:] for row in ids_of(backbone, prompts.texts)]
    features = backbone.encode_text(prompts, backbone.token_embeddings(torch.tensor(words)), placement)
    torch.testing.assert_close(features, native_text_of(rows, folder(kind)), rtol=0, atol=1e-5)


def test_padding_on_the_left_is_put_on_the_left(copied: Folder) -> None:
    path = copied("siglip2")
    config = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps({**config, "padding_side": "left"}))
    backbone = create_backbone(f"transformers:{path}", precision="fp32")
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    torch.testing.assert_close(
        backbone.encode_text(prompts), native_text_of(ids_of(backbone, prompts.texts), path), rtol=0, atol=1e-5
    )


def test_a_tokenizer_without_end_token_ends_prompts_with_its_padding(copied: Folder) -> None:
    path = copied("siglip2")
    document = json.loads((path / "tokenizer.json").read_text())
    (path / "tokenizer.json").write_text(json.dumps({**document, "post_processor": None}))
    backbone = create_backbone(f"transformers:{path}", precision="fp32")
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    assert prompts.length == 4
    torch.testing.assert_close(backbone.encode_text(prompts), native_text(path, prompts.texts), rtol=0, atol=1e-5)


def test_an_old_configuration_of_clip_has_the_same_features(copied: Folder) -> None:
    """OpenAI's files say that the end token is 2, and the library then takes the largest id."""
    path = copied("clip")
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["eos_token_id"] = 2
    (path / "config.json").write_text(json.dumps(config))
    backbone = create_backbone(f"transformers:{path}", precision="fp32")
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    torch.testing.assert_close(backbone.encode_text(prompts), native_text(path, prompts.texts), rtol=0, atol=1e-5)


def pictures(size: int, number: int = 3) -> list[Image.Image]:
    rng = np.random.default_rng(1)
    return [Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8)) for _ in range(number)]


def pixels_of(images: list[Image.Image]) -> Tensor:
    return torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255.0 for image in images])


def test_image_features_are_those_of_the_library(kind: str, made: Make, folder: Folder) -> None:
    backbone = made(kind)
    images = pictures(backbone.image_size)
    expected = native_images(folder(kind), images)
    assert float((expected[0] - expected[1]).abs().max()) > 0.05
    torch.testing.assert_close(backbone.encode_image(pixels_of(images)), expected, rtol=0, atol=1e-5)


def test_the_scale_and_the_activation_are_the_models_own(kind: str, made: Make) -> None:
    assert made(kind).logit_scale == pytest.approx(np.exp(2.5), rel=1e-6)
    text, image = {"clip": ("QuickGELU",) * 2, "altclip": ("GELU", "QuickGELU")}.get(kind, ("", ""))
    said = made(kind).facts["activation"]
    if text:
        assert said == " and ".join(sorted({text, image}))


def test_rows_do_not_depend_on_those_beside_them(kind: str, made: Make) -> None:
    backbone = made(kind)
    pixels = pixels_of(pictures(backbone.image_size, 19))
    whole = backbone.encode_image(pixels)
    assert same_bits(backbone.encode_image(pixels[17:]), whole[17:])
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    assert same_bits(backbone.encode_text(prompts), backbone.encode_text(prompts, backbone.context(prompts)))


def test_clip_has_the_features_of_the_same_weights_in_open_clip(made: Make, folder: Folder, tmp_path: Path) -> None:
    path, backbone = folder("clip"), made("clip")
    vision = {"image_size": 32, "layers": 4, "width": 32, "patch_size": 16, "head_width": 16, "mlp_ratio": 1.5}
    text = {"context_length": POSITIONS, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2, "mlp_ratio": 1.5}
    config = {"embed_dim": 24, "quick_gelu": True, "vision_cfg": vision, "text_cfg": text}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    save_file(as_open_clip(load_file(path / "model.safetensors")), tmp_path / "open_clip_model.safetensors")
    other = create_backbone(f"local-dir:{tmp_path}", precision="fp32")
    names, images = [*NAMES, "object 3, very bad"], pixels_of(pictures(32))
    for template in (TEMPLATE, "a bad photo of the {}."):
        ours, theirs = (one.tokenize(names, template) for one in (backbone, other))
        assert ours.ids.tolist() == [row[: ours.ids.shape[1]] for row in with_ends(theirs.ids, backbone.pad).tolist()]
        torch.testing.assert_close(backbone.encode_text(ours), other.encode_text(theirs), rtol=0, atol=1e-5)
    torch.testing.assert_close(backbone.encode_image(images), other.encode_image(images), rtol=0, atol=1e-5)
    assert backbone.logit_scale == pytest.approx(other.logit_scale)


def with_ends(ids: Tensor, pad: int) -> Tensor:
    """open_clip fills rows with 0, CLIP's tokenizer of transformers with the end token."""
    return torch.where(ids == 0, pad, ids)


def as_open_clip(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name the tensors of CLIPModel as open_clip's CLIP does."""
    out = {
        "positional_embedding": weights["text_model.embeddings.position_embedding.weight"],
        "token_embedding.weight": weights["text_model.embeddings.token_embedding.weight"],
        "text_projection": weights["text_projection.weight"].T.contiguous(),
        "logit_scale": weights["logit_scale"],
        "visual.class_embedding": weights["vision_model.embeddings.class_embedding"],
        "visual.positional_embedding": weights["vision_model.embeddings.position_embedding.weight"],
        "visual.conv1.weight": weights["vision_model.embeddings.patch_embedding.weight"],
        "visual.proj": weights["visual_projection.weight"].T.contiguous(),
    }
    for end in ("weight", "bias"):
        out[f"ln_final.{end}"] = weights[f"text_model.final_layer_norm.{end}"]
        out[f"visual.ln_pre.{end}"] = weights[f"vision_model.pre_layrnorm.{end}"]
        out[f"visual.ln_post.{end}"] = weights[f"vision_model.post_layernorm.{end}"]
        for tower, prefix, layers in (("text_model", "", 2), ("vision_model", "visual.", 4)):
            for layer in range(layers):
                own, theirs = f"{tower}.encoder.layers.{layer}", f"{prefix}transformer.resblocks.{layer}"
                parts = [weights[f"{own}.self_attn.{part}_proj.{end}"] for part in "qkv"]
                out[f"{theirs}.attn.in_proj_{end}"] = torch.cat(parts)
                pairs = {"self_attn.out_proj": "attn.out_proj", "layer_norm1": "ln_1", "layer_norm2": "ln_2"}
                pairs |= {"mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}
                out |= {f"{theirs}.{new}.{end}": weights[f"{own}.{old}.{end}"] for old, new in pairs.items()}
    return out


# Gradients


@pytest.mark.parametrize("placement", ["replace", "prepend"])
def test_gradients_are_finite_differences(placement: Any, kind: str, folder: Folder) -> None:
    backbone = create_backbone(f"transformers:{folder(kind)}", precision="fp32")
    backbone.text_tower.double()
    prompts = backbone.tokenize(NAMES[:2], TEMPLATE)
    context = backbone.context_of("the drawing of my").requires_grad_()
    assert torch.autograd.gradcheck(
        lambda tokens: backbone.encode_text(prompts, tokens, placement)[:, :3], context, eps=1e-6, atol=1e-7
    )


def test_gradients_in_groups_are_those_of_all_at_once(kind: str, made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = made(kind)
    prompts = backbone.tokenize([f"object number {number}" for number in range(70)], TEMPLATE)
    gradients = []
    for size in (16, 100):
        monkeypatch.setattr(base, "TEXT_BATCH", size)
        context = backbone.context_of("a photo of a").requires_grad_()
        weights = torch.linspace(-1, 1, 70)[:, None]
        gradients.append(torch.autograd.grad((backbone.encode_text(prompts, context) * weights).sum(), context)[0])
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() <= 1e-5


# Prompts


def test_a_prompt_may_fill_the_tower_and_no_more(kind: str, made: Make) -> None:
    backbone = made(kind)
    assert backbone.context_length == POSITIONS
    used = len(backbone._token_ids("a photo of a dog."))
    room = POSITIONS - used + 1
    fits, overflows = (backbone.tokenize([" ".join(["dog"] * number)], TEMPLATE) for number in (room, room + 1))
    assert backbone.encode_text(fits).isfinite().all()
    with pytest.raises(LabelError, match=rf"has {POSITIONS + 1} tokens, more than the {POSITIONS} that transformers:"):
        backbone.encode_text(overflows)
    with pytest.raises(LabelError, match=r"\(4 of them learnable\)"):
        backbone.encode_text(fits, backbone.context_of("a photo of a"), "prepend")
    cut = LabelSpace(("cat", " ".join(["dog"] * 100)), backbone, truncate=True).prompts[0]
    assert int(cut.mask.sum(1).max()) == POSITIONS - 4  # room for CL-HP's tokens
    assert int(cut.ids[1, POSITIONS - 5]) == backbone._token_ids("dog")[-1]


# Methods


@pytest.mark.parametrize("context", ["cl", "cl-hp"])
@pytest.mark.parametrize("templates", [(TEMPLATE,), (TEMPLATE, "art of the {}.")], ids=["single", "ensemble"])
def test_fcl_runs_on_every_kind(
    context: Any, templates: tuple[str, ...], kind: str, made: Make, make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(NAMES, made(kind), templates)
    method = FCL(masks=16, k=3, context=context)
    answers = [method(Episode(make_image(5), labels, ViewRecipe(count=8))) for _ in range(2)]
    assert_identical(*answers)
    assert_valid(answers[0], len(NAMES))
    assert answers[0].fallback is None
    assert method.adapt(Episode(make_image(5), labels, ViewRecipe(count=8))).calibration.failure is None


@pytest.mark.slow
@pytest.mark.parametrize("name", list_methods())
def test_every_method_runs_on_every_kind(
    name: str, kind: str, made: Make, make_image: Callable[..., np.ndarray]
) -> None:
    backbone = made(kind)
    assert backbone.capabilities >= {TRAINABLE_TOWER, ADAPTABLE_BLOCKS}
    method = create_method(name, backbone=backbone, **({"masks": 8, "k": 3} if name == "fcl" else {}))
    answer = method(Episode(make_image(5), LabelSpace(NAMES, backbone), ViewRecipe(count=8)))
    assert_valid(answer, len(NAMES))
    assert answer.fallback is None


def test_a_split_tower_is_the_tower(kind: str, made: Make) -> None:
    backbone = made(kind)
    pixels = pixels_of(pictures(backbone.image_size))
    split = backbone.split_tower(2)
    tokens = split.below(pixels)
    nothing = torch.zeros(2, 3 * split.width, split.width)
    torch.testing.assert_close(split.above(tokens, nothing), backbone.encode_image(pixels), rtol=0, atol=1e-5)
    changed = nothing.clone()
    changed[0, 2 * split.width :] = 0.1  # of the values alone
    layer = load(Path(backbone.name.removeprefix("transformers:")))
    with torch.no_grad():
        layer.vision_model.encoder.layers[-2].self_attn.v_proj.weight.add_(0.1)
    weights = {name: value.clone() for name, value in backbone.tower.state_dict().items()}
    weights["vision.encoder.layers.2.self_attn.v_proj.weight"] += 0.1
    torch.testing.assert_close(split.above(tokens, changed), backbone.encode_with(weights, pixels), rtol=0, atol=1e-5)
    with pytest.raises(ArgumentError, match=r"blocks=5 is not possible; the image tower of transformers:.* has 4"):
        backbone.split_tower(5)


def test_the_image_tower_may_run_in_half_precision(kind: str, folder: Folder) -> None:
    low = create_backbone(f"transformers:{folder(kind)}", precision="bf16")
    pixels = pixels_of(pictures(low.image_size))
    exact = create_backbone(f"transformers:{folder(kind)}", precision="fp32").encode_image(pixels)
    assert (low.encode_image(pixels) * exact).sum(1).min() > 0.99
    assert TRAINABLE_TOWER not in low.capabilities


# Command line


def test_commands_run_on_a_folder(folder: Folder, picture_set: Path, tmp_path: Path) -> None:
    model = ("--backbone", f"transformers:{folder('siglip')}", "--precision", "fp32")
    shared = ("--datasets", "pictures", "--root", str(picture_set.parent), "--limit", "3", "--out", str(tmp_path))
    assert main(["evaluate", *shared, *model, "--methods", "fcl", "tpt", "--set", "fcl.masks=8"]) in (0, 1)
    config = json.loads((tmp_path / "pictures" / "run.json").read_text())
    assert config["config"]["backbone"]["name"] == f"transformers:{folder('siglip')}"
    words = ("--labels", "cat,dog", "--method", "fcl", "--set", "masks=8", "--json", str(tmp_path / "rows.json"))
    assert main(["classify", str(picture_set / "images" / "00.png"), *words, *model]) == 0
    assert json.loads((tmp_path / "rows.json").read_text())["run"]["model"] == {"activation": "gelu_pytorch_tanh"}


@pytest.mark.process
def test_the_library_is_imported_by_such_a_backbone_alone() -> None:
    program = "import sys, faircontext.backbones, faircontext.labels; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
