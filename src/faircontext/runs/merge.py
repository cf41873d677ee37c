"""Join the shards of a run to the run that would have been made without them; what is missing or doubled is refused."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from faircontext.errors import ArgumentError
from faircontext.runs.store import Run, check_same, check_same_model, in_order, load_runs, write_run

__all__ = ["merge"]


def merge(folders: Sequence[Path], out: Path) -> Iterator[Path]:
    """Join all shards below some folders, and yield the folders of the runs that were made.

    Args:
        folders: where the shards are.
        out: folder for the runs; not one of `folders`, nor below.

    Raises:
        ArgumentError: there is no shard, shards differ in more than their number, a shard is missing or not complete,
            or an image is missing or doubled.
    """
    for folder in folders:
        if out.resolve() == folder.resolve() or folder.resolve() in out.resolve().parents:
            raise ArgumentError(f"{out}: lies in {folder}, where its shards are; name another --out")
    groups: dict[str, list[Run]] = defaultdict(list)
    for folder in folders:
        for run in load_runs(folder):
            if run.document["config"]["shard"] is not None:
                groups[run.document["config"]["dataset"]["name"]].append(run)
    if not groups:
        raise ArgumentError(f"{', '.join(map(str, folders))}: no shard of a run; make some with --shard i/n")
    joined = {name: _join(runs) for name, runs in groups.items()}  # all are checked before one is written
    for name, (document, rows) in joined.items():
        yield write_run(out / name, document, rows)


def _join(shards: Sequence[Run]) -> tuple[dict[str, Any], pa.Table]:
    first = shards[0]
    for run in shards:
        check_same(run.folder, _without_part(first), _without_part(run))
        check_same_model(run.folder, first.document, run.document)
        if not run.complete:
            raise ArgumentError(f"{run.folder}: is not complete; go on with --resume")
    numbers = Counter(run.document["config"]["shard"][0] for run in shards)
    parts = first.document["config"]["shard"][1]
    if missing := [number for number in range(parts) if number not in numbers]:
        raise ArgumentError(f"{first.folder}: shard {missing[0]} of {parts} is missing; run it with --shard")
    if doubled := [number for number, count in numbers.items() if count > 1]:
        found = [str(run.folder) for run in shards if run.document["config"]["shard"][0] == doubled[0]]
        raise ArgumentError(f"shard {doubled[0]} of {parts} is there more than once: {' and '.join(found)}")
    rows = pa.concat_tables([run.rows for run in shards])
    methods = list(first.document["config"]["methods"])
    keys = Counter(zip(rows["path"].to_pylist(), rows["method"].to_pylist(), strict=True))
    _check_images(first, keys, methods)
    document = {
        **first.document,
        "config": {**first.document["config"], "shard": None},
        "sessions": [session for run in shards for session in run.document["sessions"]],
        "counts": {name: sum(run.document["counts"][name] for run in shards) for name in first.document["counts"]},
    }
    return document, in_order(rows, methods)


def _without_part(run: Run) -> Mapping[str, Any]:
    """Return a shard's configuration without its number."""
    config = run.document["config"]
    return {**config, "shard": config["shard"][1]}


def _check_images(run: Run, keys: Mapping[tuple[str, str], int], methods: Sequence[str]) -> None:
    name = run.document["config"]["dataset"]["name"]
    if doubled := [path for (path, _), count in keys.items() if count > 1]:
        raise ArgumentError(f"{name}: {doubled[0]} is in more than one shard ({len(doubled)} rows in all)")
    config = run.document["config"]
    wanted = min(config["dataset"]["images"], config["limit"] or config["dataset"]["images"])
    for method in methods:
        found = sum(method == other for _, other in keys)
        if found != wanted:
            raise ArgumentError(
                f"{name}: the shards have {found} of {wanted} images of {method}; {wanted - found} missing"
            )
