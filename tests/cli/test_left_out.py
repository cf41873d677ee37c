"""What lies beside photos and is no photo: each command that searches folders leaves it out and says so in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from coop_trees import draw
from faircontext.cli import main

Words = Callable[[str], list[str]]


@pytest.fixture
def words(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> Words:
    """Return a function that gives the words of a command on a folder of photos."""
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32"]
    root = ["--root", str(tmp_path)]
    commands = {
        "classify": [str(tmp_path / "mine"), "--labels-from-folders", "--method", "zero_shot", *model],
        "evaluate": ["--datasets", "mine", "--methods", "zero_shot", "--out", str(tmp_path / "runs"), *root, *model],
        "data": ["check", "mine", *root],
    }
    return lambda command: [command, *commands[command]]


@pytest.mark.parametrize("command", ["classify", "evaluate", "data"])
def test_every_command_says_in_one_line_each_what_it_left_out(
    command: str, words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("cat/1.png", "cat/deep/2.png", "dog/3.png", "@eaDir/4.png", "cat/#recycle/5.png", "cat/#recycle/6.png"):
        draw(tmp_path / "mine" / key)
    for key in ("cat/a.dng", "dog/b.cr2", "dog/c.mp4", "d.jp2"):
        (tmp_path / "mine" / key).touch()
    (tmp_path / "mine/cat/to_dog").symlink_to("../dog")
    (tmp_path / "mine/dog/to_cat").symlink_to("../cat")
    assert main(words(command)) == 0
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert f"3 images{', 2 classes' if command == 'classify' else ''}" in text
    for line in (
        "left out: 3 files in #recycle, @eaDir",
        "passed over: 2 camera raw (.cr2 .dng), 1 video (.mp4), 1 JPEG 2000 (.jp2)",
        "1 of 3 images lie deeper than right in a class folder, and count for the outer one, cat/deep/2.png for cat; ",
        ", whose images count once, are left out: ",
    ):
        assert text.count(line) == 1, line


def test_what_was_decided_where_files_were_read_is_said_once_for_each_kind(
    words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("cat/1.gif", "cat/2.gif", "dog/3.gif"):
        (tmp_path / "mine" / key).parent.mkdir(parents=True, exist_ok=True)
        first, second = Image.new("RGB", (40, 40), "red"), Image.new("RGB", (40, 40), "blue")
        first.save(tmp_path / "mine" / key, save_all=True, append_images=[second])
    draw(tmp_path / "mine" / "dog" / "4.png")
    assert main(words("classify")) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "gif" in line]
    assert line.startswith(f"note: {tmp_path / 'mine/cat/1.gif'} and 2 more: ")
    assert "first" in line


@pytest.mark.parametrize("command", ["classify", "evaluate", "data"])
def test_a_folder_of_photos_alone_needs_no_line(
    command: str, words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in ("cat/1.png", "dog/2.png", ".hidden/3.png", "README.txt"):
        draw(tmp_path / "mine" / key) if key.endswith("png") else (tmp_path / "mine" / key).touch()
    assert main(words(command)) == 0
    captured = capsys.readouterr()
    assert "left out" not in captured.out + captured.err
    assert "passed over" not in captured.out + captured.err
