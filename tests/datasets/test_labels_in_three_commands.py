"""Odd tables, archives and folders: `classify`, `evaluate` and `data check` take the same labels and say the same.

A row is an input; to hold another fault, add a row to `ROWS`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faircontext.cli import main
from made_inputs import png, write_images, write_tar

Build = Callable[[Path], None]
"""Writes an input into a folder."""

THREE = ("cat", "dog", "eel")
DIGITS = ("1", "2", "3")


@dataclass(frozen=True)
class Row:
    """An input, and what is right.

    Attributes:
        build: writes it.
        labels: that each command takes, by the end of the image's name; None where each refuses.
        said: what each command says of it, in one line.
        names: of classes.
        given: to `classify`, below the folder; empty for the folder.
        own: where a data set's classes are its own, so that `evaluate` and `data check` refuse a label of no class.
        options: of each command.
    """

    build: Build
    labels: Mapping[str, Any] | None
    said: str = ""
    names: tuple[str, ...] = THREE
    given: str = ""
    own: bool = False
    options: tuple[str, ...] = ()


def table(text: str, name: str = "labels.csv", files: tuple[str, ...] = ("a.png", "b.png", "c.png")) -> Build:
    """Return what writes a table and its images; `HERE` stands for the folder."""

    def build(folder: Path) -> None:
        write_images(folder, *files)
        (folder / name).write_text(text.replace("HERE", str(folder.absolute())))

    return build


def lines(*labels: object) -> Build:
    rows = ({"file_name": f"{name}.png", "label": label} for name, label in zip("abc", labels, strict=False))
    return table("\n".join(map(json.dumps, rows)), "metadata.jsonl")


def parquet(labels: list[Any], kind: pa.DataType | None = None) -> Build:
    cells = [png(number) for number in range(len(labels))]
    return lambda folder: pq.write_table(
        pa.table({"image": cells, "label": pa.array(labels, kind)}), folder / "t.parquet"
    )


def tar(*labels: str, name: str = "t.tar") -> Build:
    samples = [{f"{n}.png": png(n), f"{n}.cls": label.encode()} for n, label in enumerate(labels)]
    return lambda folder: write_tar(folder / name, {end: content for each in samples for end, content in each.items()})


def joined(folder: Path) -> None:
    tar("dog")(folder)
    (folder / "t.tar").write_bytes((folder / "t.tar").read_bytes() * 2)


def added(folder: Path) -> None:
    tar("cat", "dog")(folder)
    write_tar(folder / "t.tar", {"0.png": png(2)}, "a")


def twice_image(folder: Path) -> None:
    cell = pa.array([png(0)])
    pq.write_table(pa.Table.from_arrays([cell, cell], names=["image", "image"]), folder / "t.parquet")


def paths_alone(folder: Path) -> None:
    write_images(folder, "a.png")
    cells = [{"bytes": None, "path": "a.png"}, {"bytes": png(1), "path": None}]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"image": pa.array(cells, kind), "label": ["dog", "eel"]}), folder / "t.parquet")


def views_of_bytes(folder: Path) -> None:
    columns = {"image": pa.array([png(0)], pa.binary_view()), "label": ["dog"]}
    pq.write_table(pa.table(columns), folder / "t.parquet")


def titled(folder: Path) -> None:
    columns = {"image": [png(0), png(1)], "label": [1, 0], "class_name": ["dog", "cat"]}
    pq.write_table(pa.table(columns), folder / "t.parquet")


def sample(folder: Path, **texts: str) -> None:
    """Write an archive of one sample, whose names begin with `./` as `tar -C FOLDER .` has them, or not."""
    ends = {f"1.{end}": text.encode() for end, text in texts.items()}
    write_tar(folder / "t.tar", {"./1.png": png(0), **ends})


FROM_1 = "labels may count from 1: they run from 1 to 2 for 3 class names"
SURELY_1 = "labels count from 1: they run from 1 to 3 for 3 class names"
TWICE = "labels.csv, line 3: .* is there twice, first in line 2"
ABC = {"a.png": 0, "b.png": 1, "c.png": 2}
ROWS = {
    # Counting from 1
    "from 1": Row(table("path,label\na.png,1\nb.png,2\n"), {"a.png": 1, "b.png": 2}, FROM_1),
    "from 1 in Parquet": Row(parquet([1, 1, 2]), {"0": 1, "1": 1, "2": 2}, FROM_1, given="t.parquet"),
    "from 1 in tar": Row(tar("1", "1", "2"), {"0.png": 1, "1.png": 1, "2.png": 2}, FROM_1, given="t.tar"),
    "from 1 in JSON": Row(lines(1, 1, 2), {"a.png": 1, "b.png": 1, "c.png": 2}, FROM_1),
    "surely from 1": Row(table("path,label\na.png,1\nb.png,2\nc.png,3\n"), None, SURELY_1),
    "surely from 1 in Parquet": Row(parquet([1, 2, 3]), None, SURELY_1, given="t.parquet"),
    "surely from 1 in tar": Row(tar("1", "2", "3"), None, SURELY_1, given="t.tar"),
    # Names that are numbers
    "names": Row(table("path,label\na.png,1\nb.png,2\nc.png,3\n"), ABC, names=DIGITS),
    "names in JSON": Row(lines(1, 2.0, "3"), ABC, names=DIGITS),
    "names in Parquet": Row(parquet([1, 2, 3]), {"0": 0, "1": 1, "2": 2}, names=DIGITS, given="t.parquet"),
    "names in tar": Row(tar("10", "30"), {"0.png": 0, "1.png": 2}, names=("10", "20", "30"), given="t.tar"),
    "positions": Row(table("path,label\na.png,0\nb.png,2\n"), {"a.png": 0, "b.png": 2}, names=("10", "20", "30")),
    "titles decide": Row(table("path,label,class_name\na.png,0,1\nb.png,1,2\nc.png,2,3\n"), ABC, names=DIGITS),
    "names or positions": Row(
        table("path,label\na.png,0\nb.png,1\n"), None, "'1' is the name of a class", names=DIGITS
    ),
    "title of another": Row(
        table("path,label,class_name\na.png,0,dog\n"), None, "line 2: class 0 is 'cat', but is called"
    ),
    # Values that are written otherwise
    "floats": Row(table("path,label\na.png,0.0\nb.png,1.0\nc.png,\n"), {"a.png": 0, "b.png": 1, "c.png": None}),
    "floats in JSON": Row(lines(0.0, 1.0, float("nan")), {"a.png": 0, "b.png": 1, "c.png": None}),
    "floats in Parquet": Row(parquet([0.0, None, 2.0], pa.float64()), {"0": 0, "1": None, "2": 2}, given="t.parquet"),
    "true": Row(lines(0, True), {"a.png": 0, "b.png": None}, "no class.*'true'|'true' is no class", own=True),
    "true in Parquet": Row(
        parquet([True, False]),
        {"0": None, "1": None},
        "no class.*'true'|'true' is no class",
        given="t.parquet",
        own=True,
    ),
    "a list": Row(lines(0, ["cat", "dog"]), {"a.png": 0, "b.png": None}, "'cat;dog'.*--multi-label", own=True),
    "an object": Row(lines(0, {"a": 1}), None, "line 2: the label .* is neither a name nor an index"),
    "half": Row(
        table("path,label\na.png,0\nb.png,0.5\n"),
        {"a.png": 0, "b.png": None},
        "the label '0.5' is no class|no class.*'0.5'",
        own=True,
    ),
    "no key at first": Row(
        table('{"file_name": "a.png"}\n{"file_name": "b.png", "label": 2}\n', "metadata.jsonl"),
        {"a.png": None, "b.png": 2},
    ),
    # One image twice
    "two labels": Row(table("path,label\na.png,cat\na.png,dog\n"), None, TWICE),
    "two labels, written otherwise": Row(table("path,label\na.png,cat\n./a.png,dog\n"), None, TWICE),
    "twice in tar": Row(added, None, "t.tar: has two files called 0.png; rename one of them", given="t.tar"),
    # Beside what a table says the name of the folder does not count
    "no class, in a class folder": Row(
        table("path,label\ncat/a.png,wolf\ndog/b.png,cat\n", files=("cat/a.png", "dog/b.png")),
        {"a.png": None, "b.png": 0},
        "the label 'wolf' is no class|no class, whose 1 image counts in no accuracy: 'wolf'",
        own=True,
    ),
    # Archives
    "two archives joined": Row(joined, {"0.png": 1}, "t.tar: another archive is joined to its end", given="t.tar"),
    "archive of images": Row(tar("dog", name="images.tar"), {"0.png": 1}, given="images.tar"),
    # Paths
    "absolute path": Row(table("path,label\nHERE/a.png,dog\n", files=("a.png",)), {"a.png": 1}),
    "no extension": Row(table("path,label\na,dog\nb.png,eel\n", files=("a.png", "b.png")), {"a.png": 1, "b.png": 2}),
    "Unicode": Row(table("path,label\ncafe\u0301.png,dog\n", files=("caf\u00e9.png",)), {"caf\u00e9.png": 1}),
    "no extension, named": Row(table("path,label\na,dog\n", files=("a.png",)), {"a.png": 1}, given="labels.csv"),
    "semicolons": Row(
        table("path;label\na.png;dog\n", files=("a.png",)), None, "put commas between columns", given="labels.csv"
    ),
    "tabs": Row(
        table("path\tlabel\na.png\tdog\n", files=("a.png",)), None, "put commas between columns", given="labels.csv"
    ),
    "a folder below": Row(
        table("file_name,label\na.png,dog\n", "photos/metadata.csv", ("photos/a.png",)), {"a.png": 1}
    ),
    "labels.csv a folder below": Row(
        table("path,label\na.png,dog\n", "photos/labels.csv", ("photos/a.png",)), {"a.png": 1}
    ),
    "a table beside folders of images": Row(
        table("path,label\na.png,dog\n", "cat/labels.csv", ("cat/a.png", "dog/b.png", "eel/c.png")),
        {"a.png": 0, "b.png": 1, "c.png": 2},
        "mine/cat/labels.csv: no labels are taken from it, as dog beside it has images and no table",
    ),
    "named columns": Row(table("file_name,class\na.png,dog\n", "labels.csv", ("a.png",)), {"a.png": 1}),
    "quotation mark not closed": Row(
        table('path,label\na.png,"cat\nb.png,dog\n'), {}, "line 2: a quotation mark in it is not closed", own=True
    ),
    "quotation mark in the header": Row(
        table('path,"label\na.png,cat\nb.png,dog\n'), {}, "line 1: a quotation mark in it is not closed", own=True
    ),
    "words that are not several labels": Row(
        table('path,label\na.png,"one, two"\nb.png,dog\n'),
        {"a.png": None, "b.png": 1},
        r"'one, two'[^-]*$",  # without a hint at --multi-label
        own=True,
    ),
    "a cell that is empty, in a class folder": Row(
        table("path,label\ncat/a.png,\ndog/b.png,cat\n", files=("cat/a.png", "dog/b.png")), {"a.png": None, "b.png": 0}
    ),
    "no cell, in a class folder": Row(
        table(
            '{"file_name": "cat/a.png"}\n{"file_name": "b.png", "label": 2}\n', "metadata.jsonl", ("cat/a.png", "b.png")
        ),
        {"a.png": None, "b.png": 2},
    ),
    "a blank cls": Row(lambda f: sample(f, cls=" \n", json='{"label": "dog"}'), {"1.png": 1}, given="t.tar"),
    "a blank field": Row(lambda f: sample(f, json='{"label": ""}', txt="eel"), {"1.png": 2}, given="t.tar"),
    "a path with a point": Row(lambda f: sample(f, cls="dog"), {"1.png": 1}, given="t.tar"),
    "class name of another": Row(
        lambda f: sample(f, json='{"label": 0, "class_name": "dog"}'), None, "class 0 is 'cat', but is", given="t.tar"
    ),
    "class names in Parquet": Row(titled, {"0": 1, "1": 0}, given="t.parquet"),
    # Folders
    "two folders of one class": Row(
        lambda folder: write_images(folder, "Cat/a.png", "cat/b.png", "dog/c.png"),
        {"a.png": None, "b.png": None, "c.png": 1},
        "mine: the folders Cat, cat are of one class, 0 cat; join them",
        own=True,
    ),
    "numbered parts": Row(
        lambda folder: write_images(folder, "00000/a.png", "00001/b.png"), {"a.png": None}, "numbered parts", own=True
    ),
    # Cells of Parquet
    "another usual column": Row(
        lambda folder: pq.write_table(pa.table({"image": [png(0)], "class_name": ["dog"]}), folder / "t.parquet"),
        {"0": 1},
        given="t.parquet",
    ),
    "two columns": Row(twice_image, None, "has the column 'image' twice", given="t.parquet"),
    "paths alone": Row(paths_alone, {"0": 1, "1": 2}, given="t.parquet"),
    "views of bytes": Row(views_of_bytes, {"0": 1}, given="t.parquet"),
    # Several labels
    "commas": Row(
        table('path,label\na.png,"dog,cat"\n', files=("a.png",)),
        {"a.png": []},
        "'dog,cat'.*have ; between",
        own=True,
        options=("--multi-label",),
    ),
    "several from 1": Row(
        table("path,label\na.png,1;2\nb.png,1\n", files=("a.png", "b.png")),
        {"a.png": [1, 2], "b.png": [1]},
        FROM_1,
        options=("--multi-label",),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_three_commands_take_the_same_labels_and_say_the_same(
    name: str, tmp_path: Path, tiny_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    row, folder = ROWS[name], tmp_path / "mine"
    if "tar" in row.given:
        pytest.importorskip("webdataset")
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    row.build(Path("mine"))
    (folder / "classnames.txt").write_text("\n".join(row.names))
    given = str(Path("mine", row.given))
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", *row.options]
    commands = {
        "classify": ["classify", given, "--labels", ",".join(row.names), "--method", "zero_shot", "--out", "a", *model],
        "evaluate": ["evaluate", "--datasets", "mine", "--root", ".", "--methods", "zero_shot", "--out", "b", *model],
        "check": ["data", "check", "mine", "--root", ".", *row.options],
    }
    for command, words in commands.items():
        refused = row.labels is None or (row.own and command != "classify")
        code, printed = main(words), capsys.readouterr()
        text = printed.out + printed.err
        assert (code != 0) == refused, (command, text)
        assert any(re.search(row.said, line) for line in text.splitlines()), (command, text)
        assert "Traceback" not in text
        if not refused and command != "check":
            assert row.labels is not None
            found = labels_of(Path("a" if command == "classify" else "b/mine"))
            beside = dict.fromkeys(found.keys() - row.labels.keys())  # images that a folder has and a table does not
            assert found == {**row.labels, **beside}, command


def labels_of(run: Path) -> dict[str, Any]:
    """Return the labels of a run by the last part of each image's name."""
    rows = pq.read_table(run / "rows.parquet")
    column = "targets" if "targets" in rows.column_names else "label_index"
    pairs = zip(rows["path"].to_pylist(), rows[column].to_pylist(), strict=True)
    return {path.rpartition("/")[2]: label for path, label in pairs}
