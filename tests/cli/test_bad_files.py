"""A folder with bad files of every kind among good ones: each gets its row, and the run ends with one summary."""

import csv
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from faircontext.cli import main
from faircontext.runs.options import ClassifyOptions

LABELS = ("--labels", "cat,dog")

pytestmark = pytest.mark.usefixtures("one_lite")


@pytest.fixture
def mixed(tmp_path: Path, make_image) -> Path:
    """Twelve images and one bad file of each of ten kinds, their names mixed in order."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for number in range(12):
        Image.fromarray(make_image(number)).save(folder / f"{number:02}_good.{'png' if number % 2 else 'JPG'}")
    whole = (folder / "00_good.JPG").read_bytes()
    bad = {
        "01_empty.jpg": b"",
        "02_web.jpg": b"<!doctype html><title>404</title>",
        "03_paper.png": b"%PDF-1.7\n",
        "04_text.webp": b"just some words\n",
        "05_cut.jpg": whole[: len(whole) // 2],
        "06_noise.bmp": np.random.default_rng(0).bytes(500),
        "07_archive.tif": b"PK\x03\x04" + bytes(40),
    }
    for name, content in bad.items():
        (folder / name).write_bytes(content)
    (folder / "08_nothing.gif").symlink_to(folder / "gone.gif")
    (folder / "09_folder.jpg").mkdir()
    os.mkfifo(folder / "10_pipe.jpg")
    return folder


def test_good_files_are_answered_and_bad_ones_have_a_reason(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["classify", str(mixed), *LABELS, "--method", "zero_shot", "--csv", str(tmp_path / "rows.csv")])
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = {Path(row["path"]).name: row for row in csv.DictReader(file)}
    assert code == 1
    assert {name for name, row in rows.items() if row["prediction"]} == {name for name in rows if "good" in name}
    assert {name: row["error"] for name, row in rows.items() if row["error"]} == {
        "01_empty.jpg": "the file is empty",
        "02_web.jpg": "not an image but a web page",
        "03_paper.png": "not an image but a PDF",
        "04_text.webp": "not an image but text",
        "05_cut.jpg": rows["05_cut.jpg"]["error"],
        "06_noise.bmp": "not an image of a kind that can be read",
        "07_archive.tif": "not an image but a ZIP archive",
        "08_nothing.gif": "a link to nothing",
        "10_pipe.jpg": rows["10_pipe.jpg"]["error"],
    }
    assert rows["05_cut.jpg"]["error"].startswith("cannot be decoded: image file is truncated")
    assert "12 answered, 9 unreadable, 0 fell back" in capsys.readouterr().out


def test_answers_keep_to_their_files_beside_bad_ones(mixed: Path, tmp_path: Path) -> None:
    def answers(*paths: Path) -> dict[str, str]:
        main(["classify", *map(str, paths), *LABELS, "--method", "zero_shot", "--csv", str(tmp_path / "rows.csv")])
        with (tmp_path / "rows.csv").open(newline="") as file:
            return {row["path"]: row["confidence"] for row in csv.DictReader(file) if row["prediction"]}

    assert answers(mixed) == answers(*sorted(mixed.glob("*good*"), reverse=True))


def test_strict_stops_at_the_first_bad_file_and_keeps_what_was_answered(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.csv"
    assert main(["classify", str(mixed), *LABELS, "--method", "zero_shot", "--strict", "--csv", str(out)]) == 1
    assert [line.split(",")[0].rpartition("/")[2] for line in out.read_text().splitlines()[1:]] == [
        "00_good.JPG",
        "01_empty.jpg",
    ]
    assert "as --strict asks" in capsys.readouterr().err


def test_exif_and_the_limit_are_options(tmp_path: Path, make_image, capsys: pytest.CaptureFixture[str]) -> None:
    tags = Image.Exif()
    tags[0x0112] = 6
    Image.fromarray(make_image(3)).save(tmp_path / "a.jpg", exif=tags)
    confidences = set()
    for options in (["--exif"], ["--no-exif"]):
        main(["classify", str(tmp_path / "a.jpg"), *LABELS, *options, "--csv", str(tmp_path / "rows.csv")])
        confidences.add((tmp_path / "rows.csv").read_text().splitlines()[1].split(",")[5])
    assert len(confidences) == 2
    assert main(["classify", str(tmp_path / "a.jpg"), *LABELS, "--max-pixels", "100"]) == 1
    assert "120 x 90 pixels are more than the limit of 100 (max_pixels)" in capsys.readouterr().out


def image_file(folder: Path, make_image) -> Path:
    Image.fromarray(make_image(0)).save(folder / "a.png")
    return folder / "a.png"


def _tar(folder: Path, picture: bytes) -> Path:
    with tarfile.open(folder / "s.tar", "w") as tar:
        member = tarfile.TarInfo("0.png")
        member.size = len(picture)
        tar.addfile(member, io.BytesIO(picture))
    return folder / "s.tar"


def _parquet(folder: Path, picture: bytes) -> Path:
    pq.write_table(pa.table({"image": [picture]}), folder / "t.parquet")
    return folder / "t.parquet"


@pytest.fixture
def inputs(tmp_path: Path, make_image, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a file of every kind that is read into the current folder."""
    monkeypatch.chdir(tmp_path)
    picture = image_file(tmp_path, make_image).read_bytes()
    _tar(tmp_path, picture)
    _parquet(tmp_path, picture)
    Path("photos").mkdir()
    Path("photos", "a.png").write_bytes(picture)
    Path("photos", "labels.csv").write_text("path,label\na.png,cat\n")
    Path("hard.csv").hardlink_to("a.png")
    Path("other.jpg").write_bytes(b"another image")
    texts = {
        "list.csv": "image,label\na.png,cat\n",
        "names.txt": "cat\ndog\n",
        "templates.txt": "a {}\n",
        "words.json": '{"cat": ["a cat"], "dog": ["a dog"]}',
        "negatives.txt": "thing\nplace\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text)


OVER_READ, OVER_IMAGE, OVER_OUTPUT = "would be written over what is read", "name another file", "or over another output"


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    ("words", "taken", "said"),
    [
        ("a.png --labels cat,dog --csv a.png", "a.png", OVER_READ),
        ("a.png --labels cat,dog --json photos/../a.png", "a.png", OVER_READ),
        ("a.png --labels-file names.txt --json names.txt", "names.txt", OVER_READ),
        ("s.tar --labels cat,dog --csv s.tar", "s.tar", OVER_READ),
        ("t.parquet --labels cat,dog --scores t.parquet", "t.parquet", OVER_READ),
        ("photos --labels cat,dog --csv photos/labels.csv", "photos/labels.csv", OVER_READ),
        ("list.csv --labels cat,dog --csv list.csv", "list.csv", OVER_READ),
        ("a.png --labels cat,dog --templates templates.txt --json templates.txt", "templates.txt", OVER_READ),
        ("a.png --labels cat,dog --descriptions words.json --json words.json", "words.json", OVER_READ),
        (
            "a.png --labels cat,dog --multi-label --negatives negatives.txt --csv negatives.txt",
            "negatives.txt",
            OVER_READ,
        ),
        ("a.png --labels cat,dog --csv hard.csv", "hard.csv", OVER_IMAGE),
        ("a.png --labels cat,dog --csv other.jpg", "other.jpg", OVER_IMAGE),
        ("a.png --labels cat,dog --csv list.csv --json list.csv", "list.csv", OVER_OUTPUT),
        ("a.png --labels cat,dog --csv list.csv --json no/such.json", "list.csv", "cannot be written"),
        (
            "a.png --labels cat,dog --json names.txt --method rlcf --set reward=nonsense",
            "names.txt",
            "unknown backbone 'nonsense'",
        ),
        ("a.png --labels cat,dog --json names.txt --backbone ViT-B-16", "names.txt", "needs weights; give pretrained="),
        ("a.png --labels cat,dog --json names.txt --pretrained openai", "names.txt", "leave pretrained out"),
    ],
)
def test_no_output_replaces_a_file_where_nothing_can_be_answered_or_it_is_read(
    words: str, taken: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(taken).read_bytes()
    method = () if "--method" in words else ("--method", "zero_shot")
    assert main(["classify", *words.split(), *method]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert Path(taken).read_bytes() == before


def test_files_of_the_model_and_of_thresholds_are_read(tmp_path: Path) -> None:
    """So no output may replace them."""
    weights = tmp_path / "model" / "sub" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    files = {name: tmp_path / f"{name}.file" for name in ("context", "adapter", "pretrained")}
    asked = {**files, "pretrained": str(files["pretrained"]), "unknown": "thresholds.json"}
    options = ClassifyOptions(labels="cat,dog", backbone=f"local-dir:{tmp_path / 'model'}", **asked)
    assert {weights, *files.values(), Path("thresholds.json")} <= {*options.files_read()}


def test_no_output_replaces_a_run(tmp_path: Path, make_image, capsys: pytest.CaptureFixture[str]) -> None:
    run = [
        "classify",
        str(image_file(tmp_path, make_image)),
        *LABELS,
        "--method",
        "zero_shot",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(run) == 0
    for name in ("run.json", "rows.parquet"):
        before = (tmp_path / "run" / name).read_bytes()
        assert main([*run, "--resume", "--csv", str(tmp_path / "run" / name)]) == 2
        assert f"{name}: would be written over what is read" in capsys.readouterr().err
        assert (tmp_path / "run" / name).read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_a_full_disk_costs_the_json_file_alone(tmp_path: Path, make_image, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["classify", str(image_file(tmp_path, make_image)), *LABELS, "--method", "zero_shot"]
    assert main([*words, "--csv", str(tmp_path / "rows.csv"), "--json", "/dev/full"]) == 2
    shown = capsys.readouterr()
    assert "1 answered, 0 unreadable" in shown.out
    assert shown.err == "faircontext: /dev/full: cannot be written: no space left on device\n"
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["c\0a\0t", "\x1b[31mred", "a\ud800", "\u200b"])
def test_names_that_cannot_be_shown_are_refused(
    name: str, tmp_path: Path, make_image, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["classify", str(image_file(tmp_path, make_image)), "--labels", f"cat,{name}", "--method", "zero_shot"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("faircontext: class name number 2")
    assert error.count("\n") == 1


def test_a_name_without_room_for_learnable_tokens_is_found_before_outputs_are_touched(
    tmp_path: Path, make_image, capsys
) -> None:
    earlier = tmp_path / "rows.csv"
    earlier.write_text("precious")
    words = ["classify", str(image_file(tmp_path, make_image)), "--labels", "dog," + "long " * 118]
    assert main([*words, "--set", "masks=8", "context=cl-hp", "--csv", str(earlier)]) == 2
    assert "4 of them learnable" in capsys.readouterr().err
    assert earlier.read_text() == "precious"


def test_a_report_replaces_the_target_of_a_link(tmp_path: Path, make_image) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    words = ["classify", str(image_file(tmp_path, make_image)), *LABELS, "--method", "zero_shot"]
    assert main([*words, "--json", str(tmp_path / "link.json")]) == 0
    assert (tmp_path / "link.json").is_symlink()
    assert "answers" in (tmp_path / "target.json").read_text()


@pytest.mark.process
def test_file_names_of_any_bytes_are_read_from_a_list_and_written_so_that_json_reads_them(
    tmp_path: Path, make_image
) -> None:
    path = image_file(tmp_path, make_image)
    odd = os.fsencode(tmp_path) + b"/non\xffutf8.png"
    path.rename(os.fsdecode(odd))
    command = [sys.executable, "-m", "faircontext", "classify", "-", *LABELS, "--method", "zero_shot"]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "run.json")],
        input=odd + b"\n",
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    (answer,) = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["answers"]
    assert os.fsencode(answer["path"]) == odd


@pytest.mark.process
def test_a_process_without_standard_output_ends_well() -> None:
    done = subprocess.run(f"{sys.executable} -m faircontext list methods >&-", shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_into_a_closed_pipe_ends_without_a_word() -> None:
    command = f"{sys.executable} -m faircontext classify --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert done.returncode in (0, 141)  # whether the reader is gone already is a race
    assert done.stderr == b""


def test_an_interruption_while_loading_says_so(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("faircontext.cli._dispatch", interrupted)
    assert main(["classify"]) == 130
    assert capsys.readouterr().err == "faircontext: interrupted\n"


def test_folders_that_lie_too_deep_are_one_line(tmp_path: Path, capsys) -> None:
    place = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1100):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(place)
    assert main(["classify", str(tmp_path), *LABELS]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)
