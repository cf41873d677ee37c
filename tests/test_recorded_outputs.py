"""Commands put out what `tests/recorded` says, and the script that records and compares them finds what changes.

After a change of outputs that is meant: python scripts/record_outputs.py record tests/recorded --digits 5
"""

import json
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shutil import copytree
from types import ModuleType
from typing import Any

import pytest
import torch

from recorded_compare import Comparison, rename
from recorded_files import lines_of, read_file

RECORDED = Path(__file__).parent / "recorded"
DRAWN = ("figures", "report")
"""Groups that take longest, because of drawing; their numbers are those of the runs, which the others record."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("record_outputs", RECORDED.parents[1] / "scripts" / "record_outputs.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compared(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Return a function that compares two values as recordings, and returns the exit code and what was printed."""

    def compare(first: Any, second: Any, *options: str) -> tuple[int, str]:
        for name, value in (("a", first), ("b", second)):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "tables.json").write_text(json.dumps(value))
        code = script.main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), *options])
        return code, capsys.readouterr().out.replace(f"{tmp_path}/", "")

    return compare


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="without AVX2, torchvision rounds pixels in another way, and crops of images are others",
)
@pytest.mark.parametrize(
    "without", [DRAWN, pytest.param((), marks=pytest.mark.slow)], ids=["all but what is drawn", "all"]
)
def test_commands_put_out_what_is_recorded(
    without: tuple[str, ...], script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left_out = [f"{group}.json" for group in without]
    copytree(RECORDED, tmp_path / "then", ignore=lambda *_: left_out)
    script.record(tmp_path / "now", without=without)
    code = script.main(["compare", str(tmp_path / "then"), str(tmp_path / "now"), "--tolerance", "1e-3", "--elsewhere"])
    assert code == 0, f"{capsys.readouterr().out}{__doc__}"


def test_what_is_recorded_stays_small() -> None:
    assert sum(path.stat().st_size for path in RECORDED.iterdir()) < 420_000


def test_equal_recordings_are_one_line(compared: Callable[..., tuple[int, str]]) -> None:
    value = {"rows": [1, 0.5, None, True, "n = 3", float("nan")]}
    assert compared(value, value) == (0, "a and b: no difference\n")


def test_each_difference_is_a_line_with_its_place(compared: Callable[..., tuple[int, str]]) -> None:
    first = {"columns": {"path": ["x.png", "y.png"], "method": ["fcl", "tpt"], "index": [1, 2]}, "old": 1}
    second = {"columns": {"path": ["x.png", "y.png"], "method": ["fcl", "tpt"], "index": [1, 3]}, "new": 1}
    code, printed = compared(first, second)
    assert code == 1
    assert printed.splitlines() == [
        "tables.json: columns index [1: y.png tpt]: 2 and 3",
        "tables.json: new: only in the second",
        "tables.json: old: only in the first",
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (True, 1),
        (1, 2),
        (None, 0.0),
        ([1], [1, 1]),
        ("fcl", "FCL"),
        ("n = 12", "n = 13"),
        ("1 image", "1 image 2"),
        (float("nan"), 1.0),
        (float("inf"), 1e300),
    ],
)
def test_what_is_no_decimal_number_must_be_equal(
    first: object, second: object, compared: Callable[..., tuple[int, str]]
) -> None:
    assert compared(first, second, "--tolerance", "0.9", "--elsewhere")[0] == 1


def test_decimal_numbers_have_a_tolerance_in_texts_as_well(compared: Callable[..., tuple[int, str]]) -> None:
    for first, second in ((0.5, 0.5004), ("p = 0.5 (n = 3)", "p = 0.5004 (n = 3)"), (1, 1.0004), (-1e5, -1e5 - 40)):
        assert compared(first, second, "--tolerance", "0.001")[0] == 0
        assert compared(first, second)[0] == 1


def test_other_processors_may_differ_in_hashes_and_last_digits(compared: Callable[..., tuple[int, str]]) -> None:
    for first, second in (
        ("12.3%", "12.4%"),
        ("p = 1", "p = 0.999"),
        ("0123456789ab,0.5", "ba9876543210,0.5"),
        ("a" * 64, "b" * 64),
    ):
        assert compared(first, second)[0] == 1
        assert compared(first, second, "--elsewhere")[0] == 0
    assert compared("12.3%", "12.5%", "--elsewhere")[0] == 1
    assert compared("0.123456789012", "0.987654321098", "--elsewhere")[0] == 1


def test_documented_renames_are_no_differences(tmp_path: Path, compared: Callable[..., tuple[int, str]]) -> None:
    (tmp_path / "names.json").write_text('{"number": "count", "answer": "prediction", "prediction": "answer"}')
    first, second = {"number": "the answer, no prediction"}, {"count": "the prediction, no answer"}
    assert compared(first, second)[0] == 1
    assert compared(first, second, "--renamed", str(tmp_path / "names.json"))[0] == 0
    assert rename(["numbers", "number=8"], {"number": "count"}) == ["numbers", "count=8"]  # whole words


def test_many_differences_are_counted(compared: Callable[..., tuple[int, str]]) -> None:
    code, printed = compared(list(range(1060)), list(range(1, 1061)))
    assert code == 1
    assert printed.splitlines()[0] == "tables.json: [0]: 0 and 1"
    assert printed.splitlines()[50:] == ["and 1,010 more"]


def test_a_line_that_came_is_no_difference_in_those_after_it(compared: Callable[..., tuple[int, str]]) -> None:
    first, second = ["one", "two 0.5", "three", "four"], ["one", "new", "two 0.50001", "three", "4"]
    _, printed = compared({"stdout": first}, {"stdout": second})
    assert printed.splitlines() == [
        "tables.json: stdout: 4 entries and 5",
        "tables.json: stdout [1]: only in the second: new",
        'tables.json: stdout [3]: "four" and "4"',
    ]


def test_a_file_that_is_missing_is_a_difference(tmp_path: Path) -> None:
    for name, files in (("a", ("tables", "report")), ("b", ("tables",))):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / f"{file}.json").write_text("{}")
    found = list(Comparison().folders(tmp_path / "a", tmp_path / "b"))
    assert found == [f"report.json: only in {tmp_path / 'a'}"]
    with pytest.raises(SystemExit, match="no-such-folder: holds no recording"):
        list(Comparison().folders(tmp_path / "a", tmp_path / "no-such-folder"))


def test_long_values_are_shown_from_where_they_differ(compared: Callable[..., tuple[int, str]]) -> None:
    _, printed = compared("x" * 200 + "old" + "y" * 200, "x" * 200 + "new" + "y" * 200)
    (line,) = printed.splitlines()
    assert len(line) < 220
    assert "xxxoldyyy" in line
    assert "xxxnewyyy" in line


def test_files_are_json_with_short_lines(script: ModuleType) -> None:
    value = {"b": [{"text": "x" * 90, "numbers": [0.1, 2, None]}, "é"], "a": {}}
    text = script.to_text(value)
    assert json.loads(text) == value
    assert text.index('"a"') < text.index('"b"')
    assert max(map(len, text.splitlines())) < 120


def test_numbers_are_rounded_in_texts_as_well(script: ModuleType) -> None:
    value = {"a": [1.23456789, 7, True], "b": "p = 0.666666667, 1.234567e-05 and 12.5 of 1234567"}
    assert script.rounded(value, 3) == {"a": [1.235, 7, True], "b": "p = 0.667, 0.0 and 12.5 of 1234567"}
    assert script.rounded(value, None) == value


def test_times_and_versions_are_left_out() -> None:
    text = "8 answered; 1.3 s\n0.02 s per image, 3 sets, 18 of 20 min left\nfaircontext 0.1.0\n"
    text += "shapes: 3 of 1,000 images, 0.05 images/s, 332 min left; fcl 33.3%\nend"
    assert lines_of(text) == [
        "8 answered; TIME s",
        "TIME s per image, 3 sets, 18 of TIME min left",
        "faircontext VERSION",
        "end",
    ]


def test_files_lose_what_tells_occasions_apart(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"counts": {"images": 3}, "sessions": [{"host": "here", "seconds": 2.5}]}')
    (tmp_path / "rows.csv").write_text('path,seconds,top\nx.png,0.25,"a, b"\n')
    (tmp_path / "pareto.csv").write_text("method,seconds\nfcl,0.25\n")
    (tmp_path / "page.html").write_text(
        "<style>p {}</style><dl><dt>Time</dt><dd>3 minutes in 2 runs</dd></dl><svg><text>drawn</text></svg>"
        "<table><tr><th>Set</th><th>Minutes</th></tr><tr><td>mine</td><td>0.1</td></tr></table><p>One <b>word</b></p>"
        '<script id="data">{"panels": [{"methods": {"fcl": {"confidence": [500, null]}}}]}</script>'
    )
    assert read_file(tmp_path / "run.json") == {
        "counts": {"images": 3},
        "sessions": [{"host": "left out", "seconds": "left out"}],
    }
    assert read_file(tmp_path / "rows.csv") == ["path,seconds,top", "x.png,left out,a, b"]
    assert read_file(tmp_path / "pareto.csv") == ["method,seconds", "fcl,0.25"]
    assert read_file(tmp_path / "page.html") == {
        "data": {"panels": [{"methods": {"fcl": {"confidence": [0.5, None]}}}]},
        "text": ["Time", "left out", "Set | Minutes", "mine | left out", "One word"],
    }
