import csv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from faircontext.errors import ArgumentError
from faircontext.files import check_outputs, to_json, write_whole
from faircontext.runs.outputs import EntrySpool, RowWriter
from faircontext.runs.records import Answer, method_of, variant_of

HEADER = "path,label,zero_shot,prediction,votes,confidence,method,fallback,error,seconds"
FULL = Answer("a.jpg", "cat", "dog", "cat", 17, 0.98765432, "fcl", "", "", 1.23456, 2.5)
UNREADABLE = Answer("b.jpg", method="fcl", error="the file is empty", seconds=0.0004)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_columns_are_exactly_these_in_this_order(tmp_path):
    with RowWriter(tmp_path / "rows.csv"):
        pass
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines() == [HEADER]


def test_rows_are_written_with_six_decimals_of_probability_and_three_of_seconds(tmp_path):
    with RowWriter(tmp_path / "rows.csv") as writer:
        writer.add([FULL])
        writer.add([UNREADABLE])
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines() == [
        HEADER,
        "a.jpg,cat,dog,cat,17,0.987654,fcl,,,1.235",
        "b.jpg,,,,,,fcl,,the file is empty,0.000",
    ]


def test_no_votes_are_not_zero_votes(tmp_path):
    with RowWriter(tmp_path / "rows.csv") as writer:
        writer.add([Answer("a.jpg", votes=0, confidence=0.0)])
        writer.add([Answer("a.jpg")])
    assert [(row["votes"], row["confidence"]) for row in read(tmp_path / "rows.csv")] == [("0", "0.000000"), ("", "")]


def test_every_row_is_on_disk_as_soon_as_it_is_written(tmp_path):
    path = tmp_path / "rows.csv"
    with RowWriter(path) as writer:
        assert read(path) == []
        assert path.read_text(encoding="utf-8").strip() == HEADER
        for number in range(1, 4):
            writer.add([FULL])
            assert len(read(path)) == number


def test_rows_survive_an_interruption(tmp_path):
    def interrupted() -> None:
        with RowWriter(tmp_path / "rows.csv") as writer:
            writer.add([FULL])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [row["path"] for row in read(tmp_path / "rows.csv")] == ["a.jpg"]


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['"quoted", with commas', "two\nlines", "carriage\rreturn", "both\r\nends", "猫", "=1+1", "  spaces  "]
)


@given(WORDS, WORDS, WORDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_is_read_back_as_it_was(tmp_path, name, label, reason):
    with RowWriter(tmp_path / "rows.csv") as writer:
        writer.add([Answer(name, label, prediction=label, fallback=reason)])
        writer.add([FULL])
    first, second = read(tmp_path / "rows.csv")
    assert (first["path"], first["label"], first["prediction"], first["fallback"]) == (name, label, label, reason)
    assert second["path"] == "a.jpg"


def test_bytes_of_a_file_name_that_are_not_utf8_are_escapes_that_any_reader_takes(tmp_path):
    with RowWriter(tmp_path / "rows.csv") as writer:
        writer.add([Answer(b"caf\xe9.jpg".decode("utf-8", "surrogateescape"))])
    assert "\ncaf\\udce9.jpg," in (tmp_path / "rows.csv").read_text(encoding="utf-8")


def test_an_output_that_cannot_be_written_is_named_before_any_work(tmp_path):
    for path, reason in ((tmp_path, "is a directory"), (tmp_path / "no" / "rows.csv", "no such file or directory")):
        for use in (RowWriter, lambda path: check_outputs([path], []), lambda path: write_whole(path, "text")):
            with pytest.raises(ArgumentError) as caught:
                use(path)
            assert str(caught.value) == f"{path}: cannot be written: {reason}"


def test_a_whole_file_is_replaced_in_one_step_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half of a pair: \ud800")
    assert path.read_text() == "old"
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_outputs_are_checked_without_being_changed(tmp_path):
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("precious")
    check_outputs([old, new], [tmp_path / "input.jpg"])
    assert old.read_text() == "precious"
    link = tmp_path / "link.csv"
    link.symlink_to(new)
    check_outputs([link], [])
    assert sorted(tmp_path.iterdir()) == [link, old]  # a run that ends early leaves no empty file
    with pytest.raises(ArgumentError, match="would be written over what is read, or over another output"):
        check_outputs([new, link], [])
    assert sorted(tmp_path.iterdir()) == [link, old]
    with pytest.raises(ArgumentError, match="would be written over what is read"):
        check_outputs([old], [tmp_path / "x" / ".." / "old.csv"])


@pytest.mark.parametrize("number", [0, 1, 3, 64, 150])
def test_a_document_whose_entries_were_spooled_is_the_document_written_at_once(tmp_path: Path, number: int) -> None:
    entries = [
        {"path": f"a\r\n\u2028é\udcff{n}", "warnings": [], "more": {"top": [1, [2.5, None]]}} for n in range(number)
    ]
    head = {"version": 1, "run": {"names": []}}
    with EntrySpool(tmp_path / "run.json") as spool:
        for entry in entries[:1]:
            spool.add([entry])
        spool.add(iter(entries[1:]))
        assert [*tmp_path.iterdir()] == []
        spool.write(head, "answers")
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert text == to_json({**head, "answers": entries})
    assert [*tmp_path.iterdir()] == [tmp_path / "run.json"]


def test_a_label_is_a_method_and_perhaps_a_variant():
    pairs = {label: (method_of(label), variant_of(label)) for label in ("fcl", "fcl-50", "rlcf_encoder-a-b")}
    assert pairs == {"fcl": ("fcl", ""), "fcl-50": ("fcl", "50"), "rlcf_encoder-a-b": ("rlcf_encoder", "a-b")}
