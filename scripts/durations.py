"""Write the longest tests and files of a run of the tests, from pytest's JUnit report.

make test-all && python scripts/durations.py .venv/tests.xml --out tests/durations.md
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]


def read(report: Path) -> Iterator[tuple[str, str, float]]:
    """Yield the file, the name and the seconds of each test of a report, its set-up and end included."""
    for case in ElementTree.parse(report).iter("testcase"):
        parts = case.attrib["classname"].split(".")
        yield f"{'/'.join(parts)}.py", case.attrib["name"], float(case.attrib["time"])


def table(title: str, seconds: Counter[str], rows: int) -> Iterator[str]:
    """Yield a Markdown table of the longest."""
    yield from (f"| seconds | {title} |", "|---:|---|")
    yield from (f"| {value:.1f} | `{name}` |" for name, value in seconds.most_common(rows))


def summary(report: Path, rows: int) -> str:
    """Return the page."""
    tests, files = Counter[str](), Counter[str]()
    number = 0
    for file, name, seconds in read(report):
        tests[f"{file}::{name}"] += seconds
        files[file] += seconds
        number += 1
    lines = [
        "# Where the time of the tests goes",
        "",
        f"{number:,} tests of {len(files)} files took {sum(files.values()):,.0f} s, of all processes together.",
        "CONTRIBUTING.md says how to renew this page.",
        "",
        *table("file", files, rows),
        "",
        *table("test", tests, rows),
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="file that pytest --junitxml wrote")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "durations.md")
    parser.add_argument("--rows", type=int, default=50, help="of each table")
    given = parser.parse_args(arguments)
    given.out.write_text(summary(given.report, given.rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
