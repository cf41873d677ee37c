"""An executor: images are answered in threads of this process, which share the model.

Usage: python examples/thread_executor.py DATASET ROOT OUT

The modules of `faircontext.runs` that are used here are not on the API page: they may change without notice.
"""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from faircontext.imageio import read_image
from faircontext.runs import Answer, EvaluateOptions, Run, Streams
from faircontext.runs.build import load
from faircontext.runs.executors import answer_here
from faircontext.runs.plan import Plan, find_datasets, plan_of
from faircontext.runs.run import run_stored


@dataclass(frozen=True)
class Threads:
    """Answers images in several threads.

    Attributes:
        count: number of threads.
    """

    count: int = 2

    def __call__(
        self, plan: Plan, positions: Sequence[int], *, streams: Streams | None = None
    ) -> Iterator[list[Answer]]:
        """Yield the answers for each image; methods with a memory need one image after another."""
        if streams is not None:
            yield from answer_here(plan, positions, read_image, 0, streams=streams)
            return

        def answer(position: int) -> list[Answer]:
            (answers,) = answer_here(plan, [position], read_image, 0)
            return answers

        with ThreadPoolExecutor(self.count) as pool:
            yield from pool.map(answer, positions)


def evaluate(options: EvaluateOptions, execute: Threads) -> list[Run]:
    """Carry out what `faircontext evaluate` would, with another executor, and return the runs."""
    model, runs = load(options), []
    for dataset in find_datasets(options):
        plan = plan_of(options, dataset, model)
        metadata = {"engine": "threads", "threads": execute.count}
        run, *_ = run_stored(plan, options.out / plan.folder_name, execute, options.resume, metadata, print)
        runs.append(run)
    return runs


if __name__ == "__main__":
    name, root, out = sys.argv[1:]
    options = EvaluateOptions(datasets=(name,), methods=("zero_shot",), root=Path(root), out=Path(out))
    for run in evaluate(options, Threads()):
        print(run.folder, len(run.rows), "rows")
