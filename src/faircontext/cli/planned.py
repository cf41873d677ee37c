"""What `reproduce` has planned: which images are left, how long they will take, and running them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from faircontext.cli.evaluate import Evaluate, evaluate, method_names, plan_of

if TYPE_CHECKING:
    from faircontext.datasets.spec import Dataset
    from faircontext.runs.store import Run

__all__ = ["Planned", "carry_out", "estimate"]


@dataclass(frozen=True)
class Planned:
    """What is asked of `evaluate`, with the data sets."""

    options: Evaluate
    datasets: "Sequence[Dataset]"

    @cached_property
    def left(self) -> dict[str, int]:
        """How many images of each data set are to be answered; none of a run that is complete."""
        return {dataset.name: self._left(dataset) for dataset in self.datasets}

    def _left(self, dataset: "Dataset") -> int:
        wanted = min(len(dataset.samples), self.options.limit or len(dataset.samples))
        found = self.run(dataset.name)
        if found is None:
            return wanted
        from faircontext.bench.reproduce import settings_of
        from faircontext.runs.plan import data_hash
        from faircontext.runs.store import check_same

        asked, config = self.options, found.document["config"]
        now = {
            "limit": asked.limit,
            "seed": asked.seed,
            "dataset": {"images": len(dataset.samples), "hash": data_hash(dataset)},
            "methods": settings_of((*method_names(asked.methods),), asked.set),
        }
        earlier = {**config, "dataset": {key: config["dataset"].get(key) for key in ("images", "hash")}}
        check_same(found.folder, {key: earlier.get(key) for key in now}, json.loads(json.dumps(now)))
        return 0 if found.complete else max(1, wanted - len(set(found.rows["path"].to_pylist())))

    def run(self, name: str) -> "Run | None":
        """Return the run on a data set that is there."""
        from faircontext.runs.store import load_run

        folder = self.options.out / name
        return load_run(folder) if (folder / "run.json").exists() else None


def carry_out(plan: Planned) -> int:
    """Run what is left, and return the exit code for all of it."""
    open_ = tuple(name for name, left in plan.left.items() if left)
    if open_:
        try:
            evaluate(replace(plan.options, datasets=open_))
        except KeyboardInterrupt as stop:
            raise type(stop)(str(stop).replace("go on with --resume", "the same command goes on")) from None
    runs = [plan.run(dataset.name) for dataset in plan.datasets]
    return int(any(run is not None and run.document["counts"]["refused"] for run in runs))


def estimate(plans: Sequence[Planned]) -> None:
    """Print what is to be run and how long it will take here."""
    total, machine = 0.0, ""
    for plan in plans:
        print(f"  {plan.options.out}: {', '.join(method_names(plan.options.methods))}")
        states = [f"{name} {f'{left:,} images' if left else 'complete'}" for name, left in plan.left.items()]
        print(f"    {', '.join(states)}", flush=True)
    for plan in plans:
        if any(plan.left.values()):
            seconds, machine = _pilot(plan)
            total += seconds
            print(f"  {plan.options.out}: about {_hours(seconds)}", flush=True)
    print(
        f"estimated: {_hours(total)} in all" + (f", on {machine}" if machine else ": nothing is left to run"),
        flush=True,
    )


def _pilot(plan: Planned) -> tuple[float, str]:
    """Measure an image with the fewest and with the most classes; return the seconds of all, and on which machine."""
    from faircontext.bench.reproduce import between, seconds_per_image
    from faircontext.runs.session import start_session
    from faircontext.runs.store import check_same

    model = plan.options.load(method_names(plan.options.methods))
    plans = [plan_of(plan.options, dataset, model, None) for dataset in plan.datasets if plan.left[dataset.name]]
    for found in plans:  # what would be refused later is refused now
        if (run := plan.run(found.dataset.name)) is not None:
            check_same(run.folder, run.document["config"], json.loads(json.dumps(found.config)))
    plans.sort(key=lambda found: len(found.dataset.names))
    ends = {len(found.dataset.names): found.setup for found in (plans[0], plans[-1])}
    costs = {classes: seconds_per_image(setup) for classes, setup in ends.items()}
    seconds = sum(plan.left[found.dataset.name] * between(costs, len(found.dataset.names)) for found in plans)
    session, backbone = start_session(plans[0], {}), model.backbone
    return seconds, f"{session['processor']} ({backbone.device}, {backbone.precision}, {session['threads']} threads)"


def _hours(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
