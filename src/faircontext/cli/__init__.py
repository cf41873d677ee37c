"""The `faircontext` command.

The top-level help comes from a static table, so that it costs no import of torch; each command lives in a module of its
own, which is imported when it is called.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

from faircontext import __version__
from faircontext.errors import FairContextError, unknown_name

__all__ = ["main"]

_COMMANDS = {
    "classify": "answer your photos with FCL, beside zero-shot",
    "explain": "show, on a page, why FCL answers one photo as it does",
    "list": "list methods or backbones",
    "demo": "run FCL on sample photos, plain and corrupted, and draw its evidence",
}


def _help() -> str:
    width = max(map(len, _COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {summary}" for name, summary in _COMMANDS.items())
    return (
        "usage: faircontext COMMAND [OPTIONS]\n\n"
        "Fair Context Learning: episodic test-time adaptation of CLIP-like vision-language models.\n\n"
        f"commands:\n{commands}\n\n"
        "faircontext COMMAND --help shows a command's options; faircontext --version shows the version."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 done but some images were refused, 2 a wrong argument."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if words else 2
    if words[0] in ("-V", "--version", "version"):
        print(f"faircontext {__version__}")
        return 0
    try:
        if words[0] not in _COMMANDS:
            raise unknown_name("command", words[0], _COMMANDS)
        run = import_module(f"faircontext.cli.{words[0]}").run
        return int(run(words[1:]))
    except FairContextError as error:
        print(f"faircontext: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("faircontext: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, for example `head`, has gone
        sys.stderr.close()
        return 141
