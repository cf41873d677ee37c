"""`classify --out`: the same run as of `evaluate`, with or without labels; CSV, JSON and the rest are exports of it."""

import csv
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from faircontext.cli import main
from faircontext.errors import ArgumentError
from faircontext.runs.outputs import (
    EMBEDDINGS,
    SCORES,
    ArrayWriter,
    RowWriter,
    TableWriter,
    read_classifier,
    read_embeddings,
)
from faircontext.runs.records import SCHEMA, Answer
from faircontext.runs.results import read_results
from faircontext.runs.store import load_run
from helpers import DEFAULT_SIGNALS

LABELS = "cat,dog,missile"


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def model(tiny_folder: Callable[[str], Path]) -> list[str]:
    return ["--labels", LABELS, "--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32"]


@pytest.fixture
def classify(
    model: list[str], photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Return a function that classifies the photos with zero-shot and FCL of eight masks, from the folder above."""
    monkeypatch.chdir(photos.parent)
    methods = ["--method", "fcl,zero_shot", "--set", "fcl.masks=8", "--views", "count=8"]

    def run(*words: object, paths: tuple[str, ...] = ("photos",)) -> Result:
        code = main(["classify", *paths, *model, *methods, *map(str, words)])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., np.ndarray]) -> Path:
    """Nine pictures, five of them in folders of classes, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("mine") / "photos"
    names = ["cat/0", "cat/1", "dog/2", "dog/3", "missile/4", "more/5", "more/6", "7", "8"]
    for number, name in enumerate(names):
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(make_image(number, 30, 40)).save(path)
    (folder / "cat" / "bad.jpg").write_bytes(b"")
    return folder


def without_seconds(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: without_seconds(value) for name, value in document.items() if "seconds" not in name}
    return [*map(without_seconds, document)] if isinstance(document, list) else document


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def files_in(folder: Path) -> list[str]:
    made = {"--csv": "rows.csv", "--json": "run.json", "--scores": "scores.parquet", "--embeddings": "features.npy"}
    return [word for option, name in made.items() for word in (option, str(folder / name))] + ["--top", "2"]


def assert_same_files(first: Path, second: Path) -> None:
    assert rows_of(first / "rows.csv") == rows_of(second / "rows.csv")
    documents = [json.loads((folder / "run.json").read_text()) for folder in (first, second)]
    assert without_seconds(documents[0]) == without_seconds(documents[1])
    assert pq.read_table(first / "scores.parquet").equals(pq.read_table(second / "scores.parquet"))
    assert (first / "features.npy").read_bytes() == (second / "features.npy").read_bytes()
    assert (first / "features.npy.json").read_bytes() == (second / "features.npy.json").read_bytes()


def test_files_from_a_stored_run_are_those_of_one_that_is_not_stored(
    classify: Callable[..., Result], tmp_path: Path
) -> None:
    for name in ("plain", "stored"):
        (tmp_path / name).mkdir()
    plain = classify(*files_in(tmp_path / "plain"))
    stored = classify(*files_in(tmp_path / "stored"), "--out", tmp_path / "run")
    assert plain.code == stored.code == 1
    assert_same_files(tmp_path / "plain", tmp_path / "stored")
    accuracies = [result.out.split("unreadable,", 1)[1].splitlines()[1:] for result in (plain, stored)]
    assert accuracies[0] == accuracies[1]
    assert "(n = 5, 95% interval" in stored.out


def test_the_plain_view_is_recorded_where_it_is_chosen(classify: Callable[..., Result], tmp_path: Path) -> None:
    chosen = {"own": (), "pad": ("--views", "plain=pad"), "crop": ("--views", "plain=crop")}
    printed = [classify(*words, "--out", tmp_path / name).out for name, words in chosen.items()]
    assert ["plain=" in text for text in printed] == [False, True, True]
    own, pad, crop = (load_run(tmp_path / name) for name in chosen)
    assert "plain" not in own.document["config"]["views"]
    for run, plain in ((pad, "pad"), (crop, "crop")):
        assert run.document["config"]["views"] == own.document["config"]["views"] | {"plain": plain}
        assert {*own.document["hashes"].values()}.isdisjoint(run.document["hashes"].values())
    left = ("config", "seconds", "shared_seconds")
    tables = [run.rows.drop_columns(left).to_pylist() for run in (own, crop, pad)]
    assert tables[0] == tables[1] != tables[2]  # a central square is the model's own
    refused = classify(*chosen["pad"], "--out", tmp_path / "own", "--resume")
    assert refused.code == 2
    assert "views" in refused.err.splitlines()[-1]


def test_a_stored_run_is_as_of_evaluate_with_labels_where_they_are_known(
    classify: Callable[..., Result], tmp_path: Path
) -> None:
    assert classify("--out", tmp_path / "run").code == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock", "rows.parquet", "run.json"]
    run = load_run(tmp_path / "run")
    assert run.complete
    assert run.rows.schema.equals(SCHEMA)
    assert run.document["counts"] == {"images": 10, "unreadable": 1}
    rows = run.rows.to_pylist()
    assert [row["method"] for row in rows] == ["zero_shot", "fcl"] * 10
    assert [row["path"] for row in rows[::2]] == sorted(row["path"] for row in rows[::2])
    labels = {row["path"]: row["label_index"] for row in rows}
    assert {path: label for path, label in labels.items() if label is not None} == {
        "photos/cat/0.png": 0,
        "photos/cat/1.png": 0,
        "photos/cat/bad.jpg": 0,
        "photos/dog/2.png": 1,
        "photos/dog/3.png": 1,
        "photos/missile/4.png": 2,
    }
    results = read_results(run)
    assert [(one.method, one.n, one.unlabelled, one.unreadable) for one in results] == [
        ("zero_shot", 5, 4, 1),
        ("fcl", 5, 4, 1),
    ]


def test_tables_report_and_figures_take_a_run_with_and_without_labels(
    classify: Callable[..., Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert classify("--out", tmp_path / "runs" / "some").code == 1
    assert classify("--out", tmp_path / "none", paths=("photos/more", "photos/7.png")).code == 0
    assert main(["tables", str(tmp_path / "runs")]) == 0
    assert "4 without a label, which count in no accuracy" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert '"outcome":"' in page
    capsys.readouterr()
    for command, code in (("tables", 0), ("report", 0), ("figures", 1)):  # there is nothing to draw without labels
        out = [] if command == "tables" else ["--out", str(tmp_path / command)]
        assert main([command, str(tmp_path / "none"), *out]) == code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
    assert "3 images" in (tmp_path / "report").read_text()


def test_a_run_with_scores_goes_on_without_naming_them_again(classify: Callable[..., Result], tmp_path: Path) -> None:
    scores = tmp_path / "s.parquet"
    assert classify("--out", tmp_path / "run", "--limit", "4", "--scores", scores).code in (0, 1)
    rows = load_run(tmp_path / "run").rows.drop_columns(["seconds", "shared_seconds"])
    again = classify("--out", tmp_path / "run", "--limit", "4", "--resume", "--csv", tmp_path / "a.csv")
    assert again.code in (0, 1)
    assert load_run(tmp_path / "run").rows.drop_columns(["seconds", "shared_seconds"]).equals(rows)
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["config"]["stored"] == ["scores"]
    more = classify("--out", tmp_path / "run", "--limit", "4", "--resume", "--embeddings", tmp_path / "e.npy")
    assert more.code == 2
    assert "its rows hold scores, and --embeddings is asked for; name another --out" in more.err
    assert classify("--out", tmp_path / "bare", "--limit", "4").code in (0, 1)
    more = classify("--out", tmp_path / "bare", "--limit", "4", "--resume", "--scores", scores)
    assert more.code == 2
    assert "its rows hold neither scores nor embeddings, and --scores is asked for; name another --out" in more.err


@pytest.mark.skipif(os.name != "posix", reason="a limit on files stands for a full disk")
def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    import resource

    answer = Answer(
        "a",
        probabilities=np.ones(9, np.float32),
        cosines=np.ones(9, np.float32),
        embedding=np.ones(999, np.float32),
    )
    earlier = resource.getrlimit(resource.RLIMIT_FSIZE)
    writers = (
        lambda: ArrayWriter(tmp_path / "e.npy", {}),
        lambda: TableWriter(tmp_path / "e.parquet", EMBEDDINGS, {}),
        lambda: TableWriter(tmp_path / "s.parquet", SCORES, {}),
        lambda: RowWriter(tmp_path / "a.csv"),
    )
    for make in writers:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, earlier[1]))
        try:
            with pytest.raises(ArgumentError, match=r"cannot be written: .*file too large"), make() as writer:
                writer.add([answer])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, earlier)
        assert [*tmp_path.iterdir()] == []
    with pytest.raises(ArgumentError, match="another output"), RowWriter(tmp_path / "a.csv"):
        raise ArgumentError("another output cannot be opened")
    assert [*tmp_path.iterdir()] == []


def test_shards_join_to_the_whole(classify: Callable[..., Result], tmp_path: Path) -> None:
    assert classify("--out", tmp_path / "whole").code == 1
    for part in range(3):
        classify("--out", tmp_path / "parts", "--shard", f"{part}/3")
    assert main(["merge", str(tmp_path / "parts"), "--out", str(tmp_path / "joined")]) == 0
    whole, joined = (
        load_run(tmp_path / name).rows.drop_columns(["seconds", "shared_seconds"])
        for name in ("whole", "joined/photos")
    )
    assert whole.equals(joined)


@pytest.mark.slow
def test_workers_and_a_limit(classify: Callable[..., Result], tmp_path: Path) -> None:
    classify("--out", tmp_path / "whole")
    classify("--out", tmp_path / "workers", "--workers", "2")
    classify("--out", tmp_path / "few", "--limit", "4")
    whole, workers, few = (
        load_run(tmp_path / name).rows.drop_columns(["seconds", "shared_seconds", "config"])
        for name in ("whole", "workers", "few")
    )
    assert whole.equals(workers)
    paths = few["path"].to_pylist()
    assert len(paths) == 8
    assert few.equals(whole.filter(pa.compute.is_in(whole["path"], pa.array(paths))))


def test_goes_on_where_it_was_stopped_and_exports_all(
    classify: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faircontext.runs import executors

    answer_images = executors.answer_images

    def interrupted(*arguments: Any) -> Iterator[Any]:
        for number, answer in enumerate(answer_images(*arguments)):
            if number == 3:
                raise KeyboardInterrupt
            yield answer

    for name in ("first", "second", "whole"):
        (tmp_path / name).mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(executors, "answer_images", interrupted)
        stopped = classify(*files_in(tmp_path / "first"), "--out", tmp_path / "run")
    assert stopped.code == 130
    assert (
        stopped.err.splitlines()[-1]
        == f"faircontext: {tmp_path}/run: interrupted after 3 of 10 images; go on with --resume"
    )
    assert [row["path"] for row in rows_of(tmp_path / "first" / "rows.csv")[::2]] == [
        f"photos/{name}.png" for name in ("7", "8", "cat/0")
    ]
    assert read_embeddings(tmp_path / "first" / "features.npy")[0].shape[0] == 3
    again = classify(*files_in(tmp_path / "first"), "--out", tmp_path / "run")
    assert (again.code, "there is a run already; add --resume" in again.err) == (2, True)
    assert classify(*files_in(tmp_path / "second"), "--out", tmp_path / "run", "--resume").code == 1
    assert classify(*files_in(tmp_path / "whole"), "--out", tmp_path / "other").code == 1
    assert_same_files(tmp_path / "second", tmp_path / "whole")
    before = (tmp_path / "run" / "rows.parquet").read_bytes()
    assert classify(*files_in(tmp_path / "second"), "--out", tmp_path / "run", "--resume").code == 1
    assert (tmp_path / "run" / "rows.parquet").read_bytes() == before
    assert classify("--out", tmp_path / "run", "--resume").code == 1  # it need not ask for scores and features again
    assert (tmp_path / "run" / "rows.parquet").read_bytes() == before


def test_another_list_of_images_is_another_run(classify: Callable[..., Result], tmp_path: Path) -> None:
    assert classify("--out", tmp_path / "run", paths=("photos/cat",)).code == 1
    other = classify("--out", tmp_path / "run", "--resume", paths=("photos/cat/0.png", "photos/cat/1.png"))
    assert other.code == 2
    assert "is another run than the one that is asked for: dataset.name was" in other.err


def test_a_run_of_other_methods_says_how_to_go_on(classify: Callable[..., Result], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert classify("--out", run, paths=("photos/cat",)).code == 1
    other = classify("--out", run, "--method", "fcl,zero_shot,zero", "--resume", paths=("photos/cat",))
    assert other.err.splitlines()[-1] == (
        f"faircontext: {run}: is a run of other methods than those that are asked for: zero_shot, fcl, not zero_shot, "
        "fcl, zero; name the same with --methods (of classify: --method), or another --out"
    )


def test_strict_stops_at_the_first_unreadable_file_and_the_run_goes_on_later(
    classify: Callable[..., Result], tmp_path: Path
) -> None:
    stopped = classify("--out", tmp_path / "run", "--strict")
    assert stopped.code == 1
    assert "stopped at photos/cat/bad.jpg, as --strict asks: the file is empty" in stopped.err
    assert not load_run(tmp_path / "run").complete
    assert len(load_run(tmp_path / "run").rows) == 2 * 5
    assert classify("--out", tmp_path / "run", "--resume").code == 1
    assert load_run(tmp_path / "run").complete


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--out", "photos/cat/0.png"),
            "photos/cat/0.png: is a file; --out names a folder, --csv and",
        ),
        (("--out", "photos/cat/run"), "--out photos/cat/run: lies in photos, whose images are answered"),
        (("--embeddings", "x.npy", "--json", "x.npy.json"), "x.npy.json: would be written over what is read, or over"),
        (("--exclude", ""), "--exclude is empty"),
    ],
)
def test_a_wrong_argument_is_one_line(
    classify: Callable[..., Result], words: tuple[str, ...], message: str, photos: Path
) -> None:
    before = sorted(photos.parent.rglob("*"))
    result = classify(*words)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert message in line
    assert sorted(photos.parent.rglob("*")) == before


def test_any_number_of_the_best_is_written_with_and_without_a_run(
    classify: Callable[..., Result], tmp_path: Path
) -> None:
    many, run = ("--labels", ",".join("abcdefg"), "--csv", tmp_path / "x.csv", "--top"), tmp_path / "run"
    tables = []
    for words in (("6",), ("6", "--out", run), ("6", "--out", run, "--resume")):
        assert classify(*many, *words).code == 1
        tables.append([{**row, "seconds": ""} for row in rows_of(tmp_path / "x.csv")])
    assert tables[0] == tables[1] == tables[2]
    assert classify(*many, "2", "--out", run, "--resume").code == 1  # what is held is enough
    assert "top was 6 and is 7" in classify(*many, "7", "--out", run, "--resume").err
    row = tables[0][0]
    assert [name for name in row if name.startswith("top")][-2:] == ["top6", "top6_probability"]
    values = [float(row[f"top{rank}_probability"]) for rank in range(1, 7)]
    assert len({row[f"top{rank}"] for rank in range(1, 7)}) == 6
    assert 0.5 < sum(values) <= 1.000003


def test_numbers_that_are_written_agree_with_each_other(classify: Callable[..., Result], tmp_path: Path) -> None:
    files = ["--scores", tmp_path / "s.parquet", "--classifier", tmp_path / "c.safetensors"]
    assert classify(*files, "--embeddings", tmp_path / "f.npy").code == 1
    assert classify("--embeddings", tmp_path / "f.parquet").code == 1
    features, paths, facts = read_embeddings(tmp_path / "f.npy")
    again = read_embeddings(tmp_path / "f.parquet")
    assert np.array_equal(features, again[0])
    assert (paths, len(paths)) == (again[1], 9)
    assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    classifier = read_classifier(tmp_path / "c.safetensors")
    assert classifier.names == facts["names"] == LABELS.split(",")
    assert classifier.facts["logit_scale"] == facts["logit_scale"]
    table = pq.read_table(tmp_path / "s.parquet")
    rows = [row for row in table.to_pylist() if row["method"] == "zero_shot"]
    assert [row["path"] for row in rows] == paths
    cosines = features @ classifier.weight.T
    assert np.allclose(cosines, [row["cosines"] for row in rows], atol=1e-6)
    logits = classifier.facts["logit_scale"] * cosines
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    assert np.allclose(exponents / exponents.sum(1, keepdims=True), [row["probabilities"] for row in rows], atol=1e-5)
    fcl = [row for row in table.to_pylist() if row["method"] == "fcl"]
    assert [row["cosines"] for row in fcl] == [row["cosines"] for row in rows]
    assert [row["probabilities"] for row in fcl] != [row["probabilities"] for row in rows]


@pytest.mark.process
@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_stored_run_with_what_was_computed(
    stop: signal.Signals, code: int, model: list[str], photos: Path, tmp_path: Path
) -> None:
    links = many_links(photos, tmp_path / "links", 8000)  # more than are answered until rows are first stored
    words = ["classify", str(links), *model, "--method", "zero_shot", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [*DEFAULT_SIGNALS, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_rows(tmp_path / "run", process)
        process.send_signal(stop)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()  # were it to hang, this test would as well
    assert process.returncode == code
    run = load_run(tmp_path / "run")
    assert errors.splitlines()[-1].endswith(f"interrupted after {len(run.rows)} of 8000 images; go on with --resume")
    assert 0 < len(run.rows) < 8000


def many_links(photos: Path, folder: Path, count: int) -> Path:
    """Make links to the pictures, some of which are in folders of classes."""
    files = sorted(photos.rglob("*.png"))
    for number in range(count):
        file = files[number % len(files)]
        link = folder / ("cat" if number % 3 == 0 else "other") / f"{number:05}.png"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return folder


def wait_for_rows(run: Path, process: subprocess.Popen[str]) -> None:
    while not any(run.glob("parts/*.parquet")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)


@pytest.mark.process
def test_killed_several_times_on_two_workers_it_ends_with_the_rows_of_one_run(
    model: list[str], photos: Path, tmp_path: Path
) -> None:
    links, kills, rng = many_links(photos, tmp_path / "links", 1500), 0, random.Random(0)
    common = ["classify", str(links), *model, "--method", "zero_shot"]
    assert main([*common, "--out", str(tmp_path / "whole")]) == 0
    words = [
        *common,
        "--out",
        str(tmp_path / "killed"),
        "--resume",
        "--workers",
        str(min(2, len(os.sched_getaffinity(0)))),
    ]
    while kills < 2:
        with subprocess.Popen(
            [*DEFAULT_SIGNALS, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            before = len([*(tmp_path / "killed").glob("parts/*.parquet")])
            while len([*(tmp_path / "killed").glob("parts/*.parquet")]) <= before:
                if process.poll() is not None:
                    break
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 0.2))
            process.kill()
        kills += 1
    assert main(words) == 0
    whole, killed = (load_run(tmp_path / name) for name in ("whole", "killed"))
    assert whole.complete
    assert killed.complete
    assert killed.rows.drop_columns(["seconds", "shared_seconds"]).equals(
        whole.rows.drop_columns(["seconds", "shared_seconds"])
    )
    assert len(killed.document["sessions"]) == 3
