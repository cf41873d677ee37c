"""`data check` on data sets that are there in full, by links to one image, and on what is no data set at all."""

import os
from pathlib import Path

import pytest

from coop_trees import draw
from faircontext.cli import main
from faircontext.datasets.layouts import read_split
from faircontext.datasets.spec import CATALOGUE, imagenet_wnids


def fill(place: Path, keys: list[str]) -> None:
    draw(place / "one.png")
    for key in keys:
        (place / key).parent.mkdir(parents=True, exist_ok=True)
        os.link(place / "one.png", place / key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["caltech101", "dtd", "eurosat", "oxford_flowers", "oxford_pets", "ucf101"])
def test_a_set_with_a_real_split_file_in_full(
    name: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = CATALOGUE[name]
    place = tmp_path / entry.folders[0] / entry.inner[0]
    keys = [key for key, _ in read_split(data / "splits" / entry.split_file).parts["test"]]
    fill(place, keys)
    (tmp_path / "splits").symlink_to(data / "splits")
    words = ["data", "check", name, "--root", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"{entry.classes} classes, {entry.classes} with images" in out
    assert f"{len(keys):,} images of {entry.images['test']:,} in the reference" in out
    assert out.endswith("  can be evaluated\n1 of 1 can be evaluated\n")
    (place / keys[0]).unlink()
    assert main(words) == 1
    assert f"PROBLEM: 1 image of the list is not there: {keys[0]}" in capsys.readouterr().out
    assert main([*words, "--partial"]) == 0


def test_imagenet_a_in_full_and_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "imagenet-adversarial/imagenet-a"
    wnids = imagenet_wnids("a")
    fill(place, [f"{wnids[number % 200]}/{number}.jpg" for number in range(7_500)])
    (place / "README.txt").write_text("beside the class folders")
    assert main(["data", "check", "imagenet-a", "--root", str(tmp_path)]) == 0
    assert "200 classes, 200 with images; in this order: 0 stingray" in capsys.readouterr().out
    draw(place / wnids[0] / "one more.png")
    assert main(["data", "check", "imagenet_a", "--root", str(tmp_path)]) == 1
    assert "PROBLEM: 7,501 images where 7,500 are expected" in capsys.readouterr().out


def test_what_is_no_data_set_is_a_wrong_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw(tmp_path / "mine/cat/a.png")
    assert main(["data", "check", "mine", "caltech01", "--root", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "caltech01: no such folder" in captured.err
    assert "did you mean 'caltech101'" in captured.err
    assert main(["data", "check", "dtd", "--root", str(tmp_path / "none")]) == 2
    assert "none: no such folder; --root is the folder" in capsys.readouterr().err


def test_a_set_whose_images_are_all_missing_cannot_be_evaluated_in_part(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dtd/images").mkdir(parents=True)
    (tmp_path / "splits").symlink_to(data / "splits")
    assert main(["data", "check", "DTD", "--root", str(tmp_path), "--partial"]) == 1
    assert "  cannot be evaluated\n" in capsys.readouterr().out
