"""The command data: what it lists, and that its exit code tells whether a data set can be evaluated."""

from pathlib import Path

import pytest

from coop_trees import build_coop_trees, draw
from faircontext.cli import main
from faircontext.datasets.spec import CATALOGUE, CORRUPTED, imagenet_wnids


def test_the_list_has_every_set_with_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*CATALOGUE, *CORRUPTED]
    assert "50,000" in lines[1]
    assert main(["data", "list", "oxford_*"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["data", "list", "none*"]) == 2
    assert "none of the data sets matches 'none*'" in capsys.readouterr().err


def test_a_set_in_full_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw(tmp_path / "mine" / "cat" / "a.png")
    draw(tmp_path / "mine" / "dog" / "b.png")
    assert main(["data", "check", "mine", "--root", str(tmp_path), "--read"]) == 0
    out = capsys.readouterr().out
    assert "2 classes, 2 with images; in this order: 0 cat, 1 dog" in out
    assert out.endswith("  can be evaluated\n1 of 1 can be evaluated\n")


def test_empty_and_broken_files_are_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw(tmp_path / "mine" / "cat" / "a.png")
    (tmp_path / "mine" / "cat" / "b.png").touch()
    (tmp_path / "mine" / "cat" / "c.png").write_bytes(b"\x89PNG but no more")
    assert main(["data", "check", "mine", "--root", str(tmp_path)]) == 1
    assert "PROBLEM: 1 file cannot be read: " in capsys.readouterr().out
    assert main(["data", "check", "mine", "--root", str(tmp_path), "--read"]) == 1
    assert "PROBLEM: 2 files cannot be read: " in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["folders", "list", "table"])
def test_class_names_that_evaluate_refuses_are_problems(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    draw(folder / ("cat" if kind == "list" else "c\x07at") / "a.png")
    draw(folder / "dog" / "b.png")
    if kind == "list":
        (folder / "classnames.txt").write_text("c\x07at\ndog\n")
    elif kind == "table":
        (folder / "labels.csv").write_text("path,label,class_name\ndog/b.png,0,c\x07at\n")
    assert main(["data", "check", "mine", "--root", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "PROBLEM: 1 class name cannot be used: class name number 1, 'c\\x07at', has control characters" in out
    assert out.endswith("  cannot be evaluated\n0 of 1 can be evaluated\n")


def test_many_class_names_that_cannot_be_used_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(9):
        draw(tmp_path / "mine" / f"{number}\x7f" / "a.png")
    draw(tmp_path / "mine" / "\u2003" / "a.png")
    assert main(["data", "check", "mine", "--root", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "10 class names cannot be used: " in out
    assert "and 5 more\n" in out


@pytest.mark.slow
def test_a_part_of_a_set_is_good_only_as_a_part(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_coop_trees(data, tmp_path)
    words = ["data", "check", "caltech101", "dtd", "oxford_flowers", "--root", str(tmp_path)]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "found: CoOp's layout: caltech-101/101_ObjectCategories" in out
    assert "200 images of 2,465 in the reference" in out
    assert "25 images of 1,692 in the reference; the paper counts 1,880" in out
    assert "PROBLEM: 2,373 images of the list are not there: " in out
    assert "0 of 3 can be evaluated" in out
    assert main([*words, "--partial"]) == 0


def test_a_set_that_is_not_there_says_where_it_is_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "--all", "--root", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"expected: {tmp_path}/caltech-101/101_ObjectCategories/" in out
    assert "or, in place of caltech-101: Caltech101, caltech101" in out
    assert "PROBLEM: imagenet: no folders of images" in out
    assert "data check" not in out  # which is what was asked
    assert "0 of 18 can be evaluated" in out


def test_too_few_images_of_imagenet_are_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wnid in imagenet_wnids("a"):
        draw(tmp_path / "imagenet-a" / wnid / "a.jpg")
    assert main(["data", "check", "imagenet_a", "--root", str(tmp_path)]) == 1
    assert "PROBLEM: 200 images where 7,500 are expected" in capsys.readouterr().out
    assert main(["data", "check", "imagenet_a", "--root", str(tmp_path), "--partial"]) == 0


@pytest.mark.parametrize("words", [["check"], ["check", "--all"], ["check", "dtd"], ["check", "dtd", "--all"]])
def test_what_is_not_said_is_asked_for(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(tmp_path)] if words in (["check"], ["check", "dtd", "--all"]) else []
    assert main(["data", *words, *root]) == 2
    assert capsys.readouterr().err.startswith("faircontext: data check ")


def test_what_is_odd_in_class_names_is_said_by_both_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw(tmp_path / "mine" / "cat" / "a.png")
    said = "with one class, cat, nothing is decided: every image is answered with it"
    assert main(["data", "check", "mine", "--root", str(tmp_path)]) == 0
    assert f"  {said}\n" in capsys.readouterr().out
    words = ("--datasets", "mine", "--root", str(tmp_path), "--methods", "zero_shot", "--out", str(tmp_path / "runs"))
    assert main(["evaluate", *words]) == 0
    assert capsys.readouterr().err == f"note: mine: {said}\n"
