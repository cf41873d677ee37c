"""Where weights are looked for, and what is said where they are missing or cannot be used; nothing is fetched.

Also what is known of weights by their names: how pictures are prepared, and the activation.
"""

import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import open_clip
import pytest
import torch
from safetensors.torch import save_file

from faircontext import create_backbone, list_backbones, list_pretrained
from faircontext.backbones import activation_of, checkpoints
from faircontext.backbones.checkpoints import _preparation_of_file, find_source
from faircontext.cli import main
from faircontext.errors import ArgumentError, FairContextWarning
from helpers import change_json, refusal
from tiny_clip import TINY, write_model


@pytest.fixture(autouse=True)
def empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches without anything in them, whatever the machine has; and small architectures under names of their own."""
    hub = str(tmp_path / "hub")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", hub)
    monkeypatch.setattr(huggingface_hub.file_download, "HF_HUB_CACHE", hub, raising=False)
    known = open_clip.factory._MODEL_CONFIGS
    monkeypatch.setitem(known, "tiny", TINY)
    monkeypatch.setitem(known, "tiny-quickgelu", {**TINY, "quick_gelu": True})
    return tmp_path / "hub"


def message(name: str, pretrained: str | None = None, **options: Any) -> str:
    return refusal(lambda: create_backbone(name, pretrained, **options))


# What is asked for

OWN = "has its own weights; leave {} out"
KNOWN = "use hf-hub:ORG/NAME, local-dir:FOLDER or transformers:FOLDER"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("ViT-B-61", {"pretrained": "openai"}, "unknown backbone 'ViT-B-61'; did you mean 'ViT-B-16"),
        ("lite", {}, "unknown backbone 'lite'; did you mean 'lite"),
        ("ViT-B-16", {}, "ViT-B-16 needs weights; give pretrained= a tag or a checkpoint file (tags: openai, "),
        ("RN50", {"pretrained": "opanai"}, "pretrained='opanai' is neither a file nor a tag of RN50 (tags: openai,"),
        ("lite0", {"pretrained": "openai"}, f"lite0 {OWN.format('pretrained')}"),
        ("local-dir:x", {"pretrained": "openai"}, f"local-dir:x {OWN.format('pretrained')}"),
        ("hf-hub:org/name", {"pretrained": "openai"}, f"hf-hub:org/name {OWN.format('pretrained')}"),
        ("lite0", {"resize_positions": True}, f"lite0 {OWN.format('resize_positions')}"),
        ("transformers:x", {"resize_positions": True}, f"transformers:x {OWN.format('resize_positions')}"),
        ("lite0", {"weights_key": "ema"}, f"lite0 {OWN.format('weights_key')}"),
        ("lite0", {"adapter": "a"}, f"lite0 {OWN.format('adapter')}"),
        ("lite0", {"preprocess": "clip"}, f"lite0 {OWN.format('preprocess')}"),
        ("local-dir:x", {"preprocess": "clip"}, f"local-dir:x {OWN.format('preprocess')}"),
        ("transformers:x", {"preprocess": "clip"}, f"transformers:x {OWN.format('preprocess')}"),
        ("file:/x", {}, f"unknown scheme 'file:' of file:/x; {KNOWN}"),
        ("hf-hub:", {}, "'hf-hub:' names no model; write hf-hub:ORG/NAME"),
        ("hf-hub:a/b/c", {}, "'hf-hub:a/b/c' names no model; write hf-hub:ORG/NAME"),
        ("hf-hub:a b", {}, "'hf-hub:a b' names no model"),
        ("local-dir:", {}, "'local-dir:' names no model; write local-dir:FOLDER"),
        ("transformers:", {}, "'transformers:' names no model; write transformers:FOLDER"),
        (
            "ViT-B-32-quickgelu",
            {"pretrained": "laion2b_s34b_b79k"},
            "ViT-B-32-quickgelu has no weights 'laion2b_s34b_b79k': they are of ViT-B-32, without QuickGELU",
        ),
        ("roberta-ViT-B-32", {"pretrained": "laion2b_s12b_b32k"}, 'roberta-ViT-B-32: invalid hf_model_name "roberta-b'),
        (
            "ViT-B-16",
            {"pretrained": "openai", "preprocess": "clip"},
            "the tag 'openai' says how pictures are prepared",
        ),
    ],
)
def test_what_is_asked_for_and_is_not_possible_is_one_line(name: str, options: dict[str, Any], said: str) -> None:
    assert message(name, **options).startswith(said)


def test_architectures_and_tags_are_listed() -> None:
    assert {"lite0", "ViT-B-16", "RN50", "ViT-B-16-SigLIP"} <= set(list_backbones())
    assert ("ViT-B-16", "openai") in list_pretrained("ViT-B-*")
    assert all(name.startswith("RN") for name, _ in list_pretrained("RN*"))


# Without a network


@pytest.mark.parametrize(
    ("name", "pretrained", "said"),
    [
        (
            "ViT-B-16",
            "openai",
            "the weights 'openai' of ViT-B-16: not on this machine (looked for open_clip_model.safetensors of "
            "timm/vit_base_patch16_clip_224.openai in {hub} and {home}/.cache/clip/ViT-B-16.pt) and the network is out "
            "of reach; give pretrained= the path of a copy and name the architecture ViT-B-16-quickgelu",
        ),
        (
            "hf-hub:org/name",
            None,
            "hf-hub:org/name: not on this machine (looked for open_clip_config.json and open_clip_model.safetensors of "
            "org/name in {hub}) and the network is out of reach; copy the files here and use local-dir:FOLDER",
        ),
        (
            "ViT-B-16-SigLIP",
            "webli",
            "the tokenizer of ViT-B-16-SigLIP: not on this machine (looked for timm/ViT-B-16-SigLIP in {hub}) and the "
            "network is out of reach; put its files, the weights and open_clip_config.json into a folder and use "
            "local-dir:FOLDER",
        ),
    ],
)
def test_what_is_missing_says_where_it_was_looked_for_and_what_to_do(
    name: str, pretrained: str | None, said: str, empty_caches: Path, tmp_path: Path
) -> None:
    assert message(name, pretrained) == said.format(hub=empty_caches, home=tmp_path / "home")


def snapshot_of(hub: Path, repository: str) -> Path:
    """Return where the hub's client keeps what it has fetched."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    return folder / "snapshots" / "abc"


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
    file = snapshot_of(empty_caches, repository) / "open_clip_model.safetensors"
    save_file({"x": torch.zeros(1)}, file)
    source = find_source(name, tag)
    assert (source.model, source.checkpoint, source.quick_gelu) == (name.replace("/", "-"), file, quick)
    assert source.preprocess["interpolation"] == "bicubic"
    assert source.preprocess["mean"] == open_clip.OPENAI_DATASET_MEAN


@pytest.mark.slow
def test_cached_weights_of_a_tag_are_loaded_with_their_activation(empty_caches: Path) -> None:
    torch.manual_seed(0)
    model = open_clip.create_model("RN50", force_quick_gelu=True).eval().half()  # as OpenAI's files are
    save_file(
        model.state_dict(), snapshot_of(empty_caches, "timm/resnet50_clip.openai") / "open_clip_model.safetensors"
    )
    with torch.no_grad():
        expected = model.float().encode_text(open_clip.tokenize(["a photo of a dog."]), normalize=True)
    del model  # two models at once, and the weights of a third, are much memory
    backbone = create_backbone("RN50", "openai", precision="fp32")
    prompts = backbone.tokenize(["dog"], "a photo of a {}.")
    torch.testing.assert_close(backbone.encode_text(prompts), expected, rtol=0, atol=1e-6)
    assert (backbone.name, backbone.image_size) == ("RN50:openai", 224)


def test_a_cached_repository_is_used_without_the_network(empty_caches: Path) -> None:
    write_model(snapshot_of(empty_caches, "org/tiny"), "clip")
    assert create_backbone("hf-hub:org/tiny", precision="fp32").image_size == 32


def test_a_host_that_does_not_answer_is_out_of_reach_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(checkpoints, "_SECONDS", 0.2)
    begin = time.perf_counter()
    assert not checkpoints._reach("http://127.0.0.1:9/")
    assert time.perf_counter() - begin < 60  # TCP itself would try for minutes


# Folders

CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"


def configured(**values: Any) -> Callable[[Path], object]:
    """Return what writes values into a folder's configuration, by key or `key__below`."""
    return lambda folder: change_json(folder / CONFIG, **values)


def written(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / CONFIG).write_text(text)


def prepared(**values: Any) -> Callable[[Path], object]:
    return configured(preprocess_cfg=values)


SEVERAL = "model-00001-of-00010.safetensors"
FROM_0_TO_1, ABOVE_0 = "must be three numbers from 0 to 1", "must be three numbers above 0"


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda folder: (folder / CONFIG).unlink(), "in it; looked for open_clip_config.json"),
        (written("{"), f"{CONFIG}: not valid JSON (expecting property name enclosed in double quotes: line 1 "),
        (written("{}"), f"{CONFIG}: holds nothing, and no model_cfg: must be an object with text_cfg"),
        (configured(model_cfg__text_cfg=None), f'{CONFIG}: invalid model_cfg {{"embed_dim": 32, '),
        (
            configured(model_cfg__vision_cfg__bogus=1),
            f"{CONFIG}: open_clip cannot make a model of it: TypeError: CLI",
        ),
        (configured(model_cfg__text_cfg__hf_tokenizer_name="a/b"), "no tokenizer in it; looked for tokenizer.json, "),
        (lambda folder: (folder / WEIGHTS).unlink(), f"no weights in it; looked for {WEIGHTS}, "),
        (lambda folder: (folder / WEIGHTS).rename(folder / SEVERAL), f"{SEVERAL}: is one of several parts of the weig"),
        (lambda folder: save_file({"x": torch.zeros(2)}, folder / WEIGHTS), "cannot be read as weights of local-dir:"),
        (prepared(interpolation="weird"), 'invalid interpolation "weird": must be bicubic, bilinear or nearest'),
        (prepared(resize_mode="longest"), 'invalid resize_mode "longest": must be shortest or squash'),
        (prepared(std=(0.0, 1.0, 1.0)), f"invalid std [0.0, 1.0, 1.0]: {ABOVE_0}"),
        (prepared(mean=(0.5,)), f"invalid mean [0.5]: {FROM_0_TO_1}"),
        (prepared(mean=0.5), f"invalid mean 0.5: {FROM_0_TO_1}"),
        (prepared(mean=(math.nan, 0.5, 0.5)), FROM_0_TO_1),
        (prepared(mean=(123.7, 116.3, 103.5), std=(58.4, 57.1, 57.4)), FROM_0_TO_1),
        (prepared(std=(0.2, 0.2, math.inf)), ABOVE_0),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_with_the_reason(
    break_it: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "model", "clip")
    break_it(folder)
    text = message(f"local-dir:{folder}")
    assert str(folder) in text
    assert said in text


def test_a_missing_folder_and_a_folder_as_a_file_are_named(tmp_path: Path) -> None:
    assert (
        message(f"local-dir:{tmp_path / 'x'}") == f"{tmp_path / 'x'}: no such folder; copy the model's files into one"
    )
    (tmp_path / "y").mkdir()
    assert message("tiny", str(tmp_path / "y")).endswith(
        f"is a folder; name the file in it, or use local-dir:{tmp_path}/y"
    )


def test_a_checkpoint_of_transformers_is_named_as_one(kind_folder: Callable[[str], Path]) -> None:
    folder = kind_folder("clip")
    assert message(f"local-dir:{folder}") == f"{folder}: a model of transformers; name it transformers:{folder}"
    said = message("tiny", str(folder / "model.safetensors"))
    assert said.startswith(
        f"{folder / 'model.safetensors'}: tensors of a model of transformers, with other names than "
    )
    assert said.endswith("--backbone transformers:FOLDER")


def test_several_files_in_a_folder_are_said(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "clip")
    (folder / WEIGHTS).rename(folder / "epoch_1.safetensors")
    (folder / "epoch_2.pth").write_bytes((folder / "epoch_1.safetensors").read_bytes())
    with pytest.warns(FairContextWarning, match=r"the weights of epoch_1.safetensors are taken, not of epoch_2.pth"):
        create_backbone(f"local-dir:{folder}")


# Preparation of pictures

HALF = (0.5, 0.5, 0.5)
CLIP = open_clip.OPENAI_DATASET_MEAN


@pytest.mark.parametrize(
    ("architecture", "file", "asked", "expected"),
    [
        ("MobileCLIP-S1", "epoch_3.pt", None, ((0.0, 0.0, 0.0), "bilinear", "shortest")),
        ("ViT-B-16-SigLIP", "epoch_3.pt", None, (HALF, "bicubic", "squash")),
        ("PE-Core-B-16", "epoch_3.pt", None, (HALF, "bilinear", "squash")),
        ("ViT-B-16", "epoch_3.pt", None, None),
        ("ViT-S-32", "epoch_3.pt", None, None),  # no tags
        ("ViT-L-14", "openai.pt", None, None),
        ("ViT-L-14", "my-laion2b_s32b_b82k.pt", None, (HALF, "bicubic", "shortest")),
        ("MobileCLIP-S1", "epoch_3.pt", "clip", (CLIP, "bicubic", "shortest")),
        ("ViT-L-14", "epoch_3.pt", "laion2b_s32b_b82k", (HALF, "bicubic", "shortest")),
    ],
)
def test_pictures_are_prepared_as_the_tags_of_an_architecture_say(
    architecture: str, file: str, asked: str | None, expected: Any, tmp_path: Path
) -> None:
    found, said = _preparation_of_file(architecture, tmp_path / file, asked)
    assert ((found["mean"], found["interpolation"], found["resize_mode"]) if found else None) == expected
    assert len(said) == (expected is not None and asked is None)
    assert all(line.startswith(f"{tmp_path / file}: pictures are prepared as the tag") for line in said)


def test_tags_that_disagree_are_told_where_a_file_is_called_after_none(tmp_path: Path) -> None:
    found, (said,) = _preparation_of_file("ViT-L-14", tmp_path / "epoch_3.pt", None)
    assert found == {}
    assert said.endswith("tags of ViT-L-14 disagree; for their way: --preprocess laion2b_s32b_b82k")


def test_a_configuration_beside_weights_and_a_request_go_before_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = {"mean": HALF, "std": HALF, "interpolation": "bilinear", "resize_mode": "squash"}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny", {"webli": tag})
    file = write_model(tmp_path / "tiny", "clip") / WEIGHTS
    file = file.rename(tmp_path / "w.safetensors")

    def mean_of(said: str | None, **options: Any) -> tuple[float, ...]:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            backbone = create_backbone("tiny", str(file), precision="fp32", **options)
        lines = [str(one.message) for one in heard if issubclass(one.category, FairContextWarning)]
        assert lines == backbone.facts.get("warnings", [])
        assert [said in line for line in lines] == ([] if said is None else [True])
        assert backbone.facts["preprocess"]["mean"] == backbone.mean
        return backbone.mean

    assert mean_of("pictures are prepared as the tags of tiny say: mean (0.5, 0.5, 0.5)") == HALF
    (tmp_path / CONFIG).write_text(json.dumps({"preprocess_cfg": {"mean": [0.1, 0.2, 0.3]}}))
    assert mean_of("as open_clip_config.json beside it says: mean (0.1, 0.2, 0.3)") == (0.1, 0.2, 0.3)
    (tmp_path / "own.json").write_text(json.dumps({"mean": [0.3, 0.2, 0.1], "std": None}))
    assert mean_of(None, preprocess=str(tmp_path / "own.json")) == (0.3, 0.2, 0.1)
    assert mean_of(None, preprocess="clip") == CLIP


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: no such file or directory; preprocess is clip, openai, "),
        ("[1]", "holds '[1]' in place of an object of JSON"),
        ('{"image_mean": [0, 0, 0]}', "says none of mean, std, interpolation, resize_mode"),
        ('{"preprocess_cfg": {"std": [1, 1, "1"]}}', 'invalid std [1, 1, "1"]: must be three numbers'),
        ('{"model_cfg": {}, "preprocess_cfg": {"interpolation": 3}}', "invalid interpolation 3: must be bicubic"),
    ],
)
def test_a_preparation_that_is_none_is_one_line(content: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ArgumentError) as caught:
        _preparation_of_file("ViT-B-16", tmp_path / "w.pt", str(path))
    assert str(caught.value).startswith(f"{path}: {said}")


# Activation


def test_the_activation_is_among_the_facts_and_listed(
    tiny: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {"clip": "GELU", "quick": "QuickGELU", "siglip": "GELU", "resnet": "GELU"}
    assert {layout: tiny(layout).facts["activation"] for layout in expected} == expected
    assert [activation_of(name) for name in ("ViT-B-16", "ViT-B-16-quickgelu", "lite0")] == ["GELU", "QuickGELU", ""]
    assert main(["list", "backbones", "ViT-B-16-q*"]) == 0
    assert capsys.readouterr().out.split() == ["ViT-B-16-quickgelu", "QuickGELU"]


@pytest.mark.parametrize(
    ("architecture", "file", "suggests"),
    [
        ("ViT-S-32", "weights.pt", None),
        ("tiny", "my-quickgelu.pt", "QuickGELU; if so, name the architecture tiny-quickgelu"),
        ("tiny-quickgelu", "my_quick_gelu.pt", None),
        ("ViT-B-32", "vit_b_32-openai.pt", "QuickGELU"),
        ("ViT-B-32", "ViT-B-32.pt", "QuickGELU"),  # as OpenAI called it
        ("ViT-B-32", "ViT-B-32-weights.pt", "QuickGELU"),  # its tensors, as our own command keeps them
        ("ViT-B-32", "laion2b_s34b_b79k.pt", None),
        ("ViT-B-32-quickgelu", "openai.pt", None),
        ("ViT-B-32-quickgelu", "laion2b_s34b_b79k.pt", "GELU"),
        ("ViT-B-32", "epoch_32.pt", None),
    ],
)
def test_a_file_name_that_suggests_another_activation_is_noted(
    architecture: str, file: str, suggests: str | None, tmp_path: Path
) -> None:
    torch.save({}, tmp_path / file)
    lines = find_source(architecture, str(tmp_path / file)).warnings
    assert [f"were trained with {suggests}" in line for line in lines] == [True] * (suggests is not None)


def test_a_run_goes_on_with_the_same_activation_only(
    tmp_path: Path, picture_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "model", "clip")
    words = ("--datasets", "pictures", "--root", str(picture_set.parent), "--methods", "zero_shot", "--limit", "2")
    more = ("--backbone", f"local-dir:{model}", "--out", str(tmp_path / "runs"), "--precision", "fp32")
    assert main(["evaluate", *words, *more]) in (0, 1)
    configured(model_cfg__quick_gelu=True)(model)
    assert main(["evaluate", *words, *more, "--resume"]) == 2
    assert 'activation was "GELU" and is "QuickGELU"' in capsys.readouterr().err
