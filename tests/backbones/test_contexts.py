"""Contexts that were learnt before: CoOp's files read, checked and written, and methods that start from them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from faircontext import FCL, Backbone, Episode, LabelSpace, ViewRecipe, create_backbone, create_method, list_methods
from faircontext.backbones import base
from faircontext.backbones.contexts import LearntContext, read_context, save_context
from faircontext.cli import main
from faircontext.errors import ArgumentError, LabelError
from helpers import assert_valid, refusal, same_bits
from tiny_clip import native_model, write_model

NAMES = ("dog", "fire truck", "three-toed sloth", "missile")
WORDS = "the drawing of my"

Make = Callable[[str], Backbone]
Folder = Callable[[str], Path]


def coop_file(path: Path, folder: Path, names: tuple[str, ...], ctx: Tensor, **more: Any) -> Path:
    """Write what CoOp writes: its prompt learner's buffers are made as in its code, in half precision."""
    model = native_model(folder)
    count = ctx.shape[-2]
    prompts = [" ".join(["X"] * count) + " " + name + "." for name in names]
    ids = torch.cat([open_clip.tokenize(prompt) for prompt in prompts])
    with torch.no_grad():
        embedding = model.token_embedding(ids).half()
    state = {"token_prefix": embedding[:, :1], "token_suffix": embedding[:, 1 + count :], "ctx": ctx, **more}
    optimizer = {"state": {0: {"momentum_buffer": torch.zeros(3)}}, "param_groups": [{"lr": 0.002, "params": [0]}]}
    torch.save({"state_dict": state, "epoch": 50, "optimizer": optimizer, "val_result": None}, path)
    return path


def coop_text(folder: Path, names: tuple[str, ...], ctx: Tensor) -> Tensor:
    """Encode as CoOp's TextEncoder does: prefix, context and suffix, positions, blocks, and the end token's feature."""
    model = native_model(folder)
    count = ctx.shape[-2]
    ids = torch.cat([open_clip.tokenize(" ".join(["X"] * count) + " " + name + ".") for name in names])
    with torch.no_grad():
        embedding = model.token_embedding(ids)
        rows = ctx if ctx.ndim == 3 else ctx.expand(len(names), -1, -1)
        hidden = torch.cat([embedding[:, :1], rows, embedding[:, 1 + count :]], 1) + model.positional_embedding
        hidden = model.ln_final(model.transformer(hidden, attn_mask=model.attn_mask))
        text = hidden[torch.arange(len(names)), ids.argmax(-1)] @ model.text_projection
    return torch.nn.functional.normalize(text, dim=-1)


def drawn(*shape: int) -> Tensor:
    return 0.02 * torch.randn(*shape, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def backbone(tiny: Make) -> Backbone:
    return tiny("clip")


@pytest.fixture
def words(backbone: Backbone) -> LearntContext:
    """A context that is words, so that a template can say the same."""
    return LearntContext(backbone.context_of(WORDS), "words")


# Files


@pytest.mark.parametrize("shape", [(4, 32), (16, 32), (4, 4, 32)], ids=["4 tokens", "16 tokens", "of classes"])
def test_text_features_are_those_of_coop(
    shape: tuple[int, ...], backbone: Backbone, tiny_folder: Folder, tmp_path: Path
) -> None:
    ctx = drawn(*shape)
    context = read_context(coop_file(tmp_path / "model.pth.tar-50", tiny_folder("clip"), NAMES, ctx))
    assert context.per_class == (len(shape) == 3)
    assert same_bits(context.tokens, ctx)
    labels = LabelSpace(NAMES, backbone, context=context)
    assert labels.warnings() == []
    expected = coop_text(tiny_folder("clip"), NAMES, ctx)
    torch.testing.assert_close(labels.text[0], expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(labels.zero_shot_text, expected, rtol=0, atol=1e-5)
    assert same_bits(labels.hard_text, LabelSpace(NAMES, backbone).text)


@pytest.mark.parametrize("form", ["a whole model", "safetensors", "wrapped"])
def test_other_forms_of_the_file_are_read(form: str, tmp_path: Path) -> None:
    ctx, path = drawn(4, 32), tmp_path / "context.pt"
    if form == "a whole model":
        torch.save({"state_dict": {"prompt_learner.ctx": ctx, "image_encoder.proj": torch.ones(2, 2)}}, path)
    elif form == "safetensors":
        save_file({"ctx": ctx}, path)
    else:
        torch.save({"state_dict": {"module.prompt_learner.ctx": ctx.half()}}, path)
    tokens = read_context(path).tokens
    assert tokens.dtype is torch.float32
    torch.testing.assert_close(tokens, ctx, rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 32), (4, 5, 32)])
def test_a_saved_context_is_read_again(shape: tuple[int, ...], backbone: Backbone, tmp_path: Path) -> None:
    prompts = LabelSpace(NAMES, backbone).prompts[0]
    save_context(tmp_path / "c.pth", drawn(*shape), backbone, prompts)
    content = torch.load(tmp_path / "c.pth", weights_only=True)
    assert {*content} == {"state_dict", "epoch", "placement"}  # CoOp's load_model looks at the first two
    assert {*content["state_dict"]} == {"ctx", "token_prefix", "token_suffix"}
    context = read_context(tmp_path / "c.pth")
    assert same_bits(context.tokens, drawn(*shape))
    assert LabelSpace(NAMES, backbone, context=context).warnings() == []
    with pytest.raises(ArgumentError, match=r"3 contexts of classes of their own, and 4 prompts"):
        save_context(tmp_path / "c.pth", drawn(3, 5, 32), backbone, prompts)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"ctx": torch.zeros(4, 32)}, "must be tokens x width, or classes x tokens x width, and not all zero"),
        (
            {"ctx": torch.full((4, 32), torch.nan)},
            "128 of the 128 values of ctx are NaN or infinite; take another checkpoint",
        ),
        ({"ctx": torch.ones(32)}, "invalid ctx of shape [32]: must be tokens x width, or classes x tokens x width"),
        ({"weight": torch.ones(2, 2)}, "holds weight, and no ctx: must be tokens x width"),
        ({"ctx": torch.ones(4, 32), "meta_net.linear1.weight": torch.ones(2, 2)}, "there is meta_net.linear1.weight"),
        ({"ctx": torch.ones(2, 32), "compound_prompts_text.0": torch.ones(2, 2)}, "or have tokens in deeper layers"),
    ],
)
def test_a_file_that_holds_no_usable_context_is_one_line(content: dict[str, Tensor], said: str, tmp_path: Path) -> None:
    torch.save({"state_dict": content}, tmp_path / "c.pth")
    line = refusal(lambda: read_context(tmp_path / "c.pth"))
    assert line.startswith(f"{tmp_path / 'c.pth'}: ")
    assert said in line
    with pytest.raises(ArgumentError, match=r"context .*missing.pth: no such file; give a checkpoint of CoOp"):
        read_context(tmp_path / "missing.pth")


@pytest.mark.parametrize("above", ["nctx16_cscFalse_ctpmiddle", "nctx4_cscTrue_ctpfront", "nctx4_cscTrue_ctpend"])
def test_the_name_of_coops_folder_tells_of_another_place_of_the_class(
    above: str, backbone: Backbone, tiny_folder: Folder, tmp_path: Path
) -> None:
    folder = tmp_path / above / "seed1" / "prompt_learner"
    folder.mkdir(parents=True)
    context = read_context(coop_file(folder / "model.pth.tar-50", tiny_folder("clip"), NAMES, drawn(4, 32)))
    lines = LabelSpace(NAMES, backbone, context=context).warnings()
    where = "in the midst of it" if "middle" in above else "before it"
    assert lines == (
        []
        if above.endswith("end")
        else [
            f"{context.source}: {above[-9:].strip('_')} in its folder's name says that it was learnt with the class "
            f"name {where}; here the name comes after it, as with CoOp's setting end"
        ]
    )


def test_a_placement_that_is_none_is_refused(tmp_path: Path) -> None:
    for said in ("middle", 7):
        torch.save({"state_dict": {"ctx": drawn(4, 32)}, "placement": said}, tmp_path / "c.pth")
        with pytest.raises(
            ArgumentError, match=r"invalid placement (\"middle\"|7): must be replace or prepend, or left out"
        ):
            read_context(tmp_path / "c.pth")


# What a context must fit


def refused(kind: type[Exception], backbone: Backbone, context: LearntContext, *names: str, **options: Any) -> str:
    return refusal(lambda: LabelSpace(names or NAMES, backbone, **options, context=context), kind)


def test_a_context_of_another_width_is_refused(backbone: Backbone) -> None:
    said = refused(ArgumentError, backbone, LearntContext(drawn(4, 16), "c.pth"))
    assert said.startswith("c.pth: a context of width 16, and tokens of local-dir:")
    assert said.endswith("have 32; give one that was learnt for this model")


def test_a_context_of_another_model_of_this_width_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "other", "quick")
    torch.manual_seed(9)
    other = native_model(folder, False)
    save_file(other.state_dict(), folder / "open_clip_model.safetensors")
    context = read_context(coop_file(tmp_path / "c.pth", folder, NAMES, drawn(4, 32)))
    said = refused(ArgumentError, backbone, context)
    assert said.startswith(f"{tmp_path / 'c.pth'}: learnt for another model than local-dir:")


def test_contexts_of_other_classes_are_refused_or_said(backbone: Backbone, tiny_folder: Folder, tmp_path: Path) -> None:
    context = read_context(coop_file(tmp_path / "c.pth", tiny_folder("clip"), NAMES, drawn(4, 4, 32)))
    assert "has contexts of 4 classes of their own, and there are 2 class names" in refused(
        LabelError, backbone, context, "dog", "cat"
    )
    said = refused(LabelError, backbone, context, "fire truck", "dog", *NAMES[2:])
    assert "its context number 1 is of class 'dog', and class number 1 is 'fire truck'" in said
    (line,) = LabelSpace(("hound", *NAMES[1:]), backbone, context=context).warnings()
    assert line.endswith(
        "1 of the 4 contexts were learnt for classes of other names (the first: number 1, now 'hound')"
    )


def test_a_context_without_the_embeddings_around_it_is_used_with_a_word(backbone: Backbone) -> None:
    (line,) = LabelSpace(NAMES, backbone, context=LearntContext(drawn(4, 32), "c.pth")).warnings()
    assert line.startswith("c.pth: has no token_prefix, by which to see that it was learnt for local-dir:")
    narrow = LearntContext(drawn(4, 32), "c.pth", prefix=torch.ones(4, 1, 16))
    assert "its token_prefix is 16 wide and its context 32" in refused(ArgumentError, backbone, narrow)


def test_a_context_needs_one_template_with_a_place_for_it(backbone: Backbone, words: LearntContext) -> None:
    two = ("a photo of a {}.", "art of the {}.")
    assert "before the class name, and there are 2 templates" in refused(LabelError, backbone, words, templates=two)
    assert "are no tokens of their own; put a blank between" in refused(
        LabelError, backbone, words, templates=("photo{}.",)
    )
    described = [["a photo of a pet."]] * len(NAMES)
    assert "and descriptions have none; leave one of the two out" in refused(
        LabelError, backbone, words, templates=None, descriptions=described
    )
    long = LearntContext(drawn(70, 32), "c.pth")
    assert "tokens, more than the 77 that" in refused(LabelError, backbone, long)
    bare = LabelSpace(NAMES, backbone, ("{}.",), context=words)  # no words to replace: the context makes the place
    torch.testing.assert_close(bare.text, LabelSpace(NAMES, backbone, (f"{WORDS} {{}}.",)).text, rtol=0, atol=1e-6)


# Methods start from it


@pytest.mark.parametrize("name", list_methods())
def test_methods_answer_as_with_the_same_words_in_the_template(
    name: str, backbone: Backbone, words: LearntContext, make_image: Callable[..., np.ndarray]
) -> None:
    settings = {"masks": 16, "k": 3} if name == "fcl" else {}
    method = create_method(name, **settings)
    image, recipe = make_image(5), ViewRecipe(count=8)
    learnt = method(Episode(image, LabelSpace(NAMES, backbone, context=words), recipe))
    written = method(Episode(image, LabelSpace(NAMES, backbone, (f"{WORDS} {{}}.",)), recipe))
    assert_valid(learnt, len(NAMES))
    torch.testing.assert_close(learnt.probabilities, written.probabilities, rtol=0, atol=1e-5)
    other = method(Episode(image, LabelSpace(NAMES, backbone), recipe))
    assert float((learnt.probabilities - other.probabilities).abs().max()) > 1e-4


@pytest.mark.parametrize("layout", ["clip", "siglip", "coca"])
@pytest.mark.parametrize("number", [3, 70])
def test_gradients_of_contexts_of_classes_sum_to_that_of_one(
    layout: str, number: int, tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = tiny(layout)
    monkeypatch.setattr(base, "TEXT_BATCH", 32)
    prompts = backbone.tokenize([f"thing number {index}" for index in range(number)], "a photo of a {}.")
    target = torch.randn(number, 32, generator=torch.Generator().manual_seed(0))
    shared = backbone.context_of("my large drawing of every").requires_grad_()
    own = shared.detach().expand(number, -1, -1).clone().requires_grad_()
    features = [backbone.encode_text(prompts, context) for context in (shared, own)]
    torch.testing.assert_close(features[0], features[1], rtol=0, atol=1e-6)
    (whole,), (rows,) = (
        torch.autograd.grad((feature * target).sum(), context)
        for feature, context in zip(features, (shared, own), strict=True)
    )
    assert rows.shape == (number, 5, 32)
    torch.testing.assert_close(rows.sum(0), whole, rtol=1e-4, atol=1e-5)
    single = prompts.select([number - 1])  # each row's gradient is that of its prompt alone
    leaf = shared.detach().clone().requires_grad_()
    (alone,) = torch.autograd.grad((backbone.encode_text(single, leaf) * target[-1]).sum(), leaf)
    torch.testing.assert_close(rows[-1], alone, rtol=1e-4, atol=1e-5)


def test_equal_names_with_other_contexts_are_encoded_apart(backbone: Backbone) -> None:
    prompts = backbone.tokenize(["dog", "dog"], "a photo of a {}.")
    text = backbone.encode_text(prompts, drawn(2, 4, 32))
    assert float((text[0] - text[1]).abs().max()) > 1e-4
    tie = backbone.encode_text(prompts, drawn(4, 32).expand(2, -1, -1).clone())
    torch.testing.assert_close(tie[0], tie[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["fcl", "tpt", "ctpt", "rlcf", "rtpt"])
def test_methods_learn_contexts_of_single_classes(
    name: str, backbone: Backbone, make_image: Callable[..., np.ndarray]
) -> None:
    context = LearntContext(drawn(4, 6, 32), "c.pth")
    labels = LabelSpace(NAMES, backbone, context=context)
    method = create_method(name, **({"masks": 16, "k": 3} if name == "fcl" else {}))
    answer = method(Episode(make_image(5), labels, ViewRecipe(count=8)))
    assert_valid(answer, len(NAMES))
    assert answer.fallback is None
    assert answer.diagnostics["text_shift"] > 0
    assert same_bits(context.tokens, drawn(4, 6, 32))


def test_cl_hp_starts_from_a_shared_context_and_refuses_those_of_classes(
    backbone: Backbone, words: LearntContext, make_image: Callable[..., np.ndarray]
) -> None:
    labels, method = LabelSpace(NAMES, backbone, context=words), FCL(masks=16, k=3, context="cl-hp")
    method.check_labels(labels)
    assert same_bits(labels.initial_tokens, words.tokens)
    episode = Episode(make_image(5), labels, ViewRecipe(count=8))
    still = FCL(masks=16, k=3, context="cl-hp", steps=0).adapt(episode)
    written = LabelSpace(NAMES, backbone, (f"{WORDS} a photo of a {{}}.",)).text[
        0
    ]  # the tokens stand before the prompt
    torch.testing.assert_close(still.calibration.text, written[still.candidates], rtol=0, atol=1e-6)
    assert same_bits(
        still.exploration.votes,
        FCL(masks=16, k=3, context="cl-hp")
        .adapt(Episode(make_image(5), LabelSpace(NAMES, backbone), ViewRecipe(count=8)))
        .exploration.votes,
    )  # the base is the hard prompt
    with pytest.raises(
        LabelError, match=r"c.pth: each class has a context of its own, and the tokens of context='cl-h"
    ):
        method.check_labels(LabelSpace(NAMES, backbone, context=LearntContext(drawn(4, 4, 32), "c.pth")))


def test_a_context_that_was_learnt_before_the_prompt_stands_there(
    backbone: Backbone, make_image: Callable[..., np.ndarray], tmp_path: Path
) -> None:
    hp, plain = FCL(masks=16, k=3, context="cl-hp", lr=0.05), LabelSpace(NAMES, backbone)
    learnt = hp.adapt(Episode(make_image(5), plain, ViewRecipe(count=8)))
    assert learnt.calibration is not None
    plain.save_context(tmp_path / "c.pth", learnt.calibration.context, placement="prepend")
    context = read_context(tmp_path / "c.pth")
    assert context.placement == "prepend"
    assert context.digest.endswith("-prepend")
    labels = LabelSpace(NAMES, backbone, context=context)
    assert labels.warnings() == []
    torch.testing.assert_close(labels.text[0][learnt.candidates], learnt.calibration.text, rtol=0, atol=1e-6)
    hp.check_labels(labels)
    assert hp.label_warnings(labels) == []
    assert same_bits(labels.initial_tokens, context.tokens)
    again = hp.adapt(Episode(make_image(5), labels, ViewRecipe(count=8)))
    assert_valid(again.prediction, len(NAMES))
    several = LabelSpace(NAMES, backbone, ("a photo of a {}.", "art of the {}."), context=context)
    assert several.text.shape[0] == 2
    for method in (FCL(), create_method("tpt"), create_method("rlcf")):
        with pytest.raises(LabelError, match=r"c.pth: learnt before the whole prompt, as with context='cl-hp', and"):
            method.check_labels(labels)


def test_cl_hp_says_that_it_starts_from_a_context_of_another_place(backbone: Backbone, words: LearntContext) -> None:
    labels = LabelSpace(NAMES, backbone, context=words)
    (line,) = FCL(context="cl-hp").label_warnings(labels)
    assert line.startswith("words: learnt in place of the words before the class name; context='cl-hp' starts from it")
    assert FCL().label_warnings(labels) == FCL(context="cl-hp").label_warnings(LabelSpace(NAMES, backbone)) == []


def test_the_cache_tells_contexts_apart(
    backbone: Backbone, words: LearntContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path))
    others = [None, words, LearntContext(drawn(4, 32), "c.pth")]
    for _ in range(2):  # computed, and read
        texts = [LabelSpace(NAMES, backbone, context=context).text for context in others]
        assert float((texts[0] - texts[1]).abs().max()) > 1e-3
        assert float((texts[1] - texts[2]).abs().max()) > 1e-3
    assert len(list((tmp_path / "text").iterdir())) == 3


# Command line


def run(*words: str) -> None:
    assert main([*words]) in (0, 1)


def test_commands_take_a_context_and_record_it(
    tiny_folder: Folder, picture_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32")
    names = ("cat", "dog", "missile", "missile")
    file = coop_file(tmp_path / "ctx.pth", tiny_folder("clip"), names, drawn(4, 32))
    shared = ("--datasets", "pictures", "--root", str(picture_set.parent), "--limit", "2", "--methods", "tpt")
    configs = {}
    for out, more in (("with", ("--context", str(file))), ("without", ())):
        run("evaluate", *shared, *model, *more, "--out", str(tmp_path / out))
        configs[out] = json.loads((tmp_path / out / "pictures" / "run.json").read_text())["config"]
    assert configs["with"]["prompts"].startswith("single+context-")
    assert configs["with"]["context"] == read_context(file).digest
    assert configs["without"]["prompts"] == "single"
    assert "context" not in configs["without"]
    assert main(["evaluate", *shared, *model, "--context", str(file), "--prompts", "generic7", "--out", "x"]) == 2
    assert "takes the place of the words of one template" in capsys.readouterr().err


def test_explain_saves_what_classify_starts_from(
    tiny_folder: Folder, tmp_path: Path, make_image: Callable[..., np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    Image.fromarray(make_image(5)).save(tmp_path / "a.png")
    shared = (str(tmp_path / "a.png"), "--labels", ",".join(NAMES), "--precision", "fp32", "--seed", "0")
    shared += ("--backbone", f"local-dir:{tiny_folder('clip')}", "--views", "count=8")
    settings = ("--set", "masks=16", "k=3")
    saved = tmp_path / "learnt.pth"
    run("explain", *shared, *settings, "--out", str(tmp_path / "page"), "--save-context", str(saved))
    context = read_context(saved)
    backbone = create_backbone(f"local-dir:{tiny_folder('clip')}", precision="fp32")
    labels = LabelSpace(NAMES, backbone)
    episode = Episode(np.asarray(Image.open(tmp_path / "a.png")), labels, ViewRecipe(count=8))
    assert same_bits(context.tokens, FCL(masks=16, k=3).adapt(episode).calibration.context)
    run("classify", *shared, *settings, "--context", str(saved), "--json", str(tmp_path / "rows.json"))
    assert json.loads((tmp_path / "rows.json").read_text())["run"]["context"] == str(saved)
    prepended, hp = str(tmp_path / "hp.pth"), (*settings, "context=cl-hp")
    run("explain", *shared, *hp, "--out", str(tmp_path / "hp"), "--save-context", prepended)
    run("classify", *shared, "--method", "zero_shot", "--context", prepended)
    capsys.readouterr()
    assert main(["classify", *shared, "--method", "fcl", "--context", prepended]) == 2
    assert capsys.readouterr().err.endswith("; use context='cl-hp'\n")
    run("explain", *shared, *settings, "calibrate=false", "--out", str(tmp_path / "two"), "--save-context", "no.pth")
    assert "no.pth: not written, as nothing was learnt (calibration is off)" in capsys.readouterr().err
    assert not Path("no.pth").exists()
    photo = (tmp_path / "a.png").read_bytes()
    for path in (tmp_path / "a.png", tmp_path / "none" / "c.pth"):
        assert main(["explain", *shared, *settings, "--out", str(tmp_path / "three"), "--save-context", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "a.png").read_bytes() == photo
    assert not (tmp_path / "three").exists()
