"""What lies below folders: each real folder once, and what is left out is counted, in one line for each reason."""

import os
import subprocess
from pathlib import Path

import pytest

from coop_trees import draw
from faircontext.datasets.class_folders import class_folders, depth_warnings, keys_below
from faircontext.datasets.folder import OTHER_KINDS, SYSTEM_FILES
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import imagenet_wnids
from faircontext.errors import ArgumentError
from faircontext.imageio import EXTENSIONS
from made_inputs import find_images

SYSTEM = ("@eaDir", "#recycle", "$RECYCLE.BIN", "lost+found", "System Volume Information", "__MACOSX", ".thumbnails")
SYSTEM += ("RECYCLER", "Network Trash Folder", "Temporary Items", "TheVolumeSettingsFolder")


def search(root: Path, *paths: str) -> tuple[list[str], list[str]]:
    """Return the images below some folders, relative to the root, and the warnings."""
    warnings: list[str] = []
    found = find_images([str(root / path) for path in paths or ("",)], (), warnings.append)
    return [path.relative_to(root).as_posix() for path in found], warnings


def link_mutually(root: Path, count: int) -> list[Path]:
    """Make folders of an image each, with links to each other, and return the images."""
    folders = [root / f"f{number}" for number in range(count)]
    for folder in folders:
        draw(folder / "photo.jpg")
        for other in folders:
            if other != folder:
                (folder / f"to_{other.name}").symlink_to(other)
    return [folder / "photo.jpg" for folder in folders]


# Links


@pytest.mark.parametrize("count", [2, 4, 5, 6, 7, 9])
def test_folders_that_link_to_each_other_are_each_visited_once(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = link_mutually(tmp_path, count)
    listed: list[str] = []
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: listed.append(str(folder)) or real(folder))
    warnings: list[str] = []
    assert find_images([str(tmp_path)], (), warnings.append) == images
    assert len(listed) <= count + 2
    (warning,) = warnings
    assert warning.startswith("links into folders that are searched, whose images count once, are left out: ")
    assert (f"and {count * (count - 1) - 5} more" in warning) == (count > 2)
    listed.clear()
    dataset = load_dataset(str(tmp_path), Path())
    assert [sample.path for sample in dataset.samples] == images
    assert len(listed) < 10 * (count + 1)
    assert dataset.warnings[0].startswith(
        "links into the class folders, whose images count once, are left out: f0/to_f"
    )


def test_a_folder_is_visited_where_it_really_lies(tmp_path: Path) -> None:
    draw(tmp_path / "in/z/photo.jpg")
    (tmp_path / "in/a").symlink_to("z")
    (tmp_path / "in/b").mkdir()
    (tmp_path / "in/b/again").symlink_to("../z")
    images, (warning,) = search(tmp_path, "in")
    assert images == ["in/z/photo.jpg"]
    assert warning.endswith(f"are left out: {tmp_path / 'in/a'}, {tmp_path / 'in/b/again'}")


def test_of_links_to_a_folder_elsewhere_the_first_is_taken(tmp_path: Path) -> None:
    draw(tmp_path / "far/inner/photo.jpg")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/b").symlink_to(tmp_path / "far/inner")
    (tmp_path / "in/a").symlink_to(tmp_path / "far/inner")
    (tmp_path / "in/c").symlink_to(tmp_path / "far")
    images, (warning,) = search(tmp_path, "in")
    assert images == ["in/a/photo.jpg"]
    assert warning.endswith(f"are left out: {tmp_path / 'in/b'}, {tmp_path / 'in/c/inner'}")


def test_a_link_to_a_folder_above_all_that_is_searched_is_not_followed(tmp_path: Path) -> None:
    draw(tmp_path / "private/1.jpg")
    draw(tmp_path / "in/2.jpg")
    (tmp_path / "in/up").symlink_to(tmp_path)
    assert search(tmp_path, "in")[0] == ["in/2.jpg"]
    (tmp_path / "far").symlink_to(tmp_path / "in")
    assert search(tmp_path, "far")[0] == ["far/2.jpg"]


@pytest.mark.parametrize(
    ("paths", "expected", "notes"),
    [
        (("a", "a/b"), ["a/1.jpg", "a/b/2.jpg"], 0),
        (("a/b", "a"), ["a/b/2.jpg", "a/1.jpg"], 0),
        (("link", "a"), ["a/1.jpg", "a/b/2.jpg"], 1),
        (("a", "link"), ["a/1.jpg", "a/b/2.jpg"], 1),
        (("link",), ["link/1.jpg", "link/b/2.jpg"], 0),
        (("link", "link/b"), ["link/1.jpg", "link/b/2.jpg"], 0),
    ],
)
def test_folders_that_are_named_twice_are_searched_once(
    tmp_path: Path, paths: tuple[str, ...], expected: list[str], notes: int
) -> None:
    draw(tmp_path / "a/1.jpg")
    draw(tmp_path / "a/b/2.jpg")
    (tmp_path / "link").symlink_to("a")
    images, warnings = search(tmp_path, *paths)
    assert (images, len(warnings)) == (expected, notes)


def test_a_folder_by_a_relative_and_an_absolute_path_is_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(tmp_path / "a/1.jpg")
    monkeypatch.chdir(tmp_path)
    warnings: list[str] = []
    assert find_images(["a", str(tmp_path / "a"), "a/../a", "."], (), warnings.append) == [Path("a/1.jpg")]
    assert warnings == []


def test_two_class_folders_that_link_to_one_folder_are_an_error(tmp_path: Path) -> None:
    draw(tmp_path / "far/1.jpg")
    (tmp_path / "mine").mkdir()
    for name in ("cat", "kitten"):
        (tmp_path / "mine" / name).symlink_to(tmp_path / "far")
    with pytest.raises(ArgumentError, match=r"kitten: is a link into the class folders beside it, .*; take it away"):
        load_dataset("mine", tmp_path)


def test_a_class_folder_that_is_a_link_keeps_its_images(tmp_path: Path) -> None:
    draw(tmp_path / "far/1.jpg")
    draw(tmp_path / "mine/cat/2.jpg")
    (tmp_path / "mine/cat/also").symlink_to(tmp_path / "far")
    (tmp_path / "mine/dog").symlink_to(tmp_path / "far")
    dataset = load_dataset("mine", tmp_path)
    assert [(sample.key, sample.label) for sample in dataset.samples] == [("cat/2.jpg", 0), ("dog/1.jpg", 1)]
    assert dataset.warnings[0].endswith("are left out: cat/also")


def test_folders_deep_in_each_other_are_searched(tmp_path: Path) -> None:
    deep = Path(*"d" * 1200)
    try:
        subprocess.run(["mkdir", "-p", tmp_path / deep], check=True)
        (tmp_path / deep / "1.jpg").touch()
        assert search(tmp_path)[0] == [(deep / "1.jpg").as_posix()]
    finally:  # deeper than pytest cleans up
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


# Folders of the system


@pytest.mark.parametrize("name", [*SYSTEM, "@EADIR", "LOST+FOUND", "$Recycle.Bin", "system volume information"])
def test_folders_of_the_system_are_left_out_and_counted(tmp_path: Path, name: str) -> None:
    for key in ("cat/1.jpg", "dog/2.jpg", f"{name}/3.jpg", f"{name}/4.jpg/thumb.jpg", f"cat/{name}/5.jpg"):
        draw(tmp_path / "mine" / key)
    warning = f"left out: 3 files in {name}"
    assert search(tmp_path, "mine") == (["mine/cat/1.jpg", "mine/dog/2.jpg"], [warning])
    assert class_folders([str(tmp_path / "mine")]) == ("cat", "dog")
    dataset = load_dataset("mine", tmp_path)
    assert (dataset.names, [sample.key for sample in dataset.samples]) == (("cat", "dog"), ["cat/1.jpg", "dog/2.jpg"])
    assert dataset.warnings == (warning,)


def test_several_folders_of_the_system_are_one_line(tmp_path: Path) -> None:
    for key in ("1.jpg", "@eaDir/1.jpg", "#recycle/old/2.jpg"):
        draw(tmp_path / key)
    (tmp_path / "lost+found").mkdir()
    assert search(tmp_path) == (["1.jpg"], ["left out: 2 files in #recycle, @eaDir"])


def test_imagenet_folders_leave_them_out_as_well(tmp_path: Path) -> None:
    wnid = imagenet_wnids()[0]
    for key in ("a.jpeg", "@eaDir/a.jpeg", "inner/b.jpeg"):
        draw(tmp_path / "imagenetv2" / wnid / key)
    (tmp_path / "imagenetv2" / wnid / "c.mp4").touch()
    dataset = load_dataset("imagenet_v2", tmp_path)
    assert [sample.key for sample in dataset.samples] == [f"{wnid}/a.jpeg", f"{wnid}/inner/b.jpeg"]
    left_out, passed, deeper = dataset.warnings
    assert (left_out, passed) == ("left out: 1 file in @eaDir", "passed over: 1 video (.mp4)")
    assert deeper.startswith("1 of 2 images lie deeper")


def test_a_folder_of_the_system_that_is_named_is_searched(tmp_path: Path) -> None:
    draw(tmp_path / "@eaDir/1.jpg")
    assert search(tmp_path, "@eaDir") == (["@eaDir/1.jpg"], [])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_of_the_system_that_may_not_be_read_is_no_error(tmp_path: Path) -> None:
    draw(tmp_path / "1.jpg")
    (tmp_path / "lost+found").mkdir(mode=0)
    assert search(tmp_path) == (["1.jpg"], [])


def test_names_of_the_system_are_told_in_lower_case() -> None:
    assert {name.casefold() for name in SYSTEM_FILES} == SYSTEM_FILES >= {name.casefold() for name in SYSTEM}


# Files of other kinds


def test_files_that_show_a_picture_but_are_not_read_are_counted_by_kind(tmp_path: Path) -> None:
    draw(tmp_path / "mine/cat/1.jpg")
    draw(tmp_path / "mine/dog/2.jpg")
    names = ("cat/a.DNG", "cat/b.cr2", "dog/c.dng", "cat/d.mp4", "dog/e.jp2", "f.jp2", "g.txt", "cat/.h.mov", "i.jxl")
    for name in names:
        (tmp_path / "mine" / name).touch()
    (tmp_path / "mine/cat/folder.mov").mkdir()
    warning = "passed over: 3 camera raw (.cr2 .dng), 1 video (.mp4), 2 JPEG 2000 (.jp2), 1 JPEG XL (.jxl)"
    assert search(tmp_path, "mine") == (["mine/cat/1.jpg", "mine/dog/2.jpg"], [warning])
    assert load_dataset("mine", tmp_path).warnings == (warning,)


def test_where_there_is_no_image_what_was_passed_over_is_said(tmp_path: Path) -> None:
    (tmp_path / "mine/cat").mkdir(parents=True)
    (tmp_path / "mine/cat/a.nef").touch()
    with pytest.raises(ArgumentError, match=r"no images in .*; passed over: 1 camera raw \(\.nef\)$"):
        search(tmp_path, "mine")
    with pytest.raises(ArgumentError, match=r"neither labels.csv nor .*; passed over: 1 camera raw \(\.nef\); see"):
        load_dataset("mine", tmp_path)


def test_no_extension_is_both_read_and_passed_over() -> None:
    assert not EXTENSIONS & {*OTHER_KINDS}


# Depth


def test_images_deeper_than_their_class_folder_are_counted(tmp_path: Path) -> None:
    for key in ("a/abbey/1.jpg", "a/airport/2.jpg", "b/bakery/shop/3.jpg", "b/4.jpg"):
        draw(tmp_path / "mine" / key)
    warning = (
        "3 of 4 images lie deeper than right in a class folder, and count for the outer one, a/abbey/1.jpg for a; "
        "where the inner folders are the classes, move them up"
    )
    assert load_dataset("mine", tmp_path).warnings == (warning,)
    roots = [str(tmp_path / "mine")]
    assert depth_warnings(keys_below(find_images(roots), roots)) == [warning]
    assert depth_warnings(keys_below(find_images(roots), ())) == []


def test_splits_inside_class_folders_are_called_what_they_are() -> None:
    (warning,) = depth_warnings(["cat/train/1.jpg", "cat/Test/1.jpg", "dog/train/1.jpg"])
    assert warning.endswith("; Test, train are splits, which all count: to measure one, lay it out as Test/CLASS")
    (warning,) = depth_warnings(["vehicle/train/1.jpg", "vehicle/car/1.jpg"])  # where a train is a vehicle
    assert warning.endswith("; where the inner folders are the classes, move them up")
