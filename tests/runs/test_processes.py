"""The same evaluation in several processes of this machine: equal rows, room, a process that is killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from carried import carry_out
from faircontext.errors import ArgumentError, FairContextError
from faircontext.imageio import read_image
from faircontext.runs import executors as module, run as run_module
from faircontext.runs.build import load, set_threads
from faircontext.runs.executors import (
    Executor,
    answer_here,
    answer_in_processes,
    processes_for,
    rebuild,
)
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.plan import Plan
from faircontext.runs.run import describe_executor, executor_of
from faircontext.system import resident_mb

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills processes as POSIX does")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few images are enough to start processes."""
    monkeypatch.setattr(module, "WORTH_IT", {True: 2, False: 2})


def rows_of(table: pa.Table) -> pa.Table:
    return table.sort_by([("position", "ascending"), ("method", "ascending")]).drop_columns(
        ["seconds", "shared_seconds"]
    )


@pytest.mark.process
def test_rows_of_processes_are_those_of_one_to_the_bit_in_its_order(
    options: EvaluateOptions, plan: Plan, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    here = partial(answer_here, read=read_image, workers=0)
    several = partial(answer_in_processes, build=partial(rebuild, options), here=_refuse, processes=2)
    made = [carry_out(plan, tmp_path / name, engine, False, {}, print) for name, engine in _named(here, several)]
    assert rows_of(made[0].rows).equals(rows_of(made[1].rows))
    assert made[1].rows["position"].equals(made[0].rows["position"])
    assert not active_children()


def _named(*executors: Executor) -> Iterator[tuple[str, Executor]]:
    yield from zip(("one", "several"), executors, strict=True)


def _refuse(*_: object) -> Iterator[list[object]]:
    raise AssertionError("answered here")


def test_few_images_are_answered_here(plan: Plan, options: EvaluateOptions) -> None:
    asked: list[object] = []
    here = lambda _, positions: asked.extend(positions) or iter([])  # noqa: E731
    assert [*answer_in_processes(plan, [0, 1, 2], partial(rebuild, options), here, 2)] == []
    assert asked == [0, 1, 2]


@pytest.mark.process
def test_a_killed_process_is_a_line_and_what_was_answered_is_kept(
    options: EvaluateOptions, plan: Plan, tmp_path: Path
) -> None:
    several = partial(answer_in_processes, build=partial(rebuild, options), here=_refuse, processes=2)

    def kill() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for child in active_children():
                os.kill(child.pid or 0, signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(FairContextError, match=r"a process that answers images was killed.*image \d+ of the data set"):
        carry_out(plan, tmp_path, several, False, {}, print)
    killer.join()
    here = partial(answer_here, read=read_image, workers=0)
    assert carry_out(plan, tmp_path, here, True, {}, print).complete


@pytest.mark.process
def test_a_process_that_makes_another_plan_is_refused(options: EvaluateOptions, plan: Plan) -> None:
    other = partial(rebuild, replace(options, seed=3))
    with pytest.raises(ArgumentError, match=r"worker process.*seed"):
        [*answer_in_processes(plan, [*map(int, plan.positions)], other, _refuse, 2)]


@pytest.mark.parametrize(
    ("room", "processors", "threads", "expected"),
    [(1e9, 8, 1, 8), (1e9, 8, 3, 2), (1e9, 2, 4, 1), (None, 8, 1, 8), (3.5, 8, 1, 3), (0.2, 8, 1, 1)],
)
def test_as_many_processes_as_processors_and_memory_have_room_for(
    room: float | None, processors: int, threads: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = resident_mb()
    monkeypatch.setattr(module, "resident_mb", lambda: size)
    monkeypatch.setattr(module, "available_mb", lambda: None if room is None else room * size)
    assert processes_for(processors, threads) == expected


def test_auto_gives_every_processor_a_model_and_says_so(
    options: EvaluateOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "usable_processors", lambda: 4)
    monkeypatch.setattr(module, "available_mb", lambda: None)
    model = load(options)
    for methods, asked, threads, processes in (
        ("fcl", None, 1, 4),
        ("zero_shot", None, 1, 4),
        ("all", 2, 2, 2),
        ("fcl", 4, 4, 1),
        ("zero_shot", 3, 3, 1),
    ):
        run = replace(options, workers="auto", methods=(methods,), threads=asked)
        set_threads(run)
        _, facts = executor_of(run, model)
        assert (torch.get_num_threads(), facts) == (threads, {"engine": "local", "processes": processes})
    assert [*describe_executor({"processes": 4})] == ["up to 4 processes with a model and 3 threads each answer images"]
    assert [*describe_executor({"processes": 1})] == ["1 process with a model and 3 threads answers images"]
    _, facts = executor_of(replace(options, workers=None), model)
    assert facts == {"engine": "local", "workers": 0}
    assert not [*describe_executor(facts)]


@pytest.mark.parametrize(("change", "several"), [({}, True), ({"device": "cuda:1"}, False), ({"engine": "ray"}, False)])
def test_several_models_answer_on_a_processor_alone(
    change: dict[str, str], several: bool, options: EvaluateOptions
) -> None:
    assert replace(options, workers="auto", **change).several_models == several
