"""Environments that a command may be started in: a locale without letters beyond ASCII, a home that cannot be made."""

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from faircontext.cli import main

COMMAND = (sys.executable, "-m", "faircontext")
ASCII = {
    "Python's default": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
    "told to stay ASCII": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}
pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere file names are Unicode in any locale")


def start(*words: object, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in an environment with some variables, and none that has to do with locales or homes."""
    ours = ("LANG", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONCOERCECLOCALE", "MPLCONFIGDIR")
    environment = {
        name: value for name, value in os.environ.items() if name not in ours and name[:3] not in ("LC_", "XDG")
    }
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, env={**environment, **variables})


@pytest.fixture
def crêpes(tmp_path: Path) -> Path:
    folder = tmp_path / "bilder é" / "crêpes"
    folder.mkdir(parents=True)
    Image.new("RGB", (40, 30), (200, 30, 40)).save(folder / "süß 雪.png")
    return folder


@pytest.mark.process
@pytest.mark.parametrize("case", ASCII)
def test_names_are_true_in_every_output_of_a_locale_without_them(tmp_path, crêpes, case):
    rows, document = tmp_path / "é.csv", tmp_path / "ü.json"
    words = ("classify", crêpes.parent, "--labels", "crêpes,dog", "--method", "zero_shot")
    done = start(*words, "--csv", rows, "--json", document, **ASCII[case])
    assert (done.returncode, done.stderr.decode()) == (0, "")
    path = str(crêpes / "süß 雪.png")
    assert path in done.stdout.decode()
    with rows.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["path"], row["label"]) == (path, "crêpes")
    (answer,) = json.loads(document.read_text(encoding="utf-8"))["answers"]
    assert (answer["path"], answer["label"]) == (path, "crêpes")


@pytest.mark.parametrize("case", [pytest.param("Python's default", marks=pytest.mark.process), "told to stay ASCII"])
def test_a_message_has_the_true_name_of_a_file(tmp_path, case):
    done = start("classify", tmp_path / "süß 雪.png", "--labels", "cat,dog", **ASCII[case])
    assert done.returncode == 2
    assert done.stderr.decode() == f"faircontext: {tmp_path / 'süß 雪.png'}: no such file or folder\n"


def test_another_program_that_calls_the_command_is_not_started_again():
    code = (
        "import sys; from faircontext.cli import main; print(sys.flags.utf8_mode); sys.argv[1:] = ['--version']; main()"
    )
    environment = {**os.environ, **ASCII["told to stay ASCII"]}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, text=True)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "0"
    assert done.stdout.splitlines()[1].startswith("faircontext ")


@pytest.mark.parametrize(
    ("name", "words"),
    [("c\udcc3t", "has bytes that are not UTF-8"), ("c\x07at", "has control characters")],
)
def test_a_class_name_from_the_command_line_is_not_asked_about_a_file(tmp_path, capsys, name, words):
    Image.new("RGB", (4, 3)).save(tmp_path / "a.png")
    assert main(["classify", str(tmp_path / "a.png"), "--labels", f"{name},dog", "--method", "zero_shot"]) == 2
    assert capsys.readouterr().err == f"faircontext: class name number 1, {name!r}, {words}\n"


def test_a_class_name_from_a_file_is_asked_about_the_file(tmp_path, capsys):
    Image.new("RGB", (4, 3)).save(tmp_path / "a.png")
    (tmp_path / "names.txt").write_bytes("dog\ncat\n".encode("utf-16-le"))
    words = ["classify", str(tmp_path / "a.png"), "--labels-file", str(tmp_path / "names.txt"), "--method", "zero_shot"]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        f"faircontext: {tmp_path / 'names.txt'}: class name number 1, 'd\\x00o\\x00g\\x00', has control characters; "
        "is the file plain UTF-8?\n"
    )


@pytest.mark.process
def test_a_home_that_cannot_be_made_is_passed_over_in_silence(tmp_path, crêpes):
    (tmp_path / "file").touch()
    photo = next(crêpes.iterdir())
    words = ("explain", photo, "--labels", "cat,dog", "--views", "count=8", "--out", tmp_path / "page")
    done = start(*words, "--set", "masks=8", "k=2", HOME=str(tmp_path / "file" / "home"))
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert (tmp_path / "page" / "index.html").is_file()


def test_log_lines_of_libraries_are_kept_back_while_a_command_runs_and_no_longer():
    code = (
        "import logging, sys; from faircontext import cli\n"
        "cli._COMMANDS['speak'] = ('speak', 'run', '')\n"
        "speak = type(sys)('faircontext.cli.speak')\n"
        "speak.run = lambda _: logging.getLogger('library').warning('within') or 0\n"
        "sys.modules['faircontext.cli.speak'] = speak\n"
        "code = cli.main(['speak']); logging.getLogger('library').warning('after'); sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "after\n")


@pytest.mark.process
@pytest.mark.parametrize("closed", ["1>&-", "2>&-", pytest.param("0<&- 1>&- 2>&-", marks=pytest.mark.smoke)])
def test_what_was_closed_gets_nothing_and_neither_does_another_stream(tmp_path, crêpes, closed):
    words = ("classify", str(crêpes), "--labels", "crêpes", "--method", "zero_shot", "--csv", str(tmp_path / "a.csv"))
    command = shlex.join([*COMMAND, *words])
    done = subprocess.run(["sh", "-c", f"exec {command} {closed}"], capture_output=True, env={**os.environ})
    assert done.returncode == 0
    assert b"with one class, " not in done.stdout
    assert bool(done.stdout) == ("1" not in closed)
    assert bool(done.stderr) == ("2" not in closed)
    assert len((tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()) == 2


def test_a_current_folder_that_is_gone_is_one_line(tmp_path, crêpes):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = shlex.join([*COMMAND, "classify", str(crêpes), "--labels", "cat,dog"])
    done = subprocess.run(["sh", "-c", f"rmdir {gone}; exec {command}"], cwd=gone, capture_output=True)
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "faircontext: the current folder cannot be read: no such file or directory; change to another\n"
    )


@pytest.mark.process
@pytest.mark.parametrize("stream", ["1", "2"])
@pytest.mark.parametrize("option", ["--csv", "--json"])
def test_an_output_is_not_the_file_that_is_printed_to(tmp_path, crêpes, stream, option):
    place = tmp_path / "a.txt"
    command = shlex.join([*COMMAND, "classify", str(crêpes), "--labels", "a,b", "--method", "zero_shot", option])
    done = subprocess.run(["sh", "-c", f"exec {command} {place} {stream}> {place}"], capture_output=True)
    said = f"faircontext: {place}: is where this command prints to, which would be written over; name another file\n"
    assert done.returncode == 2
    assert (place.read_text() if stream == "2" else done.stderr.decode()) == said
