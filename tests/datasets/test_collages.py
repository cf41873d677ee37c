"""Collages: each cell shows the class that the file's name says, and the same seed makes the same collages."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircontext.cli import main
from faircontext.datasets.collages import CELL, Collages, cells_of
from faircontext.datasets.load import load_dataset
from faircontext.imageio import load_image

COLOURS = np.array([(230, 20, 20), (20, 230, 20), (20, 20, 230), (230, 230, 20), (230, 20, 230)])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A root with a set of five classes, each of its own colour; photo p of a class has a shade of its own."""
    for label, colour in enumerate(COLOURS):
        folder = tmp_path / "mine" / f"class {label}"
        folder.mkdir(parents=True)
        for photo in range(4):
            pixels = np.full((40 + 10 * photo, 90, 3), colour - 20 + 5 * photo, np.uint8)
            pixels[:, :8] = pixels[:, -8:] = 0  # outside the central square
            Image.fromarray(pixels).save(folder / f"{photo}.png")
    return tmp_path


def classes_seen(path: Path, side: int) -> list[int]:
    """Return the class of each cell by its colour, the whole of which must have it."""
    pixels = load_image(path).astype(int)
    assert pixels.shape == (side * CELL, side * CELL, 3)
    seen = []
    for cell in pixels.reshape(side, CELL, side, CELL, 3).swapaxes(1, 2).reshape(side**2, -1, 3):
        assert (np.ptp(cell, axis=0) <= 2).all()
        seen.append(int(np.abs(COLOURS - cell[0]).sum(1).argmin()))
    return seen


def test_a_cell_shows_the_class_that_the_name_says(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = photos / "collages"
    arguments = ["data", "collage", "mine", "--root", str(photos), "--out", str(out), "--limit", "6", "--seed", "3"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"6 collages of 2 x 2 photos of mine are in {out}\n"
    dataset = load_dataset("collages", photos)
    assert dataset.names == tuple(f"class {label}" for label in range(5))
    assert [sample.path.name[:9] for sample in dataset.samples] == [f"c{index:04}_2x2" for index in range(6)]
    for sample in dataset.samples:
        cells = cells_of(sample.key)
        assert cells.shape == (2, 2)
        assert classes_seen(sample.path, 2) == cells.ravel().tolist()
        assert len({*cells.ravel().tolist()}) == 4
        assert sample.label == cells[0, 0]


def test_the_first_of_more_are_those_of_fewer_and_another_seed_makes_others(photos: Path) -> None:
    dataset = load_dataset("mine", photos)
    few, more, other = (
        [(one.name, one.pixels.tobytes()) for one in Collages(dataset, 2, seed).draw(count)]
        for seed, count in ((0, 3), (0, 7), (1, 3))
    )
    assert few == more[:3]
    assert few != other


def test_photos_of_even_and_odd_collages_differ(photos: Path) -> None:
    shades: tuple[set[tuple[int, ...]], ...] = (set(), set())
    for index, collage in enumerate(Collages(load_dataset("mine", photos)).draw(40)):
        cells = collage.pixels.reshape(2, CELL, 2, CELL, 3).swapaxes(1, 2).reshape(4, -1, 3)
        shades[index % 2].update(tuple(cell[0].tolist()) for cell in cells)
    assert not shades[0] & shades[1]
    assert [len(half) for half in shades] == [10, 10]  # all of them are used


def test_a_photo_that_cannot_be_read_is_left_out(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for photo in (0, 1, 2):
        (photos / "mine" / "class 2" / f"{photo}.png").write_bytes(b"\x89PNG but no more")
    arguments = ["data", "collage", "mine", "--root", str(photos), "--limit", "8"]
    assert main([*arguments, "--out", str(photos / "b")]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("photos that cannot be read are left out: ")
    assert {*line.partition(": ")[2].split(", ")} == {f"class 2/{photo}.png" for photo in (0, 1, 2)}
    for sample in load_dataset("b", photos).samples:
        assert classes_seen(sample.path, 2) == cells_of(sample.key).ravel().tolist()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--side", "3"],
            "mine: a collage of 3 x 3 needs 9 classes with images, and there are 5; --side 2",
        ),
        (["--side", "1"], "side=1 is not possible"),
        (["--limit", "0"], "limit=0 is not possible"),
        (["--seed", "-1"], "seed=-1 is not possible"),
        (["--out", "{full}"], "is not empty; name a new folder"),
        (["--out", "{file}/x"], "file/x: cannot be written"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_line(
    more: list[str], message: str, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "file").touch()
    places = {"full": photos / "mine", "file": photos / "file"}
    arguments = ["data", "collage", "mine", "--root", str(photos), "--out", str(photos / "new")]
    assert main([*arguments, *(word.format(**places) for word in more)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (photos / "new" / "labels.csv").exists()


def test_a_class_without_a_readable_photo_is_refused(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (photos / "mine" / "class 4").iterdir():
        path.write_text("no picture")
    assert main(["data", "collage", "mine", "--root", str(photos), "--out", str(photos / "new")]) == 2
    assert "mine: no image of class 4, 'class 4', can be read" in capsys.readouterr().err


def test_root_and_out_and_one_name_are_needed(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "collage", "mine", "--root", str(photos)]) == 2
    assert "needs --root, the folder that holds the data set, and --out, a new folder" in capsys.readouterr().err
    assert main(["data", "collage", "mine", "other", "--root", str(photos), "--out", str(photos / "new")]) == 2
    assert "data collage takes the name of one data set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "cells"),
    [
        ("images/c0003_2x2_0-5-3-2.png", [[0, 5], [3, 2]]),
        ("c12_3x3_0-1-2-3-4-5-6-7-18.png", [[0, 1, 2], [3, 4, 5], [6, 7, 18]]),
        ("images/c0003_2x3_0-5-3-2.png", None),
        ("images/c0003_2x2_0-5-3.png", None),
        ("images/c0003_2x2_0-5-3-2.jpg", None),
        ("images/xc0003_2x2_0-5-3-2.png", None),
        ("images/dog.png", None),
    ],
)
def test_names_are_read(path: str, cells: list[list[int]] | None) -> None:
    found = cells_of(path)
    assert (found if cells is None else found.tolist()) == cells
