"""`classify --sort-into` and `unsort`, as a person calls them."""

import csv
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def classify(command: Run, picture_set: Path) -> Run:
    words = ("classify", picture_set / "images", "--labels", "red circle,a/b", "--method", "zero_shot")
    return lambda *more: command(*words, *more)


def placed(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.glob("*/*")}


def test_photos_are_sorted_as_the_csv_file_says_and_sorting_is_undone(
    classify: Run, command: Run, picture_set: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in (picture_set / "images").iterdir()}
    code, out, err = classify("--csv", tmp_path / "a.csv", "--sort-into", tmp_path / "sorted")
    assert code == 1, err
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = {Path(row["path"]).name: row for row in csv.DictReader(file)}
    folders = {"red circle": "red circle", "a/b": "a_b", "": "unreadable"}
    assert placed(tmp_path / "sorted") == {f"{folders[row['prediction']]}/{name}" for name, row in rows.items()}
    assert (
        f"sorted into {tmp_path}/sorted: {len(rows)} copied; undo with: faircontext unsort {tmp_path}/sorted\n" in out
    )
    assert command("unsort", tmp_path / "sorted") == (0, f"{tmp_path}/sorted: {len(rows)} removed\n", "")
    assert not (tmp_path / "sorted").exists()
    assert {path: path.read_bytes() for path in (picture_set / "images").iterdir()} == before


def test_a_stored_run_that_goes_on_sorts_the_rest(classify: Run, command: Run, tmp_path: Path) -> None:
    stored = ("--out", tmp_path / "run", "--unknown", "cosine=1", "--sort-into", tmp_path / "sorted")
    _, out, _ = classify(*stored, "--strict")  # one file is no picture: the run stops there
    some = placed(tmp_path / "sorted")
    assert " copied;" in out
    code, out, _ = classify(*stored, "--resume")
    assert code == 1
    assert some < placed(tmp_path / "sorted")
    assert f"{len(some)} there before, " in out
    assert {name.partition("/")[0] for name in placed(tmp_path / "sorted")} == {"none of these", "unreadable"}
    next(iter((tmp_path / "sorted" / "none of these").iterdir())).write_bytes(b"edited")
    code, out, _ = command("unsort", tmp_path / "sorted")
    assert code == 1
    assert ", 1 stay, as they were changed or the photo is gone" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sort-by", "link"), "--sort-by link is of --sort-into; name its folder, or leave it out"),
        (("--sort-into", "OUT", "--method", "zero_shot,fcl"), "--sort-into takes one answer an image: one --method"),
        (("--sort-into", "OUT", "--method", "all"), "--sort-into takes one answer an image"),
        (("--sort-into", "OUT", "--multi-label"), "--sort-into takes one answer an image"),
        (("--sort-into", "OUT", "--out", "RUN", "--shard", "0/2"), "--sort-into takes one answer an image"),
        (("--sort-into", "IN/sorted"), "whose images are answered; name another folder"),
    ],
)
def test_what_cannot_be_sorted_is_one_line(
    classify: Run, picture_set: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    folders = {"OUT": tmp_path / "out", "RUN": tmp_path / "run", "IN/sorted": picture_set / "images" / "sorted"}
    code, _, err = classify(*(folders.get(word, word) for word in words))
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


def test_a_place_that_is_taken_by_a_file_loses_no_answer(classify: Run, tmp_path: Path) -> None:
    (tmp_path / "sorted").mkdir()
    (tmp_path / "sorted" / "a_b").write_text("mine")
    (tmp_path / "sorted" / "red circle").write_text("mine")
    code, out, err = classify("--csv", tmp_path / "a.csv", "--sort-into", tmp_path / "sorted")
    assert code == 2
    assert "cannot be written: file exists" in err
    assert ": nothing; undo with: " in out
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 2
    shutil.rmtree(tmp_path / "sorted")
    assert classify("--csv", tmp_path / "a.csv", "--sort-into", tmp_path / "sorted")[0] == 1


def test_pictures_in_archives_are_refused_before_anything_is_made(
    command: Run, picture_set: Path, tmp_path: Path
) -> None:
    photo = next(path for path in (picture_set / "images").iterdir() if path.suffix == ".png")
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        tar.add(photo, "deep/0.png")
    words = ("classify", tmp_path / "s.tar", "--labels", "a,b", "--method", "zero_shot", "--sort-into")
    code, _, err = command(*words, tmp_path / "sorted")
    assert code == 2
    refused = "--sort-into is of image files, and {}/s.tar/deep/0.png is none; unpack it, or leave --sort-into out\n"
    assert err == f"faircontext: {refused.format(tmp_path)}"
    assert not (tmp_path / "sorted").exists()
