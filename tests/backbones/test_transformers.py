"""Models of transformers as backbones: features are the library's own, with gradients, and all methods run."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from faircontext import Backbone, Episode, LabelSpace, ViewRecipe, create_backbone, create_method, list_methods
from faircontext.backbones.base import ADAPTABLE_BLOCKS, TRAINABLE_ENCODER
from faircontext.cli import main
from faircontext.errors import ArgumentError
from helpers import assert_valid
from tiny_transformers import KINDS, POSITIONS, load, native_text, native_text_of

NAMES = ("dog", "fire truck", "three-toed sloth", "a very long name of a thing that nobody has ever seen")
TEMPLATE = "a photo of a {}."

Make = Callable[[str], Backbone]
Folder = Callable[[str], Path]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Features


@pytest.mark.parametrize(
    ("kind", "file", "change"),
    [
        ("siglip2", "tokenizer_config.json", lambda config: config.update(padding_side="left")),
        ("siglip2", "tokenizer.json", lambda document: document.update(post_processor=None)),
        ("clip", "config.json", lambda config: config["text_config"].update(eos_token_id=2)),
    ],
    ids=["padding on the left", "no end token, so that padding ends prompts", "OpenAI's old configuration of CLIP"],
)
def test_other_forms_of_a_folder_have_the_features_of_the_library(
    kind: str, file: str, change: Callable[[Any], Any], copied: Folder
) -> None:
    path = copied(kind)
    document = json.loads((path / file).read_text())
    change(document)
    (path / file).write_text(json.dumps(document))
    backbone = create_backbone(f"transformers:{path}", precision="fp32")
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    rows = [backbone._token_ids(text) for text in prompts.texts]
    assert prompts.length == 4
    expected = native_text_of(rows, path) if "left" in json.dumps(document) else native_text(path, prompts.texts)
    torch.testing.assert_close(backbone.encode_text(prompts), expected, rtol=0, atol=1e-5)


def test_the_scale_and_the_activation_are_the_models_own(kind: str, of_kind: Make) -> None:
    assert of_kind(kind).logit_scale == pytest.approx(np.exp(2.5), rel=1e-6)
    text, image = {"clip": ("QuickGELU",) * 2, "altclip": ("GELU", "QuickGELU")}.get(kind, ("", ""))
    said = of_kind(kind).facts["activation"]
    if text:
        assert said == " and ".join(sorted({text, image}))


def test_clip_has_the_features_of_the_same_weights_in_open_clip(
    of_kind: Make, kind_folder: Folder, tmp_path: Path
) -> None:
    path, backbone = kind_folder("clip"), of_kind("clip")
    vision = {"image_size": 32, "layers": 4, "width": 32, "patch_size": 16, "head_width": 16, "mlp_ratio": 1.5}
    text = {"context_length": POSITIONS, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2, "mlp_ratio": 1.5}
    config = {"embed_dim": 24, "quick_gelu": True, "vision_cfg": vision, "text_cfg": text}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    save_file(as_open_clip(load_file(path / "model.safetensors")), tmp_path / "open_clip_model.safetensors")
    other = create_backbone(f"local-dir:{tmp_path}", precision="fp32")
    names, images = [*NAMES, "object 3, very bad"], torch.rand(3, 3, 32, 32)
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
        for part, prefix, layers in (("text_model", "", 2), ("vision_model", "visual.", 4)):
            for layer in range(layers):
                own, theirs = f"{part}.encoder.layers.{layer}", f"{prefix}transformer.resblocks.{layer}"
                parts = [weights[f"{own}.self_attn.{letter}_proj.{end}"] for letter in "qkv"]
                out[f"{theirs}.attn.in_proj_{end}"] = torch.cat(parts)
                pairs = {"self_attn.out_proj": "attn.out_proj", "layer_norm1": "ln_1", "layer_norm2": "ln_2"}
                pairs |= {"mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}
                out |= {f"{theirs}.{new}.{end}": weights[f"{own}.{old}.{end}"] for old, new in pairs.items()}
    return out


# Methods


@pytest.mark.slow
@pytest.mark.parametrize("name", list_methods())
def test_every_method_runs_on_every_kind(
    name: str, kind: str, of_kind: Make, make_image: Callable[..., np.ndarray]
) -> None:
    backbone = of_kind(kind)
    assert backbone.capabilities >= {TRAINABLE_ENCODER, ADAPTABLE_BLOCKS}
    method = create_method(name, backbone=backbone, **({"masks": 8, "k": 3} if name == "fcl" else {}))
    answer = method(Episode(make_image(5), LabelSpace(NAMES, backbone), ViewRecipe(count=8)))
    assert_valid(answer, len(NAMES))
    assert answer.fallback is None


def test_a_split_tower_is_the_tower(kind: str, of_kind: Make) -> None:
    backbone = of_kind(kind)
    pixels = torch.rand(3, 3, backbone.image_size, backbone.image_size)
    split = backbone.split_encoder(2)
    tokens = split.below(pixels)
    nothing = torch.zeros(2, 3 * split.width, split.width)
    torch.testing.assert_close(split.above(tokens, nothing), backbone.encode_image(pixels), rtol=0, atol=1e-5)
    changed = nothing.clone()
    changed[0, 2 * split.width :] = 0.1  # of the values alone
    layer = load(Path(backbone.name.removeprefix("transformers:")))
    with torch.no_grad():
        layer.vision_model.encoder.layers[-2].self_attn.v_proj.weight.add_(0.1)
    weights = {name: value.clone() for name, value in backbone.image_encoder.state_dict().items()}
    weights["vision.encoder.layers.2.self_attn.v_proj.weight"] += 0.1
    torch.testing.assert_close(split.above(tokens, changed), backbone.encode_with(weights, pixels), rtol=0, atol=1e-5)
    with pytest.raises(ArgumentError, match=r"blocks=5 is not possible; the image tower of transformers:.* has 4"):
        backbone.split_encoder(5)


# Command line


def test_commands_run_on_a_folder(kind_folder: Folder, picture_set: Path, tmp_path: Path) -> None:
    model = ("--backbone", f"transformers:{kind_folder('siglip')}", "--precision", "fp32")
    shared = ("--datasets", "pictures", "--root", str(picture_set.parent), "--limit", "3", "--out", str(tmp_path))
    assert main(["evaluate", *shared, *model, "--methods", "fcl", "tpt", "--set", "fcl.masks=8"]) in (0, 1)
    config = json.loads((tmp_path / "pictures" / "run.json").read_text())
    assert config["config"]["backbone"]["name"] == f"transformers:{kind_folder('siglip')}"
    words = ("--labels", "cat,dog", "--method", "fcl", "--set", "masks=8", "--json", str(tmp_path / "rows.json"))
    assert main(["classify", str(picture_set / "images" / "00.png"), *words, *model]) == 0
    assert json.loads((tmp_path / "rows.json").read_text())["run"]["model"] == {"activation": "gelu_pytorch_tanh"}


@pytest.mark.process
def test_the_library_is_imported_by_such_a_backbone_alone() -> None:
    program = "import sys, faircontext.backbones, faircontext.labels; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
