"""``python -m faircontext`` is the ``faircontext`` command."""

import sys

from faircontext.cli import main

if __name__ == "__main__":
    sys.exit(main())
