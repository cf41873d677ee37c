import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import faircontext.report.demo as demo
from faircontext.backbones.lite import Lite
from faircontext.cli import main

LABELS = ("--labels", "cat,dog,rocket,horse")


@pytest.fixture(autouse=True)
def few_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lite, "recommended", {**Lite.recommended, "views": {"scale": (0.5, 1.0), "count": 8}})


def test_explain_writes_a_page_and_says_where(
    photo_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("explain", str(photo_files["cat"]), *LABELS, "--set", "masks=8", "--out", str(tmp_path / "why"))
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "why" / "index.html")
    manifest = json.loads((tmp_path / "why" / "manifest.json").read_text())
    assert manifest["answer"] == "cat"
    assert manifest["settings"]["masks"] == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.jpg", *LABELS), "missing.jpg: no such file"),
        (("", *LABELS), "image is empty; name an image file"),
        (("PHOTO",), "give the class names either as --labels a,b,c or as --labels-file FILE"),
        (("PHOTO", *LABELS, "--set", "mask=3"), "unknown setting of fcl 'mask'; did you mean 'masks'?"),
        (("PHOTO", *LABELS, "--set", "masks=8", "--out", "taken"), "taken: cannot be written: not a directory"),
    ],
)
def test_what_explain_cannot_do_is_one_line(
    words: tuple[str, ...],
    message: str,
    photo_files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").touch()
    code = main(["explain", *(str(photo_files["cat"]) if word == "PHOTO" else word for word in words)])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith(f"faircontext: {message}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("content", ['{"files": null}', "words", "[]"])
def test_explain_leaves_the_page_of_somebody_else_alone(
    content: str, photo_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manifest.json").write_text(content)
    assert main(["explain", str(photo_files["cat"]), *LABELS, "--out", str(tmp_path)]) == 2
    assert "holds a page that is no explanation; name another folder" in capsys.readouterr().err
    assert (tmp_path / "manifest.json").read_text() == content


def test_explain_never_writes_over_its_own_picture(
    photo_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pieces").mkdir()
    photo = tmp_path / "pieces" / "view_00.png"
    photo.write_bytes(photo_files["cat"].read_bytes())
    assert main(["explain", str(photo), *LABELS, "--out", str(tmp_path)]) == 2
    assert "holds the image" in capsys.readouterr().err
    assert photo.read_bytes() == photo_files["cat"].read_bytes()


def test_demo_answers_every_photo_and_draws_one_picture_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "PHOTOS", {"chelsea.png": "tabby cat", "rocket.jpg": "rocket"})
    assert main(["demo", "--out", str(tmp_path / "pictures"), "--masks", "8"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"FCL on sample photos, into {tmp_path / 'pictures'}: ")
    assert "(n = 6, 95% interval" in out
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["chelsea.png", "rocket.png"]
    for path in (tmp_path / "pictures").iterdir():
        assert str(path) in out
        assert np.asarray(Image.open(path)).std() > 10


def test_demo_without_the_photos_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert 'pip install "faircontext[demo]"' in capsys.readouterr().err


def test_corruptions_keep_shape_and_are_strong() -> None:
    image = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    variants = demo._variants(image, seed=3)
    assert np.array_equal(variants["plain"], image)
    assert np.array_equal(variants["strong noise"], demo._variants(image, seed=3)["strong noise"])
    for name in ("strong noise", "dim and blurred"):
        assert (variants[name].shape, variants[name].dtype) == (image.shape, np.uint8)
        assert np.abs(variants[name].astype(int) - image).mean() > 25
