"""A run's rows do not depend on how it was carried out, and hold what statistics need."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import carried
from faircontext import Backbone, Episode, FairContextError, LabelSpace, ZeroShot, load_image
from faircontext.datasets.spec import Dataset
from faircontext.imageio import read_image
from faircontext.runs import run as run_module
from faircontext.runs.executors import Executor, answer_here
from faircontext.runs.plan import Plan
from faircontext.runs.records import SCHEMA, Answer
from faircontext.runs.run import Progress
from faircontext.runs.store import load_run, merge

HERE = partial(answer_here, read=read_image, workers=0)


def carry_out(
    plan: Plan, out: Path, engine: Executor = HERE, resume: bool = False, said: list[str] | None = None
) -> pa.Table:
    warn = ([] if said is None else said).append
    return carried.carry_out(plan, out, engine, resume, {"engine": "local"}, warn).rows


def without_time(rows: pa.Table) -> pa.Table:
    return rows.drop_columns(["seconds", "shared_seconds"])


@pytest.fixture(scope="module")
def plan(make_plan: Callable[..., Plan]) -> Plan:
    return make_plan()


@pytest.fixture(scope="module")
def whole(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    return carry_out(plan, tmp_path_factory.mktemp("whole"))


def test_there_is_a_row_per_image_and_method_by_place(whole: pa.Table, pictures: Dataset) -> None:
    assert whole["path"].to_pylist() == [key for sample in pictures.samples for key in [sample.key] * 2]
    assert whole["position"].to_pylist() == sorted([*range(13)] * 2)
    assert whole["method"].to_pylist() == ["zero_shot", "fcl"] * 13
    assert whole["label_index"].to_pylist() == [sample.label for sample in pictures.samples for _ in range(2)]


def test_a_bad_image_is_a_row_that_says_why(whole: pa.Table) -> None:
    wrong = [row for row in whole.to_pylist() if row["error"]]
    assert [(row["path"], row["method"]) for row in wrong] == [("images/05.png", "zero_shot"), ("images/05.png", "fcl")]
    assert all(row["index"] is None and row["prediction"] == "" and row["label_index"] == 1 for row in wrong)


def test_a_row_holds_what_statistics_need(whole: pa.Table, plan: Plan, pictures: Dataset) -> None:
    fcl = plan.predictor.methods["fcl"]
    for row in whole.to_pylist()[:6]:
        image = load_image(pictures.samples[row["position"]].path)
        episode = Episode(image, plan.predictor.labels, plan.predictor.recipe)
        prediction = (ZeroShot() if row["method"] == "zero_shot" else fcl)(episode)
        exact = prediction.probabilities.double()
        label = pictures.samples[row["position"]].label
        assert row["index"] == prediction.index
        assert row["zero_shot_index"] == ZeroShot()(episode).index
        assert row["top5"] == prediction.ranking[:5].tolist()
        assert row["top5_probabilities"] == exact[prediction.ranking[:5]].tolist()
        assert row["label_probability"] == float(exact[label])
        assert row["probability_norm"] == pytest.approx(sum(float(p) ** 2 for p in exact))
        assert row["confidence"] == float(exact[prediction.index])
        assert row["candidates"] == [*prediction.candidates]
        assert json.loads(row["diagnostics"]) == json.loads(json.dumps(dict(prediction.diagnostics)))
        assert row["config"] == plan.hashes[row["method"]]


def test_a_run_says_what_it_was(plan: Plan, tmp_path: Path) -> None:
    carry_out(plan, tmp_path)
    document = json.loads((tmp_path / "pictures" / "run.json").read_text())
    assert document["schema_version"] == 2
    assert document["status"] == "complete"
    assert document["config"] == json.loads(json.dumps(plan.config))
    assert document["counts"] == {"images": 13, "unreadable": 1}
    assert document["working_directory"] == str(Path.cwd())
    (session,) = document["sessions"]
    assert session["images"] == 13
    assert session["images_per_second"] == pytest.approx(13 / session["seconds"])
    assert session["peak_memory_mb"] > 100
    assert session["versions"]["timm"]
    assert session["threads"] >= 1


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_shards_join_to_the_whole(
    make_plan: Callable[..., Plan], whole: pa.Table, plan: Plan, tmp_path: Path, parts: int
) -> None:
    for part in range(parts):
        carry_out(make_plan(shard=(part, parts)), tmp_path / "shards")
    (folder,) = merge([tmp_path / "shards"], tmp_path / "joined")
    joined = load_run(folder)
    assert without_time(joined.rows).equals(without_time(whole))
    assert joined.document["config"] == json.loads(json.dumps(plan.config))
    assert joined.document["counts"] == {"images": 13, "unreadable": 1}
    assert len(joined.document["sessions"]) == parts


def test_workers_and_the_order_of_images_change_nothing(plan: Plan, whole: pa.Table, tmp_path: Path) -> None:
    ahead = carry_out(plan, tmp_path / "ahead", partial(answer_here, read=read_image, workers=2))
    assert without_time(ahead).equals(without_time(whole))

    def backwards(plan: Plan, positions: Sequence[int]) -> Iterator[list[Answer]]:
        return HERE(plan, positions[::-1])

    assert without_time(carry_out(plan, tmp_path / "back", backwards)).equals(without_time(whole))


def test_a_limit_is_a_part_of_the_whole(make_plan: Callable[..., Plan], whole: pa.Table, tmp_path: Path) -> None:
    plan = make_plan(limit=4)
    rows = carry_out(plan, tmp_path)
    kept = pa.array([place in plan.positions for place in whole["position"].to_pylist()])
    assert len(rows) == 8
    assert without_time(rows).equals(without_time(whole.filter(kept)))


def stopped(after: int) -> Executor:
    """Return an engine that is interrupted after some images."""

    def answer(plan: Plan, positions: Sequence[int]) -> Iterator[list[Answer]]:
        for number, records in enumerate(HERE(plan, positions)):
            if number == after:
                raise KeyboardInterrupt
            yield records

    return answer


def test_an_interrupted_run_keeps_what_it_had_and_goes_on(plan: Plan, whole: pa.Table, tmp_path: Path) -> None:
    for number, after in enumerate((3, 0, 5)):
        with pytest.raises(KeyboardInterrupt, match=rf"pictures: interrupted after {after} of .* go on with --resume"):
            carry_out(plan, tmp_path, stopped(after), resume=number > 0)
    assert len(load_run(tmp_path / "pictures").rows) == 2 * 8
    answered: list[int] = []

    def count(plan: Plan, positions: Sequence[int]) -> Iterator[list[Answer]]:
        answered.extend(positions)
        return HERE(plan, positions)

    assert without_time(carry_out(plan, tmp_path, count, resume=True)).equals(without_time(whole))
    assert answered == plan.positions[8:].tolist()
    assert [session["images"] for session in load_run(tmp_path / "pictures").document["sessions"]] == [3, 0, 5, 5]
    carry_out(plan, tmp_path, count, resume=True)  # nothing is left: a complete run is left alone
    assert answered == plan.positions[8:].tolist()


KILLED = """
import os, signal, sys
from functools import partial
from pathlib import Path
from faircontext import FCL, LabelSpace, ViewRecipe, ZeroShot, create_backbone
from faircontext.runs import store
from faircontext.runs.executors import answer_here
from faircontext.runs.run import run_stored
from faircontext.runs.plan import Plan
from faircontext.runs.answer import Predictor
from faircontext.datasets.spec import Dataset, Sample
from faircontext.imageio import read_image

store.FLUSH_SECONDS = 0.0
model, folder, out, last = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
names = ("cat", "dog", "missile", "missile")
samples = tuple(Sample(f"images/{p.name}", p, n % 4) for n, p in enumerate(sorted((folder / "images").iterdir())))
methods = {"zero_shot": ZeroShot(), "fcl": FCL(masks=8, k=3)}
backbone = create_backbone(f"local-dir:{model}", precision="fp32")
predictor = Predictor(LabelSpace(names, backbone), methods, ViewRecipe(count=8, scale=(0.3, 1.0)))
dataset = Dataset("pictures", folder, "a table", "all", names, samples)
plan = Plan(dataset, predictor, 0, None, None, {"preset": "paper", "prompts": "single"})

def engine(plan, positions):
    for number, records in enumerate(answer_here(plan, positions, read_image, 0)):
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)
        yield records

run_stored(plan, out / plan.folder_name, engine, True, {"engine": "local"}, print)
"""


@pytest.mark.process
def test_a_killed_run_ends_with_the_same_records(
    tiny_folder: Callable[[str], Path], picture_set: Path, whole: pa.Table, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", KILLED, str(tiny_folder("clip")), str(picture_set), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))}
    for last in np.random.default_rng(0).integers(1, 5, 2):
        done = subprocess.run([*words, str(last)], env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert not load_run(tmp_path / "pictures").complete
    done = subprocess.run([*words, "99"], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = load_run(tmp_path / "pictures")
    assert found.complete
    assert len(found.document["sessions"]) == 3
    assert without_time(found.rows).equals(without_time(whole))


def test_another_configuration_does_not_go_on(make_plan: Callable[..., Plan], plan: Plan, tmp_path: Path) -> None:
    carry_out(plan, tmp_path)
    with pytest.raises(FairContextError, match=r"seed was 0 and is 1"):
        carry_out(make_plan(seed=1), tmp_path, resume=True)
    other = replace(plan, dataset=replace(plan.dataset, samples=plan.dataset.samples[:-1]))
    with pytest.raises(FairContextError, match=r"dataset.images was 13 and is 12; dataset.listed .*; dataset.hash was"):
        carry_out(other, tmp_path, resume=True)


class TestMerge:
    @pytest.fixture
    def shards(self, make_plan: Callable[..., Plan], tmp_path: Path) -> Path:
        for part in range(2):
            carry_out(make_plan(limit=4, shard=(part, 2)), tmp_path / "shards")
        return tmp_path / "shards"

    def test_a_missing_shard_is_named(self, shards: Path, tmp_path: Path) -> None:
        (shards / "pictures-shard-1-of-2" / "run.json").unlink()
        with pytest.raises(FairContextError, match="shard 1 of 2 is missing"):
            list(merge([shards], tmp_path / "joined"))
        assert not (tmp_path / "joined").exists()

    def test_a_shard_given_twice_is_named(self, shards: Path, tmp_path: Path) -> None:
        with pytest.raises(FairContextError, match="shard 0 of 2 is there more than once"):
            list(merge([shards, shards], tmp_path / "joined"))

    def test_a_shard_that_is_not_complete_is_named(self, make_plan: Callable[..., Plan], tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            carry_out(make_plan(shard=(0, 2)), tmp_path / "other", stopped(1))
        with pytest.raises(FairContextError, match=r"pictures-shard-0-of-2: is not complete; go on with --resume"):
            list(merge([tmp_path / "other"], tmp_path / "joined"))

    def test_shards_of_two_runs_are_refused(self, make_plan: Callable[..., Plan], shards: Path, tmp_path: Path) -> None:
        carry_out(make_plan(limit=4, shard=(1, 2), seed=1), tmp_path / "other")
        with pytest.raises(FairContextError, match="seed was 0 and is 1"):
            list(merge([shards, tmp_path / "other"], tmp_path / "joined"))

    def test_an_image_in_two_shards_is_refused(self, shards: Path, tmp_path: Path) -> None:
        first, second = (shards / f"pictures-shard-{part}-of-2" for part in range(2))
        (second / "rows.parquet").write_bytes((first / "rows.parquet").read_bytes())
        with pytest.raises(FairContextError, match=r"pictures: images/.*png is in more than one shard"):
            list(merge([shards], tmp_path / "joined"))

    def test_missing_rows_are_refused(self, shards: Path, tmp_path: Path) -> None:
        pa.parquet.write_table(SCHEMA.empty_table(), shards / "pictures-shard-1-of-2" / "rows.parquet")
        with pytest.raises(FairContextError, match=r"shard-1-of-2: is not complete; go on with --resume"):
            list(merge([shards], tmp_path / "joined"))

    def test_the_result_is_not_put_among_the_shards(self, shards: Path) -> None:
        with pytest.raises(FairContextError, match=r"lies in .*, where its shards are"):
            list(merge([shards], shards / "joined"))

    def test_a_folder_without_shards_is_said_to_have_none(self, plan: Plan, tmp_path: Path) -> None:
        carry_out(plan, tmp_path / "runs")
        with pytest.raises(FairContextError, match="no shard of a run; make some with --shard i/n"):
            list(merge([tmp_path / "runs"], tmp_path / "joined"))


def record(plan: Plan, position: int, right: bool, error: str = "") -> list[Answer]:
    label = plan.dataset.samples[position % 13].label
    index = None if error else label if right else (label + 1) % 4
    common = {"dataset": "pictures", "config": "x", "position": position, "label_index": label, "path": f"{position}"}
    return [
        Answer(**common, method=name, index=index, zero_shot_index=index, error=error)
        for name in plan.predictor.methods
    ]


@pytest.mark.parametrize(
    ("right", "number", "told"),
    [(25, 250, "25.0% (n = 100, "), (32, 250, "32.0% (n = 100, "), (33, 250, ""), (0, 99, "")],
)
def test_zero_shot_at_chance_is_said_once_after_a_hundred_images(
    plan: Plan, right: int, number: int, told: str
) -> None:
    said: list[str] = []
    with Progress("pictures", 4, plan.count(["zero_shot", "fcl"]), number, said.append) as progress:
        for position in range(number):
            progress.add(record(plan, position, position < right))
    assert len(said) == bool(told)  # 32 of 100 at 1/4: p = 0.069; 33: p = 0.045
    if told:
        assert said[0].startswith(f"pictures: zero-shot is not better than chance on the first images ({told}")
        assert "faircontext data check pictures" in said[0]


def test_accuracies_so_far_are_short_and_carry_their_number(plan: Plan) -> None:
    counts = plan.count(["zero_shot", "fcl"])
    assert counts.status() == "nothing answered yet"
    for position in range(4):
        counts.add(record(plan, position, position < 3, "broken" if position == 1 else ""))
    assert (counts.images, counts.unreadable) == (4, 1)
    assert counts.status() == "zero_shot 66.7%, fcl 66.7% (n = 3)"


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(np.arange(0.0, 1000.0, 20.0))
    monkeypatch.setattr(run_module.time, "perf_counter", lambda: float(next(clock)))
    with Progress("pictures", 4, plan.count(["zero_shot", "fcl"]), 10, print) as progress:
        for position in range(4):
            progress.add(record(plan, position, True))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "pictures: 2 of 10 images, 0.05 images/s, 3 min left; zero_shot 100.0%, fcl 100.0% (n = 2)"
    )


def test_the_backbone_of_a_run_is_known_by_its_weights(tiny: Callable[[str], Backbone]) -> None:
    assert tiny("clip").weights_hash == tiny("clip").weights_hash
    assert tiny("clip").weights_hash != tiny("siglip").weights_hash
    assert LabelSpace(("a",), tiny("clip")).backbone.weights_hash == tiny("clip").weights_hash
