"""`faircontext doctor` finds faults that were prepared, and says the fix."""

import importlib.metadata
import json
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from faircontext import Backbone, LabelSpace, __version__
from faircontext.cache import cached_features
from faircontext.cli import main
from faircontext.files import to_json
from faircontext.runs import doctor
from faircontext.runs.doctor import DoctorOptions, Finding, confused_pairs, describe_for_others
from tiny_clip import TINY, write_model, write_narrow

Capture = pytest.CaptureFixture[str]


def look(capsys: Capture, *words: str) -> tuple[int, list[str], str]:
    """Run the command; return the exit code, the lines of problems, and the part for a bug report."""
    capsys.readouterr()
    code = main(["doctor", *words])
    shown, _, block = capsys.readouterr().out.partition("For a bug report:")
    assert block
    problems = [line for line in shown.splitlines() if line.startswith("problem ")]
    assert code == bool(problems)
    return code, problems, block


@pytest.fixture
def model(tiny_folder: Callable[[str], Path]) -> tuple[str, ...]:
    return ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32")


def test_nothing_is_wrong_and_nobody_is_named(
    model: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path / "cache"))
    code, problems, block = look(capsys, *model)
    assert (code, problems) == (0, [])
    assert [*(tmp_path / "cache").glob("doctor*")] == []
    assert str(tmp_path) not in block
    assert "/" not in block.replace("local-dir:FOLDER", "")
    assert f"torch {torch.__version__.partition('+')[0]}" in block
    assert "cache: 1 ok" in block


@pytest.mark.parametrize(
    ("backbone", "pretrained", "shown"),
    [
        ("/home/alice/clip", None, "backbone NAME, "),
        ("alice", None, "backbone NAME, "),
        ("transformers:alice", None, "backbone transformers:FOLDER, "),
        ("lite0", None, "backbone lite0, "),
        ("ViT-B/32", "openai", "backbone ViT-B/32 with openai, "),
        ("ViT-B-32", "alice", "backbone ViT-B-32 with a file, "),
        ("ViT-B-32", "/home/alice/weights", "backbone ViT-B-32 with a file, "),
    ],
)
def test_the_block_names_models_that_anybody_knows(backbone: str, pretrained: str | None, shown: str) -> None:
    block = "\n".join(describe_for_others(DoctorOptions(backbone=backbone, pretrained=pretrained), []))
    assert shown in block
    assert "alice" not in block


def test_no_weights(capsys: Capture, tmp_path: Path) -> None:
    _, (line,), _ = look(capsys, "--backbone", "ViT-B-32", "--pretrained", str(tmp_path / "none.pt"))
    assert "is neither a file nor a tag of ViT-B-32 (tags: " in line


def test_wrong_precision(capsys: Capture, tmp_path: Path) -> None:
    file = write_model(tmp_path, "clip") / "open_clip_model.safetensors"
    weights = load_file(file)
    weights["visual.conv1.weight"] *= 1e6
    save_file(weights, file)
    _, (line,), _ = look(capsys, "--backbone", f"local-dir:{tmp_path}", "--precision", "fp16")
    assert line.endswith("a test picture's features are NaN or infinite; use fp32")


def test_all_zero_checkpoint(capsys: Capture, tmp_path: Path) -> None:
    file = write_model(tmp_path, "clip") / "open_clip_model.safetensors"
    save_file({name: torch.zeros_like(tensor) for name, tensor in load_file(file).items()}, file)
    _, (line,), _ = look(capsys, "--backbone", f"local-dir:{tmp_path}")
    assert "(all values of " in line
    assert line.endswith("take another checkpoint")


def test_quick_gelu_under_a_plain_name(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = open_clip.factory._MODEL_CONFIGS
    monkeypatch.setitem(known, "tiny", TINY)
    monkeypatch.setitem(known, "tiny-quickgelu", {**TINY, "quick_gelu": True})
    file = write_model(tmp_path / "m", "clip") / "open_clip_model.safetensors"
    shutil.copy(file, tmp_path / "tiny-quickgelu.safetensors")
    main(["doctor", "--backbone", "tiny", "--pretrained", str(tmp_path / "tiny-quickgelu.safetensors")])
    assert (
        "but the name suggests weights that were trained with QuickGELU; if so, name the archit"
        in capsys.readouterr().out
    )


PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts the metadata which pyproject.toml stands for before all others."""

    def install(extras: dict[str, list[str]], needed: list[str], stated: str = __version__) -> None:
        folder = tmp_path / "site" / f"faircontext-{stated}.dist-info"
        folder.mkdir(parents=True)
        lines = ["Metadata-Version: 2.4", "Name: faircontext", f"Version: {stated}"]
        lines += [f"Requires-Dist: {line}" for line in needed]
        for extra, own in extras.items():
            lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {line} ; extra == '{extra}'" for line in own)]
        (folder / "METADATA").write_text("\n".join([*lines, ""]))
        monkeypatch.syspath_prepend(str(folder.parent))

    return install


def test_extras_are_those_of_pyproject(installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    extras = PROJECT["optional-dependencies"]
    installed(extras, PROJECT["dependencies"])
    found = {"peft": None, "sentencepiece": "0.3", "openvino": "2024.1", "httpx": None}
    own = doctor._found
    monkeypatch.setattr(doctor, "_found", lambda name: found[name] if name in found else own(name) or "999")
    findings = {
        str(one.text).partition(" ")[0]: one for one in doctor._extras(importlib.metadata.distribution("faircontext"))
    }
    assert [*findings] == [extra for extra in extras if extra not in doctor.DEVELOPERS]
    assert {"fast", "corruptions", "serve", "client"} < findings.keys()
    assert {*doctor.DEVELOPERS} <= extras.keys()
    assert str(findings["checkpoints"]) == (
        "note     extras: checkpoints is not installed in full (peft); if you need it: pip install "
        "'faircontext[checkpoints]'"
    )
    assert findings["fast"].text == "fast is not installed in full (openvino 2024.1, needed >=2025.2)"
    assert findings["client"].text == "client is not installed (httpx)"
    assert {one.state for name, one in findings.items() if name not in ("checkpoints", "fast", "client")} == {"ok"}


@pytest.mark.parametrize(
    ("package", "module", "said"),
    [
        ("sentencepiece>=0.2", "sentencepiece", "sentencepiece cannot be imported: ModuleNotFoundError: import of "),
        ("imagecorruptions-imaug>=1", "imagecorruptions", "imagecorruptions-imaug cannot be imported: import of "),
    ],
)
def test_an_extra_that_cannot_be_imported_is_a_problem(
    package: str, module: str, said: str, installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(module)
    monkeypatch.setitem(sys.modules, module, None)
    installed({"some": [package]}, [])
    (finding,) = doctor._extras(importlib.metadata.distribution("faircontext"))
    assert finding.state == "problem"
    assert finding.text.startswith(f"some is installed, and cannot be used: {said}")
    assert "; pip install " in finding.text


def test_old_torch(
    model: tuple[str, ...], installed: Callable[..., None], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = doctor.version
    monkeypatch.setattr(doctor, "version", lambda name: "2.3.0" if name == "torch" else own(name))
    installed({"demo": ["scikit-image>=99"]}, ["torch>=2.9", "nothing-of-this-name>=1"])
    _, lines, _ = look(capsys, *model)
    assert lines == [
        "problem  versions: torch 2.3.0 is installed, and torch>=2.9 is needed; pip install --upgrade 'torch>=2.9'",
        "problem  versions: nothing-of-this-name is missing; pip install 'nothing-of-this-name>=1'",
    ]


def test_metadata_of_another_version(model: tuple[str, ...], installed: Callable[..., None], capsys: Capture) -> None:
    installed({}, ["torch>=2"], "0.0.9")
    _, lines, _ = look(capsys, *model)
    assert lines == [
        f"problem  versions: the code is faircontext {__version__}, and the installed package says 0.0.9; install it "
        "again: pip install --force-reinstall --no-deps faircontext, or of a checkout: pip install -e ."
    ]


def test_a_copy_that_is_not_installed_is_looked_at_as_well(
    model: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "distribution", missing)
    assert main(["doctor", *model]) == 0
    assert "note     versions: faircontext is run without being installed" in capsys.readouterr().out


def test_unreadable_cache(
    model: tuple[str, ...], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path))
    for name in ("one", "two"):
        cached_features(tmp_path / "text", {"name": name}, torch.device("cpu"), lambda: torch.ones(2, 3))
    entry = next((tmp_path / "text").iterdir())
    entry.write_bytes(entry.read_bytes()[:-3])
    _, (line,), _ = look(capsys, *model)
    assert line.endswith(f"1 of 2 entries cannot be read, and are computed each time; delete the folder {tmp_path}")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path / "file"))
    _, (line,), _ = look(capsys, *model)
    assert f"{tmp_path / 'file'} cannot be used: " in line


def test_read_only_home(model: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRCONTEXT_CACHE")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: "/proc/home/.cache/faircontext")
    _, (line,), _ = look(capsys, *model)
    assert "/proc/home/.cache/faircontext cannot be used: " in line
    assert line.endswith("set FAIRCONTEXT_CACHE to a folder that can be written, or to off")


def test_full_disk(model: tuple[str, ...], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(3 * 2**20))
    _, (line,), _ = look(capsys, *model)
    assert f"3 MB are free at {tmp_path}; the disk is full: make room, or set FAIRCONTEXT_CACHE" in line


@pytest.fixture
def swapped(photos: dict[str, np.ndarray], tmp_path: Path) -> Path:
    """Three photos of each of three things, with the folders of two swapped."""
    folders = {"cat": "rocket", "rocket": "cat", "motorcycle": "motorcycle"}
    for name, folder in folders.items():
        (tmp_path / "sets" / "things" / folder).mkdir(parents=True)
        for margin in (0, 8, 16):
            height, width = photos[name].shape[:2]
            cut = photos[name][margin : height - margin, margin : width - margin]
            Image.fromarray(cut).save(tmp_path / "sets" / "things" / folder / f"{margin}.png")
    return tmp_path / "sets"


def test_swapped_class_folders(swapped: Path, capsys: Capture) -> None:
    _, (line,), _ = look(capsys, "--root", str(swapped))
    assert "things: images of 'cat' and 'rocket' are answered with each other's name" in line
    assert line.endswith("see whether the two class folders are swapped")
    (swapped / "empty").mkdir()
    _, lines, block = look(capsys, "--root", str(swapped))
    assert len(lines) == 2
    assert "empty" in lines[0]
    assert "things" not in block


@pytest.mark.parametrize("table", ["labels.csv", "metadata.jsonl"])
def test_images_with_several_labels_are_no_fault(
    table: str, model: tuple[str, ...], white_among: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "sets" / "many"
    folder.mkdir(parents=True)
    for name in ("0.png", "1.png"):
        shutil.copy(white_among / name, folder / name)
    given = {"0.png": ["cat", "dog"], "1.png": ["dog"]}
    lines = {
        "labels.csv": ["path,labels", *(f"{name},{';'.join(own)}" for name, own in given.items())],
        "metadata.jsonl": [json.dumps({"file_name": name, "labels": own}) for name, own in given.items()],
    }
    (folder / table).write_text("\n".join(lines[table]))
    (folder / "classnames.txt").write_text("cat\ndog\n")
    capsys.readouterr()
    assert main(["doctor", *model, "--root", str(tmp_path / "sets")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line[9:].startswith("data: ")]
    assert line.startswith("ok       data: many: found: ")
    assert line.endswith("; its images have several labels, for --multi-label")
    (folder / "labels.csv").write_text("\n".join(lines["labels.csv"]).replace("dog", "fox"))  # no class
    _, problems, _ = look(capsys, *model, "--root", str(tmp_path / "sets"))
    assert problems


def test_pairs_are_those_that_go_both_ways() -> None:
    answers = [(0, 1)] * 3 + [(1, 0)] * 3 + [(2, 0)] * 3 + [(3, 4)] * 2 + [(4, 3)] * 3
    assert confused_pairs(answers) == [(0, 1)]
    assert confused_pairs(answers, least=2) == [(0, 1), (3, 4)]
    assert confused_pairs([(0, 1), (0, 1), (0, 0), (0, 0), (1, 0), (1, 0), (1, 0)]) == []


def test_known_facts_are_compared_with_those_of_the_picture(
    tiny: Callable[[str], Backbone], tmp_path: Path, make_image: Callable[..., np.ndarray], monkeypatch: Any
) -> None:
    path, backbone = tmp_path / "CLIP.png", tiny("clip")
    Image.fromarray(make_image(3, 32, 32)).save(path)
    pixels = torch.from_numpy(make_image(3, 32, 32)).permute(2, 0, 1)[None] / 255.0
    text = backbone.encode_text(LabelSpace(tuple(doctor.OPENAI), backbone, ("{}",)).prompts[0])
    expected = (backbone.logit_scale * backbone.encode_image(pixels) @ text.T).softmax(-1)[0].tolist()
    options = doctor.DoctorOptions(backbone="ViT-B/32", pretrained="openai", picture=path)

    def state(options: doctor.DoctorOptions) -> Finding:
        (finding,) = doctor._known_facts(backbone, options)
        return finding

    assert state(options).state == "problem"
    assert state(options).fix.startswith("take OpenAI's weights, with QuickGELU")
    monkeypatch.setattr(doctor, "OPENAI", dict(zip(doctor.OPENAI, expected, strict=True)))
    assert state(options).state == "ok"
    other = doctor.DoctorOptions(backbone="ViT-B-16", pretrained="openai", picture=path)
    assert state(other).state == "note"
    missing = doctor.DoctorOptions(backbone="ViT-B-32", pretrained="openai", picture=tmp_path / "none.png")
    assert state(missing).state == "problem"


def test_a_bug_report_names_no_folder(capsys: Capture, tmp_path: Path) -> None:
    folder = write_narrow(tmp_path / "secret project", 46.0)
    _, _, block = look(capsys, "--backbone", f"local-dir:{folder}", "--precision", "fp32")
    assert "secret" not in block
    _, _, block = look(capsys, "--backbone", "ViT-B-32", "--pretrained", str(folder / "x.pt"))
    assert "backbone ViT-B-32 with a file," in block
    assert json.loads(to_json({"block": block}))["block"] == block
