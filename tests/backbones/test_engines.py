"""Engines of the image encoder: the copy in OpenVINO against PyTorch, its cache, and every way back to PyTorch.

The default backbone stands here on pictures of 64 x 64, for an encoder of convolutions, and a tiny one for attention.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

from faircontext import Backbone, create_backbone
from faircontext.backbones import engines, lite
from faircontext.backbones.engines import ENGINE_ROWS, OpenVinoEngine, is_convolutional, openvino_version
from faircontext.cache import hash_of, read_entry, write_entry
from faircontext.cli import main
from faircontext.errors import ArgumentError, FairContextWarning
from helpers import same_bits

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")

Make = Callable[..., Backbone]
SIDE = 64


@pytest.fixture(scope="module")
def make(tiny_folder: Callable[[str], Path]) -> Iterator[Make]:
    """Return a function that makes the default backbone on small pictures, or the tiny model of open_clip."""

    def create(small: bool = False, **options: str) -> Backbone:
        name = f"local-dir:{tiny_folder('clip')}" if small else "lite0"
        return create_backbone(name, **({"precision": "fp32"} if small else {}) | options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lite._IMAGE_SIZES, "lite0", SIDE)
        yield create


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, make: Make) -> dict[bool, Path]:
    """Caches with the copy of lite0, as `auto` makes it, and with that of the tiny model."""
    folders = {small: tmp_path_factory.mktemp("cache") for small in (False, True)}
    said = {False: "converted for OpenVINO .* times as fast as PyTorch here", True: "image tower of local-dir:.* once$"}
    for small, folder in folders.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FAIRCONTEXT_CACHE", str(folder))
            with pytest.warns(FairContextWarning, match=said[small]):
                make(small, engine="openvino" if small else "auto")
    return folders


def copied(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(path))
    return Path(shutil.copytree(folder, path))


@pytest.fixture
def cache(filled: dict[bool, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of lite0, for a test to change; it says that the copy is twice as fast as PyTorch."""
    folder = copied(filled[False], tmp_path / "cache", monkeypatch)
    change(folder, gain="2.0")
    return folder


@pytest.fixture
def small_cache(filled: dict[bool, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the tiny model, for a test to change."""
    return copied(filled[True], tmp_path / "small", monkeypatch)


def entry(folder: Path) -> Path:
    (path,) = (folder / "engines").iterdir()
    return path


def change(folder: Path, gain: str | None = None, **tensors: Tensor) -> None:
    """Write the cache's copy anew, with other contents."""
    path = entry(folder)
    earlier, facts = read_entry(path)
    whole = {name: tensor.clone() for name, tensor in {**earlier, **tensors}.items()}
    path.unlink()
    write_entry(path, whole, facts | ({} if gain is None else {"gain": gain}))


@pytest.fixture(scope="module")
def fast(filled: dict[bool, Path], make: Make) -> Backbone:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRCONTEXT_CACHE", str(filled[False]))
        return make(engine="openvino")


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    """Twenty-one pictures of patches, which an encoder tells apart."""
    patches = torch.rand(21, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.interpolate(patches, scale_factor=SIDE / 8)


# Features


def test_features_are_those_of_float32(fast: Backbone, make: Make, pixels: Tensor) -> None:
    exact = make(precision="fp32", engine="torch")
    assert (fast.engine, exact.engine) == ("openvino", "torch")
    assert (fast.encode_image(pixels) * exact.encode_image(pixels)).sum(-1).min() > 0.98


@pytest.mark.usefixtures("small_cache")
def test_a_model_of_open_clip_in_float32_has_the_same_features(make: Make) -> None:
    copy, own = make(True, engine="openvino"), make(True)
    rows = torch.rand(6, 3, copy.image_size, copy.image_size, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(copy.encode_image(rows), own.encode_image(rows), rtol=0, atol=1e-5)
    assert copy.weights_hash == own.weights_hash


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_features_do_not_depend_on_neighbours_order_number_or_threads(
    fast: Backbone, pixels: Tensor, threads: Callable[[int], None]
) -> None:
    together = fast.encode_image(pixels)
    for row in (0, 1, ENGINE_ROWS, 20):
        assert same_bits(fast.encode_image(pixels[row : row + 1])[0], together[row])
    for size in (2, ENGINE_ROWS + 1, 16):
        assert same_bits(torch.cat([fast.encode_image(chunk) for chunk in pixels.split(size)]), together)
    order = torch.randperm(21, generator=torch.Generator().manual_seed(0))
    assert same_bits(fast.encode_image(pixels[order]), together[order])
    extremes = torch.stack([torch.zeros_like(pixels[0]), pixels[1], torch.ones_like(pixels[0])])
    assert same_bits(fast.encode_image(extremes)[1], together[1])
    for number in (1, 2, 3, 6):  # batches that run at the same time come back in order
        threads(number)
        assert same_bits(fast.encode_parts(pixels.repeat(2, 1, 1, 1).split(16)), together.repeat(2, 1))
        assert torch.get_num_threads() == number


def test_parts_are_made_while_others_are_encoded(
    fast: Backbone, pixels: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no more of them than the engine takes at once."""
    copy = fast._engine
    assert isinstance(copy, OpenVinoEngine)
    made, ended = [], []
    whole = copy._result
    monkeypatch.setattr(copy, "_result", lambda *waiting: ended.append(len(made)) or whole(*waiting))

    def parts() -> Iterator[Tensor]:
        for part in pixels.repeat(4, 1, 1, 1).split(ENGINE_ROWS):
            made.append(len(ended))
            yield part

    fast.encode_parts(parts())
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


def test_earlier_features_stay_and_pictures_of_another_size_are_refused(fast: Backbone, pixels: Tensor) -> None:
    first = fast.encode_image(pixels[:2])
    copy = first.clone()
    fast.encode_image(pixels[2:6])
    assert same_bits(first, copy)
    for shape in ((2, 3, SIDE, 1), (5, 3, 32, 32)):
        with pytest.raises(ArgumentError, match=r"invalid pixels: pictures of 3 x \d+ x \d+; use 3 x 64 x 64"):
            fast.encode_image(torch.zeros(shape))


@pytest.mark.usefixtures("cache")
def test_threads_are_not_bound_to_processors(fast: Backbone, pixels: Tensor) -> None:
    """Those of several processes would be bound to the same."""
    fast.encode_image(pixels[:1])
    copy = fast._engine
    assert isinstance(copy, OpenVinoEngine)
    assert copy._requests[0].get_compiled_model().get_property("ENABLE_CPU_PINNING") is False


# The cache


@pytest.mark.usefixtures("cache")
def test_the_tower_is_loaded_when_it_is_asked_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    own = make(engine="torch")
    with monkeypatch.context() as forbidden:
        forbidden.setattr(lite, "_load_image_encoder", lambda *_: pytest.fail("the tower was loaded"))
        backbone = make()
        assert backbone.engine == "openvino"
        assert backbone.weights_hash == own.weights_hash
    backbone = make()
    assert hash_of(backbone.image_encoder) == backbone.encoder_hash == hash_of(own.image_encoder)
    assert backbone.engine == "openvino"


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "renamed"])
def test_what_is_damaged_is_not_read(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.safetensors"
    write_entry(path, {"weights": torch.arange(99, dtype=torch.uint8)}, {"tower": "abc", "gain": "1.5"})
    tensors, facts = read_entry(path)
    assert facts == {"tower": "abc", "gain": "1.5"}
    assert torch.equal(tensors["weights"], torch.arange(99, dtype=torch.uint8))
    content = path.read_bytes()
    changed = bytes([*content[:-1], content[-1] ^ 1])
    renamed = content.replace(b'"tower":"abc"', b'"tower":"abd"')
    path.unlink()
    path.write_bytes({"empty": b"", "cut": content[:-5], "flipped": changed, "renamed": renamed}[damage])
    with pytest.raises(Exception, match=r"checksum|header|Header|incomplete|metadata"):
        read_entry(path)


def test_a_damaged_copy_is_said_and_made_again(small_cache: Path, make: Make) -> None:
    earlier, path = make(True, engine="openvino"), entry(small_cache)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.unlink()
    path.write_bytes(content)
    with pytest.warns(FairContextWarning) as said:
        again = make(True, engine="openvino")
    damaged, converted = (str(warning.message) for warning in said)
    assert damaged == f"{path}: is damaged (its checksum is another); the image tower is converted anew"
    assert "converted for OpenVINO" in converted
    rows = torch.rand(2, 3, again.image_size, again.image_size, generator=torch.Generator().manual_seed(1))
    assert same_bits(again.encode_image(rows), earlier.encode_image(rows))
    assert make(True, engine="openvino").engine == "openvino"  # without a word


def test_a_copy_of_another_version_is_another_entry(
    small_cache: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "openvino_version", lambda: "2025.1")
    with pytest.warns(FairContextWarning, match=r"converted for OpenVINO 2025.1 in \d+ s, once"):
        make(True, engine="openvino")
    assert len(list((small_cache / "engines").iterdir())) == 2
    monkeypatch.setenv("FAIRCONTEXT_CACHE", "off")  # then it is made each time
    with pytest.warns(FairContextWarning, match=r"converted for OpenVINO 2025.1 in \d+ s$"):
        assert make(True, engine="openvino").engine == "openvino"


# Which engine


def test_auto_takes_what_was_faster(cache: Path, make: Make) -> None:
    assert make().engine == "openvino"
    change(cache, gain="0.9")
    assert make().engine == "torch"
    assert make(engine="openvino").engine == "openvino"


def test_where_pytorch_is_faster_auto_says_so_and_stores_no_copy(
    cache: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = {name: tensor.clone() for name, tensor in read_entry(entry(cache))[0].items() if name != "exact"}
    monkeypatch.setattr(engines, "convert", lambda *_: stored)
    monkeypatch.setattr(engines, "_measure", lambda *_: 0.5)
    entry(cache).unlink()
    with pytest.warns(FairContextWarning, match="it encodes 0.50 times as fast as PyTorch here, which goes on"):
        assert make().engine == "torch"
    assert entry(cache).stat().st_size < 10_000
    assert make().engine == "torch"  # without a word


def test_auto_tries_no_tower_of_attention_and_nothing_without_a_cache(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make()
    assert own.engine == "torch"
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path / "empty"))
    small = make(True, engine="auto")
    assert small.engine == "torch"
    assert not (tmp_path / "empty").exists()
    assert (is_convolutional(own.image_encoder), is_convolutional(small.image_encoder)) == (True, False)


def test_an_unknown_engine_is_an_error() -> None:
    with pytest.raises(ArgumentError, match=r"engine='onnx' is not possible; use one of 'auto', 'torch', 'openvino'"):
        create_backbone("lite0", engine="onnx")


# Every way back to PyTorch


def no_property(*_: object) -> list[str]:
    return ["FP32", "INT8"]


@pytest.mark.parametrize(
    ("target", "value", "small", "options", "said"),
    [
        ("faircontext.backbones.engines.openvino_version", lambda: None, True, {}, "is not installed (pip install 'f"),
        ("openvino", None, True, {}, "OpenVINO cannot be used (import of openvino halted"),
        ("openvino.Core.get_property", no_property, False, {"precision": "bf16"}, "does not compute in bf16 on this p"),
        (None, None, True, {"precision": "fp16"}, "OpenVINO has no fp16 on processors"),
        ("openvino.serialize", lambda *_: int("no operation"), True, {}, "cannot convert the image tower (invalid lit"),
    ],
)
def test_where_openvino_cannot_run_the_tower_pytorch_does_with_a_word(
    target: str | None, value: object, small: bool, options: dict[str, str], said: str,
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path))
    if target == "openvino":
        monkeypatch.setitem(sys.modules, "openvino", value)
    elif target is not None:
        monkeypatch.setattr(target, value)
    with pytest.warns(FairContextWarning) as heard:
        backbone = make(small, engine="openvino", **options)
    (line,) = (str(warning.message) for warning in heard)
    assert said in line
    assert "PyTorch runs " in line
    assert "\n" not in line
    assert (backbone.engine, backbone.engine_facts) == ("torch", {})
    if target is not None and "serialize" not in target:
        assert make(**options).engine == "torch"  # auto: without a word


def test_where_features_are_others(cache: Path, make: Make, pixels: Tensor) -> None:
    change(cache, exact=-read_entry(entry(cache))[0]["exact"])
    with pytest.warns(FairContextWarning, match=r"lite0: features of a test picture in OpenVINO .* to a cosine of -"):
        backbone = make(engine="openvino")
    assert backbone.engine == "torch"
    assert backbone.encode_image(pixels[:1]).isfinite().all()


# Runs


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

HEAVY = {REPORTS, *"torch._dynamo sympy scipy torchvision timm transformers ray open_clip matplotlib".split()}
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
    tmp_path: Path, photo_files: dict[str, Path], method: str, text: str
) -> None:
    environment = {**os.environ, "FAIRCONTEXT_CACHE": str(tmp_path)}
    words = ["classify", str(photo_files["cat"]), "--labels", "cat,dog", "--method", method]
    words += ["--set", "masks=4", "--views", "count=4"] if method == "fcl" else []
    first = [sys.executable, "-m", "faircontext", *words, "--engine-image", "openvino"]
    subprocess.run(first, capture_output=True, env=environment, check=True)  # makes the copy
    outputs = []
    for allowed in ("text", text):
        command = [sys.executable, "-c", MODULES, allowed, *words, "--engine-image", "openvino"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        outputs.append(done.stdout.splitlines())
    assert outputs[0][:5] == outputs[1][:5]
    assert not HEAVY & set(outputs[1][-1].split())
    assert "openvino" in outputs[1][-1].split()
