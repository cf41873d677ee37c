"""Shards of runs, joined to the runs that would have been made without them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from faircontext.errors import ArgumentError
from faircontext.runs.checks import check_same, check_same_origin
from faircontext.runs.orders import run_name
from faircontext.runs.records import perturbation_of
from faircontext.runs.rows import in_order
from faircontext.runs.store import Run, load_runs, write_run


def merge(folders: Sequence[Path], out: Path) -> Iterator[Path]:
    """Join the shards below some folders to the runs that would have been made without them, and yield their folders.

    Args:
        folders: where the shards are.
        out: folder for the runs; not one of `folders`, nor below.

    Raises:
        ArgumentError: there is no shard, shards differ in more than their number, a shard is missing or not complete,
            or an image is missing or doubled.
    """
    for folder in folders:
        if folder.resolve() in (out.resolve(), *out.resolve().parents):
            raise ArgumentError(f"{out}: lies in {folder}, where its shards are; name another --out")
    shards: dict[str, list[Run]] = defaultdict(list)
    for run in (run for folder in folders for run in load_runs(folder)):
        config = run.document["config"]
        if config["shard"] is not None:
            if stream := config.get("stream"):
                raise ArgumentError(
                    f"{run.folder}: {stream['methods'][0]} answered this shard as a stream of its own, and streams "
                    "are not joined; run it without --shard"
                )
            shards[run_name(config["dataset"]["name"], perturbation=perturbation_of(config))].append(run)
    if not shards:
        raise ArgumentError(f"{', '.join(map(str, folders))}: no shard of a run; make some with --shard i/n")
    joined = {name: _join(name, runs) for name, runs in shards.items()}  # all are checked before one is written
    for name, (document, rows) in joined.items():
        yield write_run(out / name, document, rows)


def _join(name: str, shards: Sequence[Run]) -> tuple[dict[str, Any], pa.Table]:
    first, config = shards[0], shards[0].document["config"]
    indices, n = [run.document["config"]["shard"][0] for run in shards], config["shard"][1]
    for run in shards:
        documents = (first.document, run.document)
        facts = ({**one["config"], "shard": one["config"]["shard"][1], "hashes": one["hashes"]} for one in documents)
        check_same(run.folder, *facts)
        check_same_origin(run.folder, first.document, run.document)
        if not run.complete:
            raise ArgumentError(f"{run.folder}: is not complete; go on with --resume")
    if missing := sorted({*range(n)} - {*indices}):
        raise ArgumentError(f"{first.folder}: shard {missing[0]} of {n} is missing; run it with --shard")
    if doubled := [index for index in indices if indices.count(index) > 1]:
        where = " and ".join(str(run.folder) for run, index in zip(shards, indices, strict=True) if index == doubled[0])
        raise ArgumentError(f"shard {doubled[0]} of {n} is there more than once: {where}")
    tables = [table for run in shards for table in run.tables()]  # with all columns that are stored
    rows, methods = pa.concat_tables(tables or [first.rows]), list(config["methods"])
    _check_images(name, config, rows)
    document = {
        **first.document,
        "config": {**config, "shard": None},
        "sessions": [session for run in shards for session in run.document["sessions"]],
        "counts": {"images": len(rows) // len(methods), "unreadable": sum(run.unreadable for run in shards)},
    }
    return document, in_order(rows, methods)


def _check_images(name: str, config: Mapping[str, Any], rows: pa.Table) -> None:
    """Check that each image has been answered once by each method."""
    images = rows.group_by(["path", "method"], use_threads=False).aggregate([([], "count_all")])
    doubled = images.filter(pc.greater(images["count_all"], 1))["path"]
    if len(doubled):
        raise ArgumentError(f"{name}: {doubled[0]} is in more than one shard ({len(doubled)} rows in all)")
    wanted = min(config["dataset"]["images"], config["limit"] or config["dataset"]["images"])
    for method in config["methods"]:
        n = pc.sum(pc.equal(images["method"], method)).as_py() or 0
        if n != wanted:
            raise ArgumentError(f"{name}: the shards have {n} of {wanted} images of {method}; {wanted - n} missing")
