"""open_clip models as backbones: features are the library's own, in every layout, with gradients or not."""

import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import open_clip
import PIL.Image
import pytest
import torch
import torch.nn.functional as F
from open_clip.transform import PreprocessCfg, image_transform_v2
from timm.data import ImageNetInfo
from torch import Tensor

from faircontext import Backbone, Episode, LabelSpace, create_backbone, load_image
from faircontext.backbones.loaded import TextEncoder
from faircontext.backbones.open_clip import OpenClip, OpenClipText
from faircontext.errors import ArgumentError
from faircontext.views import plain_view
from helpers import same_bits
from tiny_clip import CAUSAL, LAYOUTS, native_text, write_model

NAMES = ("dog", "fire truck", "three-toed sloth", "a very long name of a thing that nobody has ever seen")
TEMPLATE = "a photo of a {}."

Make = Callable[[str], Backbone]
Folder = Callable[[str], Path]


# Text from embeddings


@pytest.mark.parametrize("placement", ["replace", "prepend"])
def test_shared_tokens_are_run_once_with_the_same_features_and_gradient(tiny: Make, placement: str) -> None:
    backbone = tiny("clip")
    prompts = backbone.tokenize(NAMES, TEMPLATE)
    results = []
    for shares in (True, False):
        encoder = backbone.text_encoder
        before, encoder._shares = encoder._shares, shares
        context = backbone.context_of("the drawing of my").requires_grad_()
        features = backbone.encode_text(prompts, context, placement)
        results.append((features.detach(), torch.autograd.grad(features[:, 0].sum(), context)[0]))
        encoder._shares = before
    assert backbone.text_encoder._shares
    for first, second in zip(*results, strict=True):  # sums in another order: rounding of the largest terms
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5 * float(second.abs().max()))


def test_padding_is_cut_only_where_that_is_exact(tiny: Make) -> None:
    assert {layout for layout in LAYOUTS if not tiny(layout).text_encoder.full_length} == {*CAUSAL}


def test_cut_features_equal_those_of_the_full_length(tiny: Make) -> None:
    backbone = tiny("clip")
    prompts = backbone.tokenize(
        [name.partition(",")[0] for name in ImageNetInfo().label_descriptions()[:200]], TEMPLATE
    )
    rest = backbone.context_length - prompts.ids.shape[1]
    whole = backbone._encode_embeddings(
        backbone.token_embeddings(F.pad(prompts.ids, (0, rest))), F.pad(prompts.mask, (0, rest)), 0
    )
    torch.testing.assert_close(backbone.encode_text(prompts), F.normalize(whole, dim=-1), rtol=0, atol=1e-5)


# Gradients in groups


@pytest.mark.parametrize("number", [3, 130])
def test_known_features_are_taken_and_only_their_gradient_is_encoded(
    tiny: Make, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = tiny("clip")
    prompts = backbone.tokenize([f"thing number {index}" for index in range(number)], TEMPLATE)
    context = backbone.context(prompts).requires_grad_()
    target = torch.randn(number, 32, generator=torch.Generator().manual_seed(0))
    (expected,) = torch.autograd.grad((backbone.encode_text(prompts, context) * target).sum(), context)
    known = backbone.encode_text(prompts)
    with monkeypatch.context() as forbidden:
        forbidden.setattr(TextEncoder, "forward", lambda *_: pytest.fail("the text tower was run"))
        features = backbone.encode_text(prompts, context, known=known)
    assert same_bits(features.detach(), known)
    (gradient,) = torch.autograd.grad((features * target).sum(), context)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)


def test_a_group_is_encoded_again_for_its_gradient_and_not_kept(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = tiny("clip")
    calls: list[int] = []
    forward = TextEncoder.forward
    monkeypatch.setattr(
        TextEncoder, "forward", lambda self, rows, *rest: calls.append(len(rows)) or forward(self, rows, *rest)
    )
    prompts = backbone.tokenize([f"thing number {number}" for number in range(130)], TEMPLATE)
    context = backbone.context(prompts).requires_grad_()
    features = backbone.encode_text(prompts, context)
    assert calls == [64, 64, 2]
    features.sum().backward()
    assert sorted(calls[3:]) == [2, 64, 64]
    with torch.no_grad():
        backbone.encode_text(prompts, context)
    assert len(calls) == 9


# Images


def test_preprocessing_is_the_models_own(tmp_path: Path, make_image: Callable[..., np.ndarray]) -> None:
    settings = {
        "mean": (0.1, 0.2, 0.3),
        "std": (0.4, 0.5, 0.6),
        "interpolation": "bilinear",
        "resize_mode": "squash",
    }
    backbone = create_backbone(f"local-dir:{write_model(tmp_path, 'clip', **settings)}", precision="fp32")
    assert (backbone.mean, backbone.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert (backbone.interpolation, backbone.resize_mode, backbone.image_size) == ("bilinear", "squash", 32)
    image = make_image(0, 50, 200)
    view = Episode(image, LabelSpace(("cat",), backbone)).plain
    assert torch.equal(view, plain_view(torch.from_numpy(image).permute(2, 0, 1), 32, "bilinear", "squash"))
    assert not torch.equal(view, plain_view(torch.from_numpy(image).permute(2, 0, 1), 32, "bilinear"))


@pytest.mark.parametrize("mode", ["shortest", "squash"])
def test_the_plain_view_is_open_clips_own(mode: str, make_image: Callable[..., np.ndarray]) -> None:
    image = make_image(4, 61, 93)
    config = {"size": 32, "mean": (0.0,) * 3, "std": (1.0,) * 3, "interpolation": "bicubic", "resize_mode": mode}
    transform = image_transform_v2(PreprocessCfg(**config), is_train=False)
    expected = (transform(PIL.Image.fromarray(image)) * 255).round()
    view = plain_view(torch.from_numpy(image).permute(2, 0, 1), 32, "bicubic", mode).float()
    assert (view - expected).abs().max() <= 1  # open_clip resizes in Pillow, which rounds between the two passes


# A trained model


@pytest.fixture(scope="module")
def trained(models: Path) -> Backbone:
    return create_backbone(f"local-dir:{models / 'lab-lite0-clip'}", precision="fp32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "percent", "images"),
    [
        ("caltech101_coop_test", 88.0, 1),
        ("clothing10_test", 85.0, 1),
        ("grocery81_test", 64.8, 1),
        ("tiny_imagenet_val", 53.5, 2),  # open_clip's own preprocessing and model give 54.5 as well
        ("office_caltech10_webcam", 18.8, 1),
        ("shape16_silhouettes", 25.0, 1),
    ],
)
def test_a_trained_model_has_its_documented_accuracy(
    trained: Backbone, data: Path, name: str, percent: float, images: int
) -> None:
    names, files, truth = labelled(data / name)
    labels = LabelSpace(names, trained)
    views = [plain(file, trained) for file in files]
    features = torch.cat([trained.encode_image(torch.stack(views[i : i + 16])) for i in range(0, len(views), 16)])
    correct = int(((features @ labels.text[0].T).argmax(1) == torch.tensor(truth)).sum())
    assert abs(correct - percent / 100 * len(files)) <= images + 0.1  # the percentage itself is rounded


def labelled(folder: Path) -> tuple[list[str], list[Path], list[int]]:
    names = (folder / "classnames.txt").read_text().splitlines()
    with (folder / "labels.csv").open(newline="") as file:
        rows = [list(row.values()) for row in csv.DictReader(file)]
    return names, [folder / row[0] for row in rows], [int(row[1]) for row in rows]


def plain(file: Path, backbone: Backbone) -> Tensor:
    pixels = torch.from_numpy(load_image(file)).permute(2, 0, 1)
    return plain_view(pixels, backbone.image_size, backbone.interpolation, backbone.resize_mode) / 255.0


# Padding


@pytest.mark.timing
def test_cutting_the_padding_is_three_times_faster_for_a_thousand_prompts() -> None:
    torch.manual_seed(0)
    model = open_clip.create_model("ViT-B-32").eval()
    backbone = OpenClip("ViT-B-32", model, open_clip.get_tokenizer("ViT-B-32"), precision="fp32")
    names = [description.partition(",")[0] for description in ImageNetInfo().label_descriptions()]
    prompts = backbone.tokenize(names, TEMPLATE)
    part = prompts.select(range(0, 1000, 20))  # a twentieth: what is compared is time per prompt
    cut, whole = [], []
    for _ in range(5):
        for seconds, run in (
            (cut, lambda: backbone.encode_text(part)),
            (whole, lambda: native_text(model, part.texts, 77)),
        ):
            begin = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - begin)
    assert min(whole) / min(cut) >= 3  # the least of five: the machine of the tests may be busy


# Precision


def test_a_precision_that_the_device_cannot_compute_is_said_and_replaced(
    tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = OpenClip._image_features

    def only_float32(self: OpenClip, pixels: Tensor) -> Tensor:
        if pixels.dtype is not torch.float32:
            raise RuntimeError('"conv" not implemented for BFloat16')
        return features(self, pixels)

    monkeypatch.setattr(OpenClip, "_image_features", only_float32)
    with pytest.warns(UserWarning, match=r"cpu cannot compute .* in bf16 .*not implemented.*; float32 is used$"):
        backbone = create_backbone(f"local-dir:{tiny_folder('clip')}", precision="bf16")
    assert (backbone.precision, backbone.dtype) == ("fp32", torch.float32)
    assert backbone.encode_image(torch.rand(1, 3, 32, 32)).isfinite().all()


def test_a_precision_with_other_features_is_refused(tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    features = OpenClip._image_features
    monkeypatch.setattr(
        OpenClip,
        "_image_features",
        lambda self, pixels: features(self, pixels) * (1 if pixels.dtype is torch.float32 else -1),
    )
    with pytest.raises(
        ArgumentError, match=r"^precision='bf16' is not possible for .* cosine of -1.000, less than 0.99"
    ):
        create_backbone(f"local-dir:{tiny_folder('clip')}", precision="bf16")


# Every architecture of the library


@pytest.mark.slow
def test_the_text_tower_of_every_architecture_is_known_or_refused_in_one_line() -> None:
    refused, known = [], 0
    for name in open_clip.list_models():
        config = open_clip.get_model_config(name)
        if "hf_model_name" in config["text_cfg"]:
            refused.append(name)
            continue
        model = torch.nn.Module()
        with torch.device("meta"):
            model.text = open_clip.model._build_text_tower(config["embed_dim"], config["text_cfg"])
        assert OpenClipText(model, name, 0).context_length >= 16
        known += 1
    assert known >= 134
    for name in refused:
        with pytest.raises(ArgumentError, match=r"a text tower of transformers cannot be learnt here"):
            create_backbone(name, "x")
