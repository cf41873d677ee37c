"""The commands evaluate and merge: what they print, what they refuse in one line, and their exit codes."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faircontext.cli import main
from faircontext.runs.store import load_run
from faircontext.system import usable_processors

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def evaluate(tiny_folder: Callable[[str], Path], picture_set: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command on the pictures and returns (code, output, errors)."""

    def run(out: Path, *more: str, root: Path = picture_set.parent, datasets: str = "pictures") -> tuple[int, str, str]:
        model = ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--preset", "paper")
        words = ["evaluate", "--datasets", *datasets.split(), "--root", str(root), "--out", str(out), *model, *more]
        code = main(words)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


ZERO = ("--methods", "zero_shot")


def test_accuracies_are_printed_with_number_interval_and_pairs(
    evaluate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "faircontext.runs.run.LINE_SECONDS", math.inf
    )  # a slow machine prints lines of progress as well
    code, out, err = evaluate(tmp_path, "--methods", "fcl-4", "fcl-8", "--set", "fcl-4.masks=4", "fcl-8.masks=8")
    assert code == 1  # a file was unreadable
    assert err.startswith("note: unreadable: images/05.png: ")
    head, facts, zero_shot, four, eight = out.splitlines()
    assert head.startswith("pictures (all): the table ")
    assert "13 images, 4 classes" in facts
    assert facts.endswith("zero_shot, fcl-4, fcl-8")
    assert zero_shot.split()[0] == "zero_shot"
    assert "(n = 12, 95% interval " in zero_shot
    assert "with the 1 unreadable counted as wrong" in zero_shot
    assert "over zero-shot (95% interval" in four
    assert "exact McNemar p = " in eight
    document = json.loads((tmp_path / "pictures" / "run.json").read_text())
    assert document["config"]["methods"]["fcl-4"]["masks"] == 4
    assert document["config"]["methods"]["fcl-8"]["masks"] == 8
    assert document["config"]["preset"] == "paper"


def test_a_second_call_needs_resume_and_then_changes_nothing(evaluate: Run, tmp_path: Path) -> None:
    evaluate(tmp_path, *ZERO)
    before = (tmp_path / "pictures" / "rows.parquet").read_bytes()
    code, _, err = evaluate(tmp_path, *ZERO)
    assert (code, err) == (
        2,
        f"faircontext: {tmp_path}/pictures: there is a run already; add --resume, or name another --out\n",
    )
    code, out, _ = evaluate(tmp_path, *ZERO, "--resume")
    assert code == 1
    assert "zero_shot" in out
    assert (tmp_path / "pictures" / "rows.parquet").read_bytes() == before
    code, _, err = evaluate(tmp_path, *ZERO, "--resume", "--limit", "3")
    assert code == 2
    assert "limit was null and is 3" in err


SMALL = ("unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=$0 tmpfs /dev/shm && exec "$@"')
"""Runs a command where /dev/shm has the size that comes first, as in a container."""


@pytest.mark.process
@pytest.mark.parametrize("size", ["64k", "4k"])
def test_workers_need_no_shared_memory(
    evaluate: Run, tiny_folder: Callable[[str], Path], picture_set: Path, tmp_path: Path, size: str
) -> None:
    if shutil.which("unshare") is None or subprocess.run([*SMALL, size, "true"], capture_output=True).returncode:
        pytest.skip("this system does not let a test mount a small /dev/shm")
    methods = ("--methods", "zero", "--views", "count=16")
    evaluate(tmp_path / "here", *methods)
    words = ["evaluate", "--datasets", "pictures", "--root", str(picture_set.parent), "--out", str(tmp_path / "ahead")]
    words += ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--preset", "paper", *methods]
    words += ["--workers", str(min(2, usable_processors()))]
    command = [*SMALL, size, sys.executable, "-m", "faircontext", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr  # a file was unreadable
    assert len(done.stderr.splitlines()) == 1
    here, ahead = (load_run(tmp_path / name / "pictures").rows for name in ("here", "ahead"))
    assert ahead.drop_columns(["seconds", "shared_seconds"]).equals(here.drop_columns(["seconds", "shared_seconds"]))


def test_shards_merge_by_command(evaluate: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(tmp_path / "whole", *ZERO)
    for part in range(2):
        evaluate(tmp_path / "shards", *ZERO, "--shard", f"{part}/2")
    assert main(["merge", str(tmp_path / "shards"), "--out", str(tmp_path / "joined")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/joined/pictures\n"
    joined, whole = (load_run(tmp_path / name / "pictures").rows for name in ("joined", "whole"))
    assert joined.drop_columns(["seconds", "shared_seconds"]).equals(whole.drop_columns(["seconds", "shared_seconds"]))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--methods", "flc"), "unknown method 'flc'; did you mean 'fcl'"),
        (("--prompts", "seven", "--backbone", "none"), "unknown prompt set 'seven'"),  # before a model is looked for
        (("--split", "train"), "--split"),
        (("--engine", "spark"), "--engine"),
    ],
)
def test_a_wrong_option_is_one_line_and_no_folder_is_made(
    evaluate: Run, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    code, _, err = evaluate(tmp_path / "out", *more)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_data_set_that_is_not_there_is_one_line(evaluate: Run, tmp_path: Path) -> None:
    code, _, err = evaluate(tmp_path / "out", datasets="pictures caltech101")
    assert code == 2
    assert err.startswith("faircontext: caltech101: no split_zhou_Caltech101.json")
    code, _, err = evaluate(tmp_path / "out", datasets="picture")
    assert code == 2
    assert "no such folder" in err
    assert not (tmp_path / "out").exists()


def test_runs_are_not_put_into_the_data(evaluate: Run, picture_set: Path) -> None:
    code, _, err = evaluate(picture_set / "images" / "runs", *ZERO)
    assert code == 2
    assert f"lies in the data set {picture_set}; name another folder" in err
    assert not (picture_set / "images" / "runs").exists()


def test_a_folder_for_features_that_is_none_is_told_before_any_work(
    evaluate: Run, picture_set: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for folder, message in (
        (tmp_path / "file", f"{tmp_path / 'file'}: cannot be written: not a directory"),
        (picture_set / "features", f"--features {picture_set / 'features'}: lies in the data set {picture_set}"),
    ):
        code, _, err = evaluate(tmp_path / "out", *ZERO, "--features", str(folder))
        assert code == 2
        assert message in err
    assert not (tmp_path / "out").exists()


def test_two_data_sets_of_one_name_are_refused(evaluate: Run, picture_set: Path, tmp_path: Path) -> None:
    code, _, err = evaluate(tmp_path / "out", datasets=f"pictures {picture_set}")
    assert code == 2
    assert "--datasets names pictures twice" in err
    assert not (tmp_path / "out").exists()


def test_missing_images_need_a_word(evaluate: Run, picture_set: Path, tmp_path: Path) -> None:
    shutil.copytree(picture_set, tmp_path / "sets" / "part")
    (tmp_path / "sets" / "part" / "images" / "03.png").unlink()
    code, _, err = evaluate(tmp_path / "out", *ZERO, root=tmp_path / "sets", datasets="part")
    assert code == 2
    assert "part: 1 of 13 images are not in " in err
    assert "for example images/03.png; complete it, or measure on those that are there with --partial" in err
    code, out, _ = evaluate(tmp_path / "out", *ZERO, "--partial", root=tmp_path / "sets", datasets="part")
    assert code == 1
    assert "12 of 13 images" in out
    dataset = json.loads((tmp_path / "out" / "part" / "run.json").read_text())["config"]["dataset"]
    assert (dataset["images"], dataset["listed"]) == (12, 13)


def test_a_wrong_label_file_is_one_line(evaluate: Run, picture_set: Path, tmp_path: Path) -> None:
    shutil.copytree(picture_set, tmp_path / "sets" / "wrong")
    (tmp_path / "sets" / "wrong" / "labels.csv").write_text("path,label\nimages/00.png,7\n")
    code, _, err = evaluate(tmp_path / "out", root=tmp_path / "sets", datasets="wrong")
    assert code == 2
    assert "labels.csv, line 2: the label '7' is no class; use 0 to 3" in err


def test_the_order_of_methods_does_not_matter_and_zero_shot_is_always_there(evaluate: Run, tmp_path: Path) -> None:
    evaluate(tmp_path / "one", "--methods", "mta,zero", "--limit", "3")
    evaluate(tmp_path / "two", "--methods", "zero", "mta", "zero_shot", "--limit", "3")
    one, two = (load_run(tmp_path / name / "pictures").rows.to_pylist() for name in ("one", "two"))
    assert [row["method"] for row in one[:3]] == ["zero_shot", "mta", "zero"]
    assert [row["method"] for row in two[:3]] == ["zero_shot", "zero", "mta"]
    keyed = [{(row["path"], row["method"]): row["top5_probabilities"] for row in rows} for rows in (one, two)]
    assert keyed[0] == keyed[1]


def test_the_template_of_a_data_set_can_be_asked_for(evaluate: Run, tmp_path: Path) -> None:
    evaluate(tmp_path, *ZERO, "--prompts", "dataset", "--limit", "1")
    config = json.loads((tmp_path / "pictures" / "run.json").read_text())["config"]
    assert (config["prompts"], config["templates"]) == ("dataset", ["a photo of a {}."])


def test_a_split_that_there_is_not_is_a_note(evaluate: Run, tmp_path: Path) -> None:
    _, _, err = evaluate(tmp_path, *ZERO, "--split", "val", "--limit", "1")
    assert "note: pictures: there is no split val in a set of one's own: all its images are taken\n" in err


@pytest.mark.parametrize(("more", "number"), [((), 13), (("--limit", "2"), 2)])
def test_a_shard_without_images_is_a_note_and_a_run(
    evaluate: Run, tmp_path: Path, more: tuple[str, ...], number: int
) -> None:
    code, _, err = evaluate(tmp_path, *ZERO, "--shard", "19/20", *more)
    assert code == 0
    assert f"note: pictures: shard 19/20 has no image, since there are only {number}\n" in err
    run = load_run(tmp_path / "pictures-shard-19-of-20")
    assert (run.complete, len(run.rows)) == (True, 0)


def test_a_folder_that_cannot_be_written_is_told_before_a_model_is_looked_for(evaluate: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "pictures").symlink_to(tmp_path / "nowhere" / "deep")
    for out, place, reason in (
        ("file", "file", "not a directory"),
        ("file/runs", "file", "not a directory"),
        ("runs", "runs/pictures", "no such file or directory"),
        ("a" * 300, f"{'a' * 300}/pictures", "file name too long"),
    ):
        code, _, err = evaluate(tmp_path / out, *ZERO, "--backbone", "none")
        assert (code, err) == (2, f"faircontext: {tmp_path / place}: cannot be written: {reason}\n")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everything")
def test_a_folder_that_may_not_be_written_is_told_too(evaluate: Run, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    code, _, err = evaluate(tmp_path / "closed" / "runs", *ZERO, "--backbone", "none")
    assert (code, err) == (2, f"faircontext: {tmp_path / 'closed'}: cannot be written: permission denied\n")


def test_looking_whether_a_folder_can_be_written_leaves_nothing(evaluate: Run, tmp_path: Path) -> None:
    code, _, err = evaluate(tmp_path / "new" / "runs", *ZERO, "--backbone", "none")
    assert code == 2
    assert "none" in err
    assert not list(tmp_path.iterdir())
