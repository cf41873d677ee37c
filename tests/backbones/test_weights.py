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

from faircontext import create_backbone
from faircontext.backbones.checkpoints import load_open_clip
from faircontext.backbones.weights import read_weights
from faircontext.cli import main
from faircontext.errors import ArgumentError, FairContextWarning
from faircontext.labels import LabelSpace
from helpers import refusal, same_bits
from tiny_clip import TEXT, TINY, VISION, write_model

Weights = dict[str, Tensor]


@pytest.fixture(autouse=True)
def architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small architectures under names of their own, as open_clip knows its own."""
    known = open_clip.factory._MODEL_CONFIGS
    monkeypatch.setitem(known, "tiny", TINY)
    monkeypatch.setitem(known, "tiny-deep", {**TINY, "text_cfg": {**TEXT, "layers": 3}})
    monkeypatch.setitem(known, "tiny-64", {**TINY, "vision_cfg": {**VISION, "image_size": 64}})


@pytest.fixture(scope="module")
def plain() -> Weights:
    torch.manual_seed(5)
    model = open_clip.CLIP(embed_dim=32, vision_cfg=dict(VISION), text_cfg=dict(TEXT))
    state: Weights = model.state_dict()
    return state


def message(name: str, pretrained: Path | None = None, **options: Any) -> str:
    return refusal(lambda: create_backbone(name, None if pretrained is None else str(pretrained), **options))


# Values that no model can answer with


def broken(folder: Path, tensor: str, value: float) -> Path:
    """Write a model with one value of a tensor replaced, or all of them by zeros."""
    file = write_model(folder, "clip") / "open_clip_model.safetensors"
    weights = load_file(file)
    weights[tensor].view(-1)[... if value == 0.0 else -1] = value
    save_file(weights, file)
    return folder


ZERO = "are NaN, infinite or all zero"


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
        ("visual.proj", 0.0, f"features of a test picture {ZERO} (all values of visual.proj are"),
        ("text_projection", 0.0, f"the features of every prompt {ZERO} (all values of text_proj"),
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


def test_a_precision_whose_features_are_not_finite_says_so(tmp_path: Path) -> None:
    file = write_model(tmp_path, "clip") / "open_clip_model.safetensors"
    weights = load_file(file)
    weights["visual.conv1.weight"] *= 1e6  # too large for fp16; the layer norm after it makes them harmless in fp32
    save_file(weights, file)
    create_backbone(f"local-dir:{tmp_path}", precision="fp32")
    text = message(f"local-dir:{tmp_path}", precision="fp16")
    assert text.endswith("a test picture's features are NaN or infinite; use fp32")


# Weights that do not fit


def with_positions(plain: Weights, image: int | None, text: int | None) -> Weights:
    torch.manual_seed(6)
    more = {} if image is None else {"visual.positional_embedding": torch.randn((image // 16) ** 2 + 1, 32) / 6}
    return {**plain, **more, **({} if text is None else {"positional_embedding": torch.randn(text, 32) / 6})}


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
    assert same_bits(backbone.image_encoder.positional_embedding, native["visual.positional_embedding"])
    assert same_bits(backbone.text_encoder.positions, native["positional_embedding"])
    (warning,) = backbone.facts["warnings"]
    assert "are resized to" in warning


def test_positions_in_a_folder_are_refused_alike(plain: Weights, tmp_path: Path) -> None:
    write_model(tmp_path, "clip")
    save_file(with_positions(plain, 48, None), tmp_path / "open_clip_model.safetensors")
    text = message(f"local-dir:{tmp_path}")
    assert "has positions of 48 pixels, and" in text
    assert "correct image_size and context_length in open_clip_config.json" in text


def test_the_request_is_recorded_and_changes_no_other_hash(
    plain: Weights, tmp_path: Path, picture_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(with_positions(plain, 64, None), tmp_path / "w.pt")
    torch.save(plain, tmp_path / "plain.pt")
    words = ["evaluate", "--datasets", "pictures", "--root", str(picture_set.parent), "--methods", "zero_shot"]
    words += ["--limit", "2", "--backbone", "tiny", "--precision", "fp32"]

    def run(name: str, *more: str) -> dict[str, Any]:
        file, out = tmp_path / f"{name}.pt", tmp_path / name
        assert main([*words, "--pretrained", str(file), "--out", str(out), *more]) in (0, 1)
        found: dict[str, Any] = json.loads((out / "pictures" / "run.json").read_text())
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run("w", "--resize-positions")["config"]["resize_positions"] is True
    assert f"note: {tmp_path / 'w.pt'}: positions of 64 pixels are resized" in capsys.readouterr().err
    ordinary = run("plain")
    assert "resize_positions" not in ordinary["config"]
    assert not {"model", "activation"} & {*ordinary["config"], *ordinary["config"]["backbone"]}
    assert ordinary["model"] == {"activation": "GELU"}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "tiny",
            {"visual.proj": torch.ones(32, 32).char()},
            "1 tensors are no floating-point numbers (first visual.",
        ),
        (
            "tiny",
            {"odd": torch.ones(1)},
            "cannot be read as weights of tiny: tensors unknown: 1 (first odd); name th",
        ),
        (
            "tiny-deep",
            {},
            "cannot be read as weights of tiny-deep: tensors missing: 12 (first transfo",
        ),
    ],
)
def test_weights_of_another_model_are_refused(
    name: str, change: Weights, said: str, plain: Weights, tmp_path: Path
) -> None:
    save_file({**plain, **change}, tmp_path / "w.safetensors")
    assert message(name, tmp_path / "w.safetensors").startswith(f"{tmp_path / 'w.safetensors'}: {said}")


def test_arrays_of_big_vision_are_of_no_other_architecture(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", weight=np.zeros(3))
    assert "read as weights of big_vision, which tiny is no architecture of; " in message("tiny", tmp_path / "w.npz")


def test_the_loader_returns_what_open_clip_itself_loads(tmp_path: Path, plain: Weights) -> None:
    """Old names of tensors, and scales of another shape, as `open_clip.load_checkpoint` takes them."""
    custom = write_model(tmp_path / "custom", "custom")
    odd = {**plain, "logit_scale": plain["logit_scale"].reshape(1)}
    save_file(odd, custom / "open_clip_model.safetensors")
    backbone = load_open_clip(f"local-dir:{custom}", precision="fp32")
    native = open_clip.create_model(f"local-dir:{custom}")
    assert backbone.logit_scale == float(native.logit_scale.detach().exp())
    assert same_bits(backbone.text_encoder.embedding.weight, native.text.token_embedding.weight)


# Forms of a file, read as tensors alone

OWN = {"logit_scale": torch.ones(()), "visual.proj": torch.ones(2), "proj": torch.ones(3)}
HALF = {name: tensor / 2 for name, tensor in OWN.items()}


def wrap(prefix: str, weights: Weights = OWN) -> Weights:
    return {prefix + name: tensor for name, tensor in weights.items()}


def inside(name: str) -> Weights:
    """Wrap the image encoder alone."""
    return {key.replace("visual.", f"visual.{name}."): tensor for key, tensor in OWN.items()}


def to_take(key: str, averaged: str = "") -> str:
    return f"those under {key}{averaged} are not taken; to take them: weights_key={key!r} (--weights-key {key})"


def which(*keys: str) -> str:
    return f"holds weights under {' and '.join(keys)}; name which: weights_key={keys[0]!r} (--weights-key {keys[0]})"


AVERAGED = " (averaged)"
TAKEN = "the weights under {} are taken"
READ = "names of tensors are read without {}"


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (OWN, []),
        ({"epoch": 3, "state_dict": OWN, "optimizer": {"state": {0: {"x": torch.ones(1)}}}}, []),
        (wrap("module."), []),
        ({**OWN, "input_resolution": torch.tensor(32), "vocab_size": torch.tensor(9)}, []),  # of OpenAI's archives
        ({"model": "ViT-B-32", "state_dict": OWN}, []),
        ({"n_averaged": torch.tensor(5), **wrap("module.")}, []),
        (wrap("_orig_mod."), [READ.format("_orig_mod.")]),
        (wrap("module._orig_mod."), [READ.format("module._orig_mod.")]),
        ({"state_dict": wrap("_orig_mod.module.")}, [READ.format("_orig_mod.module.")]),
        ({"state_dict": wrap("model.")}, [READ.format("model.")]),
        (wrap("_fsdp_wrapped_module.", inside("_fsdp_wrapped_module")), [READ.format("_fsdp_wrapped_module.")]),
        (inside("_orig_mod"), [READ.format("_orig_mod.")]),
        ({"state_dict": wrap("net.")}, [TAKEN.format("net")]),
        ({"model_state_dict": OWN, "step": 7}, [TAKEN.format("model_state_dict")]),
        ({"model": wrap("module."), "args": {"lr": 0.1}}, [TAKEN.format("model")]),
        ({"model": {"state_dict": OWN}}, [TAKEN.format("model")]),
        ({"epoch": torch.tensor(3), "network": OWN}, [TAKEN.format("network")]),
        (
            {**wrap("module.clip_model."), "module.loss.weight": torch.ones(1)},
            [TAKEN.format("clip_model"), "tensors outside clip_model. are not taken: 1 (first loss.weight)"],
        ),
        ({**OWN, **wrap("teacher.", HALF)}, [to_take("teacher")]),
        (
            {**wrap("module.net."), **wrap("module.ema_net.", HALF)},
            [TAKEN.format("net"), to_take("ema_net", AVERAGED)],
        ),
        *(
            ({"state_dict": OWN, key: held}, [TAKEN.format("state_dict"), to_take(key, AVERAGED)])
            for key in ("ema", "state_dict_ema", "model_ema", "ema_state_dict")
            for held in (HALF, {"decay": 0.99, "module": HALF}, {"state_dict": HALF})
        ),
    ],
)
def test_plain_weights_are_taken_and_what_was_chosen_is_said(content: Any, lines: list[str], tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pt")
    weights, said = read_weights(tmp_path / "w.pt")
    assert {name: tensor.tolist() for name, tensor in weights.items()} == {n: t.tolist() for n, t in OWN.items()}
    assert [line for line in said if "outside" not in line or line in lines] == lines


@pytest.mark.parametrize(
    ("content", "said_of_all", "keys"),
    [
        ({"ema": {"module": OWN}, "optimizer": {"state": HALF["proj"]}}, which("ema"), ["ema", "ema.module"]),
        ({"state_dict": {**wrap("model.", HALF), **wrap("ema_model.")}}, None, ["ema_model"]),
        (wrap("ema_model."), which("ema_model"), ["ema_model"]),
        ({"state_dict": {**wrap("student."), **wrap("teacher.", HALF)}}, which("student", "teacher"), ["student"]),
        (wrap("_orig_mod.", {**wrap("student."), **wrap("teacher.", HALF)}), which("student", "teacher"), ["student"]),
        ({"network": OWN}, None, ["network"]),
        ({"state_dict": HALF, "model_ema": OWN}, None, ["model_ema"]),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_taken_and_several_are_not_guessed(
    content: Any, said_of_all: str | None, keys: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "w.pt"
    torch.save(content, path)
    for key in keys:
        weights, said = read_weights(path, key)
        assert weights["proj"].tolist() == [1.0] * 3
        assert said[0] == TAKEN.format(key)
    if said_of_all is not None:
        assert refusal(lambda: read_weights(path)) == f"{path}: {said_of_all}"


@pytest.mark.parametrize(
    ("content", "key", "said"),
    [
        ({"state_dict": OWN, "model_ema": OWN}, "swa", "holds no weights under 'swa'; it has state_dict, model_ema"),
        (
            {**OWN, **wrap("module.")},
            None,
            "holds logit_scale twice, as logit_scale and as module.logit_scale; ke",
        ),
        ({}, None, "holds nothing, and no tensors by name; take another checkpoint"),
        ({"epoch": 3}, None, "holds epoch, and no tensors by name"),
        ([1, 2], None, "holds list, and no tensors by name"),
        (
            {"base_model.model.visual.lora_A.weight": torch.zeros(2)},
            None,
            "holds LoRA, changes to the weights of a m",
        ),
        (
            {"lora_unet_q.lora_down.weight": torch.zeros(2)},
            None,
            "holds LoRA, changes to the weights of a model and",
        ),
    ],
)
def test_a_file_without_a_models_weights_is_one_line(content: Any, key: str | None, said: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pt")
    assert refusal(lambda: read_weights(tmp_path / "w.pt", key)).startswith(f"{tmp_path / 'w.pt'}: {said}")


def test_what_was_chosen_is_a_warning_and_among_the_facts(plain: Weights, tmp_path: Path) -> None:
    torch.save({"net": plain, "ema": plain}, tmp_path / "w.pt")
    with pytest.warns(FairContextWarning) as heard:
        backbone = create_backbone("tiny", str(tmp_path / "w.pt"), precision="fp32", weights_key="ema")
    lines = [f"{tmp_path / 'w.pt'}: {TAKEN.format('ema')}"]
    assert [str(one.message) for one in heard] == backbone.facts["warnings"] == lines
    assert same_bits(backbone.image_encoder.conv1.weight, plain["visual.conv1.weight"])


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@pytest.mark.parametrize("save", [save_file, torch.save])
def test_a_file_is_read_by_what_it_holds_whatever_its_extension(
    save: Callable[..., None], name: str, tmp_path: Path
) -> None:
    save(OWN, tmp_path / name)
    assert read_weights(tmp_path / name)[0].keys() == OWN.keys()


CUT = "damaged or cut short, as by an interrupted download; fetch it again ("


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no file of weights: it is empty; fetch it again"),
        (b"not weights", "no file of weights: it holds neither safetensors nor what PyTorch writes"),
        (bytes(600), "no file of weights: it holds nothing but zeros, as an interrupted copy"),
        (b"<!DOCTYPE html>", "no file of weights: it holds a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "no file of weights: it holds a pointer of Git LFS; fetch"),
        (b"PK\x03\x04broken", f"{CUT}its end is miss"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", CUT),
        (b"\x09\0\0\0\0\0\0\0{}", CUT),
    ],
)
@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_a_file_that_holds_no_weights_is_named(content: bytes, said: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert refusal(lambda: read_weights(tmp_path / name)).startswith(f"{tmp_path / name}: {said}")


# What is not read because it could run code


def program(path: Path) -> str:
    """Return the program in the command that the refusal of a file ends with."""
    said = refusal(lambda: read_weights(path))
    reasons = ("not a file of tensors alone, and anything else is not read", "a TorchScript archive, which is not read")
    assert said.startswith(tuple(f"{path}: {reason} because " for reason in reasons))
    words = shlex.split(said[said.index("python -c ") :])
    assert words[:2] == ["python", "-c"]
    return words[2]


class Dangerous:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return exec, ("raise SystemExit('code of a checkpoint was run')",)


class Wrapped(nn.Module):
    """A pickled model, as `torch.save(model)` writes it."""

    def __init__(self) -> None:
        super().__init__()
        for number, tensor in enumerate(OWN.values()):
            self.register_buffer(str(number), tensor)

    def state_dict(self, *_: Any, **__: Any) -> Weights:  # type: ignore[override]
        return dict(zip(OWN, self.buffers(), strict=True))


@pytest.mark.parametrize(
    "content",
    [
        {"state_dict": OWN, "loss": np.float64(0.5)},
        {"model": OWN, "best": np.float32(0.5)},
        {"model": {"state_dict": OWN}, "args": Path("x")},
        {**OWN, "accuracy": np.float64(0.5)},
        {"model": Wrapped()},
        Wrapped(),
    ],
)
def test_the_printed_command_works_for_every_key(content: Any, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "it's $HOME.pt"
    torch.save(content, path)
    monkeypatch.chdir(tmp_path)
    exec(program(path), {})
    assert read_weights(tmp_path / f"{path.stem}-weights.pt")[0].keys() == OWN.keys()


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "args": Dangerous()}, tmp_path / "w.pt")
    assert program(tmp_path / "w.pt")


def test_the_command_for_an_archive_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.script(nn.Linear(2, 2)).save(str(tmp_path / "w.pt"))
        monkeypatch.chdir(tmp_path)
        exec(program(tmp_path / "w.pt"), {})
    assert {*torch.load(tmp_path / "w-weights.pt", weights_only=True)} == {"weight", "bias"}
