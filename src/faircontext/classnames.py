"""What a class name must be, known apart from models, so that a data set can be checked without one."""

import unicodedata
from pathlib import Path

from faircontext.errors import LabelError

__all__ = ["check_name"]


def check_name(number: int, name: str, file: Path | None = None) -> None:
    """Refuse a class name that cannot be read in a prompt or shown in a table.

    Args:
        number: of the name in its list, from 1.
        name: as given.
        file: that it was read from, if any, for the message.

    Raises:
        LabelError: it is blank, has control characters or stray bytes, or is no string.
    """
    if not isinstance(name, str):
        raise LabelError(f"class name number {number} is {name!r}, not a string")
    kinds = [unicodedata.category(character) for character in name]
    if "Cc" in kinds or "Cs" in kinds:
        what = "control characters" if "Cc" in kinds else "bytes that are not UTF-8"
        where, hint = (f"{file}: ", "; is the file plain UTF-8?") if file else ("", "")
        raise LabelError(f"{where}class name number {number}, {name[:60]!r}, has {what}{hint}")
    if all(kind[0] in "CZ" for kind in kinds):
        raise LabelError(f"class name number {number} is blank")
