"""Methods with a memory on the command line: orders, presets, refusals, and what reads their runs."""

import csv
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircontext.cli import main
from faircontext.runs.groups import find_runs, group_runs
from faircontext.runs.store import load_run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., np.ndarray]) -> Path:
    """A folder with two sets of small pictures in class folders, one called as a set of the catalogue."""
    folder = tmp_path_factory.mktemp("sets")
    for name in ("shapes", "photos"):
        for number in range(9):
            path = folder / name / ("cat", "dog", "rocket")[number % 3] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(make_image(number, 32, 32)).save(path)
    return folder


@pytest.fixture
def model(tiny_folder: Callable[[str], Path]) -> tuple[str, ...]:
    return ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32")


@pytest.fixture
def evaluate(root: Path, model: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> Run:
    def run(out: Path, *more: str) -> tuple[int, str, str]:
        code = main(["evaluate", "--datasets", "shapes", "--root", str(root), "--out", str(out), *model, *more])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.mark.slow
def test_a_run_for_each_order_and_tables_figures_and_pages_of_them(
    evaluate: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    code, said, noted = evaluate(out, "--methods", "tda", "zero", "--orders", "0", "1", "2", "--preset", "paper")
    assert (code, noted) == (0, "")
    assert [path.name for path in sorted(out.iterdir())] == [f"shapes-order-{order}" for order in range(3)]
    assert [line.split(",")[0].split(" images ")[1] for line in said.splitlines() if " images " in line] == [
        f"in order {order}" for order in range(3)
    ]
    config = load_run(out / "shapes-order-1").document["config"]
    assert config["stream"] == {
        "methods": ["tda"],
        "order": 1,
        "arrangement": "shuffled",
        "horizon": 9,
        "streams": 1,
        "tuned": [],
    }
    code, _, noted = evaluate(
        out, "--methods", "tda", "zero", "--orders", "0", "1", "2", "--preset", "paper", "--resume"
    )
    assert (code, noted) == (0, "")
    groups = group_runs(find_runs([out]))
    assert [group.settings.stream for group in groups] == ["order 0", "order 1", "order 2"]
    for command in (["tables", str(out)], ["report", str(out), "--out", str(tmp_path / "page.html")]):
        assert main(command) == 0
    assert main(["figures", str(out), "--out", str(tmp_path / "figures")]) == 0
    assert "TDA" in capsys.readouterr().out


def test_arrangements_have_folders_of_their_own(evaluate: Run, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    for arrangement in ("sorted", "correlated"):
        code, said, _ = evaluate(out, "--methods", "tda", "--arrangement", arrangement)
        assert code == 0
        assert f"9 images in order 0, {arrangement} by class, 3 classes" in said
    assert [path.name for path in sorted(out.iterdir())] == ["shapes-correlated-order-0", "shapes-sorted-order-0"]
    rows = load_run(out / "shapes-sorted-order-0").rows.to_pylist()
    time = {row["position"]: json.loads(row["diagnostics"])["t"] for row in rows if row["method"] == "tda"}
    label = {row["position"]: row["label"] for row in rows}
    in_time = [label[position] for position in sorted(time, key=time.__getitem__)]
    assert sum(one != other for one, other in pairwise(in_time)) == 2


def test_without_a_memory_orders_change_nothing(evaluate: Run, tmp_path: Path) -> None:
    for number, more in enumerate(((), ("--orders", "1", "2", "--arrangement", "sorted"))):
        assert evaluate(tmp_path / str(number), "--methods", "zero_shot", *more)[0] == 0
        assert [path.name for path in (tmp_path / str(number)).iterdir()] == ["shapes"]
    first, second = (load_run(tmp_path / name / "shapes") for name in "01")
    assert first.rows.drop_columns(["seconds", "shared_seconds"]).equals(
        second.rows.drop_columns(["seconds", "shared_seconds"])
    )
    assert first.document["hashes"] == second.document["hashes"]
    assert "stream" not in first.document["config"]


def test_settings_that_authors_chose_for_a_set_are_marked(
    evaluate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "runs"
    assert "tuned" not in evaluate(out / "others", "--methods", "tda", "--preset", "official")[1]
    monkeypatch.setattr(
        "faircontext.TDA.official_by_dataset", {"shapes": {"alpha": 5.0, "beta": 7.0}, "dtd": {"alpha": 2.0}}
    )
    code, said, _ = evaluate(out, "--methods", "tda", "tda-b", "--preset", "official", "--set", "tda-b.beta=1.5")
    assert code == 0
    lines = [line for line in said.splitlines() if line.startswith("  tda")]
    assert len(lines) == 2
    assert all(line.endswith("; settings tuned per data set by its authors") for line in lines)
    config = load_run(out / "shapes-order-0").document["config"]
    assert config["stream"]["tuned"] == ["tda", "tda-b"]
    settings = config["methods"]
    assert (settings["tda"]["alpha"], settings["tda"]["beta"], settings["tda-b"]["beta"]) == (5.0, 7.0, 1.5)
    assert "tuned" not in evaluate(out / "paper", "--methods", "tda", "--preset", "paper")[1]


def test_what_is_taken_where_authors_chose_nothing_for_a_set_is_said_once(
    evaluate: Run, root: Path, model: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ("--methods", "zero", "tda", "tda-b", "dpe", "ecalp", "--set", "tda-b.beta=1.5")
    note = (
        "tda has no official settings for this data set; taken instead: alpha=2.0, beta=5.0, views=plain",
        "tda-b has no official settings for this data set; taken instead: alpha=2.0, views=plain",
        "dpe has no official settings for this data set; taken instead: a=6.0, b=5.0, lr=0.0005, lam=0.5, "
        "answer=plain, views=confident",
    )
    code, _, noted = evaluate(tmp_path / "official", *methods, "--preset", "official", "--orders", "0", "1")
    assert (code, noted) == (0, "".join(f"note: shapes: {line}\n" for line in note))
    assert evaluate(tmp_path / "paper", *methods, "--preset", "paper")[2] == ""
    words = ["classify", str(root / "photos"), "--labels", "cat,dog,rocket", "--method", "tda", "--stream", *model]
    for more in ((), ("--out", str(tmp_path / "photos"))):
        assert main([*words, "--preset", "official", *more]) == 0
        assert capsys.readouterr().err == f"note: {note[0]}\n"


def test_a_folder_of_photos_has_the_settings_of_its_name(
    root: Path,
    model: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("faircontext.TDA.official_by_dataset", {"photos": {"alpha": 5.0}})
    words = ["classify", str(root / "photos"), "--labels", "cat,dog,rocket", "--method", "tda", "--stream", *model]
    alphas = []
    for name, more in (("a.json", ()), ("b.json", ("--out", str(tmp_path / "run")))):
        assert main([*words, "--preset", "official", "--json", str(tmp_path / name), *more]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        assert "as if answers were independent of each other, which those of a memory are not\n" in shown.out
        alphas.append(json.loads((tmp_path / name).read_text())["run"]["methods"]["tda"]["alpha"])
    assert alphas == [5.0, 5.0]


@pytest.mark.parametrize("way", [("--workers", "auto"), ("--engine", "ray"), ("--shard", "0/2")])
@pytest.mark.parametrize("command", ["classify", "evaluate"])
def test_what_shares_out_a_stream_is_refused_before_what_else_it_needs(
    command: str,
    way: tuple[str, ...],
    root: Path,
    model: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder for a stored run, or a cluster that can be reached, would lead to the next refusal alone."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    words = {
        "classify": [str(root / "photos"), "--labels", "cat,dog,rocket", "--method", "tda", "--stream"],
        "evaluate": ["--datasets", "shapes", "--root", str(root), "--out", str(tmp_path), "--methods", "tda"],
    }
    assert main([command, *words[command], *model, *way]) == 2
    name = " ".join(way).removesuffix(" 0/2")
    assert capsys.readouterr().err == (
        f"faircontext: {name} is not possible with tda, which answers images one after another; leave it out, or "
        f"encode with other methods and {name} into a folder of --features, then give tda that folder\n"
    )


def test_photos_are_a_stream_only_where_that_is_asked_for(
    root: Path, model: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def classify(*more: str) -> tuple[int, str]:
        code = main(["classify", str(root / "photos"), "--labels", "cat,dog,rocket", *model, *more])
        return code, capsys.readouterr().err

    assert classify("--method", "zero_shot,tda") == (
        2,
        "faircontext: the answers of tda depend on the images before; give --stream to answer the images as one "
        "stream\n",
    )
    assert classify("--method", "zero", "--stream")[1].startswith("faircontext: --stream is of methods with a memory")
    assert classify("--method", "tda", "--stream", "--csv", str(tmp_path / "a.csv"))[0] == 0
    stored = ("--method", "tda", "--stream", "--out", str(tmp_path / "run"), "--csv", str(tmp_path / "b.csv"))
    assert classify(*stored)[0] == 0
    tables = []
    for name in ("a.csv", "b.csv"):
        with (tmp_path / name).open(newline="") as file:
            tables.append([{**row, "seconds": ""} for row in csv.DictReader(file)])
    assert len(tables[0]) == 9
    assert tables[0] == tables[1]
    assert classify("--method", "all")[0] == 0  # those without a memory


def test_streams_of_shards_are_not_joined(evaluate: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in range(2):
        assert evaluate(tmp_path / "shards", "--methods", "zero_shot", "--shard", f"{part}/2")[0] == 0
    for path in (tmp_path / "shards").glob("*/run.json"):  # as nothing here writes it
        document = json.loads(path.read_text())
        document["config"]["stream"] = {"methods": ["tda"], "order": 0, "arrangement": "shuffled", "streams": 2}
        path.write_text(json.dumps(document))
    assert main(["merge", str(tmp_path / "shards"), "--out", str(tmp_path / "whole")]) == 2
    assert "tda answered this shard as a stream of its own, and streams are not joined" in capsys.readouterr().err
