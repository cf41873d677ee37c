"""Where weights are looked for, and what is said where they are missing or cannot be used; nothing is fetched."""

import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import open_clip
import pytest
import torch
from safetensors.torch import save_file

from faircontext import create_backbone, list_backbones, list_pretrained
from faircontext.backbones import checkpoints
from faircontext.backbones.checkpoints import find_source
from faircontext.errors import ArgumentError
from tiny_clip import TEXT, TINY, VISION, write_model


@pytest.fixture(autouse=True)
def empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches without anything in them, whatever the machine has."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(
        huggingface_hub.file_download,
        "HF_HUB_CACHE",
        str(tmp_path / "hub"),
        raising=False,
    )
    return tmp_path / "hub"


def message(name: str, pretrained: str | None = None) -> str:
    with pytest.raises(ArgumentError) as caught:
        create_backbone(name, pretrained)
    text = str(caught.value)
    assert "\n" not in text
    return text


# What is asked for


def test_an_unknown_name_comes_with_close_ones() -> None:
    assert message("ViT-B-61", "openai").startswith("unknown backbone 'ViT-B-61'; did you mean 'ViT-B-16")
    assert message("lite", None).startswith("unknown backbone 'lite'; did you mean 'lite")


def test_an_architecture_without_weights_names_its_tags() -> None:
    text = message("ViT-B-16")
    assert text.startswith("ViT-B-16 needs weights; give pretrained= a tag or a checkpoint file (tags: openai, ")


def test_a_tag_that_is_none_names_those_that_are() -> None:
    assert message("RN50", "opanai").startswith(
        "pretrained='opanai' is neither a file nor a tag of RN50 (tags: openai,"
    )


def test_the_embedded_backbones_and_folders_have_their_own_weights(tmp_path: Path) -> None:
    for name in ("lite0", f"local-dir:{tmp_path}", "hf-hub:org/name"):
        assert message(name, "openai") == f"{name} has its own weights; leave pretrained out"


def test_an_unknown_scheme_is_refused() -> None:
    known = "hf-hub:ORG/NAME, local-dir:FOLDER or transformers:FOLDER"
    assert message("file:/x") == f"unknown scheme 'file:' of file:/x; use {known}"


def test_architectures_and_tags_are_listed() -> None:
    assert {"lite0", "ViT-B-16", "RN50", "ViT-B-16-SigLIP"} <= set(list_backbones())
    assert ("ViT-B-16", "openai") in list_pretrained("ViT-B-*")
    assert all(name.startswith("RN") for name, _ in list_pretrained("RN*"))


# QuickGELU


def cached_tag(hub: Path, repository: str, content: dict[str, torch.Tensor]) -> Path:
    """Put a file where the hub's client keeps what it has fetched."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    file = folder / "snapshots" / "abc" / "open_clip_model.safetensors"
    file.parent.mkdir(parents=True)
    save_file(content, file)
    return file


@pytest.mark.parametrize(
    ("name", "tag", "repository", "quick"),
    [
        ("ViT-B-32", "openai", "timm/vit_base_patch32_clip_224.openai", True),
        ("ViT-B/32", "openai", "timm/vit_base_patch32_clip_224.openai", True),
        ("ViT-B-32-quickgelu", "openai", "timm/vit_base_patch32_clip_224.openai", True),
        ("ViT-B-32", "laion2b_s34b_b79k", "laion/CLIP-ViT-B-32-laion2B-s34B-b79K", False),
    ],
)
def test_weights_choose_their_activation(empty_caches: Path, name: str, tag: str, repository: str, quick: bool) -> None:
    file = cached_tag(empty_caches, repository, {"x": torch.zeros(1)})
    source = find_source(name, tag)
    assert (source.model, source.checkpoint, source.quick_gelu) == (name.replace("/", "-"), file, quick)
    assert source.preprocess["interpolation"] == "bicubic"
    assert source.preprocess["mean"] == open_clip.OPENAI_DATASET_MEAN


def test_a_wrong_pair_names_the_right_architecture() -> None:
    assert message("ViT-B-32-quickgelu", "laion2b_s34b_b79k") == (
        "ViT-B-32-quickgelu has no weights 'laion2b_s34b_b79k': they are of ViT-B-32, without QuickGELU"
    )


@pytest.mark.slow
def test_cached_weights_of_a_tag_are_loaded_with_their_activation(empty_caches: Path) -> None:
    torch.manual_seed(0)
    model = open_clip.create_model("RN50", force_quick_gelu=True).eval().half()  # as OpenAI's files are
    cached_tag(empty_caches, "timm/resnet50_clip.openai", model.state_dict())
    with torch.no_grad():
        expected = model.float().encode_text(open_clip.tokenize(["a photo of a dog."]), normalize=True)
    del model  # two models at once, and the weights of a third, are much memory
    backbone = create_backbone("RN50", "openai", precision="fp32")
    prompts = backbone.tokenize(["dog"], "a photo of a {}.")
    torch.testing.assert_close(backbone.encode_text(prompts), expected, rtol=0, atol=1e-6)
    assert (backbone.name, backbone.image_size) == ("RN50:openai", 224)


# Without a network


def test_missing_weights_say_where_they_were_looked_for_at_once(empty_caches: Path, tmp_path: Path) -> None:
    text = message("ViT-B-16", "openai")
    assert text == (
        "the weights 'openai' of ViT-B-16: not on this machine (looked for open_clip_model.safetensors of "
        f"timm/vit_base_patch16_clip_224.openai in {empty_caches} and {tmp_path / 'home/.cache/clip/ViT-B-16.pt'}) and "
        "the network is out of reach; give pretrained= the path of a copy and name the architecture ViT-B-16-quickgelu"
    )


def test_a_missing_repository_says_how_to_use_a_copy(empty_caches: Path) -> None:
    assert message("hf-hub:org/name") == (
        "hf-hub:org/name: not on this machine (looked for open_clip_config.json and open_clip_model.safetensors of "
        f"org/name in {empty_caches}) and the network is out of reach; copy the files here and use local-dir:FOLDER"
    )


def test_a_missing_tokenizer_fails_before_weights_are_asked_for(empty_caches: Path) -> None:
    assert message("ViT-B-16-SigLIP", "webli") == (
        f"the tokenizer of ViT-B-16-SigLIP: not on this machine (looked for timm/ViT-B-16-SigLIP in {empty_caches}) "
        "and the network is out of reach; put its files, the weights and open_clip_config.json into a folder and use "
        "local-dir:FOLDER"
    )


def test_a_text_tower_of_transformers_is_refused() -> None:
    assert message("roberta-ViT-B-32", "laion2b_s12b_b32k").startswith(
        'roberta-ViT-B-32: invalid hf_model_name "roberta-base": must be left out: the context of a text tower of '
    )


def test_a_cached_repository_is_used_without_the_network(empty_caches: Path) -> None:
    snapshot = empty_caches / "models--org--tiny" / "snapshots" / "abc"
    write_model(snapshot, "clip")
    (empty_caches / "models--org--tiny" / "refs").mkdir()
    (empty_caches / "models--org--tiny" / "refs" / "main").write_text("abc")
    assert create_backbone("hf-hub:org/tiny", precision="fp32").image_size == 32


def test_a_host_that_does_not_answer_is_out_of_reach_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(checkpoints, "_SECONDS", 0.2)
    begin = time.perf_counter()
    assert not checkpoints._reach("http://127.0.0.1:9/")
    assert time.perf_counter() - begin < 60  # TCP itself would try for minutes


# Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "clip")


def break_it(folder: Path, how: str) -> None:
    config = folder / "open_clip_config.json"
    weights = folder / "open_clip_model.safetensors"
    if how == "no config":
        config.unlink()
    elif how == "no json":
        config.write_text("{")
    elif how == "no model_cfg":
        config.write_text("{}")
    elif how == "no text_cfg":
        config.write_text('{"model_cfg": {"text_cfg": null, "vision_cfg": {}}}')
    elif how == "no weights":
        weights.unlink()
    elif how == "cut weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif how == "a part":
        weights.rename(folder / "model-00001-of-00010.safetensors")
    elif how == "odd config":
        content = json.loads(config.read_text())
        content["model_cfg"]["vision_cfg"]["bogus"] = 1
        config.write_text(json.dumps(content))
    elif how == "other weights":
        save_file({"x": torch.zeros(2)}, weights)
    elif how == "tokenizer":
        content = json.loads(config.read_text())
        content["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = "org/tokenizer"
        config.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no config", "in it; looked for open_clip_config.json"),
        (
            "no json",
            "open_clip_config.json: not valid JSON (expecting property name enclosed in double quotes: line 1 ",
        ),
        (
            "no model_cfg",
            "open_clip_config.json: holds nothing, and no model_cfg: must be an object with text_cfg",
        ),
        ("no text_cfg", 'open_clip_config.json: invalid model_cfg {"text_cfg": null, '),
        ("no weights", "no weights in it; looked for open_clip_model.safetensors, "),
        (
            "cut weights",
            "open_clip_model.safetensors: damaged or cut short, as by an interrupted download; fetch",
        ),
        ("a part", "model-00001-of-00010.safetensors: is one of several parts of the weights; join them"),
        (
            "odd config",
            "open_clip_config.json: open_clip cannot make a model of it: TypeError: CLIPVisionCfg",
        ),
        ("other weights", "cannot be read as weights of local-dir:"),
        ("tokenizer", "no tokenizer in it; looked for tokenizer.json, "),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_with_the_reason(folder: Path, how: str, said: str) -> None:
    break_it(folder, how)
    text = message(f"local-dir:{folder}")
    assert str(folder) in text
    assert said in text


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert message(f"local-dir:{tmp_path / 'x'}") == (
        f"{tmp_path / 'x'}: no such folder; copy the model's files into one"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"interpolation": "weird"}, 'invalid interpolation "weird": must be bicubic, bilinear or nearest'),
        ({"resize_mode": "weird"}, 'invalid resize_mode "weird": must be shortest or squash'),
        ({"resize_mode": "longest"}, 'invalid resize_mode "longest": must be shortest or squash'),
        ({"std": (0.0, 1.0, 1.0)}, "invalid std [0.0, 1.0, 1.0]: must be three numbers above 0"),
        ({"mean": (0.5,)}, "invalid mean [0.5]: must be three numbers from 0 to 1"),
        ({"mean": (math.nan, 0.5, 0.5)}, "must be three numbers from 0 to 1"),
        (
            {"mean": (123.7, 116.3, 103.5), "std": (58.4, 57.1, 57.4)},
            "must be three numbers from 0 to 1",
        ),
        ({"std": (0.2, 0.2, math.inf)}, "must be three numbers above 0"),
    ],
)
def test_preprocessing_that_cannot_be_done_is_refused_at_once(
    settings: dict[str, object], said: str, tmp_path: Path
) -> None:
    assert said in message(f"local-dir:{write_model(tmp_path, 'clip', **settings)}")


@pytest.mark.parametrize("name", ["hf-hub:", "hf-hub:a/b/c", "hf-hub:a b", "hf-hub:a", "local-dir:"])
def test_a_name_that_names_nothing_says_how_it_is_written(name: str) -> None:
    assert "names no" in message(name)


# Files


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """Weights of a small architecture under a name of its own, as open_clip knows its own; another has that name."""
    known = open_clip.factory._MODEL_CONFIGS
    monkeypatch.setitem(known, "tiny", TINY)
    monkeypatch.setitem(known, "tiny-deep", {**TINY, "text_cfg": {**TEXT, "layers": 3}})
    torch.manual_seed(0)
    model = open_clip.CLIP(embed_dim=32, vision_cfg=dict(VISION), text_cfg=dict(TEXT))
    state: dict[str, torch.Tensor] = model.state_dict()
    return state


@pytest.mark.parametrize("form", ["safetensors", "pt", "checkpoint", "parallel"])
def test_a_checkpoint_file_may_have_several_forms(form: str, weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = tmp_path / f"weights.{'safetensors' if form == 'safetensors' else 'pt'}"
    if form == "safetensors":
        save_file(weights, path)
    elif form == "pt":
        torch.save(weights, path)
    elif form == "checkpoint":
        torch.save({"epoch": 3, "state_dict": weights}, path)
    else:
        torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in weights.items()}}, path)
    backbone = create_backbone("tiny", str(path), precision="fp32")
    assert torch.equal(backbone.text_tower.embedding.weight, weights["token_embedding.weight"])


def test_weights_of_another_architecture_are_refused(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(weights, tmp_path / "weights.safetensors")
    text = message("tiny-deep", str(tmp_path / "weights.safetensors"))
    assert text.startswith(f"{tmp_path / 'weights.safetensors'}: cannot be read as weights of tiny-deep: ")


class Dangerous:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return exec, ("raise SystemExit('code of a checkpoint was run')",)


def test_a_checkpoint_with_more_than_tensors_is_not_read(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "args": Dangerous()}, tmp_path / "weights.pt")
    text = message("ViT-B-32", str(tmp_path / "weights.pt"))
    assert text.startswith(f"{tmp_path / 'weights.pt'}: not a file of tensors alone, and anything else is not read")


def test_a_torchscript_archive_is_refused_with_the_conversion(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "ViT-B-32.pt"))
    text = message("ViT-B-32-quickgelu", str(tmp_path / "ViT-B-32.pt"))
    assert text.startswith(f"{tmp_path / 'ViT-B-32.pt'}: a TorchScript archive, which is not read because")
    assert "torch.jit.load(" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no file of weights: it is empty; fetch it again"),
        (b"not weights", "no file of weights: it holds neither safetensors nor what PyTorch writes"),
        (bytes(600), "no file of weights: it holds nothing but zeros, as an interrupted copy"),
        (b"<!DOCTYPE html>", "no file of weights: it holds a web page"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "no file of weights: it holds a pointer of Git LFS; fetch",
        ),
        (b"PK\x03\x04broken", "damaged or cut short, as by an interrupted download; fetch it again (its end is miss"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "damaged or cut short, as by an interrupted download; fetch it"),
        (b"\x09\0\0\0\0\0\0\0{}", "damaged or cut short, as by an interrupted download; fetch it again ("),
    ],
)
@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_a_file_that_holds_no_weights_is_named(content: bytes, said: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert message("ViT-B-32", str(tmp_path / name)).startswith(f"{tmp_path / name}: {said}")
