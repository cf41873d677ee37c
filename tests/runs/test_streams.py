"""Streams of a run: exact resumption, beginnings, orders, and rows of other methods that do not change."""

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from carried import carry_out
from faircontext import MTA, TDA, ZERO, Backbone, LabelSpace, Method, ViewRecipe, ZeroShot
from faircontext.datasets.spec import Dataset, Sample
from faircontext.errors import ArgumentError
from faircontext.imageio import read_image
from faircontext.methods import create_method, list_methods
from faircontext.methods.cache import ClassCache
from faircontext.methods.stream import is_stream
from faircontext.runs import store as store_module
from faircontext.runs.answer import Predictor, answer_images
from faircontext.runs.executors import Executor, answer_here
from faircontext.runs.plan import Plan
from faircontext.runs.records import Answer
from faircontext.runs.store import load_run
from faircontext.runs.streams import Streams, read_state, write_state
from faircontext.types import read_diagnostics

NAMES = ("cat", "dog", "missile")
N, BROKEN = 24, 7
HERE = partial(answer_here, read=read_image, workers=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., np.ndarray]) -> Dataset:
    """Small pictures of three classes; some are there twice, and one is none."""
    folder = tmp_path_factory.mktemp("stream")
    for number in range(N):
        Image.fromarray(make_image(number % 19, 32, 32)).save(folder / f"{number:02}.png")
    (folder / f"{BROKEN:02}.png").write_bytes(b"no picture")
    paths = sorted(folder.iterdir())
    samples = tuple(Sample(path.name, path, number % 3) for number, path in enumerate(paths))
    return Dataset("stream", folder, "a folder", "all", NAMES, samples)


@pytest.fixture(scope="module")
def make(files: Dataset, tiny: Callable[[str], Backbone]) -> Callable[..., Plan]:
    labels = LabelSpace(NAMES, tiny("clip"))

    def plan(methods: dict[str, Method] | None = None, limit: int | None = None, **more: object) -> Plan:
        chosen = methods or {"zero_shot": ZeroShot(), "tda": TDA(), "tda-b": TDA(alpha=4.0, uncertain=(0.1, 0.69))}
        predictor = Predictor(labels, chosen, ViewRecipe(count=4, scale=(0.3, 1.0)))
        return Plan(files, predictor, 0, limit, None, {"preset": "paper", "prompts": "single"}, **more)

    return plan


def run(
    plan: Plan, out: Path, engine: Executor = HERE, resume: bool = False, said: list[str] | None = None
) -> pa.Table:
    warn = ([] if said is None else said).append
    return without_time(carry_out(plan, out, engine, resume, {}, warn, keep_state=True).rows)


def without_time(rows: pa.Table) -> pa.Table:
    return rows.drop_columns(["seconds", "shared_seconds"])


def last_states(folder: Path) -> dict[str, bytes]:
    """The files of the newest states, by what follows their number."""
    paths = sorted((folder / "state").glob("*.safetensors"))
    return {path.name.partition("-")[2]: path.read_bytes() for path in paths if path.name[:6] == paths[-1].name[:6]}


@pytest.fixture(scope="module")
def whole(make: Callable[..., Plan], tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, dict[str, bytes]]:
    """Rows and last states of the run that nothing interrupts."""
    out = tmp_path_factory.mktemp("whole")
    return run(make(), out), last_states(out / "stream-order-0")


def stopped(after: int, ahead: bool = False) -> Executor:
    """Return an engine that is interrupted before an image, or after it has been answered and before it is stored."""

    def answer(plan: Plan, positions: Sequence[int], *, streams: Streams) -> Iterator[list[Answer]]:
        for number, records in enumerate(HERE(plan, positions, streams=streams)):
            if ahead and number == after:
                raise KeyboardInterrupt
            yield records
            if not ahead and number + 1 == after:
                raise KeyboardInterrupt

    return answer


def test_rows_tell_what_the_stream_has_seen(
    whole: tuple[pa.Table, dict[str, bytes]], make: Callable[..., Plan]
) -> None:
    rows, plan = whole[0].to_pylist(), make()
    rank = {position: number for number, position in enumerate(plan.positions.tolist())}
    own = sorted((row for row in rows if row["method"] == "tda"), key=lambda row: rank[row["position"]])
    times = [read_diagnostics(row["diagnostics"]).get("t") for row in own if not row["error"]]
    assert times == [*range(1, N)]
    assert sum(bool(row["error"]) for row in own) == 1
    assert json.loads(own[0]["diagnostics"])["memory"] == 1
    hashes = {row["method"]: row["config"] for row in rows}
    assert len({*hashes.values()}) == 3


@pytest.mark.parametrize(
    "cut", [6, 7, *(pytest.param(cut, marks=pytest.mark.slow) for cut in range(1, 21) if cut not in (6, 7))]
)
def test_interrupted_anywhere_rows_and_states_end_as_without(
    cut: int,
    make: Callable[..., Plan],
    whole: tuple[pa.Table, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 1 + cut % 4  # images of a part
    monkeypatch.setattr(store_module, "STATE_ROWS", 3 * size)
    plan, out, ahead = make(), tmp_path / "stream-order-0", bool(cut % 2)
    with pytest.raises(KeyboardInterrupt, match=f"interrupted after {cut} of {N} images"):
        run(plan, tmp_path, stopped(cut, ahead))
    # Where the states are ahead of the rows, rows since the last part are left out; an unreadable file adds nothing.
    ahead &= plan.positions[cut] != BROKEN
    assert len(load_run(out).rows) == 3 * (cut // size * size if ahead else cut)
    assert run(plan, tmp_path, resume=True).equals(whole[0])
    assert last_states(out) == whole[1]


def test_half_changed_states_are_never_stored(
    make: Callable[..., Plan],
    whole: tuple[pa.Table, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "STATE_ROWS", 12)
    calls, change = [], ClassCache.store

    def interrupted(self: ClassCache, *arguments: object) -> None:
        calls.append(self)
        change(self, *arguments)
        if len(calls) == 25:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ClassCache, "store", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(make(), tmp_path)
    assert len(load_run(tmp_path / "stream-order-0").rows) == 12
    assert run(make(), tmp_path, resume=True).equals(whole[0])
    assert last_states(tmp_path / "stream-order-0") == whole[1]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


DAMAGES = {"missing": Path.unlink, "damaged": damage, "cut": lambda path: path.write_bytes(path.read_bytes()[:200])}


@pytest.mark.parametrize("kind", DAMAGES)
def test_without_the_newest_state_the_one_before_goes_on(
    kind: str,
    make: Callable[..., Plan],
    whole: tuple[pa.Table, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "STATE_ROWS", 9)
    out, said = tmp_path / "stream-order-0", []
    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path, stopped(12))
    states = sorted((out / "state").iterdir())
    assert [path.name for path in states] == [
        f"{number:06}-{rank}-tda.safetensors" for number in (3, 4) for rank in (0, 1)
    ]
    DAMAGES[kind](states[-1])
    assert run(make(), tmp_path, resume=True, said=said).equals(whole[0])
    assert said[0] == f"{out}: the newest state is missing or damaged; the stream goes on from the one before"
    assert last_states(out) == whole[1]


def test_without_any_state_the_stream_starts_anew(
    make: Callable[..., Plan], whole: tuple[pa.Table, dict[str, bytes]], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path, stopped(12))
    out, said = tmp_path / "stream-order-0", []
    for path in (out / "state").iterdir():
        path.unlink()
    assert run(make(), tmp_path, resume=True, said=said).equals(whole[0])
    assert said[0] == f"{out}: no state goes with the rows that are there; the stream starts anew"


@pytest.mark.parametrize(
    ("others", "differs"),
    [
        ({"dmn": create_method("dmn")}, "method dmn, and is used with method tda"),
        ({"tda": TDA(rho=0.5)}, "settings {'rho': 0.5}, and is used with settings {'rho': 0.1}"),
        ({"tda": TDA(), "zero_shot": ZeroShot()}, "run [0-9a-f]+, and is used with run [0-9a-f]+"),  # in order 1
    ],
)
def test_a_state_of_another_stream_is_told_with_what_helps(
    others: dict[str, Method],
    differs: str,
    make: Callable[..., Plan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "STATE_SECONDS", math.inf)  # a single generation, however long it takes
    own, expected = {"tda": TDA()}, run(make({"tda": TDA()}), tmp_path / "whole")
    order = int("zero_shot" in others)
    for methods, out, number in ((own, tmp_path, 0), (others, tmp_path / "others", order)):
        with pytest.raises(KeyboardInterrupt):
            run(make(methods, order=number), out, stopped(6))
    (state,) = (tmp_path / "stream-order-0/state").iterdir()
    (foreign,) = (tmp_path / f"others/stream-order-{order}/state").iterdir()
    shutil.copy(foreign, state)
    with pytest.raises(ArgumentError) as raised:
        run(make(own), tmp_path, resume=True)
    assert re.fullmatch(
        f"{state}: invalid state: it is of {differs}; delete it, and go on with --resume from the state before it, or "
        "from the start where there is none",
        str(raised.value),
    )
    state.unlink()
    assert run(make(own), tmp_path, resume=True).equals(expected)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda out: (shutil.rmtree(out / "state"), (out / "state").write_text("")), r"state: .*not a directory"),
        (
            lambda out: as_folder(max((out / "state").iterdir())),
            r"safetensors: cannot be read: is a directory; .*resume",
        ),
        (lambda out: as_folder(max((out / "parts").iterdir())), r"parquet: cannot be read: is a directory; .*resume"),
        (lambda out: (out / "state/000009-0-tda.safetensors").mkdir(), r"000009.*: is a folder, where .*; delete it"),
    ],
)
def test_what_is_no_file_is_told_before_a_row_is_deleted(
    spoil: Callable[[Path], object],
    said: str,
    make: Callable[..., Plan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "STATE_ROWS", 9)
    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path, stopped(12))
    out = tmp_path / "stream-order-0"
    spoil(out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ArgumentError, match=f"^{out}.*{said}"):
        run(make(), tmp_path, resume=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_state_that_came_without_its_part_counts_for_nothing(
    make: Callable[..., Plan],
    whole: tuple[pa.Table, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "STATE_ROWS", 9)
    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path, stopped(12))
    out, said = tmp_path / "stream-order-0", []
    newest = sorted((out / "parts").iterdir())[-1]
    newest.unlink()  # as where the process was killed between the two
    assert run(make(), tmp_path, resume=True, said=said).equals(whole[0])
    assert not [line for line in said if "state" in line]
    assert last_states(out) == whole[1]


def test_an_older_state_that_cannot_be_deleted_ends_the_run_in_a_line_and_loses_no_row(
    make: Callable[..., Plan],
    whole: tuple[pa.Table, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "STATE_ROWS", 9)
    monkeypatch.setattr(store_module, "STATE_SECONDS", math.inf)
    state = tmp_path / "stream-order-0/state/000000-0-tda.safetensors"
    state.mkdir(parents=True)
    with pytest.raises(ArgumentError, match=f"^{state}: is a folder, where a file should be; delete it, and go on"):
        run(make(), tmp_path)
    assert len(load_run(tmp_path / "stream-order-0").rows) == 18  # of both parts
    state.rmdir()
    assert run(make(), tmp_path, resume=True).equals(whole[0])


def test_rows_that_are_no_beginning_are_refused(
    make: Callable[..., Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "STATE_ROWS", 9)
    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path, stopped(12))
    sorted((tmp_path / "stream-order-0/parts").iterdir())[1].unlink()
    with pytest.raises(ArgumentError, match=r"rows of the stream's image 4 are missing, .*; delete .*--resume$"):
        run(make(), tmp_path, resume=True)


def test_a_complete_run_keeps_no_state_unless_it_is_asked_for(
    make: Callable[..., Plan], whole: tuple[pa.Table, dict[str, bytes]], tmp_path: Path
) -> None:
    out = tmp_path / "stream-order-0"
    found = carry_out(make(), tmp_path, HERE, False, {}, pytest.fail)
    assert sorted(path.name for path in out.iterdir()) == [".lock", "rows.parquet", "run.json"]
    assert without_time(found.rows).equals(whole[0])
    states = load_run(out).document["states"]
    assert {label: facts["seen"] for label, facts in states.items()} == {"tda": N - 1, "tda-b": N - 1}
    assert states["tda"]["chain"] != states["tda-b"]["chain"]
    before = (out / "rows.parquet").read_bytes()
    carry_out(make(), tmp_path, HERE, True, {}, pytest.fail)
    assert (out / "rows.parquet").read_bytes() == before


def test_a_shorter_run_is_the_beginning_of_the_longer_one(
    make: Callable[..., Plan], whole: tuple[pa.Table, dict[str, bytes]], tmp_path: Path
) -> None:
    short = run(make(limit=10), tmp_path)
    first = {*make().positions[:10].tolist()}
    expected = [row for row in whole[0].to_pylist() if row["position"] in first]
    assert [{**row, "config": ""} for row in short.to_pylist()] == [{**row, "config": ""} for row in expected]


def test_rows_of_other_methods_are_the_same_beside_a_stream_and_in_every_order(
    make: Callable[..., Plan], tmp_path: Path
) -> None:
    episodic: dict[str, Method] = {"zero_shot": ZeroShot(), "zero": ZERO(), "mta": MTA()}
    alone = run(make(episodic), tmp_path / "alone")
    first = None
    for order in range(3):
        plan = make({**episodic, "tda": TDA(), "tda-views": TDA(views="confident", rho=0.5)}, order=order)
        rows = run(plan, tmp_path)
        own = rows.filter(pa.compute.is_in(rows["method"], pa.array([*episodic])))
        assert own.equals(alone)
        streamed = rows.filter(pa.compute.equal(rows["method"], "tda"))
        assert first is None or not streamed.drop_columns("config").equals(first)
        first = streamed.drop_columns("config")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", *(f"stream-order-{r}" for r in range(3))]


STREAMS = [name for name in list_methods() if is_stream(name)]


@pytest.fixture(scope="module")
def every(make: Callable[..., Plan], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Method], pa.Table]:
    """Methods without a memory beside all that have one, and the rows of their run."""
    methods = {"zero_shot": ZeroShot(), "mta": MTA(), **{name: create_method(name) for name in STREAMS}}
    return methods, run(make(methods), tmp_path_factory.mktemp("every"))


def test_no_method_with_a_memory_changes_rows_of_others(
    every: tuple[dict[str, Method], pa.Table], make: Callable[..., Plan], tmp_path: Path
) -> None:
    assert {"tda", "dmn", "onzeta", "boostadapter", "dpe", "ecalp"} <= {*STREAMS}
    episodic = {"zero_shot": ZeroShot(), "mta": MTA()}
    own = every[1].filter(pa.compute.is_in(every[1]["method"], pa.array([*episodic])))
    assert own.equals(run(make(episodic), tmp_path))


def test_each_method_goes_on_to_the_bit_and_begins_as_a_shorter_run_does(
    every: tuple[dict[str, Method], pa.Table],
    make: Callable[..., Plan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    methods, rows = every
    monkeypatch.setattr(store_module, "STATE_ROWS", 3 * len(methods))
    with pytest.raises(KeyboardInterrupt):
        run(make(methods), tmp_path / "stopped", stopped(11, ahead=True))
    assert run(make(methods), tmp_path / "stopped", resume=True).equals(rows)
    short = run(make(methods, limit=10), tmp_path / "short").drop_columns("config")
    same = {name for name in STREAMS if rows_of(short, name).equals(rows_of(rows, name, make().positions[:10]))}
    assert same == {*STREAMS} - {"onzeta"}  # which knows how long its stream is


def rows_of(rows: pa.Table, method: str, positions: Sequence[int] | None = None) -> pa.Table:
    """Return a method's rows, of some positions or of all, without the hash of the run's configuration."""
    own = rows.filter(pa.compute.equal(rows["method"], method))
    if positions is not None:
        own = own.filter(pa.compute.is_in(own["position"], pa.array(positions)))
    return own.select([name for name in own.column_names if name != "config"])


@pytest.mark.slow
def test_workers_and_chunks_change_nothing(
    make: Callable[..., Plan], whole: tuple[pa.Table, dict[str, bytes]], tmp_path: Path
) -> None:
    ahead = partial(answer_here, read=read_image, workers=2)
    assert run(make(), tmp_path / "ahead", ahead).equals(whole[0])
    stored = partial(HERE, features=tmp_path / "features")
    assert run(make(), tmp_path / "first", stored).equals(whole[0])


def test_features_are_encoded_once_for_all_orders(
    make: Callable[..., Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = partial(HERE, features=tmp_path / "features")
    plan = make()
    expected = run(make(order=1), tmp_path / "without")
    run(plan, tmp_path / "runs", stored)
    monkeypatch.setattr(type(plan.predictor.labels.backbone), "encode_parts", lambda *_: pytest.fail("encoded again"))
    assert run(make(order=1), tmp_path / "runs", stored).equals(expected)


def test_equal_settings_share_a_state(make: Callable[..., Plan], files: Dataset) -> None:
    predictor = make({"zero_shot": ZeroShot(), "tda": TDA(), "tda-same": TDA()}).predictor
    items = [Sample(sample.key, sample.path, sample.label) for sample in files.samples[:4]]
    streams = Streams(predictor.methods, predictor.labels, 4)
    answers = [*answer_images(items, predictor, streams=streams)]
    assert [state.seen for state in streams.states.values()] == [4]
    assert all(one.predictions[1] is one.predictions[2] for one in answers)
    anew = [*answer_images(items, predictor)]
    assert all(
        torch.equal(one.predictions[1].probabilities, other.predictions[1].probabilities)
        for one, other in zip(answers, anew, strict=True)
    )


def test_a_state_is_written_and_read_to_the_bit(make: Callable[..., Plan], files: Dataset, tmp_path: Path) -> None:
    predictor, method = make().predictor, TDA()
    streams = Streams({"tda": method}, predictor.labels, None)
    items = [Sample(sample.key, sample.path) for sample in files.samples[:6]]
    assert (
        len([*answer_images(items, Predictor(predictor.labels, {"tda": method}, predictor.recipe), streams=streams)])
        == 6
    )
    state, path = streams.states[method], tmp_path / "state.safetensors"
    write_state(path, state)
    read = read_state(path, method, predictor.labels)
    assert (read.origin, read.seen, read.chain, read.open) == (state.origin, 6, state.chain, False)
    assert read.tensors.keys() == state.tensors.keys()
    for name, tensor in state.tensors.items():
        assert (read.tensors[name].dtype, read.tensors[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(read.tensors[name], tensor)
    others = LabelSpace(("cat", "dog", "rocket"), predictor.labels.backbone)
    for arguments, difference in [
        ((TDA(alpha=3.0), predictor.labels), "it is of settings .*'alpha': 2.0.* and is used with settings .*: 3.0"),
        ((method, others), "it is of classes 3 .* and is used with classes 3 "),
        ((method, LabelSpace(NAMES, predictor.labels.backbone, ["{}"])), "it is of templates .*a photo of a"),
    ]:
        with pytest.raises(ArgumentError, match=f"^{path}: invalid state: {difference}.*; delete it, and go on"):
            read_state(path, *arguments)
    state.open = True
    with pytest.raises(ArgumentError, match="half changed is not written"):
        write_state(path, state)


def test_the_weights_of_a_state_are_known(
    make: Callable[..., Plan], tiny: Callable[[str], Backbone], tmp_path: Path
) -> None:
    labels, path = make().predictor.labels, tmp_path / "state"
    write_state(path, TDA().start(labels))
    other = LabelSpace(NAMES, tiny("siglip"))
    with pytest.raises(ArgumentError, match=r"invalid state: it is of backbone .*clip"):
        read_state(path, TDA(), other)


def test_arrangements_need_classes(make: Callable[..., Plan], files: Dataset) -> None:
    unknown = replace(files, samples=tuple(replace(sample, label=None) for sample in files.samples))
    plan = replace(make(), dataset=unknown, arrangement="sorted")
    with pytest.raises(
        ArgumentError, match=r"^--arrangement sorted needs the class of every image; 24 of stream have none"
    ):
        plan.positions  # noqa: B018
    assert not math.isnan(make(arrangement="correlated").positions.sum())
