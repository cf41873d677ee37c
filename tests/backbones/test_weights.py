"""Weights that cannot be used, do not fit, or lie in a file in another form: what is taken, and what is said."""

import json
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from faircontext import Backbone, create_backbone
from faircontext.backbones import activation_of
from faircontext.backbones.checkpoints import _preparation_of_file, load_open_clip
from faircontext.cli import main
from faircontext.errors import ArgumentError, FairContextWarning
from faircontext.labels import LabelSpace
from helpers import same_bits
from tiny_clip import TEXT, TINY, VISION, write_model

Weights = dict[str, Tensor]


@pytest.fixture(autouse=True)
def architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small architectures under names of their own, as open_clip knows its own."""
    known = open_clip.factory._MODEL_CONFIGS
    monkeypatch.setitem(known, "tiny", TINY)
    monkeypatch.setitem(known, "tiny-quickgelu", {**TINY, "quick_gelu": True})
    monkeypatch.setitem(known, "tiny-64", {**TINY, "vision_cfg": {**VISION, "image_size": 64}})


@pytest.fixture(scope="module")
def plain() -> Weights:
    torch.manual_seed(5)
    model = open_clip.CLIP(embed_dim=32, vision_cfg=dict(VISION), text_cfg=dict(TEXT))
    state: Weights = model.state_dict()
    return state


def message(name: str, pretrained: Path | None = None, **options: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        create_backbone(name, None if pretrained is None else str(pretrained), **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def program(said: str) -> str:
    """Return the program in the command that a message ends with."""
    words = shlex.split(said[said.index("python -c ") :])
    assert words[:2] == ["python", "-c"]
    return words[2]


# Values that no model can answer with


def broken(folder: Path, tensor: str, value: float) -> Path:
    """Write a model with one value of a tensor replaced, or all of them by zeros."""
    file = write_model(folder, "clip") / "open_clip_model.safetensors"
    weights = load_file(file)
    weights[tensor].view(-1)[... if value == 0.0 else -1] = value
    save_file(weights, file)
    return folder


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("tensor", "value", "said"),
    [
        ("visual.conv1.weight", torch.nan, "1 of the 24,576 values of visual.conv1.weight are NaN or infinite"),
        ("visual.transformer.resblocks.1.mlp.c_fc.weight", torch.inf, "c_fc.weight are NaN or infinite"),
        ("token_embedding.weight", -torch.inf, "values of token_embedding.weight are NaN or infinite"),
        ("text_projection", torch.nan, "1 of the 1,024 values of text_projection are NaN or infinite"),
        ("logit_scale", torch.nan, "1 of the 1 values of logit_scale are NaN or infinite"),
        ("logit_scale", 1e3, "cosines would be multiplied by inf (exp of logit_scale)"),
        ("visual.proj", 0.0, "features of a test picture are NaN, infinite or all zero (all values of visual.proj are"),
        (
            "text_projection",
            0.0,
            "the features of every prompt are NaN, infinite or all zero (all values of text_proj",
        ),
        ("visual.conv1.weight", 0.0, "features of all pictures are the same (all values of visual.conv1.weight are"),
        ("token_embedding.weight", 0.0, "features of all prompts are the same (all values of token_embedding.weight"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_by_name(
    tensor: str, value: float, said: str, precision: str, tmp_path: Path
) -> None:
    text = message(f"local-dir:{broken(tmp_path, tensor, value)}", precision=precision)
    assert text.startswith(f"local-dir:{tmp_path}: the weights cannot be used: ")
    assert said in text
    assert text.endswith("; take another checkpoint")


def test_a_tokenizer_with_more_tokens_than_the_weights_is_refused_before_a_run(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "clip")
    weights = load_file(folder / "open_clip_model.safetensors")
    weights["token_embedding.weight"] = weights["token_embedding.weight"][:200].clone()
    save_file(weights, folder / "open_clip_model.safetensors")
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"]["vocab_size"] = 200
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    backbone = create_backbone(f"local-dir:{folder}", precision="fp32")
    with pytest.raises(ArgumentError, match=r"its tokenizer gives 'a photo of a cat.' the token \d+, and the weights"):
        LabelSpace(("cat", "dog"), backbone)


def test_arrays_of_big_vision_are_of_no_other_architecture(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", weight=np.zeros(3))
    assert message("tiny", tmp_path / "w.npz").startswith(
        f"{tmp_path / 'w.npz'}: NumPy arrays are read as weights of big_vision, which tiny is no architecture of; "
    )


def test_the_first_bad_tensor_is_named(plain: Weights, tmp_path: Path) -> None:
    torch.save({name: torch.full_like(tensor, torch.nan) for name, tensor in plain.items()}, tmp_path / "w.pt")
    assert f"values of {next(iter(plain))} are NaN" in message("tiny", tmp_path / "w.pt")


def test_bad_weights_are_one_line_and_leave_earlier_outputs(tmp_path: Path, make_image: Any, capsys: Any) -> None:
    from PIL import Image

    Image.fromarray(make_image(0)).save(tmp_path / "a.png")
    (tmp_path / "rows.csv").write_text("earlier")
    model = f"local-dir:{broken(tmp_path / 'model', 'visual.proj', torch.nan)}"
    words = ("--labels", "cat,dog", "--backbone", model, "--csv", str(tmp_path / "rows.csv"))
    assert main(["classify", str(tmp_path / "a.png"), *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [shown.err.strip()]
    assert "visual.proj" in shown.err
    assert (tmp_path / "rows.csv").read_text() == "earlier"


def test_a_precision_whose_features_are_not_finite_says_so(tmp_path: Path) -> None:
    file = write_model(tmp_path, "clip") / "open_clip_model.safetensors"
    weights = load_file(file)
    weights["visual.conv1.weight"] *= 1e6  # too large for fp16; the layer norm after it makes them harmless in fp32
    save_file(weights, file)
    create_backbone(f"local-dir:{tmp_path}", precision="fp32")
    text = message(f"local-dir:{tmp_path}", precision="fp16")
    assert text.endswith("a test picture's features are NaN or infinite; use fp32")


# Positions of another size


def with_positions(plain: Weights, image: int | None, text: int | None) -> Weights:
    torch.manual_seed(6)
    changed = dict(plain)
    if image is not None:
        changed["visual.positional_embedding"] = torch.randn((image // 16) ** 2 + 1, 32) / 6
    if text is not None:
        changed["positional_embedding"] = torch.randn(text, 32) / 6
    return changed


@pytest.mark.parametrize(
    ("image", "text", "said"),
    [
        (64, None, "has positions of 64 pixels, and tiny reads 32 pixels; name the architecture tiny-64, or have"),
        (None, 248, "has positions of 248 tokens, and tiny reads 77 tokens; name an architecture that reads the same"),
        (64, 248, "has positions of 64 pixels and 248 tokens, and tiny reads 32 pixels and 77 tokens; "),
    ],
)
def test_positions_of_another_size_are_resized_on_request_only(
    image: int | None, text: int | None, said: str, plain: Weights, tmp_path: Path
) -> None:
    path = tmp_path / "w.pt"
    torch.save(with_positions(plain, image, text), path)
    refused = message("tiny", path)
    assert refused.startswith(f"{path}: {said}")
    assert refused.endswith("resize_positions=True (--resize-positions)")
    with pytest.warns(FairContextWarning, match=rf"{path}: positions of .* are resized to the .* that tiny reads"):
        backbone = create_backbone("tiny", str(path), precision="fp32", resize_positions=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        native = open_clip.create_model("tiny", pretrained=str(path)).state_dict()
    assert same_bits(backbone.tower.positional_embedding, native["visual.positional_embedding"])
    assert same_bits(backbone.text_tower.positions, native["positional_embedding"])
    (warning,) = backbone.facts["warnings"]
    assert "are resized to" in warning


def test_positions_in_a_folder_are_refused_alike(plain: Weights, tmp_path: Path) -> None:
    write_model(tmp_path, "clip")
    save_file(with_positions(plain, 48, None), tmp_path / "open_clip_model.safetensors")
    text = message(f"local-dir:{tmp_path}")
    assert "has positions of 48 pixels, and" in text
    assert "correct image_size and context_length in open_clip_config.json" in text


def test_embedded_backbones_have_no_positions_to_resize() -> None:
    assert message("lite0", resize_positions=True) == "lite0 has its own weights; leave resize_positions out"


def test_the_request_is_recorded_and_changes_no_other_hash(
    plain: Weights, tmp_path: Path, picture_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(with_positions(plain, 64, None), tmp_path / "w.pt")
    torch.save(plain, tmp_path / "plain.pt")
    shared = ("--datasets", "pictures", "--root", str(picture_set.parent), "--methods", "zero_shot", "--limit", "2")

    def run(file: str, *more: str) -> dict[str, Any]:
        words = ("--backbone", "tiny", "--pretrained", str(tmp_path / file), "--precision", "fp32")
        assert main(["evaluate", *shared, *words, "--out", str(tmp_path / file.removesuffix(".pt")), *more]) in (0, 1)
        found: dict[str, Any] = json.loads((tmp_path / file.removesuffix(".pt") / "pictures" / "run.json").read_text())
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        resized = run("w.pt", "--resize-positions")
    assert f"note: {tmp_path / 'w.pt'}: positions of 64 pixels are resized" in capsys.readouterr().err
    assert resized["config"]["resize_positions"] is True
    ordinary = run("plain.pt")
    assert "resize_positions" not in ordinary["config"]
    assert not {"model", "activation"} & {*ordinary["config"], *ordinary["config"]["backbone"]}
    assert ordinary["model"] == {"activation": "GELU"}


# Forms of a file


def wrap(weights: Weights, *prefixes: str) -> Weights:
    return {"".join(prefixes) + name: tensor for name, tensor in weights.items()}


FORMS: dict[str, tuple[Callable[[Weights], Any], str | None]] = {
    "flat": (lambda w: w, None),
    "state_dict": (lambda w: {"epoch": 3, "state_dict": w, "optimizer": {"state": {0: {"x": torch.ones(1)}}}}, None),
    "module.": (lambda w: wrap(w, "module."), None),
    "OpenAI's numbers": (lambda w: {**w, "input_resolution": torch.tensor(32), "vocab_size": torch.tensor(9)}, None),
    "_orig_mod.": (lambda w: wrap(w, "_orig_mod."), "names of tensors are read without _orig_mod."),
    "module._orig_mod.": (lambda w: wrap(w, "module._orig_mod."), "read without module._orig_mod."),
    "_fsdp_wrapped_module.": (
        lambda w: wrap(
            {name.replace("visual.", "visual._fsdp_wrapped_module."): tensor for name, tensor in w.items()},
            "_fsdp_wrapped_module.",
        ),
        "names of tensors are read without _fsdp_wrapped_module.",
    ),
    "net.": (lambda w: {"state_dict": wrap(w, "net.")}, "the weights under net are taken"),
    "module.clip_model.": (
        lambda w: {**wrap(w, "module.clip_model."), "module.loss.weight": torch.ones(1)},
        "tensors outside clip_model. are not taken: 1 (first loss.weight)",
    ),
    "beside a teacher": (
        lambda w: {**w, **wrap(w, "teacher.")},
        "those under teacher are not taken; to take them: weights_key='teacher' (--weights-key teacher)",
    ),
    "averaged in a wrapper": (
        lambda w: {**wrap(w, "module.net."), **wrap(w, "module.ema_net.")},
        "those under ema_net (averaged) are not taken; to take them: weights_key='ema_net' (--weights-key ema_net)",
    ),
    "_orig_mod.module.": (lambda w: {"state_dict": wrap(w, "_orig_mod.module.")}, "without _orig_mod.module."),
    "model.": (lambda w: {"state_dict": wrap(w, "model.")}, "names of tensors are read without model."),
    "one tower compiled": (
        lambda w: {name.replace("visual.", "visual._orig_mod."): tensor for name, tensor in w.items()},
        "names of tensors are read without _orig_mod.",
    ),
    "model_state_dict": (lambda w: {"model_state_dict": w, "step": 7}, "the weights under model_state_dict are taken"),
    "model": (lambda w: {"model": wrap(w, "module."), "args": {"lr": 0.1}}, "the weights under model are taken"),
    "nested": (lambda w: {"model": {"state_dict": w}}, "the weights under model are taken"),
    "named model": (lambda w: {"model": "ViT-B-32", "state_dict": w}, None),
    "averaged": (lambda w: {"n_averaged": torch.tensor(5), **wrap(w, "module.")}, None),
}


@pytest.mark.parametrize("form", FORMS)
def test_plain_forms_are_understood_and_what_was_taken_is_said(form: str, plain: Weights, tmp_path: Path) -> None:
    make, said = FORMS[form]
    path = tmp_path / "w.pt"
    torch.save(make(plain), path)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        backbone = create_backbone("tiny", str(path), precision="fp32")
    assert_is(backbone, plain)
    lines = [str(warning.message) for warning in heard if issubclass(warning.category, FairContextWarning)]
    assert (lines == []) if said is None else all(line.startswith(f"{path}: ") for line in lines)
    assert said is None or any(said in line for line in lines)
    assert backbone.facts.get("warnings", []) == lines


def assert_is(backbone: Backbone, weights: Weights) -> None:
    assert same_bits(backbone.tower.conv1.weight, weights["visual.conv1.weight"])
    assert same_bits(backbone.text_tower.projection, weights["text_projection"])


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["", "module", "state_dict"])
@pytest.mark.parametrize("key", ["ema", "state_dict_ema", "model_ema", "ema_state_dict"])
def test_averaged_weights_beside_are_said_and_taken_on_request_only(
    key: str, inside: str, plain: Weights, tmp_path: Path
) -> None:
    averaged = {name: 0.5 * tensor for name, tensor in plain.items()}
    held = {"decay": 0.99, inside: averaged} if inside else averaged
    torch.save({"state_dict": plain, key: held}, tmp_path / "w.pt")
    with pytest.warns(FairContextWarning) as heard:
        backbone = create_backbone("tiny", str(tmp_path / "w.pt"), precision="fp32")
    assert_is(backbone, plain)
    assert "the weights under state_dict are taken" in str(heard[0].message)
    request = f"to take them: weights_key={key!r} (--weights-key {key})"
    assert str(heard[1].message).endswith(f"those under {key} (averaged) are not taken; {request}")
    assert_is(asked(tmp_path / "w.pt", key), averaged)


def asked(path: Path, key: str) -> Backbone:
    """Return the model with the weights under a key, which is said."""
    with pytest.warns(FairContextWarning) as heard:
        backbone = create_backbone("tiny", str(path), precision="fp32", weights_key=key)
    assert f"{path}: the weights under {key} are taken" in [str(warning.message) for warning in heard]
    return backbone


def test_averaged_weights_alone_are_taken_on_request(plain: Weights, tmp_path: Path) -> None:
    torch.save({"ema": {"module": plain}, "optimizer": {"state": {0: {"m": torch.ones(2)}}}}, tmp_path / "w.pt")
    said = message("tiny", tmp_path / "w.pt")
    assert said.endswith("w.pt: holds weights under ema; name which: weights_key='ema' (--weights-key ema)")
    assert_is(asked(tmp_path / "w.pt", "ema"), plain)
    assert_is(asked(tmp_path / "w.pt", "ema.module"), plain)


def test_averaged_weights_among_the_others_are_said(plain: Weights, tmp_path: Path) -> None:
    averaged = {name: 0.5 * tensor for name, tensor in plain.items()}
    torch.save({"state_dict": {**wrap(plain, "model."), **wrap(averaged, "ema_model.")}}, tmp_path / "w.pt")
    with pytest.warns(FairContextWarning) as heard:
        backbone = create_backbone("tiny", str(tmp_path / "w.pt"), precision="fp32")
    assert any("those under ema_model (averaged) are not taken; to take them: " in str(one.message) for one in heard)
    assert_is(backbone, plain)
    assert_is(asked(tmp_path / "w.pt", "ema_model"), averaged)


def test_a_key_that_is_not_there_is_told_with_those_that_are(plain: Weights, tmp_path: Path) -> None:
    torch.save({"state_dict": plain, "model_ema": plain}, tmp_path / "w.pt")
    said = message("tiny", tmp_path / "w.pt", weights_key="swa")
    assert said.startswith(f"{tmp_path / 'w.pt'}: holds no weights under 'swa'; it has state_dict, model_ema")
    assert message("lite0", weights_key="ema") == "lite0 has its own weights; leave weights_key out"


@pytest.mark.parametrize("outer", ["", "module.", "_orig_mod.module."])
def test_of_several_models_one_must_be_named(outer: str, plain: Weights, tmp_path: Path) -> None:
    other = {name: 0.5 * tensor for name, tensor in plain.items()}
    torch.save({"state_dict": {**wrap(plain, outer, "teacher."), **wrap(other, outer, "student.")}}, tmp_path / "w.pt")
    choice = "weights_key='student' (--weights-key student)"
    assert message("tiny", tmp_path / "w.pt") == (
        f"{tmp_path / 'w.pt'}: holds weights under student and teacher; name which: {choice}"
    )
    assert_is(asked(tmp_path / "w.pt", "student"), other)
    assert_is(asked(tmp_path / "w.pt", "teacher"), plain)


def test_averaged_weights_alone_under_a_prefix_are_not_taken_unasked(plain: Weights, tmp_path: Path) -> None:
    torch.save(wrap(plain, "ema_model."), tmp_path / "w.pt")
    assert message("tiny", tmp_path / "w.pt").endswith(
        "holds weights under ema_model; name which: weights_key='ema_model' (--weights-key ema_model)"
    )
    assert_is(asked(tmp_path / "w.pt", "ema_model"), plain)


def test_one_tensor_under_two_names_is_refused(plain: Weights, tmp_path: Path) -> None:
    torch.save({**plain, **wrap(plain, "module.")}, tmp_path / "w.pt")
    text = message("tiny", tmp_path / "w.pt")
    twice = "holds positional_embedding twice, as positional_embedding and as module.positional_embedding"
    assert text == f"{tmp_path / 'w.pt'}: {twice}; keep one of them"


@pytest.mark.parametrize("key", [None, "network"])
def test_weights_under_another_key_are_taken_and_said(key: str | None, plain: Weights, tmp_path: Path) -> None:
    torch.save({"epoch": torch.tensor(3), "network": plain}, tmp_path / "w.pt")
    with pytest.warns(FairContextWarning, match="w.pt: the weights under network are taken$"):
        backbone = create_backbone("tiny", str(tmp_path / "w.pt"), precision="fp32", weights_key=key)
    assert_is(backbone, plain)


@pytest.mark.parametrize("content", [{}, {"epoch": 3}, [1, 2], torch.ones(3)])
def test_a_file_without_named_tensors_is_one_line(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pt")
    assert message("tiny", tmp_path / "w.pt").startswith(f"{tmp_path / 'w.pt'}: holds ")


class Wrapped(nn.Module):
    """A pickled model, as `torch.save(model)` writes it."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        for number, tensor in enumerate(weights.values()):
            self.register_buffer(str(number), tensor)
        self.names = list(weights)

    def state_dict(self, *_: Any, **__: Any) -> Weights:  # type: ignore[override]
        return dict(zip(self.names, self.buffers(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("file", ["w.pt", "it's $HOME.pt"])
@pytest.mark.parametrize(
    "make",
    [
        lambda w: {"state_dict": w, "loss": np.float64(0.5)},
        lambda w: {"model_state_dict": w, "loss": np.float64(0.5)},
        lambda w: {"model": w, "best": np.float32(0.5)},
        lambda w: {"model": {"state_dict": w}, "args": Path("x")},
        lambda w: {**w, "accuracy": np.float64(0.5)},
        lambda w: {"model": Wrapped(w)},
        Wrapped,
    ],
)
def test_the_printed_command_works_for_every_key(
    make: Callable[[Weights], Any], file: str, plain: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / file
    torch.save(make(plain), path)
    text = message("tiny", path)
    assert text.startswith(f"{path}: not a file of tensors alone, ")
    monkeypatch.chdir(tmp_path)
    exec(program(text), {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairContextWarning)
        backbone = create_backbone("tiny", str(tmp_path / f"{path.stem}-weights.pt"), precision="fp32")
    assert_is(backbone, plain)


def test_the_command_for_an_archive_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.script(nn.Linear(2, 2)).save(str(tmp_path / "w.pt"))
        monkeypatch.chdir(tmp_path)
        exec(program(message("tiny", tmp_path / "w.pt")), {})
    assert {*torch.load(tmp_path / "w-weights.pt", weights_only=True)} == {"weight", "bias"}


# Weights that do not fit


def test_what_does_not_fit_is_counted_and_the_first_is_named(plain: Weights, tmp_path: Path) -> None:
    changed = {name: tensor for name, tensor in plain.items() if not name.startswith("ln_final")}
    changed |= {"text_projection": torch.ones(32, 16), "odd.thing": torch.ones(1)}
    torch.save(changed, tmp_path / "w.pt")
    assert message("tiny", tmp_path / "w.pt") == (
        f"{tmp_path / 'w.pt'}: cannot be read as weights of tiny: tensors of another shape: 1 (first "
        "text_projection: 32 x 16 and not 32 x 32), missing: 2 (first ln_final.weight), unknown: 1 (first odd.thing); "
        "name the architecture that they were trained with"
    )


# Checkpoints of transformers


@pytest.mark.parametrize("form", ["folder", "file", "folder as a file"])
def test_a_checkpoint_of_transformers_is_named_as_one(form: str, tmp_path: Path) -> None:
    from transformers import CLIPConfig, CLIPModel

    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPConfig(text_config=small, vision_config={**small, "image_size": 32, "patch_size": 16})
    CLIPModel(config).save_pretrained(tmp_path)
    if form == "folder":
        text = message(f"local-dir:{tmp_path}")
    elif form == "file":
        text = message("tiny", tmp_path / "model.safetensors")
    else:
        text = message("tiny", tmp_path)
        assert text == f"pretrained='{tmp_path}' is a folder; name the file in it, or use local-dir:{tmp_path}"
        return
    name = f"name it transformers:{tmp_path}" if form == "folder" else "--backbone transformers:FOLDER"
    assert "a model of transformers" in text
    assert text.endswith(name)
    assert str(tmp_path) in text


def test_several_files_in_a_folder_are_said(plain: Weights, tmp_path: Path) -> None:
    write_model(tmp_path, "clip")
    (tmp_path / "open_clip_model.safetensors").rename(tmp_path / "epoch_1.safetensors")
    torch.save(plain, tmp_path / "epoch_2.pth")
    with pytest.warns(FairContextWarning, match=r"the weights of epoch_1.safetensors are taken, not of epoch_2.pth"):
        create_backbone(f"local-dir:{tmp_path}")


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
    plain: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = {"mean": HALF, "std": HALF, "interpolation": "bilinear", "resize_mode": "squash"}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny", {"webli": tag})
    file = tmp_path / "w.pt"
    torch.save(plain, file)

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
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"preprocess_cfg": {"mean": [0.1, 0.2, 0.3]}}))
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
        ('{"mean": "x"}', 'invalid mean "x": must be three numbers'),
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


def test_a_folder_whose_preparation_has_other_types_is_one_line(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "clip", mean=0.5)
    assert "open_clip_config.json: invalid mean 0.5: must be three numbers" in message(f"local-dir:{folder}")


@pytest.mark.parametrize("name", ["lite0", "local-dir:x", "transformers:x"])
def test_what_says_itself_how_pictures_are_prepared_takes_no_other(name: str) -> None:
    assert message(name, preprocess="clip").endswith("leave preprocess out")


# Activation


@pytest.mark.parametrize(
    ("layout", "expected"), [("clip", "GELU"), ("quick", "QuickGELU"), ("siglip", "GELU"), ("resnet", "GELU")]
)
def test_the_activation_of_a_model_is_among_its_facts(layout: str, expected: str, tiny: Callable[[str], Any]) -> None:
    assert tiny(layout).facts == {"activation": expected}


def test_the_activation_of_an_architecture_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert [activation_of(name) for name in ("ViT-B-16", "ViT-B-16-quickgelu", "lite0")] == ["GELU", "QuickGELU", ""]
    assert main(["list", "backbones", "ViT-B-16-q*"]) == 0
    assert capsys.readouterr().out.split() == ["ViT-B-16-quickgelu", "QuickGELU"]


@pytest.mark.parametrize(
    ("architecture", "file", "other"),
    [
        ("ViT-S-32", "weights.pt", None),
        ("tiny", "my-quickgelu.pt", "tiny-quickgelu"),
        ("tiny-quickgelu", "my_quick_gelu.pt", None),
    ],
)
def test_a_file_name_that_suggests_another_activation_is_noted(
    architecture: str, file: str, other: str | None, tmp_path: Path
) -> None:
    from faircontext.backbones.checkpoints import find_source

    torch.save({}, tmp_path / file)
    warnings_ = find_source(architecture, str(tmp_path / file)).warnings
    assert len(warnings_) == (other is not None)
    assert all(warning.endswith(f"if so, name the architecture {other}") for warning in warnings_)


@pytest.mark.parametrize(
    ("architecture", "file", "suggests"),
    [
        ("ViT-B-32", "vit_b_32-openai.pt", "QuickGELU"),
        ("ViT-B-32", "ViT-B-32.pt", "QuickGELU"),  # as OpenAI called it
        ("ViT-B-32", "ViT-B-32-weights.pt", "QuickGELU"),  # its tensors, as our own command keeps them
        ("ViT-B-32", "laion2b_s34b_b79k.pt", None),
        ("ViT-B-32-quickgelu", "openai.pt", None),
        ("ViT-B-32-quickgelu", "laion2b_s34b_b79k.pt", "GELU"),
        ("ViT-B-32", "epoch_32.pt", None),
    ],
)
def test_names_of_known_tags_suggest_their_activation(
    architecture: str, file: str, suggests: str | None, tmp_path: Path
) -> None:
    from faircontext.backbones.checkpoints import find_source

    torch.save({}, tmp_path / file)
    warnings_ = find_source(architecture, str(tmp_path / file)).warnings
    assert [f"were trained with {suggests};" in warning for warning in warnings_] == [True] * (suggests is not None)


def test_a_run_goes_on_with_the_same_activation_only(
    tmp_path: Path, picture_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "model", "clip")
    words = ("--datasets", "pictures", "--root", str(picture_set.parent), "--methods", "zero_shot", "--limit", "2")
    more = ("--backbone", f"local-dir:{model}", "--out", str(tmp_path / "runs"), "--precision", "fp32")
    assert main(["evaluate", *words, *more]) in (0, 1)
    config = json.loads((model / "open_clip_config.json").read_text())
    config["model_cfg"]["quick_gelu"] = True
    (model / "open_clip_config.json").write_text(json.dumps(config))
    assert main(["evaluate", *words, *more, "--resume"]) == 2
    assert 'activation was "GELU" and is "QuickGELU"' in capsys.readouterr().err


def test_the_loader_returns_what_open_clip_itself_loads(tmp_path: Path, plain: Weights) -> None:
    """Old names of tensors, and scales of another shape, as `open_clip.load_checkpoint` takes them."""
    custom = write_model(tmp_path / "custom", "custom")
    odd = {**plain, "logit_scale": plain["logit_scale"].reshape(1)}
    save_file(odd, custom / "open_clip_model.safetensors")
    backbone = load_open_clip(f"local-dir:{custom}", precision="fp32")
    native = open_clip.create_model(f"local-dir:{custom}")
    assert backbone.logit_scale == float(native.logit_scale.detach().exp())
    assert same_bits(backbone.text_tower.embedding.weight, native.text.token_embedding.weight)


# Other files


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@pytest.mark.parametrize("save", [save_file, torch.save])
def test_a_file_is_read_by_what_it_holds_whatever_its_extension(
    save: Callable[..., None], name: str, plain: Weights, tmp_path: Path
) -> None:
    save(plain, tmp_path / name)
    backbone: Any = create_backbone("tiny", str(tmp_path / name))
    assert torch.equal(backbone.text_tower.embedding.weight, plain["token_embedding.weight"])


@pytest.mark.parametrize("name", ["base_model.model.visual.lora_A.weight", "lora_unet_q.lora_down.weight", "x.lora_A"])
def test_changes_to_weights_are_named_as_such(name: str, tmp_path: Path) -> None:
    save_file({name: torch.zeros(2, 2)}, tmp_path / "w.safetensors")
    assert message("tiny", tmp_path / "w.safetensors").startswith(
        f"{tmp_path / 'w.safetensors'}: holds LoRA, which is changes to the weights of a model and not the weights"
    )


def test_integers_are_not_taken_for_weights(plain: Weights, tmp_path: Path) -> None:
    quantised = {n: (100 * t).to(torch.int8) if n == "visual.proj" else t for n, t in plain.items()}
    save_file(quantised, tmp_path / "w.safetensors")
    text = message("tiny", tmp_path / "w.safetensors")
    assert "1 tensors are no floating-point numbers (first visual.proj: int8), as in a quantised model" in text
