"""Files: checked before work begins, written in one step, known by digests; features that are kept on disk.

Text features are kept in the platform's own folder for caches (`~/.cache/faircontext` on Linux); the environment
variable `FAIRCONTEXT_CACHE` names another, and with the value `off` nothing is kept. Image features are kept in a
folder that a run names (`evaluate --features`). Deleting either costs time only.
"""

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
from typing import TYPE_CHECKING, Any

import platformdirs

from faircontext import __version__
from faircontext.errors import ArgumentError, reason_of
from faircontext.imageio import EXTENSIONS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "cache_folder",
    "cached_features",
    "check_folder",
    "check_outputs",
    "digest",
    "digest_of_json",
    "replacing",
    "to_json",
    "write_whole",
    "writing",
]


def digest(*parts: str | bytes | memoryview) -> str:
    """Return the SHA-256 of some texts and buffers one after the other, in hexadecimal."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode() if isinstance(part, str) else part)
    return found.hexdigest()


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
        place = error.filename if named else path
        raise ArgumentError(f"{place}: cannot be written: {reason_of(error)}") from None


@contextmanager
def replacing(path: Path, partial: Path | None = None) -> Iterator[Path]:
    """Yield where a file is to be written, which then takes its place in one step.

    Whoever looks at the file sees the old content or the new, never a part.

    Args:
        path: the file; a link's target is replaced, not the link.
        partial: where it is written; by default a hidden file beside it.

    Raises:
        ArgumentError: the file cannot be written.
    """
    partial = partial or _partial(path)
    with writing(path):
        try:
            yield partial
            partial.replace(os.path.realpath(path))
        finally:
            partial.unlink(missing_ok=True)


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Check, before any work is done and without changing a file, that outputs can be written and are nobody else's.

    Nothing of the trial stays.

    Raises:
        ArgumentError: an output is an input, or another output, or cannot be written.
    """
    taken, made = list(inputs), list[Path]()
    try:
        for path in outputs:
            _check_output(path, taken, made)
            taken.append(path)
    finally:
        for place in made:  # last: outputs that are one file by different names are known by what is there
            place.unlink(missing_ok=True)


def _check_output(path: Path, taken: Sequence[Path], made: list[Path]) -> None:
    """Check an output against what is taken, and try to write it; `made` gets what was not there."""
    if any(_is_same(path, other) for other in taken):
        raise ArgumentError(f"{path}: would be written over what is read, or over another output; name another file")
    if path.suffix.lower() in EXTENSIONS:
        raise ArgumentError(f"{path}: has the name of an image; name another file")
    if _is_printed_to(path):
        raise ArgumentError(f"{path}: is where this command prints to, which would be written over; name another file")
    with writing(path):
        place = Path(os.path.realpath(path))
        new = not place.exists()
        path.open("a").close()
        made += [place] if new else []
        if path.is_file():
            partial = _partial(path)
            partial.open("w").close()
            partial.unlink()


def check_folder(folder: Path) -> None:
    """Check, before any work is done, that a folder can be made and written to; nothing of the trial stays.

    Raises:
        ArgumentError: it cannot; the message names the part of the path that is in the way.
    """
    place = folder
    try:
        while not _is_there(place):
            place = place.parent
        # To try is the one way that knows of read-only disks and of root, who may write where modes say no.
        with tempfile.TemporaryDirectory(prefix=".faircontext-", dir=place):
            pass
    except OSError as error:
        raise ArgumentError(f"{place}: cannot be written: {reason_of(error)}") from None


def _is_there(place: Path) -> bool:
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _is_same(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except (OSError, ValueError):  # one of them does not exist
        return os.path.realpath(first) == os.path.realpath(second)


def _is_printed_to(path: Path) -> bool:
    """Tell whether a file is that of standard output or error; a pipe or a terminal takes both in turn."""
    for stream in (1, 2):
        with suppress(OSError):  # closed, or no such file
            found = os.fstat(stream)
            if stat.S_ISREG(found.st_mode) and os.path.samestat(found, path.stat()):
                return True
    return False


def _partial(path: Path) -> Path:
    """Return where a file is made before it takes its place; a link's target is replaced, not the link."""
    place = Path(os.path.realpath(path))
    return place.with_name(f".{place.name}.partial")


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a text file in one step; see `replacing`.

    Args:
        path: the file.
        text: what it is to hold; pieces are written one after the other.

    Raises:
        ArgumentError: the file cannot be written.
    """
    pieces = [text] if isinstance(text, str) else text
    with writing(path):
        if path.exists() and not path.is_file():  # a device
            with path.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
            return
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(pieces)


def to_json(
    document: Any, *, indent: int | None = 1, ensure_ascii: bool = False, separators: tuple[str, str] | None = None
) -> str:
    """Return JSON text that every reader takes.

    Numbers that are NaN or infinite become null, since JSON has none; bytes of file names that are no UTF-8 become
    escapes.

    Args:
        document: what is written.
        indent: see `json.dumps`, as the other two.
        ensure_ascii: see there.
        separators: see there.
    """
    layout: dict[str, Any] = {"indent": indent, "ensure_ascii": ensure_ascii, "separators": separators}
    try:
        text = json.dumps(document, allow_nan=False, **layout)
    except ValueError:  # the copy is only made where it is needed
        text = json.dumps(_finite(document), allow_nan=False, **layout)
    return re.sub("[\ud800-\udfff]", lambda stray: f"\\u{ord(stray[0]):04x}", text)


def _finite(value: Any) -> Any:
    """Return a document with None for numbers that are NaN or infinite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def cache_folder() -> Path | None:
    """Return the folder of the cache, or None where nothing is to be kept."""
    setting = os.environ.get("FAIRCONTEXT_CACHE", "")
    if setting.lower() in ("off", "0", "none"):
        return None
    return Path(setting) if setting else Path(platformdirs.user_cache_dir("faircontext", appauthor=False))


def cached_features(
    folder: Path | None,
    key: Mapping[str, object],
    device: "torch.device",
    compute: "Callable[[], Tensor]",
    rows: int = 0,
) -> "Tensor":
    """Return a tensor from a folder, or compute and keep it; an entry that is damaged is computed again.

    Args:
        folder: where entries lie; None keeps nothing.
        key: all that the tensor depends on, besides the versions of this package and of torch, the device, and the
            number of threads, which are added.
        device: where the tensor is wanted.
        compute: makes the tensor.
        rows: how many are needed; an entry with fewer is computed again, and what is returned may have more.
    """
    if folder is None:
        return compute()
    import torch  # which reading runs does without

    whole = {
        **key,
        "faircontext": __version__,
        "torch": torch.__version__,
        "device": device.type,
        "threads": torch.get_num_threads(),
    }
    path = folder / f"{digest_of_json(whole)}.safetensors"
    found = _read_features(path)
    if found is None or len(found) < rows:
        found = compute()
        with suppress(OSError, ArgumentError):  # a cache that cannot be written is no reason to stop
            _write_features(path, found)
    return found.to(device)


def _digest_of_tensor(tensor: "Tensor") -> str:
    import torch

    return digest(tensor.cpu().contiguous().view(torch.uint8).numpy().data)


def _read_features(path: Path) -> "Tensor | None":
    from safetensors import safe_open

    try:
        with safe_open(path, "pt") as file:
            tensor: Tensor = file.get_tensor("features")
            whole = file.metadata()["sha256"] == _digest_of_tensor(tensor) and bool(tensor.isfinite().all())
            return tensor if whole else None
    except Exception:  # no such entry, or a damaged one
        return None


def _write_features(path: Path, tensor: "Tensor") -> None:
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")  # two processes may make the same entry
    os.close(handle)
    with replacing(path, Path(partial)) as place:
        # Written here, as the library's own writing says of a full disk what is no OSError.
        content = save({"features": tensor.cpu().contiguous()}, {"sha256": _digest_of_tensor(tensor)})
        place.write_bytes(content)
