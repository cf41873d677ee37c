"""Draw the diagrams of the documentation: docs/images/concept.svg and docs/images/pipeline.svg.

Usage: python scripts/draw_diagrams.py [--out docs/images]
"""

import argparse
import sys
from pathlib import Path

from faircontext.report.diagrams import write_diagrams


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    for path in write_diagrams(parser.parse_args().out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
