"""Photos sorted into a folder for each answer: by the sink itself, on answers that are made up."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from faircontext.datasets.spec import Sample
from faircontext.files import digest
from faircontext.names import as_file_names, compose
from faircontext.runs.records import Answer
from faircontext.runs.sorting import APART, MANIFEST, Sorter, unsort
from helpers import refusal

NAMES = ("cat", "dog")


def photos(folder: Path, *names: str) -> list[Sample]:
    """Write files with contents of their own."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"content of {name}".encode(errors="surrogateescape"))
    return [Sample(name, folder / name) for name in names]


def answer(position: int, index: int | None, error: str = "") -> list[Answer]:
    """Return the answer for an image; None is one that is withheld."""
    return [Answer("", prediction="" if index is None else NAMES[index], index=index, error=error, position=position)]


def sort(folder: Path, samples: Sequence[Sample], indices: Sequence[int | None], link: bool = False) -> str:
    """Sort the first images by their answers, and return what is said of it."""
    return put(folder, samples, NAMES, [answer(position, index) for position, index in enumerate(indices)], link)


def put(
    folder: Path, samples: Sequence[Sample], names: Sequence[str], answers: Sequence[list[Answer]], link: bool = False
) -> str:
    with redirect_stdout(io.StringIO()) as shown, Sorter(folder, samples, names, link) as sorter:
        for one in answers:
            sorter.add(one)
    return shown.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder but the manifest, with their contents."""
    files = (path for path in sorted(folder.rglob("*")) if not path.is_dir() and path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def manifest(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / MANIFEST).read_text().splitlines()]


def test_each_photo_goes_into_the_folder_of_its_answer(tmp_path: Path) -> None:
    samples = photos(tmp_path / "in", "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    os.utime(tmp_path / "in" / "a.jpg", (1e9, 1e9))
    answers = [answer(position, index) for position, index in enumerate([0, 1, None])]
    answers += [answer(position, None, "not an image") for position in (3, 4)]
    shown = put(tmp_path / "out", [*samples, Sample("e", tmp_path / "in" / "gone.jpg")], NAMES, answers)
    assert shown == (
        f"sorted into {tmp_path}/out: 4 copied, 1 left out, as nothing can be read; undo with: faircontext unsort "
        f"{tmp_path}/out\n"
    )
    assert tree(tmp_path / "out") == {
        "cat/a.jpg": b"content of a.jpg",
        "dog/b.jpg": b"content of b.jpg",
        "none of these/c.jpg": b"content of c.jpg",
        "unreadable/d.jpg": b"content of d.jpg",
    }
    assert (tmp_path / "out" / "cat" / "a.jpg").stat().st_mtime == 1e9
    assert manifest(tmp_path / "out")[0] == [f"{tmp_path}/in/a.jpg", "cat/a.jpg", digest(b"content of a.jpg")]


def test_nothing_is_overwritten_and_a_second_run_copies_nothing_twice(tmp_path: Path) -> None:
    samples = photos(tmp_path / "in", "x/1.jpg", "y/1.jpg", "z/1.jpg")
    out = tmp_path / "out"
    (out / "cat").mkdir(parents=True)
    (out / "cat" / "1.jpg").write_bytes(b"mine")
    assert "2 copied" in sort(out, samples[:2], [0, 0])  # as of a run that was stopped after two
    assert ": 2 there before, 1 copied;" in sort(out, samples, [0, 0, 0])
    once = tree(out)
    assert once == {
        "cat/1.jpg": b"mine",
        "cat/1 (1).jpg": b"content of x/1.jpg",
        "cat/1 (2).jpg": b"content of y/1.jpg",
        "cat/1 (3).jpg": b"content of z/1.jpg",
    }
    assert ": 3 there before;" in sort(out, samples, [0, 0, 0])
    assert tree(out) == once
    assert unsort(out) == (3, 0)
    assert tree(out) == {"cat/1.jpg": b"mine"}
    assert not (out / MANIFEST).exists()


def test_another_answer_than_before_is_refused(tmp_path: Path) -> None:
    samples = photos(tmp_path / "in", "a.jpg")
    sort(tmp_path / "out", samples, [0])
    assert refusal(lambda: sort(tmp_path / "out", samples, [1])) == (
        f"{tmp_path}/out: {tmp_path}/in/a.jpg was sorted into 'cat' before, and now goes into 'dog'; undo that with "
        f"faircontext unsort {tmp_path}/out, or name another folder"
    )
    assert [*tree(tmp_path / "out")] == ["cat/a.jpg"]


@pytest.mark.parametrize("link", [False, True])
def test_what_was_named_and_not_made_is_made_by_the_next_call(tmp_path: Path, link: bool) -> None:
    samples, out = photos(tmp_path / "in", "a.jpg", "b.jpg"), tmp_path / "out"
    sort(out, samples, [0, 0], link=link)
    (out / "cat" / "b.jpg").unlink()
    (out / ".sorting.partial").write_bytes(b"half")
    with (out / MANIFEST).open("a") as file:
        file.write('["/some/where", "')  # a row that was cut short
    assert "1 there before, 1 " in sort(out, samples, [0, 0], link=link)
    assert {**tree(out), ".sorting.partial": b""}.keys() == {"cat/a.jpg", "cat/b.jpg", ".sorting.partial"}
    assert [row[1] for row in manifest(out)] == ["cat/a.jpg", "cat/b.jpg"]


@pytest.mark.parametrize("fails", ["write_bytes", "mkdir"])
def test_a_full_disk_is_a_line_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    samples, out = photos(tmp_path / "in", "a.jpg", "b.jpg", "c.jpg"), tmp_path / "out"
    real = getattr(Path, fails)

    def full(path: Path, *_: object, **__: object) -> object:
        if fails == "write_bytes":
            real(path, b"a part")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Sorter(out, samples, NAMES, False) as sorter:
        sorter.add(answer(0, 0))
        monkeypatch.setattr(Path, fails, full)
        message = refusal(lambda: sorter.add(answer(1, 1)))
        monkeypatch.setattr(Path, fails, real)
    assert message == f"{out}/dog/b.jpg: cannot be written: no space left on device"
    assert tree(out) == {"cat/a.jpg": b"content of a.jpg"}
    assert "1 there before, 2 copied" in sort(out, samples, [0, 1, 1])
    assert unsort(out) == (3, 0)
    assert not out.exists()


@pytest.mark.skipif(os.name != "posix", reason="a limit on files stands for a full disk")
def test_a_manifest_that_cannot_grow_is_a_line(tmp_path: Path) -> None:
    import resource

    samples, earlier = photos(tmp_path / "in", "a.jpg", "b.jpg"), resource.getrlimit(resource.RLIMIT_FSIZE)
    with Sorter(tmp_path / "out", samples, NAMES, False) as sorter:
        sorter.add(answer(0, 0))
        size = (tmp_path / "out" / MANIFEST).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, earlier[1]))
        try:
            assert refusal(lambda: sorter.add(answer(1, 0))).endswith("cannot be written: file too large")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, earlier)
    assert tree(tmp_path / "out") == {"cat/a.jpg": b"content of a.jpg"}
    assert "1 there before, 1 copied" in sort(tmp_path / "out", samples, [0, 0])
    assert unsort(tmp_path / "out") == (2, 0)


def test_links_lead_to_the_photos_and_are_removed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "in", "a.jpg", "b.jpg")
    samples = [Sample(name, Path("in") / name) for name in ("a.jpg", "b.jpg")]
    assert "2 linked" in sort(Path("out"), samples, [0, 1], link=True)
    assert Path("out/cat/a.jpg").readlink() == tmp_path / "in" / "a.jpg"
    Path("out/dog/b.jpg").unlink()
    Path("out/dog/b.jpg").write_bytes(b"mine now")
    assert unsort(Path("out")) == (1, 1)
    assert tree(tmp_path / "out") == {"dog/b.jpg": b"mine now"}


def test_undoing_leaves_what_is_not_as_it_was_made(tmp_path: Path) -> None:
    samples, out = photos(tmp_path / "in", "a.jpg", "b.jpg", "c.jpg", "d.jpg"), tmp_path / "out"
    sort(out, samples, [0, 0, 1, 1])
    (out / "cat" / "b.jpg").write_bytes(b"edited")
    (tmp_path / "in" / "c.jpg").unlink()  # the copy is the last
    (out / "dog" / "d.jpg").rename(out / "cat" / "moved.jpg")
    (out / "mine.txt").write_bytes(b"a note")
    assert unsort(out) == (1, 2)
    assert [*tree(out)] == ["cat/b.jpg", "cat/moved.jpg", "dog/c.jpg", "mine.txt"]
    assert [row[1] for row in manifest(out)] == ["cat/b.jpg", "dog/c.jpg"]


def test_a_photo_is_never_removed_for_its_copy(tmp_path: Path) -> None:
    samples, out = photos(tmp_path / "in", "a.jpg", "b.jpg"), tmp_path / "out"
    sort(out, samples, [0, 1])
    (out / "cat" / "a.jpg").unlink()
    (out / "cat").rmdir()
    (out / "cat").symlink_to(tmp_path / "in")
    assert unsort(out) == (1, 1)
    assert {path.name for path in (tmp_path / "in").iterdir()} == {"a.jpg", "b.jpg"}


@pytest.mark.parametrize("copy", ["../in/a.jpg", "/etc/passwd", "a/../../b", "cat/.."])
def test_a_list_leads_nowhere_else(tmp_path: Path, copy: str) -> None:
    samples, out = photos(tmp_path / "in", "a.jpg"), tmp_path / "out"
    sort(out, samples, [0])
    with (out / MANIFEST).open("a") as file:
        file.write(json.dumps([f"{tmp_path}/in/a.jpg", copy, digest(b"content of a.jpg")]) + "\n")
    assert unsort(out) == (1, 0)
    assert (tmp_path / "in" / "a.jpg").is_file()


@pytest.mark.parametrize("text", ["a,b\n", "a note", "[1, 2]\n", "[1, 2, 3]\n", "1\n"])
def test_a_file_that_is_no_list_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    for call in (lambda: sort(tmp_path, [], []), lambda: unsort(tmp_path)):
        assert refusal(call).startswith(f"{tmp_path}/{MANIFEST}: is no list of --sort-into: ")
    assert (tmp_path / MANIFEST).read_text() == text
    none = f"{tmp_path}/x/{MANIFEST}: is no list of --sort-into: no such file or directory; name another folder"
    assert refusal(lambda: unsort(tmp_path / "x")) == none


ODD = [
    "a/b",
    "a:b",
    "A_B",
    "..",
    "con",
    "CON",
    "end...",
    "end",
    "x" * 300,
    "x" * 300 + "y",
    *APART,
    MANIFEST,
    "e\u0301",
    "\u00e9",
]


def test_odd_names_of_classes_and_files_are_usable_and_stay_apart(tmp_path: Path) -> None:
    names = ["two\nlines.jpg", "comma, 'quote'.jpg", "l" * 250 + ".jpg", "cr\rr.jpg", "aux.jpg", "noend"]
    samples = photos(tmp_path / "in", *names, *(f"{number}.jpg" for number in range(len(ODD) - len(names))))
    out, answers = tmp_path / "out", [[Answer("", prediction="x", index=n, position=n)] for n in range(len(ODD))]
    assert f"{len(ODD)} copied" in put(out, samples, ODD, answers)
    assert len({path.parent for path in out.glob("*/*")}) == len(ODD)
    assert not {*APART} & {path.parent.name for path in out.glob("*/*")}
    assert {*tree(out).values()} == {f"content of {sample.key}".encode() for sample in samples}
    assert f"{len(ODD)} there before" in put(out, samples, ODD, answers)
    assert unsort(out) == (len(ODD), 0)


@pytest.mark.skipif(os.name != "posix", reason="names of files are bytes on POSIX alone")
def test_names_that_are_no_text_are_kept_in_the_list(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    (sample,) = photos(tmp_path / "in", name)
    sort(tmp_path / "out", [sample], [0])
    assert manifest(tmp_path / "out")[0][:2] == [f"{tmp_path}/in/{name}", "cat/caf.jpg"]
    assert unsort(tmp_path / "out") == (1, 0)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
@example(["A", "a", "a (2)", "a"])
@example(["\u212b", "\u00c5", "A\u030a"])
def test_names_can_be_had_everywhere_and_differ(names: list[str]) -> None:
    folders = as_file_names(names)
    assert len({compose(folder).casefold() for folder in folders}) == len(names)
    for folder in folders:
        assert 0 < len(folder.encode()) <= 210
        assert not {*folder} & {*'<>:"/\\|?*', *map(chr, range(32))}
        assert folder.strip(". ") == folder
        assert folder.partition(".")[0].strip().lower() not in {"con", "nul", "aux", "prn", "com1", "lpt9"}


_KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from faircontext.datasets.spec import Sample
from faircontext.runs.records import Answer
from faircontext.runs.sorting import Sorter
folder = Path(sys.argv[1])
samples = [Sample(name, folder / "in" / name) for name in ("a.jpg", "b.jpg")]
sorter = Sorter(folder / "out", samples, ["cat", "dog"], False)
for position in (0, 1):
    if position:
        shutil.copystat = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    sorter.add([Answer("", prediction="cat", index=0, position=position)])
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("goes_on", [False, True])
def test_what_a_kill_leaves_is_gone_on_with_or_undone(tmp_path: Path, goes_on: bool) -> None:
    samples, out = photos(tmp_path / "in", "a.jpg", "b.jpg"), tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert tree(out) == {".sorting.partial": b"content of b.jpg", "cat/a.jpg": b"content of a.jpg"}
    if goes_on:
        assert ": 1 there before, 1 copied;" in sort(out, samples, [0, 0])
        assert tree(out) == {"cat/a.jpg": b"content of a.jpg", "cat/b.jpg": b"content of b.jpg"}
    assert unsort(out) == (1 + goes_on, 0)
    assert not out.exists()


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_and_time_do_not_grow_with_photos(tmp_path: Path, count: int) -> None:
    """All have one name; what is held must not depend on how many there are."""
    samples = photos(tmp_path / "in", *(f"{number}/a.jpg" for number in range(count)))
    assert all(str(sample.path) for sample in samples)  # a path keeps its text, once it has been asked for

    def peak(start: int, end: int) -> int:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        for position in range(start, end):
            sorter.add(answer(position, position % 2))
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        with Sorter(tmp_path / "out", samples, NAMES, False) as sorter:
            first, later = peak(0, count // 10), peak(count // 10, count)
    finally:
        tracemalloc.stop()
    assert later < first + 50_000
    assert [len([*(tmp_path / "out" / name).iterdir()]) for name in NAMES] == [count // 2] * 2
