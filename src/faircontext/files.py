"""Files: checked before work begins, written in one step, known by digests."""

import hashlib
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from faircontext.errors import ArgumentError, first_reason, reason_of
from faircontext.imageio import EXTENSIONS

Rules = Mapping[str, tuple[Callable[[Any], bool], str]]
"""By key of a document: whether a value can be used, and in words which can."""


def digest(*parts: str | bytes | memoryview) -> str:
    """Return the SHA-256 of some texts and buffers one after the other, in hexadecimal."""
    return digest_of_parts(parts)


def digest_of_parts(parts: Iterable[str | bytes | memoryview]) -> str:
    """Return what `digest` does, of parts that are made one by one, as they may be large."""
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(part.encode() if isinstance(part, str) else part)
    return sha256.hexdigest()


def digest_of_json(value: Any) -> str:
    """Return the SHA-256 of a value's JSON text, with sorted keys."""
    return digest(json.dumps(value, sort_keys=True))


@contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """Turn what the operating system says about a file into one line that names it.

    Raises:
        ArgumentError: the file cannot be written, for example because the disk is full.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        named = isinstance(error.filename, str) and not error.filename.endswith(".partial")
        raise ArgumentError(f"{error.filename if named else path}: cannot be written: {reason_of(error)}") from None


@contextmanager
def replacing(path: Path, made: Path | None = None) -> Iterator[Path]:
    """Yield where a file is to be written, which then replaces the file in one step.

    Whoever looks at the file sees the old content or the new, never a part.

    Args:
        path: the file; a link's target is replaced, not the link.
        made: where it is written; by default a hidden file beside it.

    Raises:
        ArgumentError: the file cannot be written.
    """
    made = made or _partial(path)
    with writing(path):
        try:
            yield made
            made.replace(os.path.realpath(path))
        finally:
            made.unlink(missing_ok=True)


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Check, before any work is done and without changing a file, that outputs can be written and are nobody else's.

    Nothing of the trial stays.

    Raises:
        ArgumentError: an output is an input, or another output, or cannot be written.
    """
    outputs, taken, made = list(outputs), list[Path](), list[Path]()
    _check_inputs(outputs, inputs)
    try:
        for path in outputs:
            _check_output(path, taken, made)
            taken.append(path)
    finally:
        for output in made:  # last: outputs that are one file by different names are known by what is there
            output.unlink(missing_ok=True)


def _check_inputs(outputs: Sequence[Path], inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs, which may be very many: each is looked at once."""
    targets = {os.path.realpath(path): path for path in outputs}
    there = ((_status(Path(target)), path) for target, path in targets.items())
    identities = {(status.st_dev, status.st_ino): path for status, path in there if status is not None}
    for path in inputs if outputs else ():
        status = _status(path)
        same = targets.get(os.path.realpath(path)) if status is None else identities.get((status.st_dev, status.st_ino))
        if same is not None:
            raise _overwritten(same)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 (of very many files)
    except (OSError, ValueError):  # it is not there, or cannot be
        return None


def _overwritten(path: Path) -> ArgumentError:
    return ArgumentError(f"{path}: would be written over what is read, or over another output; name another file")


def _check_output(path: Path, taken: Sequence[Path], made: list[Path]) -> None:
    """Check an output against what is taken, and try to write it; `made` gets what was not there."""
    if any(_is_same(path, other) for other in taken):
        raise _overwritten(path)
    if path.suffix.lower() in EXTENSIONS:
        raise ArgumentError(f"{path}: has the name of an image; name another file")
    if _is_printed_to(path):
        raise ArgumentError(f"{path}: is where this command prints to, which would be written over; name another file")
    with writing(path):
        target = Path(os.path.realpath(path))
        new = not target.exists()
        path.open("a").close()
        made += [target] if new else []
        if path.is_file():
            _partial(path).open("w").close()
            _partial(path).unlink()


def check_folder(folder: Path) -> None:
    """Check, before any work is done, that a folder can be made and written to; nothing of the trial stays.

    Raises:
        ArgumentError: it cannot; the message names the part of the path that is in the way.
    """
    try:
        for part in (folder, *folder.parents):
            with suppress(FileNotFoundError, NotADirectoryError):
                part.lstat()
                break
        # To try is the one way that knows of read-only disks and of root, who may write where modes say no.
        with tempfile.TemporaryDirectory(prefix=".faircontext-", dir=part):
            pass
    except OSError as error:
        raise ArgumentError(f"{part}: cannot be written: {reason_of(error)}") from None


def _is_same(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except (OSError, ValueError):  # one of them does not exist
        return os.path.realpath(first) == os.path.realpath(second)


def _is_printed_to(path: Path) -> bool:
    """Tell whether a file is that of standard output or error; a pipe or a terminal takes both in turn."""
    for stream in (1, 2):
        with suppress(OSError):  # closed, or no such file
            status = os.fstat(stream)
            if stat.S_ISREG(status.st_mode) and os.path.samestat(status, path.stat()):
                return True
    return False


def _partial(path: Path) -> Path:
    """Return where a file is made before it is replaced; a link's target is replaced, not the link."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.partial")


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a text, or pieces of one, to a file in one step; see `replacing`.

    Raises:
        ArgumentError: the file cannot be written.
    """
    pieces = [text] if isinstance(text, str) else text
    with writing(path):
        if path.exists() and not path.is_file():  # a device
            with path.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
            return
    with replacing(path) as made, made.open("w", encoding="utf-8") as file:
        file.writelines(pieces)


def read_json(path: Path, hint: str = "copy or download it again") -> Any:
    """Return the document of a JSON file that comes with a model or a data set.

    Args:
        path: of the file.
        hint: what to do where it cannot be read.

    Raises:
        ArgumentError: it cannot be read, or is not valid JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {reason_of(error)}; {hint}") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: not valid JSON ({first_reason(error)}); copy or download it again") from None


def check_values(source: object, document: Any, rules: Rules, needed: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a file that comes with a model says, without what it leaves open (null).

    Args:
        source: the file, or whatever names it in a message.
        document: its values by key, or the part of it that is read.
        rules: of each key that is read, whether a value can be used, and in words which can.
        needed: keys that must be there.

    Raises:
        ArgumentError: it has no keys, or lacks one that is needed, or a value cannot be used.
    """
    if not isinstance(document, Mapping):
        raise ArgumentError(f"{source}: holds {str(document)[:60]!r} in place of an object of JSON")
    values = {key: value for key, value in document.items() if value is not None}
    for key, (fits, what) in rules.items():
        if key in values and not fits(values[key]):
            shape = getattr(values[key], "shape", None)
            shown = json.dumps(values[key], default=str)[:60] if shape is None else f"of shape {[*shape]}"
            raise ArgumentError(
                f"{source}: invalid {key} {shown}: must be {what}; take the file that belongs to the model"
            )
        if key in needed and key not in values:
            keys = ", ".join(map(str, [*document][:4])) or "nothing"
            raise ArgumentError(
                f"{source}: holds {keys}, and no {key}: must be {what}; take the file that belongs to the model"
            )
    return values


def find_file(folder: Path, what: str, *names: str) -> Path:
    """Return the first of some files that a folder has.

    Args:
        folder: where they are looked for.
        what: they hold, for the message.
        names: of the files, or shell patterns.

    Raises:
        ArgumentError: there is no such folder, or none of them is in it.
    """
    if not folder.is_dir():
        raise ArgumentError(f"{folder}: no such folder; copy the model's files into one")
    for file in (file for name in names for file in sorted(folder.glob(name))):
        if file.is_file():
            return file
    raise ArgumentError(f"{folder}: no {what} in it; looked for {', '.join(names)}")


def to_json(document: Any, *, indent: int | None = 1, ensure_ascii: bool = False, **layout: Any) -> str:
    """Return JSON text that every reader takes; keywords are those of `json.dumps`.

    Numbers that are NaN or infinite become null, since JSON has none; bytes of file names that are no UTF-8 become
    escapes.
    """
    layout |= {"allow_nan": False, "indent": indent, "ensure_ascii": ensure_ascii}
    try:
        text = json.dumps(document, **layout)
    except ValueError:  # the copy is only made where it is needed
        text = json.dumps(_finite(document), **layout)
    return re.sub("[\ud800-\udfff]", lambda stray: f"\\u{ord(stray[0]):04x}", text)


def _finite(value: Any) -> Any:
    """Return a document with None for numbers that are NaN or infinite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
