"""Adapters that peft wrote, merged by it: features are those of peft's own model, and what does not fit is one line."""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from faircontext import Backbone, create_backbone
from faircontext.backbones.loaded import _merge_adapter
from faircontext.errors import FairContextWarning
from helpers import refusal, same_bits
from tiny_clip import native_model
from tiny_transformers import load, native_text, write

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def clip(kind_folder: Folder) -> Path:
    return kind_folder("clip")


def train(model: Any, folder: Path, **settings: Any) -> Any:
    """Write an adapter with drawn weights, and return peft's model."""
    options = {"r": 4, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False, **settings}
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft reads what newer versions of transformers call otherwise
        adapted = peft.get_peft_model(model, peft.LoraConfig(**options)).eval()
        adapted.save_pretrained(str(folder))
    return adapted


def made(model: str, adapter: Path) -> tuple[Backbone, list[str]]:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        backbone = create_backbone(model, precision="fp32", adapter=str(adapter))
    return backbone, [str(one.message) for one in heard if issubclass(one.category, FairContextWarning)]


def message(model: str, adapter: Path) -> str:
    return refusal(lambda: _merge_adapter(load(Path(model.partition(":")[2])), adapter, model))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"use_dora": True}, marks=pytest.mark.slow),
        {"target_modules": ["q_proj", "fc1"], "modules_to_save": ["visual_projection"]},
    ],
    ids=["LoRA", "DoRA", "whole modules besides"],
)
def test_merged_features_are_those_of_pefts_model(settings: dict[str, Any], clip: Path, tmp_path: Path) -> None:
    adapted = train(load(clip), tmp_path / "a", **settings)
    backbone, lines = made(f"transformers:{clip}", tmp_path / "a")
    assert lines == [f"{tmp_path / 'a'}: the adapter (LORA) is merged into the weights of transformers:{clip}"]
    assert backbone.facts["warnings"] == lines
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = adapted.get_image_features(backbone._normalise(pixels))
    features = features if isinstance(features, torch.Tensor) else features.pooler_output
    expected = torch.nn.functional.normalize(features, dim=-1)
    torch.testing.assert_close(backbone.encode_image(pixels), expected, rtol=0, atol=1e-5)
    plain = create_backbone(f"transformers:{clip}", precision="fp32")
    assert float((plain.encode_image(pixels) - expected).abs().max()) > 1e-3
    text = backbone.encode_text(backbone.tokenize(("dog",), "a photo of a {}."))
    assert float((text - native_text(clip, ("a photo of a dog.",))).abs().max()) > 1e-3
    assert backbone.weights_hash != plain.weights_hash
    assert not any("lora" in name for name in backbone.image_encoder.state_dict())


def test_models_of_open_clip_take_adapters_as_well(tiny_folder: Folder, tmp_path: Path) -> None:
    adapted = train(native_model(tiny_folder("clip")), tmp_path / "a", target_modules=["c_fc", "c_proj"])
    backbone, _ = made(f"local-dir:{tiny_folder('clip')}", tmp_path / "a")
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = adapted.encode_image(backbone._normalise(pixels), normalize=True)
    torch.testing.assert_close(backbone.encode_image(pixels), expected, rtol=0, atol=1e-5)


def test_merging_draws_no_global_numbers(clip: Path, tmp_path: Path) -> None:
    train(load(clip), tmp_path / "a")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    made(f"transformers:{clip}", tmp_path / "a")
    assert same_bits(torch.get_rng_state(), before)


def test_an_adapter_before_its_training_is_said_to_change_nothing(clip: Path, tmp_path: Path) -> None:
    train(load(clip), tmp_path / "a", init_lora_weights=True)
    backbone, lines = made(f"transformers:{clip}", tmp_path / "a")
    assert lines[1].startswith(f"{tmp_path / 'a'}: the adapter changes nothing, as before its training: all values of ")
    assert backbone.weights_hash == create_backbone(f"transformers:{clip}", precision="fp32").weights_hash


# What cannot be merged


def test_an_adapter_of_another_model_is_refused(clip: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "wide", "clip", hidden_size=48)
    train(load(other), tmp_path / "wide-a")
    said = message(f"transformers:{clip}", tmp_path / "wide-a")
    assert said.startswith(f"{tmp_path / 'wide-a'}: an adapter of another model: tensors of another shape: ")
    assert ".lora_A.weight: 4 x 48 and not 4 x 32)" in said
    assert said.endswith(
        f"; it was made for {other} (target_modules q_proj, v_proj), and layers of "
        f"transformers:{clip} are fc1, fc2, k_proj, out_proj, patch_embedding, position_embedding, q_proj, "
        "text_projection and 3 more; give the model that it was trained on"
    )
    deep = write(tmp_path / "deep", "clip", num_hidden_layers=6)
    train(load(deep), tmp_path / "deep-a")
    said = message(f"transformers:{clip}", tmp_path / "deep-a")
    assert said.startswith(f"{tmp_path / 'deep-a'}: an adapter of another model: tensors unknown: ")
    train(load(clip), tmp_path / "a")
    said = message(f"transformers:{deep}", tmp_path / "a")
    assert "tensors missing: 8 (first base_model.model.vision_model.encoder.layers.4." in said


def test_the_model_that_an_adapter_was_made_for_is_named(clip: Path, tiny_folder: Folder, tmp_path: Path) -> None:
    config = tmp_path / "a" / "adapter_config.json"
    train(native_model(tiny_folder("clip")), tmp_path / "a", target_modules=["c_fc", "c_proj"])
    facts = json.loads(config.read_text())
    config.write_text(json.dumps({**facts, "base_model_name_or_path": "them/bert", "task_type": "SEQ_CLS"}))
    assert message(f"transformers:{clip}", tmp_path / "a").startswith(
        f"{tmp_path / 'a'}: an adapter of another model: no layer that it changes is there; it was made for them/bert "
        f"(task SEQ_CLS, target_modules c_fc, c_proj), and layers of transformers:{clip} are fc1, fc2, "
    )
    config.write_text(json.dumps({**facts, "peft_type": "FOO"}))
    assert message(f"transformers:{clip}", tmp_path / "a") == (
        f'{config}: invalid peft_type "FOO": must be LORA, or another kind that the installed peft has; take the file '
        "that belongs to the model"
    )


def test_a_folder_without_an_adapter_is_one_line(clip: Path, tmp_path: Path) -> None:
    model, folder = f"transformers:{clip}", tmp_path / "a"
    folder.mkdir()
    assert message(model, folder).endswith("in it; looked for adapter_config.json")
    (folder / "adapter_config.json").write_text("{}")
    assert message(model, folder).startswith(f"{folder / 'adapter_config.json'}: holds nothing, and no peft_type: must")
    train(load(clip), folder)
    weights = load_file(folder / "adapter_model.safetensors")
    next(iter(weights.values())).view(-1)[0] = np.nan
    save_file(weights, folder / "adapter_model.safetensors")
    assert f"adapter {folder}: the weights cannot be used: 1 of the " in message(model, folder)
    (folder / "adapter_model.safetensors").unlink()
    assert message(model, folder).startswith(f"{folder}: no adapter's tensors in it; looked for adapter_model.safet")


def test_tokens_that_an_adapter_learns_are_no_change_of_weights(clip: Path, tmp_path: Path) -> None:
    train(load(clip), tmp_path / "a")
    config = {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 4, "task_type": "FEATURE_EXTRACTION"}
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(config))
    assert "PROMPT_TUNING learns tokens and no weights; give a folder of LoRA" in message(
        f"transformers:{clip}", tmp_path / "a"
    )


def test_without_peft_its_extra_is_named(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(load(clip), tmp_path / "a")
    monkeypatch.setitem(sys.modules, "peft", None)
    said = message(f"transformers:{clip}", tmp_path / "a")
    assert said == f"adapter='{tmp_path / 'a'}' needs peft: pip install 'faircontext[checkpoints]'"
