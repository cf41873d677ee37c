"""Pictures of a page where images lie in archives, tables, arrays and at addresses: read as the run read them."""

import base64
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from test_page import data_of

from faircontext.cli import main
from faircontext.datasets.containers import Place
from faircontext.report.images import image_place
from faircontext.report.page import build_page
from faircontext.runs.groups import find_runs
from faircontext.runs.store import load_run
from faircontext.sources import ArrayRow, Cell, Member, Remote

pytestmark = pytest.mark.usefixtures("without_charts")

COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 255, 255), (255, 0, 255)]


def png(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((32, 48, 3), colour, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write_table(path: Path, column: str, *groups: list[bytes]) -> Path:
    schema = pa.schema([("other", pa.binary()), (column, pa.binary())])
    with pq.ParquetWriter(path, schema) as writer:
        for group in groups:
            writer.write_table(pa.table({"other": [b"x"] * len(group), column: group}, schema))
    return path


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An image of each colour: two in an archive, two in a table, one at an address and one in a file."""
    monkeypatch.chdir(tmp_path)
    write_tar(tmp_path / "a.tar", {"./sub/0.png": png(COLOURS[0]), "1.png": png(COLOURS[1]), "1.cls": b"cat"})
    write_table(tmp_path / "t.parquet", "picture", [png(COLOURS[2])], [png(COLOURS[3])])
    fsspec.filesystem("memory").pipe_file("/page/4.png", png(COLOURS[4]))
    (tmp_path / "5.png").write_bytes(png(COLOURS[5]))
    return ["a.tar", "t.parquet", "memory://page/4.png", "5.png"]


def colours_of(run: Path) -> dict[str, tuple[int, ...]]:
    """Return the colour of the middle of the picture of each image that has one, by what the image is called."""
    data = data_of(build_page(find_runs([run])))
    found = {}
    for rank, panel in enumerate(data["panels"]):
        for path, number in zip(panel["paths"], panel["pictures"], strict=True):
            if number >= 0:
                picture = Image.open(io.BytesIO(base64.b64decode(data["thumbnails"][number])))
                rounded = (np.asarray(picture)[10, 20] > 127) * 255
                found[f"{rank}/{path}"] = tuple(map(int, rounded))
    return found


def test_images_of_all_kinds_have_their_own_picture(
    inputs: list[str], tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--method", "zero_shot"]
    words = [*inputs, "--labels", "cat,dog", "--image-column", "picture", *model, "--out", "run"]
    assert main(["classify", *words]) == 0
    run = tmp_path / "run"
    monkeypatch.chdir(run)  # paths are those of where the run was made
    found = colours_of(run)
    assert [*found.values()] == COLOURS
    assert [key.partition("/")[2] for key in found] == [
        "a.tar/./sub/0.png",
        "a.tar/1.png",
        "t.parquet/0",
        "t.parquet/1",
        "memory:///page/4.png",
        "5.png",
    ]
    write_tar(tmp_path / "a.tar", {"1.png": png(COLOURS[1])})
    (tmp_path / "t.parquet").write_bytes(b"no table")
    page = build_page(find_runs([run]))
    assert page.pictures == 3
    table = f"2 of 6 images have no picture: {tmp_path / 't.parquet'}: is no Parquet table that can be read: "
    assert page.warnings[0].startswith(table)  # what Arrow says follows
    assert page.warnings[0].endswith(" (t.parquet/0)")
    assert page.warnings[1:] == (
        f"1 of 6 images has no picture: {tmp_path / 'a.tar'} has no such image any more (a.tar/./sub/0.png)",
    )


def test_class_folders_at_any_depth_have_their_own_pictures(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    for name, inner in (("plain", ""), ("inner", "images"), ("split", "images/test"), ("stand_in", "val")):
        for number, label in enumerate(("cat", "dog")):
            folder = tmp_path / name / inner / label
            folder.mkdir(parents=True)
            (folder / "a.png").write_bytes(png(COLOURS[number]))
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--methods", "zero_shot"]
    sets = ["plain", "inner", "split", "stand_in"]
    assert (
        main(["evaluate", "--datasets", *sets, "--root", str(tmp_path), *model, "--out", str(tmp_path / "runs")]) == 0
    )
    assert [*colours_of(tmp_path / "runs").values()] == COLOURS[:2] * 4


def test_severities_of_one_array_are_other_images(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    pictures = np.zeros((10, 32, 32, 3), np.uint8)
    pictures[2:4], pictures[8:] = COLOURS[1], COLOURS[5]
    np.save(folder / "fog.npy", pictures)
    np.save(folder / "labels.npy", np.array([0, 1] * 5))
    (folder / "classnames.txt").write_text("".join(f"class {letter}\n" for letter in "abcdefghij"))
    sets = ["cifar10_c:fog:2", "cifar10_c:fog:5"]
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--methods", "zero_shot"]
    words = ["--datasets", *sets, "--root", str(tmp_path), "--partial", *model, "--out", str(tmp_path / "runs")]
    assert main(["evaluate", *words]) == 0
    assert [*colours_of(tmp_path / "runs").values()] == [COLOURS[1]] * 2 + [COLOURS[5]] * 2
    places = {image_place(run) for run in find_runs([tmp_path / "runs"])}
    assert places == {Place(str(folder), "fog:2"), Place(str(folder), "fog:5")}


@pytest.mark.usefixtures("inputs")
def test_where_images_lie(tmp_path: Path) -> None:
    np.save(tmp_path / "fog.npy", np.zeros((10, 2, 2, 3), np.uint8))
    place = Place(str(tmp_path), "fog:2", "picture")
    names = [
        "5.png",
        "a.tar/1.png",
        "t.parquet/1",
        "t.parquet/2",
        "memory:///page/4.png",
        "00001",
        "00002",
        "no.tar/1.png",
    ]
    sources, reasons = place.find(names)
    assert sources == {
        "5.png": tmp_path / "5.png",
        "a.tar/1.png": Member(str(tmp_path / "a.tar"), "1.png", 1536, len(png(COLOURS[1]))),
        "t.parquet/1": Cell(str(tmp_path / "t.parquet"), "picture", 1, 0, 1),
        "memory:///page/4.png": Remote("memory:///page/4.png"),
        "00001": ArrayRow(str(tmp_path / "fog.npy"), 3),
    }
    assert reasons.keys() == {"t.parquet/2", "00002", "no.tar/1.png"}
    assert Place("").find(["a.tar/1.png"]) == ({}, {"a.tar/1.png": "the run does not say where its images are"})
    assert Place(str(tmp_path)).find(["7.png"]) == ({}, {"7.png": "no such file"})
    assert "has no column image" in Place(str(tmp_path)).find(["t.parquet/1"])[1]["t.parquet/1"]


@pytest.mark.usefixtures("inputs")
def test_several_labels_are_in_tables_alone(
    tiny_folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--method", "zero_shot"]
    assert main(["classify", "5.png", "--labels", "cat", "--multi-label", *model, "--out", "run"]) == 0
    assert "nothing is decided" not in capsys.readouterr().err
    assert "image_column" not in json.loads((load_run(tmp_path / "run").folder / "run.json").read_text())
    assert main(["report", "run"]) == 0
    shown = capsys.readouterr()
    assert "1 image, 0 of them with pictures" in shown.out
    assert (
        "images that may have several labels are in tables alone: the page shows pictures of runs with one" in shown.err
    )
    assert main(["classify", "5.png", "--labels", "cat", *model]) == 0
    assert "with one class, cat, nothing is decided" in capsys.readouterr().err
