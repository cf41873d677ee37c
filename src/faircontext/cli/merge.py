"""`faircontext merge`: join the shards of runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from faircontext.cli.options import parse_options

__all__ = ["Merge", "run"]


@dataclass(frozen=True)
class Merge:
    """Join shards, which were made with evaluate --shard i/n, to whole runs; a missing or doubled image is an error."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with the shards, searched with all folders below."""
    out: Annotated[Path, tyro.conf.arg(prefix_name=False)]
    """Folder for the whole runs; another one."""


def run(arguments: Sequence[str]) -> int:
    """Join, and print where each run is."""
    options = parse_options(Merge, arguments, "merge")
    from faircontext.runs.evaluate import merge

    for folder in merge(options.runs, options.out):
        print(folder)
    return 0
