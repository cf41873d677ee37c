"""Templates and descriptions as files: the formats of CuPL and CLIP_benchmark, and what is refused."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from faircontext.errors import LabelError
from faircontext.prompt_files import arrange_descriptions, as_template, fill_template, read_descriptions, read_templates

NAMES = ("fire_truck", "dog", "Löwe")
CUPL = {
    "fire truck": ["A fire truck is red.", "A {c} has ladders."],
    "Dog": ["A dog barks.\n"],
    "Lo\u0308we": ["Ein Löwe."],
}
"""Keys as files have them: blanks, other case, another Unicode composition."""

ARRANGED = (("A fire truck is red.", "A fire truck has ladders."), ("A dog barks.",), ("Ein Löwe.",))


def write(folder: Path, content: object, name: str = "prompts.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_cupls_format_is_read_in_the_order_of_the_classes(tmp_path: Path) -> None:
    assert read_descriptions(write(tmp_path, CUPL), NAMES) == ARRANGED
    assert read_descriptions(write(tmp_path, CUPL), NAMES[::-1]) == ARRANGED[::-1]


def test_what_is_no_class_is_left_out(tmp_path: Path) -> None:
    assert read_descriptions(write(tmp_path, {**CUPL, "cat": ["A cat."]}), ("dog",)) == (("A dog barks.",),)


OTHER = {"cat": ["A cat."], "dog": ["Another dog."], "löwe": ["x"]}


@pytest.mark.parametrize(
    ("sets", "dataset", "expected"),
    [
        ({"only": CUPL}, None, ARRANGED),
        ({"a": OTHER, "b": CUPL}, None, ARRANGED),  # the one that has all classes
        ({"vtab/pets": CUPL, "b": CUPL}, "pets", ARRANGED),
        ({"a": CUPL, "my_set": {**CUPL, "dog": ["x"], "Dog": ["y"]}}, "My set", (ARRANGED[0], ("x",), ARRANGED[2])),
    ],
)
def test_clip_benchmarks_format_has_data_sets_above(
    tmp_path: Path, sets: dict, dataset: str | None, expected: tuple
) -> None:
    assert read_descriptions(write(tmp_path, sets), NAMES, dataset) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"dog": ["A dog."]}, r"prompts.json: lacks prompts of 'fire_truck', 'Löwe'; give each class at least one"),
        ({**CUPL, "Dog": []}, "class 'dog' has no list of prompts"),
        ({**CUPL, "Dog": [" "]}, "class 'dog' has the prompt ' ', which is no line of text"),
        ({**CUPL, "Dog": ["a\nb"]}, "which is no line of text"),
        ({**CUPL, "Dog": [3]}, "has the prompt '3'"),
        ({**CUPL, "Dog": 3}, "class 'dog' has no list"),
        ([], "is no JSON object of class names and lists of prompts"),
        ({}, "is no JSON object of class names"),
        ("{", "is no JSON: "),
        ('{"dog": ["a"], "dog": ["b"]}', "has 'dog' twice; join the two lists"),
        ({"a": OTHER, "b": OTHER}, "prompts of 2 data sets, of which none has all classes"),
        ({"a": CUPL, "b": CUPL}, "of which a, b have all classes"),
    ],
)
def test_a_description_file_that_cannot_be_used_is_refused(tmp_path: Path, content: object, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(LabelError, match=message) as caught:
        read_descriptions(path, NAMES)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read", [lambda path: read_descriptions(path, NAMES), read_templates])
def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path, read) -> None:
    with pytest.raises(LabelError, match=r"absent.json: no such file or directory"):
        read(tmp_path / "absent.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LabelError, match="not a text file in UTF-8"):
        read(tmp_path / "bytes.json")


def test_joiners_of_scripts_that_need_them_are_text() -> None:
    assert arrange_descriptions([["\u0646\u0645\u06cc\u200c\u062f"]], ["x"]) == (("\u0646\u0645\u06cc\u200c\u062f",),)


def test_lists_in_order_must_be_one_for_each_class() -> None:
    assert arrange_descriptions([["a", "b", "a"], ["c"]], ["x", "y"]) == (("a", "b"), ("c",))
    with pytest.raises(LabelError, match="prompts of 1 class, and there are 2 class names"):
        arrange_descriptions([["a"]], ["x", "y"])


def test_templates_are_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff# mine\n\n一张{}的照片\n  a photo of a {c}. \na photo of a {}.\n", "t.txt")
    assert read_templates(path) == ("一张{}的照片", "a photo of a {}.")


@pytest.mark.parametrize(
    ("content", "dataset", "expected"),
    [
        (["a {}", "b {c}"], None, ("a {}", "b {}")),
        ({"only": ["a {c}"]}, None, ("a {}",)),
        ({"imagenet1k": ["a {c}"], "vtab/dtd": ["{c} texture"]}, "dtd", ("{} texture",)),
    ],
)
def test_templates_are_json_too(tmp_path: Path, content: object, dataset: str | None, expected: tuple) -> None:
    assert read_templates(write(tmp_path, content), dataset) == expected


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("a photo", "t.txt", r"t.txt: prompt template 'a photo' needs exactly one \{\} for the class name"),
        (
            "a {c}, {}",
            "t.txt",
            r"t.txt: prompt template 'a \{c\}, \{\}' has \{c\} besides the place of the class name; leave",
        ),
        ("a {name}, {c}", "t.txt", r"has \{name\} besides the place of the class name; leave it out"),
        ("# nothing", "t.txt", "has no prompt template"),
        ("'a {}.',", "t.txt", "is an entry of a list in a program; write its text alone, or JSON"),
        ("lambda c: f'a {c}.',", "t.txt", "is an entry of a list in a program"),
        ("a {}.,", "t.txt", "is an entry of a list in a program"),
        ("a\0 {}", "t.txt", r"t.txt: the prompt template 'a\\x00 \{\}' is no line of text"),
        ([], "t.json", "has no prompt template"),
        ({"a": [3]}, "t.json", "is no JSON list of prompt templates"),
        ({"a": ["{}"], "b": ["{}"]}, "t.json", "has templates of a, b, and none of this data set"),
        ("3", "t.json", "is no JSON list"),
    ],
)
def test_a_template_file_that_cannot_be_used_is_refused(
    tmp_path: Path, content: object, name: str, message: str
) -> None:
    with pytest.raises(LabelError, match=message):
        read_templates(write(tmp_path, content, name))


@given(st.text(), st.text())
def test_either_mark_stands_for_the_name(before: str, after: str) -> None:
    if "{}" in before + after or re.search(r"\{[^{}\s]+\}", before + after):
        return
    assert as_template(before + "{c}" + after) == before + "{}" + after
    assert fill_template(before + "{c}" + after, "big_dog") == before + "big dog" + after
