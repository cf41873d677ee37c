"""Compare two lists of tests by file, each from `pytest --collect-only -q`: how many there are, and which are gone.

    python -m pytest -m 'not timing' --collect-only -q > AFTER
    python scripts/compare_tests.py BEFORE AFTER

A test is gone if no test of its file has its name and parameters. Exit code 1: some are gone.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path


def read(path: Path) -> dict[str, set[str]]:
    """Return the tests of each file of a list."""
    tests: dict[str, set[str]] = defaultdict(set)
    for line in path.read_text(encoding="utf-8").splitlines():
        file, separator, name = line.partition("::")
        if separator and file.endswith(".py"):
            tests[file].add(name)
    return tests


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    before, after = read(given.before), read(given.after)
    gone = [(file, name) for file in sorted(before) for name in sorted(before[file] - after.get(file, set()))]
    for file in sorted({*before, *after}):
        counts = len(before.get(file, ())), len(after.get(file, ()))
        if counts[0] != counts[1]:
            print(f"{file}: {counts[0]} before, {counts[1]} after")
    print(f"all: {sum(map(len, before.values()))} before, {sum(map(len, after.values()))} after, {len(gone)} gone")
    for file, name in gone:
        print(f"gone: {file}::{name}")
    return int(bool(gone))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
