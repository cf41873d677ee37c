"""Folders of transformers with something wrong, or with a choice: one line each, and never a silent change."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from faircontext import Backbone, create_backbone
from faircontext.backbones import transformers_folder
from faircontext.errors import FairContextWarning
from helpers import change_json, refusal, same_bits
from tiny_transformers import KINDS, preparation, write

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def models(kind_folder: Folder) -> Path:
    (root,) = {kind_folder(kind).parent for kind in KINDS}
    return root


def make(folder: Path, *rest: str, **options: Any) -> Backbone:
    return create_backbone(f"transformers:{folder}", *rest, precision="fp32", **options)


def message(folder: Path, *rest: str, **options: Any) -> str:
    return refusal(lambda: make(folder, *rest, **options))


def change_weights(folder: Path, alter: Callable[[dict[str, Tensor]], Any]) -> Path:
    file = folder / "model.safetensors"
    weights = load_file(file)
    alter(weights)
    save_file(weights, file)
    return file


# What cannot be used: changes of a folder, and what is then said of it


def config(**values: Any) -> Callable[[Path], Any]:
    return lambda folder: change_json(folder / "config.json", **values)


def written(text: str, file: str = "config.json") -> Callable[[Path], Any]:
    return lambda folder: (folder / file).write_text(text)


def weights(alter: Callable[[dict[str, Tensor]], Any]) -> Callable[[Path], Any]:
    return lambda folder: change_weights(folder, alter)


def positions(image: int | None, text: int | None) -> Callable[[Path], Any]:
    def resize(weights: dict[str, Tensor]) -> None:
        for key in list(weights):
            count = image if "vision" in key else text
            if "position_embedding" in key and count is not None:
                weights[key] = torch.ones(count, 32)

    return weights(resize)


def without(*files: str) -> Callable[[Path], Any]:
    return lambda folder: [(folder / file).unlink(missing_ok=True) for file in files]


def misfit(weights: dict[str, Tensor]) -> None:
    del weights["text_model.head.bias"]
    weights |= {"odd": torch.ones(2), "text_model.head.weight": torch.ones(3, 32)}


def spelt_out(merges: int | None) -> Callable[[Path], Any]:
    """Write the tokenizer of a folder as vocabulary and merges, so many of them; None for `tokenizer.json` itself."""

    def write_files(folder: Path) -> None:
        document = json.loads((folder / "tokenizer.json").read_text())
        model = document["model"]
        if merges is None:
            written(json.dumps({**document, "model": {**model, "merges": []}}), "tokenizer.json")(folder)
            return
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        lines = [" ".join(pair) for pair in model["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines[:merges]]) if merges else "")

    return write_files


def cut_words(folder: Path) -> None:
    words = [*json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(words[:20]))


NORM, HEAD = "vision_model.post_layernorm.weight", "text_model.head.weight"
TOKENS = "of the 49,408 tokens that the weights have embeddings of; copy its files again (tokenizer.json, "


@pytest.mark.parametrize(
    ("kind", "break_it", "said"),
    [
        (
            "clip",
            without("config.json"),
            "no configuration, as save_pretrained writes it, in it; looked for config.json",
        ),
        ("chinese_clip", without("model.safetensors"), "no weights in it; looked for model.safetensors, "),
        ("chinese_clip", without(*transformers_folder._TOKENIZERS), "no tokenizer in it; looked for tokenizer.json, "),
        ("chinese_clip", config(model_type=["clip"]), 'invalid model_type ["clip"]: must be one of clip, siglip, '),
        (
            "chinese_clip",
            config(quantization_config={"bits": 4}),
            'invalid quantization_config {"bits": 4}: must be left out',
        ),
        ("chinese_clip", config(vision_config__hidden_size=33), "transformers cannot make a model of it"),
        ("chinese_clip", written("[1]"), "config.json: holds '[1]' in place of an object of JSON"),
        (
            "chinese_clip",
            weights(lambda w: w[NORM][:2].fill_(torch.nan)),
            f"2 of the 32 values of {NORM} are NaN or infinite",
        ),
        ("siglip2", weights(lambda w: w[NORM][:2].fill_(torch.inf)), f"2 of the 32 values of {NORM} are NaN or infini"),
        ("clip", positions(17, None), "has positions of 64 pixels, and config.json says 32 pixels; correct image_size"),
        ("siglip", positions(9, None), "has positions of 48 pixels, and config.json says 32 pixels"),
        ("altclip", positions(None, 79), "has positions of 79 tokens, and config.json says 42 tokens"),
        ("chinese_clip", positions(10, 20), "of 20 tokens and 48 pixels, and config.json says 40 tokens and 32 pixels"),
        (
            "siglip",
            weights(misfit),
            f"weights of SiglipModel: tensors of another shape: 1 (first {HEAD}: 3 x 32 and not 32 x 32), missing: 1 "
            "(first text_model.head.bias), unknown: 1 (first odd); take config.json and weights of one model",
        ),
        (
            "siglip",
            weights(lambda w: w.update({HEAD: w[HEAD].char()})),
            f"no floating-point numbers (first {HEAD}",
        ),
        ("clip", spelt_out(0), f"its tokenizer makes about 0 {TOKENS}"),
        ("clip", spelt_out(40000), f"its tokenizer makes about 40,314 {TOKENS}"),
        ("clip", spelt_out(None), TOKENS),
        ("chinese_clip", cut_words, "its tokenizer makes about 20 of the "),
        ("chinese_clip", written("{", "tokenizer.json"), "its tokenizer cannot be read"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_line(
    kind: str, break_it: Callable[[Path], Any], said: str, copied: Folder
) -> None:
    folder = copied(kind)
    break_it(folder)
    text = message(folder)
    assert str(folder) in text
    assert said in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_zeros_is_refused(kind: str, copied: Folder) -> None:
    folder = copied(kind)
    change_weights(folder, lambda weights: [tensor.zero_() for tensor in weights.values()])
    said = message(folder)
    assert said.startswith(f"transformers:{folder}: the weights cannot be used: the features of ")
    assert "(all values of " in said


def test_what_is_elsewhere_is_named(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open_clip_config.json").write_text("{}")
    assert message(tmp_path) == f"{tmp_path}: a model of open_clip; name it local-dir:{tmp_path}"
    missing = message(models / "clip", "/no/such/file")
    assert missing.startswith("pretrained='/no/such/file' is no file; give one, or leave it out")
    packages = {"sentencepiece": "sentencepiece", "google": "protobuf", "google.protobuf": "protobuf"}
    for gone, package in packages.items():
        monkeypatch.setattr(transformers_folder, "find_spec", lambda name, gone=gone: None if name == gone else name)
        said = message(models / "siglip")
        assert said.endswith(f"spiece.model: needs {package}: pip install 'faircontext[checkpoints]'")


# Weights


@pytest.mark.parametrize("kind", ["chinese_clip", "altclip"])
def test_a_training_loops_file_takes_the_place_of_the_folders_weights(kind: str, models: Path, tmp_path: Path) -> None:
    plain, file = load_file(models / kind / "model.safetensors"), tmp_path / "epoch.pt"
    doubled = {name: 2 * tensor for name, tensor in plain.items()} | {"logit_scale": torch.tensor(2.0)}
    wrapped = {f"module.{name}": tensor for name, tensor in doubled.items()}
    torch.save({"state_dict": plain, "model_ema": wrapped}, file)
    with pytest.warns(FairContextWarning) as heard:
        backbone = make(models / kind, str(file), weights_key="model_ema")
    assert [str(one.message) for one in heard] == [f"{file}: the weights under model_ema are taken"]
    assert backbone.name == f"transformers:{models / kind}:{file}"
    assert same_bits(backbone.image_encoder.projection.weight, doubled["visual_projection.weight"])


def test_weights_in_several_files_are_put_together(copied: Folder) -> None:
    folder = copied("chinese_clip")
    whole = make(folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(weights)}
    for part in sorted({*places.values()}):
        save_file({name: weights[name] for name in places if places[name] == part}, folder / part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert make(folder).weights_hash == whole.weights_hash
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "weights that model.safetensors.index.json names in it; looked for model-00002-of" in message(folder)


def test_the_pooler_of_bert_which_no_feature_uses_may_be_there(copied: Folder) -> None:
    folder = copied("chinese_clip")
    before = make(folder).weights_hash
    change_weights(folder, lambda weights: weights.update({"text_model.pooler.dense.weight": torch.ones(32, 32)}))
    assert make(folder).weights_hash == before


def test_half_precision_weights_are_computed_with_in_float32(copied: Folder) -> None:
    folder = copied("chinese_clip")
    change_weights(folder, lambda weights: weights.update({name: weights[name].half() for name in weights}))
    change_json(folder / "config.json", dtype="float16")
    assert {parameter.dtype for parameter in make(folder).text_encoder.parameters()} == {torch.float32}


# Activation, preparation, tokenizer


def test_gelu_under_openais_name_is_said(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "clip", tmp_path / "openai" / "clip-vit-base-patch32"))
    make(folder)  # QuickGELU, as it should be
    change_json(folder / "config.json", vision_config__hidden_act="gelu", text_config__hidden_act="gelu")
    with pytest.warns(FairContextWarning, match=r"GELU is used, as config.json says, but the name suggests OpenAI's"):
        backbone = make(folder)
    assert backbone.facts["activation"] == "GELU"
    (warning,) = backbone.facts["warnings"]
    assert warning.endswith('write "hidden_act": "quick_gelu" into its text_config and vision_config')


PREPARED = "preprocessor_config.json"
CONFIG = SimpleNamespace(model_type="clip", vision_config=SimpleNamespace(image_size=32, patch_size=8))
WHOLE = {"height": 32, "width": 32}
OTHERS = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "resample": 2, "do_center_crop": False}
INNER = {"image_processor": {**OTHERS, "size": WHOLE, "do_normalize": False}}
CLIP = (0.48145466, 0.4578275, 0.40821073)
USUAL = (CLIP, "bicubic", "shortest")
OPEN = {"do_normalize": None, "size": {"shortest_edge": 32, "longest_edge": None}}


@pytest.mark.parametrize(
    ("file", "change", "expected", "said"),
    [
        (PREPARED, {}, USUAL, None),
        (PREPARED, {**OTHERS, "size": WHOLE}, ((0.1, 0.2, 0.3), "bilinear", "squash"), None),
        ("processor_config.json", INNER, ((0.0,) * 3, "bilinear", "squash"), None),
        (PREPARED, OPEN, USUAL, None),
        (PREPARED, {"size": {"shortest_edge": 40}}, USUAL, "resizes to 40 before cutting 32 out; here the whole side"),
        ("none", {}, USUAL, "no preprocessor_config.json in it; the usual preparation of CLIPModel"),
    ],
)
def test_the_preparation_is_the_folders_own(
    file: str, change: dict[str, Any], expected: tuple[Any, ...], said: str | None, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(json.dumps({**preparation("clip"), **change}))
    found, lines = transformers_folder.read_preprocessing(tmp_path, transformers_folder.KINDS["clip"], CONFIG)
    assert (tuple(found["mean"]), found["interpolation"], found["resize_mode"], found["size"]) == (*expected, 32)
    assert [said in line for line in lines] == ([] if said is None else [True])


SIZE, THREE, FILTER = "must be a count of pixels, or {", "must be three numbers", "must be one of 0, 2, 3 (nearest, b"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("crop_size", {"height": 48, "width": 48}, "prepares pictures of 48 x 48 pixels, and the model reads 32 x 32"),
        ("crop_size", 48, "prepares pictures of 48 x 48 pixels, and the model reads 32 x 32"),
        ("size", "big", SIZE),
        ("size", {"shortest_edge": "32"}, SIZE),
        ("size", [32, 32], SIZE),
        ("crop_size", True, SIZE),
        ("image_mean", [120, 110, 100], f"{THREE} from 0 to 1"),
        ("image_std", [0.5, 0.5, "0.5"], THREE),
        ("resample", 5, FILTER),
        ("resample", [3], FILTER),
        ("resample", "bicubic", FILTER),
        ("do_normalize", "false", "must be true or false"),
        ("do_center_crop", 1, "must be true or false"),
        ("do_rescale", False, "must be true: pixels are from 0 to 1 here"),
        ("rescale_factor", 1 / 127.5, "must be 1/255: write another scale into"),
        ("image_processor", "CLIPImageProcessor", "must be an object of JSON"),
    ],
)
def test_a_preparation_that_cannot_be_used_is_one_line_with_its_key(
    key: str, value: Any, said: str, tmp_path: Path
) -> None:
    (tmp_path / PREPARED).write_text(json.dumps({**preparation("clip"), key: value}))
    kind = transformers_folder.KINDS["clip"]
    line = refusal(lambda: transformers_folder.read_preprocessing(tmp_path, kind, CONFIG))
    assert line.startswith(f"{tmp_path / PREPARED}: ")
    assert said in line
    assert f"invalid {key} " in line or "prepares" in said


def test_a_folder_may_be_the_one_where_one_stands(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models / "chinese_clip")
    assert make(Path()).name == "transformers:."


def test_a_vocabulary_in_two_files_is_the_same(models: Path, copied: Folder) -> None:
    folder = copied("clip")
    spelt_out(10**6)(folder)
    text = "A photo of a three-toed sloth."
    assert make(folder)._token_ids(text) == make(models / "clip")._token_ids(text)


@pytest.mark.parametrize("name", ["GemmaTokenizer", "Siglip2Tokenizer"])
def test_siglip_reads_prompts_as_by_its_name_in_open_clip(name: str, tmp_path: Path) -> None:
    """Of SigLIP 2 with a fixed size, whose folder may name either tokenizer; open_clip cleans prompts by itself."""
    from open_clip.tokenizer import HFTokenizer

    folder = write(tmp_path / "model", "siglip", vocabulary="siglip2")
    change_json(folder / "tokenizer_config.json", tokenizer_class=name)
    other = HFTokenizer(
        str(folder), context_length=40, **open_clip.get_model_config("ViT-B-16-SigLIP2")["text_cfg"]["tokenizer_kwargs"]
    )
    backbone = make(folder)
    for text in ("A photo of a Three-Toed Sloth.", "a photo of a dog", "an  origami FIRE_TRUCK, large!"):
        own = backbone._token_ids(text)
        assert own == other([text])[0][: len(own)].tolist()
    assert backbone._token_ids("A Dog") == backbone._token_ids("a dog") != backbone._token_ids("a cat")
