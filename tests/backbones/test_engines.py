"""Engines of the image tower: the copy in OpenVINO against PyTorch, its cache, and every way back to PyTorch."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from faircontext import Backbone, create_backbone
from faircontext.backbones import engines, lite
from faircontext.backbones.engines import (
    ENGINE_ROWS,
    Converted,
    OpenVinoTower,
    is_convolutional,
    openvino_version,
)
from faircontext.cache import hash_of
from faircontext.cli import main
from faircontext.errors import ArgumentError, FairContextWarning
from faircontext.views import plain_view
from helpers import same_bits

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the copy of lite0, as `auto` makes it."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRCONTEXT_CACHE", str(folder))
        with pytest.warns(FairContextWarning, match="converted for OpenVINO .* times as fast as PyTorch here"):
            create_backbone("lite0")
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for a test to change; it says that the copy is twice as fast as PyTorch."""
    folder = tmp_path / "cache"
    shutil.copytree(filled, folder)
    change(folder, gain=2.0)
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(folder))
    return folder


def entry(folder: Path) -> Path:
    (path,) = (folder / "engines").iterdir()
    return path


def change(folder: Path, **changes: object) -> None:
    """Write the cache's copy anew, with other contents."""
    path = entry(folder)
    converted = Converted.read(path)
    path.unlink()
    replace(converted, **changes).write(path)


@pytest.fixture(scope="module")
def fast(filled: Path) -> Backbone:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRCONTEXT_CACHE", str(filled))
        return create_backbone("lite0", engine="openvino")


@pytest.fixture(scope="module")
def filled_small(tmp_path_factory: pytest.TempPathFactory, small: Callable[..., Backbone]) -> Path:
    """A cache with the copy of the tiny model."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRCONTEXT_CACHE", str(folder))
        with pytest.warns(FairContextWarning, match="image tower of local-dir:.* converted for OpenVINO .* once$"):
            small(engine="openvino")
    return folder


@pytest.fixture
def small_cache(filled_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for a test to change."""
    folder = tmp_path / "small"
    shutil.copytree(filled_small, folder)
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(folder))
    return folder


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with nothing in it."""
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path / "empty"))
    return tmp_path / "empty"


@pytest.fixture(scope="module")
def small(tiny_folder: Callable[[str], Path]) -> Callable[..., Backbone]:
    """Return a function that loads the tiny open_clip model in float32."""
    return lambda **options: create_backbone(f"local-dir:{tiny_folder('clip')}", **{"precision": "fp32", **options})


@pytest.fixture(scope="module")
def pixels(photos: dict[str, np.ndarray], make_image: Callable[..., np.ndarray]) -> Tensor:
    """Twenty-one pictures, photos first."""
    images = [*photos.values(), *(make_image(seed) for seed in range(16))]
    views = [plain_view(torch.from_numpy(image).permute(2, 0, 1), 224, "bicubic") for image in images]
    return torch.stack(views) / 255.0


# Features


def test_features_are_those_of_float32(fast: Backbone, lite0_fp32: Backbone, pixels: Tensor) -> None:
    assert (fast.engine, lite0_fp32.engine) == ("openvino", "torch")
    cosines = (fast.encode_image(pixels) * lite0_fp32.encode_image(pixels)).sum(-1)
    assert cosines.min() > 0.98


def test_features_do_not_depend_on_neighbours_order_number_or_threads(fast: Backbone, pixels: Tensor) -> None:
    together = fast.encode_image(pixels)
    for row in (0, 1, ENGINE_ROWS, 20):
        assert same_bits(fast.encode_image(pixels[row : row + 1])[0], together[row])
    for size in (2, ENGINE_ROWS + 1, 16):
        assert same_bits(torch.cat([fast.encode_image(chunk) for chunk in pixels.split(size)]), together)
    order = torch.randperm(21, generator=torch.Generator().manual_seed(0))
    assert same_bits(fast.encode_image(pixels[order]), together[order])
    extremes = torch.stack([torch.zeros(3, 224, 224), pixels[1], torch.ones(3, 224, 224)])
    assert same_bits(fast.encode_image(extremes)[1], together[1])
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert same_bits(fast.encode_image(pixels), together)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("threads", [1, 2, 3, 6])
def test_batches_that_run_at_the_same_time_come_back_in_order(fast: Backbone, pixels: Tensor, threads: int) -> None:
    expected = fast.encode_image(pixels)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert same_bits(fast.encode_parts(pixels.repeat(2, 1, 1, 1).split(16)), expected.repeat(2, 1))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_parts_are_made_while_others_are_encoded(fast: Backbone, pixels: Tensor) -> None:
    """And no more of them than the engine takes at once."""
    copy = fast._engine
    assert isinstance(copy, OpenVinoTower)
    made, ended = [], []
    whole = copy._result
    copy._result = lambda *waiting: ended.append(len(made)) or whole(*waiting)  # type: ignore[method-assign,func-returns-value]

    def parts() -> Iterator[Tensor]:
        for part in pixels.repeat(4, 1, 1, 1).split(ENGINE_ROWS):
            made.append(len(ended))
            yield part

    try:
        fast.encode_parts(parts())
    finally:
        del copy._result
    begun = 3 * min(torch.get_num_threads(), 4)
    assert made[: begun + 1] == [0] * (begun + 1)  # so many are begun before the first is waited for
    assert made[begun + 1 :] == [*range(1, len(made) - begun)]


def test_an_error_while_a_part_is_made_leaves_the_engine_as_it_was(fast: Backbone, pixels: Tensor) -> None:
    def parts() -> Iterator[Tensor]:
        yield pixels[:16]
        raise KeyError("this part")

    threads, expected = torch.get_num_threads(), fast.encode_image(pixels)
    with pytest.raises(KeyError, match="this part"):
        fast.encode_parts(parts())
    assert torch.get_num_threads() == threads
    assert same_bits(fast.encode_image(pixels), expected)


@pytest.mark.parametrize("shape", [(2, 3, 224, 1), (5, 3, 32, 32)])
def test_pictures_of_another_size_are_refused(fast: Backbone, shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"invalid pixels: pictures of 3 x \d+ x \d+; use 3 x 224 x 224"):
        fast.encode_image(torch.zeros(shape))


def test_earlier_features_stay_when_more_is_encoded(fast: Backbone, pixels: Tensor) -> None:
    first = fast.encode_image(pixels[:2])
    copy = first.clone()
    fast.encode_image(pixels[2:6])
    assert same_bits(first, copy)


@pytest.mark.usefixtures("small_cache")
def test_a_model_of_open_clip_in_float32_has_the_same_features(small: Callable[..., Backbone]) -> None:
    copy = small(engine="openvino")
    size = copy.image_size
    rows = torch.rand(6, 3, size, size, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(copy.encode_image(rows), small().encode_image(rows), rtol=0, atol=1e-5)
    assert copy.weights_hash == small().weights_hash


# The cache


@pytest.mark.usefixtures("cache")
def test_the_tower_is_not_loaded_where_its_copy_is_stored(lite0: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite, "_load_tower", lambda *_: pytest.fail("the tower was loaded"))
    backbone = create_backbone("lite0")
    assert backbone.engine == "openvino"
    assert backbone.weights_hash == lite0.weights_hash


@pytest.mark.usefixtures("cache")
def test_the_tower_is_loaded_when_it_is_asked_for(lite0: Backbone) -> None:
    backbone = create_backbone("lite0")
    assert hash_of(backbone.tower) == backbone.tower_hash == hash_of(lite0.tower)
    assert backbone.engine == "openvino"


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "renamed"])
def test_what_is_damaged_is_not_read(damage: str, tmp_path: Path) -> None:
    whole = Converted(b"<net/>", torch.arange(99, dtype=torch.uint8), torch.ones(1, 3), "abc", 1.5)
    path = tmp_path / "copy.safetensors"
    whole.write(path)
    again = Converted.read(path)
    assert (again.graph, again.tower_hash, again.gain) == (b"<net/>", "abc", 1.5)
    assert torch.equal(again.weights, whole.weights)
    content = path.read_bytes()
    changed = bytes([*content[:-1], content[-1] ^ 1])
    renamed = content.replace(b'"tower":"abc"', b'"tower":"abd"')
    path.unlink()
    path.write_bytes({"empty": b"", "cut": content[:-5], "flipped": changed, "renamed": renamed}[damage])
    with pytest.raises(Exception, match=r"checksum|header|Header|incomplete|metadata"):
        Converted.read(path)


def test_a_damaged_copy_is_said_and_made_again(small_cache: Path, small: Callable[..., Backbone]) -> None:
    earlier, path = small(engine="openvino"), entry(small_cache)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.unlink()
    path.write_bytes(content)
    with pytest.warns(FairContextWarning) as said:
        again = small(engine="openvino")
    damaged, converted = (str(warning.message) for warning in said)
    assert damaged == f"{path}: is damaged (its checksum is another); the image tower is converted anew"
    assert "converted for OpenVINO" in converted
    rows = torch.rand(2, 3, again.image_size, again.image_size, generator=torch.Generator().manual_seed(1))
    assert same_bits(again.encode_image(rows), earlier.encode_image(rows))
    assert small(engine="openvino").engine == "openvino"  # without a word


def test_a_copy_of_another_version_is_another_entry(
    small_cache: Path, small: Callable[..., Backbone], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "openvino_version", lambda: "2025.1")
    with pytest.warns(FairContextWarning, match=r"converted for OpenVINO 2025.1 in \d+ s, once"):
        small(engine="openvino")
    assert len(list((small_cache / "engines").iterdir())) == 2


def test_without_a_cache_the_copy_is_made_each_time(
    small: Callable[..., Backbone], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRCONTEXT_CACHE", "off")
    with pytest.warns(FairContextWarning, match=r"converted for OpenVINO \S+ in \d+ s$"):
        assert small(engine="openvino").engine == "openvino"


# Which engine


def test_auto_takes_what_was_faster(cache: Path) -> None:
    assert create_backbone("lite0").engine == "openvino"
    change(cache, gain=0.9)
    assert create_backbone("lite0").engine == "torch"
    assert create_backbone("lite0", engine="openvino").engine == "openvino"


def test_where_pytorch_is_faster_auto_says_so_and_stores_no_copy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Converted.read(entry(cache))
    monkeypatch.setattr(engines, "convert", lambda *_: (stored.graph, stored.weights.clone()))
    monkeypatch.setattr(engines, "_measure", lambda *_: 0.5)
    entry(cache).unlink()
    with pytest.warns(FairContextWarning, match="it encodes 0.50 times as fast as PyTorch here, which goes on"):
        assert create_backbone("lite0").engine == "torch"
    assert entry(cache).stat().st_size < 10_000
    assert create_backbone("lite0").engine == "torch"  # without a word


def test_auto_tries_no_tower_of_attention_and_nothing_without_a_cache(
    empty: Path, small: Callable[..., Backbone], lite0: Backbone
) -> None:
    assert small(engine="auto").engine == "torch"
    assert not empty.exists()
    assert lite0.engine == "torch"  # made without a cache
    assert is_convolutional(lite0.tower)
    assert not is_convolutional(small().tower)


def test_an_unknown_engine_is_an_error() -> None:
    with pytest.raises(ArgumentError, match=r"engine='onnx' is not possible; use one of 'auto', 'torch', 'openvino'"):
        create_backbone("lite0", engine="onnx")


# Every way back to PyTorch


def falls_back(make: Callable[..., Backbone], message: str, **options: str) -> Backbone:
    with pytest.warns(FairContextWarning) as said:
        backbone = make(engine="openvino", **options)
    (line,) = (str(warning.message) for warning in said)
    assert message in line
    assert "\n" not in line
    assert backbone.engine == "torch"
    assert backbone.engine_facts == {}
    return backbone


@pytest.mark.usefixtures("cache")
def test_without_the_extra(small: Callable[..., Backbone], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "openvino_version", lambda: None)
    falls_back(small, "OpenVINO is not installed (pip install 'faircontext[fast]'); PyTorch runs the image tower of")
    assert create_backbone("lite0").engine == "torch"  # auto: without a word


def test_with_a_broken_installation(small: Callable[..., Backbone], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    falls_back(small, "OpenVINO cannot be used (import of openvino halted")


@pytest.mark.usefixtures("cache")
def test_on_a_processor_without_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openvino.Core.get_property", lambda *_: ["FP32", "INT8"])

    def make(**options: str) -> Backbone:
        return create_backbone("lite0", precision="bf16", **options)

    falls_back(make, "OpenVINO does not compute in bf16 on this processor; PyTorch runs the image tower of lite0")
    assert make().engine == "torch"


def test_in_half_precision(small: Callable[..., Backbone]) -> None:
    falls_back(small, "OpenVINO has no fp16 on processors", precision="fp16")


@pytest.mark.usefixtures("empty")
def test_where_the_tower_cannot_be_converted(small: Callable[..., Backbone], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openvino.serialize", lambda *_: int("no operation of this kind"))
    falls_back(small, "OpenVINO cannot convert the image tower (invalid literal")


def test_where_features_are_others(cache: Path) -> None:
    change(cache, exact=-Converted.read(entry(cache)).exact)

    def make(**options: str) -> Backbone:
        return create_backbone("lite0", **options)

    precision = make(engine="torch").precision
    message = f"lite0: features of a test picture in OpenVINO ({precision}) agree with float32 to a cosine of -"
    assert falls_back(make, message).encode_image(torch.rand(1, 3, 224, 224)).isfinite().all()


# Runs


def rows_of(path: Path) -> list[list[str]]:
    return [line.rsplit(",", 1)[:1] for line in path.read_text().splitlines()]  # without the seconds


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_rows_are_the_same_alone_in_a_folder_and_in_any_order(
    photo_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--labels", "astronaut,cat,rocket,dog", "--method", "fcl", "--set", "masks=6", "--views", "count=6"]
    paths = [str(photo_files[name]) for name in ("cat", "astronaut", "rocket")]
    found = []
    for number, inputs in enumerate([paths, paths[::-1], *([path] for path in paths)]):
        table = tmp_path / f"{number}.csv"
        assert main(["classify", *inputs, *words, "--csv", str(table)]) == 0
        found.append(rows_of(table)[1:])
    assert "lite0 (OpenVINO " in capsys.readouterr().out
    assert found[0] == found[1][::-1] == [rows[0] for rows in found[2:]]


@pytest.mark.usefixtures("small_cache")
def test_records_name_the_engine_and_runs_go_on_with_the_same(
    tiny_folder: Callable[[str], Path],
    picture_set: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["evaluate", "--datasets", "pictures", "--root", str(picture_set.parent), "--methods", "zero_shot"]
    words += ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--limit", "4"]
    out = ["--out", str(tmp_path / "runs")]
    assert main([*words, *out, "--engine-image", "openvino"]) == 0
    assert main([*words, *out, "--engine-image", "openvino", "--resume"]) == 0
    document = json.loads((tmp_path / "runs" / "pictures" / "run.json").read_text())
    engine = {"name": "openvino", "version": openvino_version()}
    assert document["config"]["backbone"]["engine"] == engine
    capsys.readouterr()
    assert main([*words, *out, "--engine-image", "torch", "--resume"]) == 2
    assert 'backbone.engine was {"name": "openvino"' in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "other"), "--engine-image", "torch"]) == 0
    other = json.loads((tmp_path / "other" / "pictures" / "run.json").read_text())
    assert "engine" not in other["config"]["backbone"]
    assert other["hashes"] != document["hashes"]


SHARDS = ("0/2", "1/2")


@pytest.mark.usefixtures("small_cache")
def test_shards_joined_are_the_whole_run(tiny_folder: Callable[[str], Path], picture_set: Path, tmp_path: Path) -> None:
    words = ["evaluate", "--datasets", "pictures", "--root", str(picture_set.parent), "--methods", "zero_shot"]
    words += ["--backbone", f"local-dir:{tiny_folder('clip')}", "--engine-image", "openvino", "--precision", "fp32"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 1  # a file is no picture
    for shard in SHARDS:
        main([*words, "--out", str(tmp_path / "parts"), "--shard", shard])
    parts = sorted(map(str, (tmp_path / "parts").iterdir()))
    assert main(["merge", *parts, "--out", str(tmp_path / "joined")]) in (0, 1)
    whole, joined = (answers(tmp_path / name) for name in ("whole/pictures", "joined/pictures"))
    assert whole == joined
    assert len(whole) == 13


def answers(folder: Path) -> dict[str, tuple[object, ...]]:
    from faircontext.runs.store import load_run

    names = ["path", "prediction", "confidence", "top5_probabilities"]
    rows = load_run(folder).rows.select(names).to_pylist()
    return {row["path"]: tuple(map(repr, row.values())) for row in rows}


@pytest.mark.process
def test_nothing_is_reported_over_the_network_when_a_tower_is_converted(tiny_folder: Callable[[str], Path]) -> None:
    program = f"""
import sys, warnings
from faircontext import create_backbone
warnings.simplefilter("ignore")
print(create_backbone("local-dir:{tiny_folder("clip")}", engine="openvino").engine, "{REPORTS}" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["openvino", "False"]


# The start


REPORTS = "openvino_telemetry"
"""What sends reports over the network when OpenVINO is imported."""

HEAVY = {
    REPORTS,
    "torch._dynamo",
    "sympy",
    "scipy",
    "torchvision",
    "timm",
    "transformers",
    "ray",
    "open_clip",
    "matplotlib",
}
MODULES = """
import sys
from faircontext.cli import main
if sys.argv[1] == "no text":
    from faircontext.backbones.lite import MiniLM
    def refuse(*_): raise SystemExit("the text tower was loaded")
    MiniLM.__init__ = refuse
code = main(sys.argv[2:])
print(*sys.modules)
sys.exit(code)
"""


@pytest.mark.process
@pytest.mark.parametrize(("method", "text"), [("fcl", "text"), ("zero_shot", "no text")])
def test_a_second_start_of_lite0_imports_nothing_heavy(
    cache: Path, photo_files: dict[str, Path], method: str, text: str
) -> None:
    words = ["classify", str(photo_files["cat"]), "--labels", "cat,dog", "--method", method]
    words += ["--set", "masks=4", "--views", "count=4"] if method == "fcl" else []
    environment = {**os.environ, "FAIRCONTEXT_CACHE": str(cache)}
    outputs = []
    for allowed in ("text", text):
        command = [sys.executable, "-c", MODULES, allowed, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        outputs.append(done.stdout.splitlines())
    assert outputs[0][:5] == outputs[1][:5]
    assert not HEAVY & set(outputs[1][-1].split())
    assert "openvino" in outputs[1][-1].split()


@pytest.mark.usefixtures("cache")
def test_threads_are_not_bound_to_processors() -> None:
    """Those of several processes would be bound to the same."""
    backbone = create_backbone("lite0", engine="openvino")
    pixels = torch.rand(1, 3, backbone.image_size, backbone.image_size)
    backbone.encode_image(pixels)
    copy = backbone._engine
    assert isinstance(copy, OpenVinoTower)
    assert copy._requests[0].get_compiled_model().get_property("ENABLE_CPU_PINNING") is False
