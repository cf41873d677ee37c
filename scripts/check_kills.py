"""Kill a run of methods with a memory at seeded moments, go on, and compare rows and states with an uninterrupted run.

    python scripts/check_kills.py --datasets caltech101 --root DATA --limit 200 --out FOLDER

A moment is the n-th of these events of a run: an image is about to be answered, or has been; a state is about to be
written, or has been; a part of rows is about to take its name, or has. There the process ends by SIGKILL, after which
the run is gone on with, in another process, to its end. Exit code 0: all are equal to the bit.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faircontext.runs import store, streams
from faircontext.runs.build import load
from faircontext.runs.evaluate import evaluate
from faircontext.runs.executors import Executor
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.plan import Plan, find_datasets, plan_of
from faircontext.runs.run import executor_of, run_stored
from faircontext.runs.store import load_run

SEAMS = ((streams.Streams, "step"), (streams, "write_state"), (store, "write_rows"))
"""Before and after each of these a run may be killed."""


def watch(happened: Callable[[], None]) -> None:
    """Have a function called before and after each seam."""
    for owner, name in SEAMS:
        original = getattr(owner, name)

        def around(*arguments: Any, original: Callable[..., Any] = original, **more: Any) -> Any:
            happened()
            result = original(*arguments, **more)
            happened()
            return result

        setattr(owner, name, around)


def in_child(work: Callable[[], None]) -> int:
    """Do something in a process of its own; return its status, negative for the signal that ended it."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(folder: Path) -> tuple[Any, dict[str, bytes]]:
    """Return a run's rows, without times, and its last states."""
    paths = sorted((folder / "state").glob("*.safetensors"))
    last = {path.name[7:]: path.read_bytes() for path in paths if path.name[:6] == paths[-1].name[:6]}
    return load_run(folder).rows.drop_columns(["seconds", "shared_seconds"]), last


def check_kills(plan: Plan, out: Path, engine: Executor, moments: int, seed: int, rows: int) -> int:
    """Kill and go on at each moment; return how many runs do not end as the uninterrupted one.

    Args:
        plan: with methods that have a memory.
        out: folder for the runs.
        engine: answers images.
        moments: how many.
        seed: of the moments.
        rows: after so many rows a part is written.
    """
    store.STATE_ROWS = rows
    events: list[int] = []

    def carry(folder: Path, last: int = -1) -> None:
        def happened() -> None:
            events.append(1)
            if len(events) == last:
                os.kill(os.getpid(), signal.SIGKILL)

        watch(happened)
        run_stored(
            plan, folder / plan.folder_name, engine, True, {}, lambda line: print(f"note: {line}"), keep_state=True
        )
        (folder / "events").write_text(str(len(events)))

    assert in_child(lambda: carry(out / "whole")) == 0
    expected, different = outcome(out / "whole" / plan.folder_name), 0
    total = int((out / "whole/events").read_text())
    print(f"{plan.folder_name}: {len(expected[0])} rows, {len(expected[1])} states, {total} events", flush=True)
    for number, last in enumerate(np.random.default_rng(seed).choice(total, moments, replace=False) + 1):
        folder = out / f"{number:02}"
        killed = in_child(lambda folder=folder, last=last: carry(folder, int(last)))
        kept = len(load_run(folder / plan.folder_name).rows)
        resumed = in_child(lambda folder=folder: carry(folder))
        rows_now, states = outcome(folder / plan.folder_name)
        same = (killed, resumed) == (-signal.SIGKILL, 0) and rows_now.equals(expected[0]) and states == expected[1]
        different += not same
        print(
            f"  killed at event {last:4} of {total}, {kept:4} rows kept: {'equal' if same else 'DIFFERENT'}", flush=True
        )
    return different


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--methods", nargs="+", default=["tda"])
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    options = EvaluateOptions(
        datasets=(given.datasets,),
        methods=tuple(given.methods),
        root=given.root,
        out=given.out / "first",
        backbone=given.backbone,
        limit=given.limit,
        features=given.out / "features",
    )
    evaluate(options, print, print)  # so that the processes, which are forks, encode nothing
    model = load(options)
    plan = plan_of(options, find_datasets(options)[0], model)
    engine, _ = executor_of(options, model)
    different = check_kills(plan, given.out, engine, given.moments, given.seed, given.rows)
    print(f"{given.moments - different} of {given.moments} are equal to the bit")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
