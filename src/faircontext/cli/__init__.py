"""The `faircontext` command.

The top-level help comes from a static table, so that it costs no import of torch; each command lives in a module of its
own, which is imported when it is called.
"""

import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from faircontext import __version__
from faircontext.errors import ArgumentError, FairContextError, FairContextWarning, reason_of, unknown_name

__all__ = ["HungUp", "Terminated", "main"]

_COMMANDS = {
    "classify": ("classify", "classify", "classify photos with FCL and zero-shot"),
    "unsort": ("classify", "unsort", "undo classify --sort-into"),
    "explain": ("classify", "explain", "explain the prediction of FCL for one photo on an HTML page"),
    "serve": ("classify", "serve", "serve a web page for photos and an HTTP API"),
    "data": ("show", "data", "list data sets, check those on disk, or make collages of their photos"),
    "evaluate": ("evaluate", "evaluate", "evaluate methods on labelled data sets, resumable and in shards"),
    "merge": ("evaluate", "merge", "join the shards of runs"),
    "tables": ("show", "tables", "print the paper's tables from runs"),
    "threshold": ("show", "threshold", "choose a threshold for --unknown on a labelled run"),
    "analyze": ("evaluate", "analyze", "compute the paper's evidence measures: ECEC, EUEC, decomposition, margins"),
    "ablate": ("evaluate", "ablate", "compare variants of a method, from an experiment file"),
    "report": ("show", "report", "write an HTML report of runs, with images that a method fixed or broke"),
    "figures": ("show", "figures", "draw all figures for which runs have data"),
    "reproduce": ("evaluate", "reproduce", "run the experiments of a table or figure of the paper"),
    "list": ("show", "list_names", "list methods, analyses, backbones or weights"),
    "doctor": ("doctor", "doctor", "diagnose the installation, weights and data"),
    "demo": ("classify", "demo", "run FCL on sample photos, clean and corrupted, and draw evidence maps"),
}
"""Module, function and summary of each command."""


def _help() -> str:
    width = max(map(len, _COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {summary}" for name, (*_, summary) in _COMMANDS.items())
    return (
        "usage: faircontext COMMAND [OPTIONS]\n\n"
        "Fair Context Learning: episodic test-time adaptation of CLIP-like vision-language models.\n\n"
        f"commands:\n{commands}\n\n"
        "faircontext COMMAND --help shows a command's options; faircontext --version shows the version."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 done but some images were unreadable, 2 a wrong argument."""
    if arguments is None:
        _start_again_in_utf8()
    arguments = [*(sys.argv[1:] if arguments is None else arguments)]
    # Whoever started the process may have closed them. Notes must not come between results, nor into an output file.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show must not end a run
            stream.reconfigure(errors="replace")
    if isinstance(sys.stdin, io.TextIOWrapper):  # nor one that is not text
        sys.stdin.reconfigure(errors="surrogateescape")
    try:
        with _ended_like_interrupted(), _without_log_lines(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except FairContextError as error:
        print(f"faircontext: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        with suppress(OSError):  # the terminal may have gone
            print(f"faircontext: {str(stop) or 'interrupted'}", file=sys.stderr)
        return stop.code if isinstance(stop, Terminated) else 130
    except BrokenPipeError:
        # The reader of our output, for example `head`, has gone. What is still buffered goes nowhere, without a word.
        _discard_output()
        return 141
    except OSError as error:  # what is printed has nowhere to go, for example because the disk is full
        _discard_output()
        print(f"faircontext: standard output: {reason_of(error)}", file=sys.stderr)
        return 2


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Show this package's own warnings as a line; others, of libraries, are not for the user of a command."""
    if issubclass(category, FairContextWarning):
        print(f"note: {message}", file=sys.stderr)


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """Keep log lines of libraries from standard error, where Python shows those that nobody asked for."""
    nowhere = logging.NullHandler()
    logging.getLogger().addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)


def _start_again_in_utf8() -> None:
    """Start this command again in Python's UTF-8 mode where file names and output would be ASCII.

    Python does so by itself in the locale C, unless it is told not to (PYTHONUTF8=0). Names that are not ASCII would
    be halves of characters: no file, class or table could be called by them. The encoding of a running Python is fixed.
    """
    is_command = Path(sys.argv[0]).stem in ("faircontext", "__main__")  # not another program that calls `main`
    if os.name == "posix" and sys.getfilesystemencoding() == "ascii" and is_command:
        command = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONUTF8": "1"})


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM): what was computed is written, as after Ctrl-C."""

    code = 143


class HungUp(Terminated):
    """The terminal or the connection has gone (SIGHUP): the same."""

    code = 129


@contextmanager
def _ended_like_interrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may listen to signals
        yield
        return

    def raising(kind: type[Terminated]) -> Callable[..., None]:
        def stop(*_: object) -> None:
            raise kind

        return stop

    kinds = {"SIGTERM": Terminated, "SIGHUP": HungUp}  # not every system has the second
    wanted = {number: kind for name, kind in kinds.items() if (number := getattr(signal, name, None)) is not None}
    # What is ignored stays so: nohup asks for that.
    heeded = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
    earlier = {number: signal.signal(number, raising(wanted[number])) for number in heeded}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version", "version"):
        print(f"faircontext {__version__}")
        return 0
    if arguments[0] not in _COMMANDS:
        raise unknown_name("command", arguments[0], _COMMANDS)
    module, function, _ = _COMMANDS[arguments[0]]
    try:
        Path.cwd()
    except OSError as error:  # libraries end the process where it is gone
        raise ArgumentError(f"the current folder cannot be read: {reason_of(error)}; change to another") from None
    try:
        return int(getattr(import_module(f"faircontext.cli.{module}"), function)(arguments[1:]))
    except SystemExit as stop:  # the command's help was shown
        return int(stop.code or 0)
