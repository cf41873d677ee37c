"""Tables of shifts from runs whose answers are known by hand."""

import csv
import io
from pathlib import Path

import pytest

from faircontext.cli import main
from faircontext.report import split_by_benchmark
from faircontext.report.tables import perturbation_records, perturbed_runs
from faircontext.runs import find_runs, group_runs
from made_runs import write_run

ALL = range(20)


def corruption(name: str, severity: int) -> dict[str, object]:
    return {"shift": {"kind": "corruption", "name": name, "severity": severity}}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Zero-shot wrong on 4 and 8 images of fog and 5 of snow, R-TPT on 2 and 4 and 5; under attack on all and half."""
    perturbations = {
        "clean": ({}, ALL, ALL),
        "snow": (corruption("snow", 3), ALL[5:], ALL[5:]),
        "fog1": (corruption("fog", 1), ALL[4:], ALL[2:]),
        "fog5": (corruption("fog", 5), ALL[8:], ALL[4:]),
        "pgd": ({"shift": {"kind": "attack", "name": "pgd", "eps": 4}}, ALL[:0], ALL[10:]),
    }
    for name, (config, zero_shot, rtpt) in perturbations.items():
        write_run(tmp_path / "runs" / name, "mine", {"zero_shot": zero_shot, "rtpt": rtpt}, **config)
    return tmp_path / "runs"


def table_of(text: str, title: str) -> list[list[str]]:
    lines = iter(text.splitlines())
    next(line for line in lines if title in line)
    rows = []
    for line in lines:
        if line.startswith("|"):
            cells = line.strip("|").replace("\\", "").split("|")
            rows.append([cell.strip(" *") for cell in cells])
        elif rows:
            break
    return rows


def show(runs: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["tables", str(runs), "--style", "shift", *more]) == 0
    return capsys.readouterr().out


def test_perturbations_stand_side_by_side_in_their_order(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, _, zero_shot, rtpt = table_of(show(runs, capsys, "--format", "md"), "Top-1 accuracy by shift")
    assert head == ["Data set", "Method", "n", "none", "snow:3", "fog:1", "fog:5", "pgd:4"]
    assert [cell.split()[0] for cell in zero_shot[2:]] == ["20", "100.00", "75.00", "80.00", "60.00", "0.00"]
    assert [cell.split()[0] for cell in rtpt[2:]] == ["20", "100.00", "75.00", "90.00", "80.00", "50.00"]
    assert rtpt[-1] == "50.00 [29.93, 70.07]"  # Wilson's interval of 10 of 20


def test_the_mean_over_corruptions_has_mce_with_zero_shot_as_reference(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-TPT: fog (2 + 4) / (4 + 8), snow 5 / 5, so mCE is 75%; its errors are 11 of 60."""
    text = show(runs, capsys, "--format", "md")
    _, _, zero_shot, rtpt = table_of(text, "Mean over 3 corruptions")
    assert [cell.split()[0] for cell in zero_shot[3:]] == ["71.67", "-", "100.00"]
    assert [cell.split()[0] for cell in rtpt[3:]] == ["81.67", "+10.00", "75.00"]
    assert "Its reference is zero-shot of the same runs" in text


def test_each_shift_is_compared_with_zero_shot(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, _, rtpt = table_of(show(runs, capsys, "--format", "md"), "All data sets together, pgd:4")
    assert rtpt[:4] == ["R-TPT", "1", "20", "50.00 [29.93, 70.07]"]
    assert rtpt[4].startswith("+50.00 [")
    assert rtpt[5] == "+10 -0"


def test_csv_is_the_mean_over_corruptions(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zero_shot, rtpt = csv.DictReader(io.StringIO(show(runs, capsys, "--format", "csv")))
    assert rtpt["shift"] == "snow:3 fog:1 fog:5"
    assert (rtpt["dataset"], rtpt["method"], rtpt["n"]) == ("mine", "rtpt", "20")
    assert float(rtpt["mce"]) == 0.75
    assert float(rtpt["mce_low"]) < 0.75 < float(rtpt["mce_high"])
    assert (float(zero_shot["mce"]), zero_shot["delta"]) == (1.0, "")


def test_only_images_that_all_corruptions_have_count(runs: Path) -> None:
    write_run(runs / "short", "other", {"zero_shot": ALL[:10]}, **corruption("fog", 1))
    write_run(runs / "long", "other", {"zero_shot": ALL[:10]}, answered=12, **corruption("snow", 3))
    groups = split_by_benchmark(group_runs(find_runs([runs / "short", runs / "long"])))
    (record,) = perturbation_records(groups)
    assert (record["n"], record["top1"]) == (12, 10 / 12)


def test_other_styles_tell_shifts_apart(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", str(runs), "--format", "md"]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if "Top-1 accuracy" in line]
    assert len(titles) == 5
    assert sum("; fog:5" in title for title in titles) == 1
    assert main(["tables", str(runs), "--style", "long", "--format", "csv"]) == 0
    rows = [*csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert {row["shift"] for row in rows} == {"", "snow:3", "fog:1", "fog:5", "pgd:4"}
    assert main(["tables", str(runs / "clean"), "--style", "long", "--format", "csv"]) == 0
    assert "shift" not in capsys.readouterr().out.splitlines()[0]


def test_groups_that_differ_in_more_stay_apart(runs: Path) -> None:
    write_run(runs / "seeded", "mine", {"zero_shot": ALL}, seed=1, **corruption("fog", 1))
    groups = split_by_benchmark(group_runs(find_runs([runs])))
    found = sorted([*one.groups] for one in perturbed_runs(groups))
    assert found == [["", "snow:3", "fog:1", "fog:5", "pgd:4"], ["fog:1"]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "no run has corrupted or attacked images; make some with evaluate --corrupt or --attack"),
        (("--format", "csv"), "no run has corrupted images; make some with evaluate --corrupt"),
        (("--metric", "ece"), "--metric ece is not possible: --style shift is of top-1 accuracy; leave --metric out"),
        (("--compare", "paper"), "--compare paper is not possible with --style shift; leave it out"),
    ],
)
def test_what_is_not_possible_is_one_line(
    more: tuple[str, ...], message: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", str(runs / "clean"), "--style", "shift", *more]) == 2
    assert capsys.readouterr().err == f"faircontext: {message}\n"
