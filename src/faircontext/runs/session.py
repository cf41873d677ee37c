"""Carry out a plan: answer what has not been answered yet, store the rows, watch the accuracy, record what it cost."""

import platform
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from tqdm import tqdm

from faircontext.imageio import DecodedImage
from faircontext.metrics.stats import Accuracy, chance_p_value
from faircontext.runs.answer import answer_images
from faircontext.runs.plan import Plan
from faircontext.runs.records import SCHEMA_VERSION, Record
from faircontext.runs.store import Run, RunStore
from faircontext.system import lifetime_peak_mb, usable_processors

__all__ = ["CHECKED", "Engine", "Say", "Watch", "answer_here", "carry_out", "start_session"]

CHECKED = 100
"""After this many images zero-shot must be better than chance."""

LEVEL = 0.05
"""Of that test."""

LINE_SECONDS = 30.0
"""Where there is no terminal, a line of progress is printed this often."""


Engine = Callable[[Plan, Sequence[int]], Iterator[list[Record]]]
"""Answers the images at some places of a plan's data set, in any order."""


def answer_here(
    plan: Plan,
    positions: Sequence[int],
    read: Callable[[Path], DecodedImage],
    workers: int,
    features: Path | None = None,
) -> Iterator[list[Record]]:
    """Answer images in this process; see `answer_images`."""
    setup = plan.setup
    items = [plan.item(position) for position in positions]
    answers = answer_images(items, setup.labels, setup.methods, setup.recipe, plan.seed, read, workers, features)
    for position, answer in zip(positions, answers, strict=True):
        yield plan.records(answer, position)


Say = Callable[[str], None]
"""Takes a line."""


def carry_out(plan: Plan, out: Path, engine: Engine, resume: bool, facts: Mapping[str, Any], warn: Say) -> Run:
    """Answer a plan's images and return the run, earlier rows included.

    Args:
        plan: what to do.
        out: folder of the run's folder.
        engine: what answers images.
        resume: whether to go on with a run that is there.
        facts: of the engine, for `run.json`.
        warn: takes warnings, a line each.

    Raises:
        ArgumentError: see `RunStore`.
        KeyboardInterrupt: the run was stopped; what was answered is kept.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "config": plan.config,
        "hashes": plan.hashes,
        "folder": str(plan.dataset.folder),
        "layout": plan.dataset.layout,
        "model": dict(plan.setup.labels.backbone.facts),
    }
    folder = out / plan.folder_name
    with RunStore(folder, document, [*plan.setup.methods], resume) as store:
        rest = [place for place in plan.positions if plan.dataset.samples[place].key not in store.done]
        if rest or store.document["status"] != "complete":
            _answer_rest(plan, rest, store, engine, facts, warn)
            store.finish()
        return Run(folder, store.document, store.rows())


def _answer_rest(
    plan: Plan,
    rest: Sequence[int],
    store: RunStore,
    engine: Engine,
    facts: Mapping[str, Any],
    warn: Say,
) -> None:
    watch = Watch(plan, store.rows(), warn)
    session, begin = start_session(plan, facts), time.perf_counter()
    earlier, number = store.document["sessions"], 0
    store.note(sessions=[*earlier, session])
    try:
        for records in watch.follow(engine(plan, rest), len(rest)):
            store.add(records)
            number += 1
    except KeyboardInterrupt as stop:
        left = f"interrupted after {number} of {len(rest)} images; go on with --resume"
        raise type(stop)(f"{store.folder}: {left}") from None
    finally:
        seconds = time.perf_counter() - begin
        session |= {"images": number, "seconds": seconds, "images_per_second": number / seconds, **_peaks(plan)}
        counts = {"images": watch.images, "refused": watch.refused}
        store.flush()
        store.note(sessions=[*earlier, session], counts=counts)


class Watch:
    """Accuracies so far, printed as the run goes, and a look at zero-shot after the first images.

    Args:
        plan: what is running.
        rows: that are there from before.
        warn: takes warnings, a line each.
    """

    def __init__(self, plan: Plan, rows: pa.Table, warn: Say) -> None:
        self._plan, self._warn = plan, warn
        self._correct = dict.fromkeys(plan.setup.methods, 0)
        self._zero_shot = self._answered = 0
        self.images = self.refused = 0
        self._checked = False
        columns = ("method", "error", "label_index", "index", "zero_shot_index")
        table = rows.select(columns).to_pylist()
        width = len(plan.setup.methods)
        for start in range(0, len(table), width):
            self._count(table[start : start + width])
        self._checked = self._answered >= CHECKED

    def _count(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.images += 1
        if rows[0]["error"]:
            self.refused += 1
            return
        self._answered += 1
        self._zero_shot += rows[0]["zero_shot_index"] == rows[0]["label_index"]
        for row in rows:
            self._correct[row["method"]] += row["index"] == row["label_index"]

    def add(self, records: Sequence[Record]) -> None:
        """Count an image."""
        self._count([vars(record) for record in records])
        if self._answered == CHECKED and not self._checked:
            self._checked = True
            self._check_chance()

    def _check_chance(self) -> None:
        classes = len(self._plan.dataset.names)
        p_value = chance_p_value(self._zero_shot, self._answered, classes)
        if p_value > LEVEL:
            name, accuracy = self._plan.dataset.name, Accuracy(self._zero_shot, self._answered)
            self._warn(
                f"{name}: zero-shot is not better than chance on the first images ({accuracy}; chance "
                f"{100 / classes:.1f}%, p = {p_value:.2g}); check the order of classes (faircontext data check {name})"
                ", the weights, and whether the model knows these classes"
            )

    def status(self, intervals: bool = True) -> str:
        """Return the accuracies so far."""
        if not self._answered:
            return "nothing answered yet"
        words = []
        for name, correct in self._correct.items():
            accuracy = Accuracy(correct, self._answered)
            words.append(f"{name} {accuracy if intervals else f'{100 * accuracy.value:.1f}%'}")
        return ", ".join(words)

    def follow(self, stream: Iterable[list[Record]], total: int) -> Iterator[list[Record]]:
        """Pass records on, with a bar on a terminal, or a line now and then where there is none."""
        shown = sys.stderr.isatty()
        name, printed, begin = self._plan.dataset.name, time.perf_counter(), time.perf_counter()
        with tqdm(total=total, desc=name, unit="image", disable=not shown, leave=False, dynamic_ncols=True) as bar:
            for number, records in enumerate(stream, 1):
                yield records
                self.add(records)
                bar.set_postfix_str(f"{self.status(intervals=False)}, n = {self._answered}", refresh=False)
                bar.update()
                now = time.perf_counter()
                if not shown and now - printed > LINE_SECONDS:
                    printed = now
                    rate = number / (now - begin)
                    left = (total - number) / rate / 60
                    speed = f"{number} of {total} images, {rate:.2f} images/s, {left:.0f} min left"
                    print(f"{name}: {speed}; {self.status()}", flush=True)


def start_session(plan: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return where, with what and when a process works on a run."""
    device = plan.setup.labels.backbone.device
    packages = ("numpy", "pillow", "torchvision", "timm", "open-clip-torch", "transformers")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "processors": usable_processors(),
        "threads": torch.get_num_threads(),
        **facts,
        "images": 0,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _peaks(plan: Plan) -> dict[str, float | None]:
    """Return the largest resident size of this process so far and of device memory, in MB."""
    device = plan.setup.labels.backbone.device
    on_device = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    return {"peak_memory_mb": lifetime_peak_mb(), "peak_device_memory_mb": on_device}
