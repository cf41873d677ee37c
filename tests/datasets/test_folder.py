import os
import unicodedata
from pathlib import Path

import pytest

from faircontext.datasets.class_folders import class_folders
from faircontext.datasets.inputs import find_images
from faircontext.errors import ArgumentError, LabelError
from faircontext.imageio import EXTENSIONS
from faircontext.names import FolderTruth, class_names, name_warnings, parse_labels, read_labels


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


def test_folders_are_searched_recursively_and_sorted(tmp_path):
    touch(tmp_path, "b/2.jpg", "b/1.png", "c.jpg", "a/z/3.webp", "a/y.gif")
    assert found(tmp_path, ".") == ["a/y.gif", "a/z/3.webp", "b/1.png", "b/2.jpg", "c.jpg"]


def test_only_image_extensions_count_in_a_folder_in_any_case(tmp_path):
    touch(tmp_path, "a.JPG", "b.Jpeg", "c.txt", "d", "e.jpg.bak", "f.json")
    assert found(tmp_path, ".") == ["a.JPG", "b.Jpeg"]


def test_every_known_extension_is_found(tmp_path):
    touch(tmp_path, *(f"x{extension}" for extension in EXTENSIONS))
    assert {Path(name).suffix for name in found(tmp_path, ".")} == EXTENSIONS
    assert {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"} <= EXTENSIONS


def test_hidden_files_and_folders_are_left_out(tmp_path):
    touch(tmp_path, ".hidden.jpg", ".cache/a.jpg", "seen/.thumb/b.jpg", "seen/c.jpg", "seen/._d.jpg")
    assert found(tmp_path, ".") == ["seen/c.jpg"]


def test_a_hidden_folder_that_is_named_is_searched(tmp_path):
    touch(tmp_path, ".photos/a.jpg")
    assert found(tmp_path, ".photos") == [".photos/a.jpg"]


def test_a_folder_named_like_an_image_is_searched(tmp_path):
    touch(tmp_path, "trip.jpg/a.png")
    assert found(tmp_path, ".") == ["trip.jpg/a.png"]


def test_a_link_back_up_ends(tmp_path):
    touch(tmp_path, "a/b/c.jpg")
    (tmp_path / "a/b/up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    assert found(tmp_path, ".") == ["a/b/c.jpg"]


def test_links_to_files_are_images(tmp_path):
    touch(tmp_path, "store/object")
    (tmp_path / "a.jpg").symlink_to(tmp_path / "store/object")
    assert found(tmp_path, ".") == ["a.jpg"]


def test_a_named_file_is_taken_whatever_its_extension(tmp_path):
    touch(tmp_path, "scan.xyz", ".hidden")
    assert found(tmp_path, "scan.xyz", ".hidden") == ["scan.xyz", ".hidden"]


def test_paths_keep_their_order_and_come_once(tmp_path):
    touch(tmp_path, "a.jpg", "b.jpg")
    assert found(tmp_path, "b.jpg", ".", "./b.jpg") == ["b.jpg", "a.jpg"]


def test_a_dash_stands_for_listed_names():
    lines = ["b.jpg\n", "\n", " spaced name.jpg\r\n", "   \n", "a.jpg"]
    assert find_images(["-"], lines) == [Path("b.jpg"), Path(" spaced name.jpg"), Path("a.jpg")]


def test_a_missing_path_is_named(tmp_path):
    touch(tmp_path, "a.jpg")
    missing = str(tmp_path / "no such.jpg")
    with pytest.raises(ArgumentError) as caught:
        find_images([str(tmp_path / "a.jpg"), missing])
    assert str(caught.value) == f"{missing}: no such file or folder"


@pytest.mark.parametrize("name", ["x" * 300, "null\0byte"])
def test_a_path_that_cannot_exist_is_a_missing_path(name):
    with pytest.raises(ArgumentError, match=r": no such file or folder$"):
        find_images([name])


def test_a_broken_link_that_is_named_is_left_to_the_image_reader(tmp_path):
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "gone")
    assert found(tmp_path, "broken.jpg") == ["broken.jpg"]


def test_a_folder_without_images_is_named_with_the_extensions(tmp_path):
    touch(tmp_path, "notes.txt")
    with pytest.raises(ArgumentError) as caught:
        find_images([str(tmp_path)])
    assert str(caught.value) == f"no images in {tmp_path}; looked for the extensions {' '.join(sorted(EXTENSIONS))}"


def test_no_path_at_all_is_refused():
    with pytest.raises(
        ArgumentError, match=r"^give at least one image, folder, or - for file names on standard input$"
    ):
        find_images([])


# Folder names as truth


@pytest.mark.parametrize(
    ("folder", "index"),
    [
        ("cheese_plate", 0),
        ("Cheese Plate", 0),
        ("CHEESE_PLATE", 0),
        ("crème brûlée", 1),
        (unicodedata.normalize("NFD", "Crème_Brûlée"), 1),
        ("Straße", 2),
        ("STRASSE", 2),
        (" cat ", 3),
        ("cats", None),
        ("cheeseplate", None),
    ],
)
def test_a_folder_name_matches_whatever_its_case_underscores_and_composition(folder, index):
    names = ("cheese plate", "Crème brûlée", "straße", "cat")
    assert label(Path("data") / folder / "1.jpg", names) == index


def test_underscores_in_class_names_match_spaces_in_folders():
    assert label(Path("cheese plate/1.jpg"), ("cheese_plate",)) == 0


def test_the_first_of_two_classes_of_one_name_is_the_label():
    assert label(Path("missile/1.jpg"), ("cat", "missile", "missile")) == 1


def test_only_the_nearest_folder_counts():
    assert label(Path("cat/dog/1.jpg"), ("cat", "dog")) == 1
    assert label(Path("cat/other/1.jpg"), ("cat", "dog")) is None


def test_a_bare_file_name_is_labelled_by_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "cat" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "cat")
    assert label(Path("1.jpg"), ("cat",)) == 0


def test_a_path_through_the_parent_folder_is_labelled_by_it(tmp_path, monkeypatch):
    (tmp_path / "cat" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "cat" / "inner")
    assert label(Path(os.pardir) / "1.jpg", ("cat",)) == 0


# Class names


def test_labels_are_split_at_commas_and_trimmed():
    assert parse_labels(" cat,hot dog , ,bird,") == ("cat", "hot dog", "bird")


def test_labels_are_composed():
    assert parse_labels(unicodedata.normalize("NFD", "Café,Ångström")) == ("Café", "Ångström")


@pytest.mark.parametrize("text", ["", " ", ",,", " , "])
def test_no_labels_are_refused(text):
    with pytest.raises(LabelError, match=r"^--labels: no class names; give at least one$"):
        parse_labels(text)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_label_file_may_have_a_bom_crlf_comments_and_blank_lines(tmp_path):
    text = "\ufeff# animals\r\ncat\r\n\r\n  hot dog \r\n  # more\r\nC#\r\n\t\r\nbird, blue"
    path = write(tmp_path / "labels.txt", text.encode())
    assert read_labels(path) == ("cat", "hot dog", "C#", "bird, blue")


def test_a_bom_before_the_first_name_is_no_part_of_it(tmp_path):
    assert read_labels(write(tmp_path / "labels.txt", "\ufeffcat\ndog\n".encode())) == ("cat", "dog")


def test_names_in_a_label_file_are_composed_and_keep_their_order_and_repeats(tmp_path):
    data = unicodedata.normalize("NFD", "zoë\n猫\nmissile\nmissile\n").encode()
    assert read_labels(write(tmp_path / "labels.txt", data)) == ("zoë", "猫", "missile", "missile")


def test_a_label_file_without_names_is_named(tmp_path):
    path = write(tmp_path / "labels.txt", b"# nothing\n\n")
    with pytest.raises(LabelError) as caught:
        read_labels(path)
    assert str(caught.value) == f"{path}: no class names; give at least one"


def test_a_label_file_in_another_encoding_is_named_with_the_fix(tmp_path):
    path = write(tmp_path / "labels.txt", "café".encode("utf-16"))
    with pytest.raises(LabelError) as caught:
        read_labels(path)
    assert str(caught.value) == f"{path}: not a text file in UTF-8; save it as UTF-8"


def test_a_label_file_that_is_missing_or_a_folder_is_named(tmp_path):
    for path, reason in ((tmp_path / "gone.txt", "no such file or directory"), (tmp_path, "is a directory")):
        with pytest.raises(LabelError) as caught:
            read_labels(path)
        assert str(caught.value) == f"{path}: {reason}"


def test_class_names_come_either_from_a_list_or_from_a_file(tmp_path):
    path = write(tmp_path / "labels.txt", b"cat\ndog, big\n")
    assert class_names("cat,dog", None) == ("cat", "dog")
    assert class_names(None, path) == ("cat", "dog, big")
    for text, file in ((None, None), ("cat", path)):
        with pytest.raises(ArgumentError, match=r"^give the class names either as --labels a,b,c or as --labels-file"):
            class_names(text, file)


# Remarks


def test_nothing_is_remarked_where_folders_and_names_agree():
    assert warnings(("cat", "dog"), [Path("in/cat/1.jpg"), Path("in/dog/1.jpg")]) == []


def test_folders_that_are_no_classes_are_not_remarked_where_none_is():
    assert warnings(("cat", "dog"), [Path("holiday/1.jpg"), Path("beach/1.jpg")]) == []


def test_a_folder_beside_class_folders_is_remarked_with_close_names():
    assert warnings(("cat", "dog"), [Path("cat/1.jpg"), Path("cats/1.jpg"), Path("zebra/1.jpg")]) == [
        "folder cats is named after no class, its images count in no accuracy; did you mean cat?",
        "folder zebra is named after no class, its images count in no accuracy",
    ]


def test_names_given_twice_and_a_single_name_are_remarked():
    assert warnings(("cat", "dog", "cat"), []) == [
        "class names given more than once: cat; each keeps its position, the first wins ties"
    ]
    assert warnings(("cat",), []) == ["with one class, cat, nothing is decided: every image is answered with it"]


def test_integer_folders_are_sorted_by_value(tmp_path):
    for name in ("10", "9", "1", "cat", "__MACOSX"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").touch()
    assert [path.parent.name for path in find_images([str(tmp_path)])] == ["1", "9", "10", "cat"]


def test_a_list_of_names_may_begin_with_a_byte_order_mark_or_have_null_characters():
    assert find_images(["-"], ["\ufeffa.jpg\n", "b.jpg\n"]) == [Path("a.jpg"), Path("b.jpg")]
    assert find_images(["-"], ["with\nbreak.jpg\0b.jpg\0"]) == [Path("with\nbreak.jpg"), Path("b.jpg")]


def test_an_empty_path_is_refused():
    with pytest.raises(ArgumentError, match=r"^a path is empty; give an image"):
        find_images([""])


# Class folders


def test_class_folders_are_sorted_integers_by_value_and_without_hidden_ones(tmp_path):
    touch(tmp_path, "10/a.jpg", "9/a.jpg", "zebra/a.jpg", ".git/a.jpg", "__MACOSX/a.jpg", "README.txt")
    (tmp_path / "empty").mkdir()
    assert class_folders([str(tmp_path)]) == ("9", "10", "empty", "zebra")


def test_class_folders_of_several_folders_come_once(tmp_path):
    touch(tmp_path, "train/cat/a.jpg", "test/cat/a.jpg", "test/dog/a.jpg")
    assert class_folders([str(tmp_path / "train"), str(tmp_path / "test")]) == ("cat", "dog")


def test_without_class_folders_there_is_an_error_that_names_the_place(tmp_path):
    touch(tmp_path, "a.jpg")
    with pytest.raises(ArgumentError, match=r"^no class folders in .*; give the class names with --labels$"):
        class_folders([str(tmp_path)])
    with pytest.raises(ArgumentError, match=r"a.jpg: not a folder; --labels-from-folders takes"):
        class_folders([str(tmp_path / "a.jpg")])


def test_an_empty_class_folder_stays_a_class_with_one_warning(tmp_path):
    touch(tmp_path, "cat/deep/er/a.jpg", "dog/a.jpg")
    (tmp_path / "eel").mkdir()
    (tmp_path / "fox").mkdir()
    names, paths = class_folders([str(tmp_path)]), find_images([str(tmp_path)])
    truth = FolderTruth(names, paths, [str(tmp_path)])
    assert [truth(path) for path in paths] == [0, 1]
    assert truth.warnings() == ["class folders without images, which stay classes: eel, fox"]


def test_integer_folders_are_positions_in_the_list_of_classes_and_the_map_is_shown():
    paths = [Path(f"in/{number}/1.jpg") for number in (10, 2, 0)]
    names = tuple("abcdefghijk")
    truth = FolderTruth(names, paths)
    assert [truth(path) for path in paths] == [10, 2, 0]
    assert truth.warnings() == [
        "class folders are all integers, taken as positions in the list of classes, from 0: 0 = a, 2 = c, 10 = k"
    ]


def test_integer_folders_beyond_the_classes_are_no_truth():
    truth = FolderTruth(("a", "b"), [Path("1/x.jpg"), Path("2/x.jpg")])
    assert truth(Path("1/x.jpg")) is None
    assert truth.warnings() == [
        "class folders are all integers, but 2 is no position among 2 classes, counted from 0: no image has a truth"
    ]


def test_integer_folders_that_are_class_names_are_those_classes():
    truth = FolderTruth(("10", "9"), [Path("9/x.jpg"), Path("10/x.jpg")])
    assert truth(Path("9/x.jpg")) == 1
    assert truth.warnings() == ["class folders are all integers, and so are the class names, in this order: 9, 10"]


def test_a_long_map_is_cut_where_it_is_shown():
    names = tuple(f"class {number}" for number in range(100))
    (warning,) = FolderTruth(names, [Path(f"{number}/x.jpg") for number in range(100)]).warnings()
    assert warning.endswith("19 = class 19 and 80 more")


def test_one_class_name_full_of_commas_is_remarked_on():
    assert name_warnings(("cat,dog,eel",))[1] == (
        "the one class name has commas in it; a file of class names has one a line"
    )


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
    ],
)
def test_what_lists_and_shells_put_around_names_is_remarked_on(names, said):
    found = name_warnings(names)
    assert found == [] if said is None else found[0].startswith(said)


@pytest.mark.parametrize("mark", [";", "|", "\uff0c", "\u3001"])
def test_one_class_name_with_another_mark_than_a_comma_is_remarked_on(mark):
    said = f"the one class name has {mark!r} in it; --labels takes names with commas (,) between"
    assert name_warnings([f"cat{mark}dog"])[1:] == [said]


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


def test_a_tab_in_a_file_of_names_is_no_question_of_its_encoding(tmp_path):
    (tmp_path / "names.txt").write_text("0\tcat\n1\tdog\n")
    with pytest.raises(LabelError, match=r"has control characters; give one name a line and nothing else"):
        class_names(None, tmp_path / "names.txt")
