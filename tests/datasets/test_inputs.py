"""Images as people name them: what is found under each kind of word, with which labels; one line for what is wrong."""

import json
import re
import socket
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faircontext import FairContextError, load_image
from faircontext.datasets import load_dataset
from faircontext.datasets.containers import InputOptions
from faircontext.datasets.inputs import Inputs, collect
from made_inputs import pixels, png, write_images, write_tar

NAMES = ("cat", "dog", "house")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def find(*words: str, listed: Sequence[str] = (), **options: Any) -> Inputs:
    return collect(words, listed, NAMES, options=InputOptions(**options))


def labelled(found: Inputs) -> list[tuple[str, str | None]]:
    return [(sample.key, None if sample.label is None else NAMES[sample.label]) for sample in found.images]


# Patterns, lists, what is left out


@pytest.mark.parametrize(
    ("files", "word", "keys"),
    [
        ("a/1.png a/2.jpg a/deep/3.png a/notes.txt b/4.png", "*/[12].*", "a/1.png a/2.jpg"),
        ("a/1.png a/2.jpg a/deep/3.png a/notes.txt", "a/*", "a/1.png a/2.jpg a/deep/3.png"),
        ("a/1.png a/2.jpg a/deep/3.png b/4.png", "**/*.png", "a/1.png a/deep/3.png b/4.png"),
        ("a[1].png a1.png", "a[1].png", "a[1].png"),  # a file of this name
        ("b{1}.png", "b{1}.png", "b{1}.png"),
        ("a/000.png a/001.png a/002.png", "a/{000..002}.png", "a/000.png a/001.png a/002.png"),
    ],
)
def test_what_a_pattern_names(files: str, word: str, keys: str) -> None:
    for name in files.split():
        Path(name).touch() if name.endswith("txt") else write_images(Path(), name)
    assert [key for key, _ in labelled(find(word))] == keys.split()


def of(name: str, content: str | bytes) -> Callable[[], object]:
    return lambda: Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


PACKED = "it is compressed; unpack it into a folder, or pack it again without compression"
NO_TAR = "a.tar: is no tar archive that can be read: "
REFUSED = {
    "no such pattern": ("x/*.png", None, "x/*.png: no image has such a name"),
    "a range beyond": ("a/{000..003}.png", None, "a/000.png: no such file or folder"),
    "a brace": ("a/{000.png", None, "a/{000.png: a brace is not closed; write a range as {000..999}"),
    "a long range": (
        "a/{000000000..099999999}.tar",
        None,
        "a/{000000000..099999999}.tar: stands for 100,000,000 names, at most 1,000,000 are possible; write",
    ),
    "long ranges": ("{0..999}/{0..999}/{0..9}.png", None, "{0..999}/{0..999}/{0..9}.png: stands for 10,000,000 names"),
    "tar.gz": ("a.tar.gz", of("a.tar.gz", b"\x1f\x8b"), f"a.tar.gz: {PACKED}"),
    "tgz": ("b.TGZ", of("b.TGZ", b"\x1f\x8b"), f"b.TGZ: {PACKED}"),
    "compressed": (
        "a.tar",
        of("a.tar", b"\x1f\x8b" + bytes(600)),
        f"{NO_TAR}{PACKED}",
    ),
    "an empty tar": (
        "a.tar",
        of("a.tar", ""),
        f"{NO_TAR}empty file; copy or pack",
    ),
    "no tar": ("a.tar", of("a.tar", "no archive" * 100), f"{NO_TAR}invalid header; copy or pack"),
    "other columns": (
        "a.csv",
        of("a.csv", "x,y\n1,2\n"),
        "a.csv: has no column path or file_name, but x, y; name one",
    ),
    "not an object": ("a.jsonl", of("a.jsonl", '{"path": "1.png"}\n[1]\n'), "a.jsonl, line 2: is no JSON object"),
    "cut JSON": ("a.jsonl", of("a.jsonl", '{"path": "1.png"}\n{"file'), "a.jsonl, line 2: is no JSON object"),
    "no rows": ("a.jsonl", of("a.jsonl", ""), "a.jsonl: has no rows; write one for each image"),
    "no Parquet": ("a.parquet", of("a.parquet", "PAR1 no more"), "a.parquet: is no Parquet table that can be read: "),
    "empty Parquet": ("a.parquet", of("a.parquet", ""), "a.parquet: is no Parquet table that can be read: "),
    "an unknown system": ("nowhere://x", None, "nowhere://x: cannot be read: no file system is called 'nowhere'; use "),
    "a remote archive": ("memory://x/a.tar", None, "memory://x/a.tar: archives and tables are read from local disks"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_one_line(case: str) -> None:
    word, write, said = REFUSED[case]
    if write is not None:
        write()
    with pytest.raises(FairContextError) as refused:
        find(word)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("word", ["a.tar", "a/{0..1}.png"])
def test_without_webdataset_it_says_what_to_install(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.tar").touch()
    monkeypatch.setattr("faircontext.datasets.containers.find_spec", lambda _: None)
    with pytest.raises(FairContextError, match=r": needs webdataset: pip install 'faircontext\[webdataset\]'$"):
        find(word)


def test_what_a_list_names_may_be_of_any_kind() -> None:
    write_images(Path(), "cat/1.png")
    write_images(Path(), "2.png")
    found = find("-", listed=["cat/1.png\n", "missing.png\n", f"file://{Path.cwd()}/2.png\n"])
    assert labelled(found) == [
        ("cat/1.png", "cat"),
        ("missing.png", None),
        (f"file://{Path.cwd()}/2.png", None),
    ]


def test_what_is_excluded_is_left_out_and_counted() -> None:
    for name in ("cat/1.png", "cat/1_small.png", "old/2.png", "old/deep/3.png", "dog/old.png"):
        write_images(Path(), name)
    found = find(".", exclude=("*_small.*", "old"))
    assert [key for key, _ in labelled(found)] == ["cat/1.png", "dog/old.png"]
    assert "left out by --exclude: 3 files" in found.warnings
    assert [key for key, _ in labelled(find(".", exclude=("*/deep/*", "dog/*")))] == [
        "cat/1.png",
        "cat/1_small.png",
        "old/2.png",
    ]
    assert [key for key, _ in labelled(find("cat/1.png", "-", listed=["old/2.png"], exclude=("old",)))] == ["cat/1.png"]
    with pytest.raises(FairContextError, match="--exclude is empty"):
        find(".", exclude=("",))


def test_clutter_is_left_out_and_counted_everywhere() -> None:
    for name in ("a/1.png", "a/@eaDir/x.png", "a/#recycle/y.png", "a/.thumbnails/z.png", "a/__MACOSX/1.png"):
        write_images(Path(), name)
    Path("a/Thumbs.db").touch()
    found = find("a")
    assert [key for key, _ in labelled(found)] == ["a/1.png"]
    assert found.warnings == ("left out: 5 files in #recycle, .thumbnails, @eaDir, Thumbs.db, __MACOSX",)
    write_images(Path(), "a/b/2.png")
    assert [key for key, _ in labelled(find("a/*/*.png"))] == ["a/b/2.png"]
    assert find("a/*/*.png").warnings == ("left out: 3 files in #recycle, @eaDir, __MACOSX",)


# Tables beside images


@pytest.mark.parametrize("name", ["labels.csv", "metadata.csv", "metadata.jsonl"])
def test_a_table_in_a_folder_gives_labels_before_folders_do(name: str) -> None:
    for key in ("photos/cat/1.png", "photos/cat/2.png", "photos/3.png"):
        write_images(Path(), key)
    rows = [("cat/1.png", "dog"), ("3.png", "house"), ("gone.png", "cat"), ("cat/2.png", "snail")]
    if name.endswith("jsonl"):
        text = "".join(json.dumps({"file_name": path, "label": label, "more": 1}) + "\n" for path, label in rows)
    else:
        column = "path" if name == "labels.csv" else "file_name"
        text = "".join(f"{path},{label}\n" for path, label in [(column, "label"), *rows])
    (Path("photos") / name).write_text(text)
    found = find("photos")
    assert labelled(found) == [("photos/3.png", "house"), ("photos/cat/1.png", "dog"), ("photos/cat/2.png", None)]
    line = 4 if name.endswith("jsonl") else 5
    assert found.truth_warnings[:2] == (
        f"photos/{name}: gives the class of 2 images; 1 more that it lists are not there",
        "labels that are no class, whose 1 image counts in no accuracy: 'snail'; the first in "
        f"photos/{name}, line {line}",
    )


def test_a_table_without_any_label_leaves_that_to_folders() -> None:
    write_images(Path(), "photos/cat/1.png")
    for text in ("path,label\ncat/1.png,\n", "path,text\ncat/1.png,a caption\n", "id,text\n1,2\n"):
        Path("photos/labels.csv").write_text(text)
        assert labelled(find("photos")) == [("photos/cat/1.png", "cat")]
    assert find("photos").warnings[0].startswith("no labels are taken from photos/labels.csv: has no column path or")


def test_a_table_that_is_named_lists_the_images() -> None:
    for key in ("photos/1.png", "photos/2.png", "photos/3.png"):
        write_images(Path(), key)
    Path("photos/list.csv").write_text("picture,kind\n2.png,0\n1.png,dog\ngone.png,\n")
    found = find("photos/list.csv", image_column="picture", label_column="kind")
    assert labelled(found) == [("photos/2.png", "cat"), ("photos/1.png", "dog"), ("photos/gone.png", None)]


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (["photos/1.png", "photos/list.csv"], "dog"),  # said by the second alone
        (["photos", "photos/list.csv"], "dog"),
        (["photos/list.csv", "photos/other.csv"], None),
        (["photos/*", "photos/other.csv"], "cat"),
        (["p*", "photos/list.csv"], "dog"),  # whose table is not asked for
        (["photos/blank.csv", "photos/list.csv"], "dog"),
    ],
)
def test_tables_agree_on_an_image_that_several_list(words: list[str], label: str | None) -> None:
    write_images(Path(), "photos/1.png")
    Path("photos/blank.csv").write_text("path,label\n1.png,\n")
    Path("photos/list.csv").write_text("path,label\n1.png,dog\n")
    Path("photos/other.csv").write_text("path,label\n./1.png,cat\n")
    if label is not None:
        assert labelled(find(*words)) == [("photos/1.png", label)]
        return
    said = r"^photos/1.png: has two labels in photos/list.csv, photos/other.csv; take one of them away$"
    with pytest.raises(FairContextError, match=said):
        find(*words)


def test_a_column_that_is_asked_for_and_not_there_is_one_line() -> None:
    write_images(Path(), "photos/cat/1.png")
    for name in ("photos/labels.csv", "list.csv"):
        Path(name).write_text("path,class\nphotos/cat/1.png,dog\n")
    for words in (["photos"], ["list.csv"]):
        with pytest.raises(FairContextError, match=r"csv: has no column kind, but path, class; name one with --label-"):
            find(*words, label_column="kind")
    Path("photos/labels.csv").unlink()
    for options, said in (
        (
            {"image_column": "x"},
            "--image-column x: no table was read (.parquet, .csv, .jsonl, or labels.csv in a folder)",
        ),
        ({"image_column": "x", "label_column": "y"}, "--image-column x and --label-column y: no table was read"),
    ):
        assert any(line.startswith(said) for line in find("photos", **options).warnings)
    assert find("list.csv", label_column="class").warnings == ()


def test_of_two_tables_in_a_folder_it_is_said_which_is_taken() -> None:
    write_images(Path(), "photos/1.png")
    Path("photos/labels.csv").write_text("path,label\n1.png,dog\n")
    Path("photos/metadata.csv").write_text("file_name,label\n1.png,cat\n")
    said = "photos/labels.csv: is taken, and metadata.csv beside it is not read"
    found = find("photos")
    assert labelled(found) == [("photos/1.png", "dog")]
    assert said in found.warnings
    assert said in load_dataset("photos", Path()).warnings


# Tar archives


def test_archives_are_read_as_webdataset_writes_them(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    pictures = [png(number) for number in range(5)]
    samples = [
        {"__key__": "0", "png": pictures[0], "cls": 2},
        {"__key__": "a/1", "png": pictures[1], "json": {"label": "dog"}},
        {"__key__": "a/2", "png": pictures[2], "txt": "cat"},
        {"__key__": "dog/3", "png": pictures[3]},
        {"__key__": "4", "left.png": pictures[4], "txt": "a caption of something"},
    ]
    for number in range(2):
        with webdataset.TarWriter(str(tmp_path / f"{number:03}.tar")) as writer:
            for sample in samples[number::2]:
                writer.write(sample)
    found = find("{000..001}.tar")
    assert labelled(found) == [
        ("000.tar/0.png", "house"),
        ("000.tar/a/2.png", "cat"),
        ("000.tar/4.left.png", None),
        ("001.tar/a/1.png", "dog"),
        ("001.tar/dog/3.png", "dog"),
    ]
    for sample, number in zip(found.images, (0, 2, 4, 1, 3), strict=True):
        assert np.array_equal(load_image(sample.path), pixels(number))
    assert any("a caption of something" in line for line in found.truth_warnings)


def test_an_archive_that_is_cut_short_says_so_and_its_whole_members_are_read() -> None:
    pytest.importorskip("webdataset")
    pictures = {f"{number}.png": png(number) for number in range(3)}
    whole = write_tar(Path("whole.tar"), pictures).read_bytes()
    Path("cut.tar").write_bytes(whole[: 512 + 2048 + 512 + 100])  # within the second member's bytes
    found = find("cut.tar")
    assert found.warnings == (
        "cut.tar: is cut short within 1.png; what came after it is missing; copy or pack it again",
    )
    assert np.array_equal(load_image(found.images[0].path), pixels(0))
    size = len(pictures["1.png"])
    with pytest.raises(
        FairContextError, match=f"^cut.tar/1.png: the archive is cut short: it has 100 of the member's {size:,} "
    ):
        load_image(found.images[1].path)
    Path("header.tar").write_bytes(whole[: 512 + 2048 + 200])  # within the second member's header
    assert find("header.tar").warnings[0].startswith("header.tar: has no end")
    Path("garbage.tar").write_bytes(whole[: 512 + 2048] + b"x" * 1024)
    assert find("garbage.tar").warnings[0].startswith("garbage.tar: has no end")
    assert find("garbage.tar").warnings[0].endswith("; what came after is missing; copy or pack it again")


@pytest.mark.parametrize("several", [False, True])
def test_labels_in_json_that_is_not_valid_are_missing_and_said(several: bool) -> None:
    pytest.importorskip("webdataset")
    labels = {
        "1.json": b'{"label": "cat"}',
        "2.json": b'{"label": "ca',
        "3.json": b"[" * 100_000,
        "4.json": b"{",
        "4.cls": b"dog",  # goes before
        "5.json": b"[1]",  # valid, and says nothing of a class
    }
    pictures = {f"{number}.png": png(number) for number in range(1, 6)}
    write_tar(Path("a.tar"), dict(sorted((labels | pictures).items())))
    found = find("a.tar", multi_label=several)
    cat, dog = (NAMES.index(name) for name in ("cat", "dog"))
    truths = [sample.labels if several else sample.label for sample in found.images]
    assert truths == ([(cat,), None, None, (dog,), None] if several else [cat, None, None, dog, None])
    assert found.warnings == (
        "a.tar: no label is taken from 2.json, 3.json: not valid JSON; correct it and pack the archive again",
    )
    assert load_image(found.images[1].path).shape == (20, 30, 3)


ARCHIVES = {
    "names with points": ({f"IMG.{n}.png": "" for n in range(3)}, {f"IMG.{n}.png": None for n in range(3)}, ()),
    "clutter": (
        dict.fromkeys(("1.png", "__MACOSX/1.png", "x/._1.png", "Thumbs.db"), ""),
        {"1.png": None},
        ("left out: 2 files in Thumbs.db, __MACOSX",),
    ),
    "points in names of labels": (
        {"22.05.png": "", "22.05.cls": "cat"},
        {"22.05.png": None},
        (
            "a.tar: no label is taken from 22.05.cls: a sample's name ends at its first point; leave the others out "
            "and pack the archive again",
        ),
    ),
    "labels apart": (
        {"1.png": "", "2.png": "", "1.cls": "cat", "2.cls": "dog"},
        {"1.png": None, "2.png": None},
        (
            "a.tar: the labels of 2 images do not lie beside them, and are not read; pack the archive in order of "
            "names (tar --sort=name)",
        ),
    ),
    "other kinds": (
        {"1.png": "", "2.cr2": "", "3.mov": ""},
        {"1.png": None},
        ("passed over: 1 camera raw (.cr2), 1 video (.mov)",),
    ),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_what_is_taken_from_an_archive(case: str) -> None:
    pytest.importorskip("webdataset")
    files, images, said = ARCHIVES[case]
    write_tar(Path("a.tar"), {name: content.encode() for name, content in files.items()})
    found = find("a.tar")
    assert labelled(found) == [(f"a.tar/{name}", label) for name, label in images.items()]
    assert found.warnings == said


# Parquet


@pytest.fixture
def table() -> Path:
    """Five pictures in three row groups, as the library datasets writes them; one cell is empty."""
    cells = [{"bytes": png(number), "path": f"{number}.png"} for number in range(5)]
    cells[3]["bytes"] = None
    features = {"image": {"_type": "Image"}, "label": {"names": ["house", "snail", "cat"], "_type": "ClassLabel"}}
    facts = {"huggingface": json.dumps({"info": {"features": features}})}
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", kind), ("label", pa.int64())], metadata=facts)
    pq.write_table(pa.table({"image": cells, "label": [0, 1, 2, 2, 0]}, schema), "data.parquet", row_group_size=2)
    return Path("data.parquet")


@pytest.mark.usefixtures("table")
def test_a_parquet_table_is_read_row_by_row() -> None:
    found = find("data.parquet")
    labels = ["house", None, "cat", "cat", "house"]
    assert labelled(found) == [(f"data.parquet/{number}", label) for number, label in enumerate(labels)]
    for number in (4, 0, 1, 2):
        assert np.array_equal(load_image(found.images[number].path), pixels(number))
    with pytest.raises(
        FairContextError, match=r"^data.parquet/3: the cell holds no bytes, but the path 3.png: no such file$"
    ):
        load_image(found.images[3].path)
    assert found.truth_warnings[0].startswith("labels that are no class, whose 1 image counts in no accuracy: 'snail'")


def test_columns_of_parquet_are_chosen_or_missing() -> None:
    pq.write_table(pa.table({"jpg": [png(0)], "kind": ["dog"]}), "a.parquet")
    assert labelled(find("a.parquet", image_column="jpg", label_column="kind")) == [("a.parquet/0", "dog")]
    for options, said in (
        ({}, "has no column image, but jpg, kind; name one with --image"),
        ({"image_column": "jpg", "label_column": "class"}, "has no column class, but jpg, kind; name one with --lab"),
        ({"image_column": "kind"}, "the column kind holds string and no bytes"),
    ):
        with pytest.raises(FairContextError, match=f"a.parquet: {said}"):
            find("a.parquet", **options)
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), "a.parquet")
    with pytest.raises(FairContextError, match=r"^no images in a.parquet; no rows in it$"):
        find("a.parquet")


def test_a_table_that_is_written_again_under_its_path_is_read_again() -> None:
    found = []
    for number in range(2):
        pq.write_table(pa.table({"image": [png(number)] * (2 - number)}), "a.parquet")
        found.append(find("a.parquet").images)
        assert np.array_equal(load_image(found[-1][0].path), pixels(number))
    with pytest.raises(FairContextError, match=r"^a.parquet/1: the table has no such row any more$"):
        load_image(found[0][1].path)


# Other file systems


def test_addresses_of_files_folders_and_patterns() -> None:
    memory = fsspec.filesystem("memory")
    files = ("cat/1.png", "cat/2.png", "dog/3.png", "@eaDir/4.png", ".hidden/5.png", "notes.txt")
    try:
        for number, name in enumerate(files):
            memory.pipe(f"/photos/{name}", png(number))
        found = find("memory://photos", exclude=("2.*",))
        assert labelled(found) == [("memory:///photos/cat/1.png", "cat"), ("memory:///photos/dog/3.png", "dog")]
        assert found.warnings == ("left out: 1 file in @eaDir", "left out by --exclude: 1 file")
        assert np.array_equal(load_image(found.images[1].path), pixels(2))
        assert len(find("memory://photos/cat/*.png").images) == 2
        assert [key for key, _ in labelled(find("memory://photos/dog/3.png"))] == ["memory:///photos/dog/3.png"]
        with pytest.raises(FairContextError, match=r"^memory://photos/x: no such file or folder$"):
            find("memory://photos/x")
        with pytest.raises(FairContextError, match=r"^memory://photos/\*.tiff: no images there"):
            find("memory://photos/*.tiff")
        memory.rm("/photos/dog/3.png")
        with pytest.raises(FairContextError, match=r"^memory:///photos/dog/3.png: no such file or folder$"):
            load_image(found.images[1].path)
    finally:
        memory.rm("/photos", recursive=True)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://127.0.0.1:{free}/a.jpg", "cannot be read: connection refused"),
        ("http://127.0.0.1:{free}/*.jpg", "cannot be read: connection refused"),
        ("http://127.0.0.1:{port}/forbidden.jpg", "cannot be read: 403 Forbidden"),
        ("http://127.0.0.1:{port}/gone.jpg", "no such file or folder"),
        ("zip://a.jpg::w/a.zip", "cannot be read: it is inside another file; unpack or copy that, and name the folder"),
        ("simplecache::http://127.0.0.1/a.jpg", "cannot be read: it is inside another file; unpack or copy that,"),
        ("nowhere://x.png", "cannot be read: no file system is called 'nowhere'; use one of"),
        ("memory://photos.zip", "archives and tables are read from local disks alone; copy it there"),
    ],
)
def test_an_address_says_why_it_cannot_be_read(address: str, reason: str) -> None:
    pytest.importorskip("aiohttp")

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(403 if "forbidden" in self.path else 404)

        do_HEAD = do_GET  # noqa: N815 (what the server calls)

        def log_message(self, *_: object) -> None:
            pass

    with socket.socket() as unused, HTTPServer(("127.0.0.1", 0), Refusing) as server:
        unused.bind(("127.0.0.1", 0))  # and nobody listens
        Thread(target=server.serve_forever, daemon=True).start()
        url = address.format(free=unused.getsockname()[1], port=server.server_port)
        with pytest.raises(FairContextError, match=f"^{re.escape(url)}: {re.escape(reason)}"):
            find(url)
        Path("list.csv").write_text(f"path\n{url}\n")
        if "*" not in url and "memory" not in url:  # what a list names is not a pattern, and is read in its turn
            with pytest.raises(FairContextError, match=f"^{re.escape(url)}: {re.escape(reason)}"):
                load_image(find("list.csv").images[0].path)
        server.shutdown()
