"""The command as a person calls it: formats, files, notes, and one line for what cannot be done."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from faircontext.cli import main
from faircontext.cli.options import parse_options
from faircontext.runs.options import ClassifyOptions
from made_runs import write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    write_run(folder / "imagenet", "imagenet", {"zero_shot": range(12), "tpt": range(13), "fcl": range(14)})
    write_run(folder / "mine", "mine", {"zero_shot": range(12), "fcl": range(14)}, backbone="lite0", pretrained=None)
    return folder


@pytest.mark.parametrize("style", ["paper", "long"])
@pytest.mark.parametrize(
    ("form", "parts"),
    [
        ("md", ["| FCL ", "**70.00**"]),
        ("latex", [r"\toprule", r"\textbf{70.00}"]),
        ("rich", ["FCL", "70.00*"]),
        ("csv", ["imagenet,", "0.7"]),
    ],
)
def test_every_style_is_printed_in_every_format(
    style: str, form: str, parts: list[str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", str(runs), "--style", style, "--format", form]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert parts[0] in captured.out
    assert style == "long" or parts[1] in captured.out


def test_comparison_adds_a_table_or_a_note_and_nothing_else(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", str(runs), "--compare", "paper", "--format", "md"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "note: the paper reports no accuracy of lite0; it has ViT-B-16 and ViT-B-32\n"
    (row,) = [line for line in captured.out.splitlines() if line.startswith("| ImageNet | FCL")]
    assert [cell.strip() for cell in row.split("|")][3:6] == ["20", r"70.00 \[48.10, 85.45\]", "69.46"]


def test_a_run_that_goes_on_is_noted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(runs / "dtd", "dtd", {"zero_shot": range(5), "fcl": range(6)}, answered=10)
    assert main(["tables", str(runs)]) == 0
    assert capsys.readouterr().err == f"note: {folder}: 10 of 20 images so far\n"


def test_tables_go_to_a_file_in_one_step(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "table.csv"
    out.write_text("what was there")
    assert main(["tables", str(runs), "--format", "csv", "--out", str(out)]) == 0
    assert capsys.readouterr() == ("", "")
    with out.open(newline="") as file:
        assert {row["method"] for row in csv.DictReader(file)} == {"zero_shot", "tpt", "fcl"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "table.csv"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give at least one folder of runs"),
        (("nowhere",), "nowhere: holds no run (no run.json); make one with faircontext evaluate"),
        (("RUNS", "--format", "word"), "invalid choice"),
        (("RUNS", "--style", "long", "--metric", "ece"), "--metric ece is not possible: --style long shows all"),
        (("RUNS", "--compare", "paper", "--metric", "nll"), "--metric nll is not possible: --compare paper is of"),
        (("RUNS", "--out", "RUNS/mine/run.json"), "would be written over what is read"),
        (("RUNS", "--out", "no/such/folder.md"), "no/such/folder.md: cannot be written"),
        (("BROKEN",), "run.json: is no description of a run"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: tuple[str, ...],
    message: str,
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    names = {"RUNS": str(runs), "BROKEN": "broken"}
    before = (runs / "mine" / "run.json").read_bytes()
    code = main(["tables", *(word.replace("RUNS", str(runs)) if word not in names else names[word] for word in words)])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("faircontext: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert (runs / "mine" / "run.json").read_bytes() == before


def test_a_run_without_an_image_is_a_table_of_dashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, "dtd", {"zero_shot": [], "fcl": []}, answered=0)
    assert main(["tables", str(tmp_path), "--format", "md"]) == 0
    assert "| FCL       |   - |   - |" in capsys.readouterr().out
    assert main(["tables", str(tmp_path), "--format", "csv"]) == 2
    assert "no image has been answered yet" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from faircontext.cli import main; main(['tables', '--help']); "
        "print({'torch', 'pyarrow', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give at least one folder of runs"),
        (["runs", "--out="], "--out is empty; name a file or folder"),
        (["runs", "--out", ""], "--out is empty; name a file or folder"),
        ([""], "runs is empty; name a file or folder"),
        (["runs", "", "--format", "md"], "runs is empty; name a file or folder"),
        (["runs", "--style", ""], "style"),
        (["runs", "--style="], "style"),
    ],
)
def test_a_path_that_is_missing_or_empty_is_a_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "\0" not in error
    assert "\\x00" not in error


@pytest.mark.parametrize("command", [["report"], ["figures"], ["merge", "--out", "there"]])
def test_an_empty_folder_of_runs_is_not_the_current_folder(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, ""]) == 2
    assert "runs is empty; name a file or folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "--set masks=4 steps=2 --seed 3",
        "--set masks=4 --seed 3 --set steps=2",
        "--set=masks=4 --set=steps=2 --seed=3",
        "--set masks=4 --seed 3 --set=steps=2",
    ],
)
def test_a_list_that_is_given_again_goes_on(words: str) -> None:
    options = parse_options(ClassifyOptions, words.split(), "classify")
    assert (options.set, options.seed) == (("masks=4", "steps=2"), 3)


def test_an_empty_text_that_is_no_path_stays_empty() -> None:
    options = parse_options(ClassifyOptions, ["--labels", "", "--set", "", "a=1", "--backbone="], "classify")
    assert (options.labels, options.set, options.backbone) == ("", ("", "a=1"), "")
