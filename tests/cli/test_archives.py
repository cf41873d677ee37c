"""Odd archives and what lies beside pictures: `classify`, `evaluate` and `data check` read and say the same."""

import csv
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coop_trees import draw
from faircontext.cli import main
from faircontext.runs.store import load_run

pytest.importorskip("webdataset")

PACK = "pack the files themselves (tar --dereference, without --sparse)"
Make = Callable[[Path], None]


def pack(folder: Path, members: dict[str, bytes | tarfile.TarInfo]) -> None:
    """Write an archive whose members are files of some content, or other things, in this order."""
    with tarfile.open(folder / "a.tar", "w") as tar:
        for name, member in members.items():
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.name = name
            content = member if isinstance(member, bytes) else b""
            info.size = info.size or len(content)
            tar.addfile(info, io.BytesIO(content or bytes(info.size)))


def link(target: str, kind: bytes = tarfile.LNKTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


def picture(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (20, 30, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def hard_links(folder: Path) -> None:
    """Store contents once under other names, as of data that is known by its digest, and link to them."""
    members = {"blobs/0": picture(0), "blobs/1": b"dog", "1.cls": link("blobs/1"), "1.png": link("blobs/0")}
    pack(folder, {**members, "2.png": link("1.png"), "2.txt": b"cat"})


def other_links(folder: Path) -> None:
    dangling, symbolic = link("none.png"), link("1.png", tarfile.SYMTYPE)
    pack(folder, {"1.png": picture(0), "1.txt": b"dog", "2.png": dangling, "3.png": symbolic, "4": link("", b"6")})


def sparse(form: int) -> Make:
    """Return what packs a file with a hole as `tar --sparse` does, in an old header or as an attribute of POSIX."""

    def make(folder: Path) -> None:
        pack(folder, {"1.png": picture(0), "1.txt": b"dog"})
        info = tarfile.TarInfo("2.bmp")
        info.size = 1024
        if form == tarfile.PAX_FORMAT:
            info.pax_headers = {"GNU.sparse.map": "0,512,5000,512", "GNU.sparse.size": "5512"}
            info.pax_headers |= {"GNU.sparse.name": "2.bmp"}
            header = info.tobuf(tarfile.PAX_FORMAT)
        else:
            block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
            block[156:157] = tarfile.GNUTYPE_SPARSE
            block[386:434] = b"".join(b"%011o\0" % number for number in (0, 512, 5000, 512))
            block[483:495] = b"%011o\0" % 5512
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
            header = bytes(block)
        archive = folder / "a.tar"
        content = archive.read_bytes()
        archive.write_bytes(header + bytes(1024) + content)

    return make


def dots(folder: Path) -> None:
    pack(folder, {"22.05.png": picture(0), "22.05.cls": b"dog", "s1.input.png": picture(1), "s1.output.cls": b"cat"})


def not_in_order(folder: Path) -> None:
    pack(folder, {"1.png": picture(0), "2.png": picture(1), "1.cls": b"cat", "2.cls": b"dog", "README.txt": b"?"})


def of_other_kinds(folder: Path) -> None:
    pack(
        folder,
        {"1.png": picture(0), "1.mp4": b"", "more.zip": b"", "RECYCLER/2.png": picture(1), "found.001/3.png": b""},
    )
    (folder / "rest.tar.gz").touch()
    (folder / "._b.tar").touch()  # which macOS puts beside a file


def in_folders(folder: Path) -> None:
    for name in ("cat/1.png", "dog/2.png", "RECYCLER/S-1-5-21/Dc1.png", "FOUND.000/3.png", "Temporary Items/4.png"):
        draw(folder / name)
    draw(folder / "cat/Network Trash Folder/5.png")
    for name in ("cat/more.zip", "rest.tar.GZ", "old.7z"):
        (folder / name).touch()


APART = "do not lie beside them, and are not read; pack the archive in order of names (tar --sort=name)"
CASES: dict[str, tuple[Make, dict[str, str], list[str]]] = {
    "hard links": (hard_links, {"a.tar/1.png": "dog", "a.tar/2.png": "cat"}, []),
    "other links": (
        other_links,
        {"a.tar/1.png": "dog"},
        [f"a.tar: links and sparse files are not read, 3 in all: 2.png, 3.png, 4; {PACK}"],
    ),
    "sparse, GNU": (
        sparse(tarfile.GNU_FORMAT),
        {"a.tar/1.png": "dog"},
        [f"a.tar: links and sparse files are not read, 1 in all: 2.bmp; {PACK}"],
    ),
    "sparse, POSIX": (
        sparse(tarfile.PAX_FORMAT),
        {"a.tar/1.png": "dog"},
        [f"a.tar: links and sparse files are not read, 1 in all: 2.bmp; {PACK}"],
    ),
    "points in names": (
        dots,
        {"a.tar/22.05.png": "", "a.tar/s1.input.png": ""},
        ["a.tar: no label is taken from 22.05.cls, s1.output.cls: a sample's name ends at its first point; leave the"],
    ),
    "not in order": (
        not_in_order,
        {"a.tar/1.png": "", "a.tar/2.png": ""},
        [f"a.tar: the labels of 2 images {APART}"],
    ),
    "folders": (
        in_folders,
        {"cat/1.png": "cat", "dog/2.png": "dog"},
        [
            "left out: 4 files in FOUND.000, Network Trash Folder, RECYCLER, Temporary Items",
            "passed over: 3 to be unpacked first (.7z .tar.gz .zip)",
        ],
    ),
}


@pytest.fixture
def run(
    tmp_path: Path, tiny_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Return a function that runs a command on the folder `mine` and returns its exit code and all that it says."""
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32"]
    zero_shot = ["--labels", "cat,dog", "--method", "zero_shot", "--csv", str(tmp_path / "rows.csv"), *model]
    root = ["--root", str(tmp_path)]
    commands = {
        "classify": zero_shot,
        "evaluate": ["--datasets", "mine", "--methods", "zero_shot", "--out", str(tmp_path / "runs"), *root, *model],
        "data": ["check", "mine", *root],
    }

    def call(command: str, *words: str) -> tuple[int, str]:
        code = main([command, *words, *commands[command]])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


@pytest.mark.parametrize("case", CASES)
def test_three_commands_read_alike_and_say_in_one_line_each_what_they_do_not_read(
    case: str, tmp_path: Path, run: Callable[..., tuple[int, str]]
) -> None:
    make, labels, lines = CASES[case]
    folder = tmp_path / "mine"
    folder.mkdir()
    make(folder)
    (folder / "classnames.txt").write_text("cat\ndog\n")
    word = str(folder / "a.tar") if (folder / "a.tar").is_file() else str(folder)
    said = {"classify": run("classify", word), "evaluate": run("evaluate"), "data": run("data")}
    for command, (code, text) in said.items():
        assert code == 0, (command, text)
        for line in lines:
            assert text.count(line) == 1, (command, line, text)
    assert f"{len(labels)} image" in said["data"][1]
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = {row["path"].removeprefix(f"{folder}{os.sep}"): row["label"] for row in rows}
    assert names == labels
    run_rows = load_run(tmp_path / "runs/mine").rows
    assert dict(zip(run_rows["path"].to_pylist(), run_rows["label"].to_pylist(), strict=True)) == labels


def test_what_lies_beside_archives_and_in_them_is_counted(tmp_path: Path, run: Callable[..., tuple[int, str]]) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    of_other_kinds(folder)
    (folder / "classnames.txt").write_text("cat\ndog\n")
    for command, packed in (("evaluate", "2 to be unpacked first (.tar.gz .zip)"), ("data", "2 to be unpacked")):
        code, text = run(command)
        assert code == 0, text
        assert f"passed over: 1 video (.mp4), {packed}" in text
        assert "left out: 2 files in RECYCLER, found.001" in text
    code, text = run("classify", str(folder / "*.tar*"))
    assert code == 0
    assert "passed over: 1 video (.mp4), 1 to be unpacked first (.zip)" in text
    assert "passed over: 1 to be unpacked first (.tar.gz)" in text


@pytest.mark.parametrize("table", ["labels.csv", "metadata.csv", ""])
def test_where_pictures_are_still_packed_it_is_said_that_they_are_missing(
    table: str, tmp_path: Path, run: Callable[..., tuple[int, str]]
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "photos.zip").touch()
    if table:
        (folder / table).write_text(f"{'path' if table == 'labels.csv' else 'file_name'},label\ncat/1.png,cat\n")
    packed = "; passed over: 1 to be unpacked first (.zip)"
    absent = (
        f"none of its 1 images is in {folder}, for example cat/1.png" if table else "neither labels.csv nor folders"
    )
    for command, first in (("classify", "no images in"), ("evaluate", absent), ("data", "")):
        code, text = run(command, *([str(folder)] if command == "classify" else []))
        assert code == (1 if command == "data" else 2)
        assert first in text
        assert packed in text, (command, text)
    code, text = run("classify", str(folder / "photos.zip"))
    assert (code, text.count("\n")) == (2, 1)
    assert "photos.zip: it is compressed; unpack it into a folder, or" in text
