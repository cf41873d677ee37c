import unicodedata
from pathlib import Path

import pytest

from faircontext.datasets.class_folders import class_folders
from faircontext.errors import ArgumentError, LabelError
from faircontext.imageio import EXTENSIONS
from faircontext.names import FolderTruth, class_names, name_warnings, parse_labels, read_labels
from made_inputs import find_images

DISHES = ("cheese plate", "Crème brûlée", "straße", "cat")


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def label(path: Path, names: tuple[str, ...]) -> int | None:
    return FolderTruth(names, [path])(path)


def warnings(names: tuple[str, ...], paths: list[Path]) -> list[str]:
    return [*name_warnings(names), *FolderTruth(names, paths).warnings()]


def found(root: Path, *paths: str) -> list[str]:
    return [path.relative_to(root).as_posix() for path in find_images([str(root / path) for path in paths])]


# Images


@pytest.mark.parametrize(
    ("files", "given", "images"),
    [
        ("b/2.jpg b/1.png c.jpg a/z/3.webp a/y.gif", ".", "a/y.gif a/z/3.webp b/1.png b/2.jpg c.jpg"),
        ("a.JPG b.Jpeg c.txt d e.jpg.bak f.json", ".", "a.JPG b.Jpeg"),
        (".hidden.jpg .cache/a.jpg seen/.thumb/b.jpg seen/c.jpg seen/._d.jpg", ".", "seen/c.jpg"),
        (".photos/a.jpg", ".photos", ".photos/a.jpg"),
        ("trip.jpg/a.png", ".", "trip.jpg/a.png"),
        ("scan.xyz .hidden", "scan.xyz .hidden", "scan.xyz .hidden"),  # a file that is named is always taken
        ("a.jpg b.jpg", "b.jpg . ./b.jpg", "b.jpg a.jpg"),  # each once, in the order that is given
        ("10/a.jpg 9/a.jpg 1/a.jpg cat/a.jpg __MACOSX/a.jpg", ".", "1/a.jpg 9/a.jpg 10/a.jpg cat/a.jpg"),
    ],
)
def test_what_is_found(tmp_path, files, given, images):
    touch(tmp_path, *files.split())
    assert found(tmp_path, *given.split()) == images.split()


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["b.jpg\n", "\n", " spaced name.jpg\r\n", "   \n", "a.jpg"], ["b.jpg", " spaced name.jpg", "a.jpg"]),
        (["\ufeffa.jpg\n", "b.jpg\n"], ["a.jpg", "b.jpg"]),
        (["with\nbreak.jpg\0b.jpg\0"], ["with\nbreak.jpg", "b.jpg"]),
    ],
)
def test_a_dash_stands_for_listed_names(lines, names):
    assert find_images(["-"], lines) == [*map(Path, names)]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give at least one image, folder, or - for file names on standard input"),
        ([""], "a path is empty; give an image, a folder, or - for file names on standard input"),
        (["a.jpg", "no such.jpg"], "no such.jpg: no such file or folder"),
        (["x" * 300], f"{'x' * 300}: no such file or folder"),
        (["null\0byte"], "null\\x00byte: no such file or folder"),
        (["in"], f"no images in in; looked for the extensions {' '.join(sorted(EXTENSIONS))}"),
        (["-"], "standard input names no file; give one file name a line"),
    ],
)
def test_words_that_name_no_image_are_refused(tmp_path, monkeypatch, words, reason):
    touch(tmp_path, "a.jpg", "in/notes.txt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError) as caught:
        find_images(words)
    assert str(caught.value) == reason


def test_every_known_extension_is_found(tmp_path):
    touch(tmp_path, *(f"x{extension}" for extension in EXTENSIONS))
    assert {Path(name).suffix for name in found(tmp_path, ".")} == EXTENSIONS
    assert {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"} <= EXTENSIONS


def test_a_link_back_up_ends(tmp_path):
    touch(tmp_path, "a/b/c.jpg")
    (tmp_path / "a/b/up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    assert found(tmp_path, ".") == ["a/b/c.jpg"]


def test_links_to_files_are_images(tmp_path):
    touch(tmp_path, "store/object")
    (tmp_path / "a.jpg").symlink_to(tmp_path / "store/object")
    assert found(tmp_path, ".") == ["a.jpg"]


def test_a_broken_link_that_is_named_is_left_to_the_image_reader(tmp_path):
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "gone")
    assert found(tmp_path, "broken.jpg") == ["broken.jpg"]


# Folder names as truth


@pytest.mark.parametrize(
    ("path", "names", "index"),
    [
        *[(f"data/{word}/1.jpg", DISHES, 0) for word in ("cheese_plate", "Cheese Plate", "CHEESE_PLATE")],
        *[(f"data/{word}/1.jpg", DISHES, 1) for word in ("crème brûlée", unicodedata.normalize("NFD", "Crème_Brûlée"))],
        *[(f"data/{word}/1.jpg", DISHES, 2) for word in ("Straße", "STRASSE")],
        *[(f"data/{word}/1.jpg", DISHES, None) for word in ("cats", "cheeseplate")],
        (" cat /1.jpg", DISHES, 3),
        ("cheese plate/1.jpg", ("cheese_plate",), 0),
        ("missile/1.jpg", ("cat", "missile", "missile"), 1),  # the first of one name
        ("cat/dog/1.jpg", ("cat", "dog"), 1),  # the nearest folder alone
        ("cat/other/1.jpg", ("cat", "dog"), None),
        ("1.jpg", ("here",), 0),  # in the working folder
        ("../1.jpg", ("above",), 0),
    ],
)
def test_which_class_a_folder_is_named_after(tmp_path, monkeypatch, path, names, index):
    (tmp_path / "above/here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "above/here")
    assert label(Path(path), names) == index


INTEGERS = "class folders are all integers"


@pytest.mark.parametrize(
    ("names", "folders", "labels", "said"),
    [
        (("cat", "dog"), "cat dog", [0, 1], []),
        (("cat", "dog"), "holiday beach", [None, None], []),
        (
            ("cat", "dog"),
            "cat cats zebra",
            [0, None, None],
            [
                "folder in/cats is named after no class, its images count in no accuracy; did you mean cat?",
                "folder in/zebra is named after no class, its images count in no accuracy",
            ],
        ),
        (
            ("a", "b", "c"),
            "2 0",
            [2, 0],
            [f"{INTEGERS}, taken as positions in the list of classes, from 0: 0 = a, 2 = c"],
        ),
        (
            ("a", "b"),
            "1 2",
            [None, None],
            [f"{INTEGERS}, but 2 is no position among 2 classes, counted from 0: no image has a truth"],
        ),
        (("10", "9"), "9 10", [1, 0], [f"{INTEGERS}, and so are the class names, in this order: 9, 10"]),
        (
            ("cat", "dog"),
            "Cat cat dog",
            [None, None, 1],
            ["in: the folders Cat, cat are of one class, 0 cat; join them; their images count in no accuracy"],
        ),
    ],
)
def test_what_folders_say_of_classes_together(names, folders, labels, said):
    paths = [Path("in", folder, "1.jpg") for folder in folders.split()]
    truth = FolderTruth(names, paths)
    assert [truth(path) for path in paths] == labels
    assert truth.warnings() == said


def test_folders_of_one_name_in_several_places_are_of_one_class():
    paths = [Path("2019/cat/1.jpg"), Path("2020/Cat/1.jpg")]
    truth = FolderTruth(("cat",), paths)
    assert [truth(path) for path in paths] == [0, 0]
    assert truth.warnings() == []


# Class names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "\ufeff# animals\r\ncat\r\n\r\n  hot dog \r\n  # more\r\nC#\r\n\t\r\nbird, blue",
            ("cat", "hot dog", "C#", "bird, blue"),
        ),
        ("\ufeffcat\ndog\n", ("cat", "dog")),
        (unicodedata.normalize("NFD", "zoë\n猫\nmissile\nmissile\n"), ("zoë", "猫", "missile", "missile")),
    ],
)
def test_names_are_read_from_a_file(tmp_path, text, names):
    assert read_labels(write(tmp_path / "labels.txt", text.encode())) == names
    assert parse_labels(unicodedata.normalize("NFD", " Café,hot dog , ,Ångström,")) == ("Café", "hot dog", "Ångström")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"# nothing\n\n", "no class names; give at least one"),
        ("café".encode("utf-16"), "not a text file in UTF-8; save it as UTF-8"),
        (None, "no such file or directory"),
        (b"0\tcat\n1\tdog\n", "class name number 1, .* has control characters; give one name a line and nothing else"),
    ],
)
def test_a_file_of_names_that_cannot_be_used_is_named(tmp_path, content, reason):
    path = tmp_path / "labels.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LabelError, match=rf"labels\.txt: {reason}$"):
        class_names(None, path)


@pytest.mark.parametrize("text", ["", " ", ",,", " , "])
def test_no_labels_are_refused(text):
    with pytest.raises(LabelError, match=r"^--labels: no class names; give at least one$"):
        parse_labels(text)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_class_names_come_either_from_a_list_or_from_a_file(tmp_path):
    path = write(tmp_path / "labels.txt", b"cat\ndog, big\n")
    assert class_names("cat,dog", None) == ("cat", "dog")
    assert class_names(None, path) == ("cat", "dog, big")
    for text, file in ((None, None), ("cat", path)):
        with pytest.raises(ArgumentError, match=r"^give the class names either as --labels a,b,c or as --labels-file"):
            class_names(text, file)


# Remarks


def test_names_given_twice_and_a_single_name_are_remarked():
    assert warnings(("cat", "dog", "cat"), []) == [
        "class names given more than once: cat; each keeps its position, the first wins ties"
    ]
    assert warnings(("cat",), []) == ["with one class, cat, nothing is decided: every image is answered with it"]


@pytest.mark.parametrize("mark", [",", ";", "|", "\uff0c", "\u3001"])
def test_one_class_name_with_a_mark_of_lists_is_remarked_on(mark):
    (_, said) = name_warnings([f"cat{mark}dog"])
    assert said.startswith(f"the one class name has {'commas' if mark == ',' else repr(mark)} in it; ")


# Class folders


def test_class_folders_are_sorted_without_hidden_ones_and_come_once(tmp_path):
    touch(tmp_path, "10/a.jpg", "9/a.jpg", "zebra/a.jpg", ".git/a.jpg", "__MACOSX/a.jpg", "README.txt", "zebra/9/a.jpg")
    (tmp_path / "empty").mkdir()
    assert class_folders([str(tmp_path), str(tmp_path / "zebra")]) == ("9", "10", "empty", "zebra")
    for place, reason in (
        ("9", "no class folders in .*; give the class names"),
        ("README.txt", "txt: not a folder"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            class_folders([str(tmp_path / place)])


def test_an_empty_class_folder_stays_a_class_with_one_warning(tmp_path):
    touch(tmp_path, "cat/deep/er/a.jpg", "dog/a.jpg")
    (tmp_path / "eel").mkdir()
    (tmp_path / "fox").mkdir()
    names, paths = class_folders([str(tmp_path)]), find_images([str(tmp_path)])
    truth = FolderTruth(names, paths, [str(tmp_path)])
    assert [truth(path) for path in paths] == [0, 1]
    assert truth.warnings() == ["class folders without images, which stay classes: eel, fox"]


def test_a_long_map_is_cut_where_it_is_shown():
    names = tuple(f"class {number}" for number in range(100))
    (warning,) = FolderTruth(names, [Path(f"{number}/x.jpg") for number in range(100)]).warnings()
    assert warning.endswith("19 = class 19 and 80 more")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("0 cat", "1 dog"), "each class name begins with its number, as in '0 cat'"),
        (("1. cat", "2. dog"), "each class name begins with its number, as in '1. cat'"),
        (("0,cat", "1,dog"), "each class name begins with its number"),
        (("n02123045 tabby", "n02099601 retriever"), "each class name begins with its number"),
        (("'cat'", "'dog'"), "quotation marks are read as part of class names"),
        (("'cat", "dog'"), "quotation marks are read as part of class names"),  # what cmd.exe makes of 'cat,dog'
        (('["cat"', '"dog"]'), "brackets are read as part of class names, as in '\"dog\"]'; give the names alone"),
        (("[", '"cat",', '"dog"', "]"), "brackets are read as part of class names, as in ']'"),
        (('"cat', 'big"', "dog"), "quotation marks are read as part of class names, as in '\"cat'"),
        (("cat,", "dog,", "eel"), "each class name ends with ',', as in 'cat,'"),
        (("- cat", "- dog"), "each class name begins with a mark of lists, as in '- cat'"),
        (("tub (bath)", "dog [pet]"), None),
        (("cat", "do\u200bg"), "the class name 'do\\u200bg' has a character that nobody sees"),
        (("2012 Acura", "1999 Audi"), None),
        (("747-200", "747-300"), None),
        (("0", "1"), None),
        (("4 leaf clover", "dog"), None),
        (("rock 'n' roll", "dog"), None),
        (("cat",), "with one class, cat, nothing is decided: every image is answered with it"),
    ],
)
def test_what_lists_and_shells_put_around_names_is_remarked_on(names, said):
    found = name_warnings(names)
    assert found == [] if said is None else found[0].startswith(said)


@pytest.mark.parametrize("character", ["\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_an_end_of_line_ends_a_name_in_a_file(tmp_path, character):
    file = tmp_path / "names.txt"
    file.write_text(f"cat{character}s\ndog\r\nhorse\rcow\n", encoding="utf-8", newline="")
    assert read_labels(file) == (f"cat{character}s", "dog", "horse", "cow")
    with pytest.raises(LabelError, match=r"names.txt: class name number 1, .* has control characters"):
        class_names(None, file)


def test_of_many_folders_of_no_class_some_are_named_and_the_rest_is_counted():
    found = warnings(("cat",), [Path("cat/1.jpg"), *(Path(f"x{number}/1.jpg") for number in range(1_000))])
    assert len(found) == 22
    assert found[-1] == "980 more folders are named after no class"
