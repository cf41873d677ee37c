"""Where the images of a run lie, found again by what they are called in its rows: by the way in that the run took."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from faircontext.datasets.archives import find_cells, find_members
from faircontext.datasets.corrupted import picture_rows
from faircontext.errors import ArgumentError
from faircontext.shifts import parse_corruptions
from faircontext.sources import ArrayRow, Remote, Source, is_address

__all__ = ["Place"]

_NOT_SAID = "the run does not say where its images are"
_GONE = "no such file"


@dataclass(frozen=True)
class Place:
    """Where the images of a run lie.

    Attributes:
        folder: that the names of images are below, empty where that is not known.
        part: corruption and severity of a data set whose pictures may lie in arrays, as in `fog:3`; else empty.
        image_column: of Parquet tables, None for `image`.
    """

    folder: str
    part: str = ""
    image_column: str | None = None

    def find(self, keys: Iterable[str]) -> tuple[dict[str, Source], dict[str, str]]:
        """Return where images lie by name, and for the others why they are not found; none is read.

        Args:
            keys: what images are called in rows, see `Sample`.
        """
        sources, reasons = dict[str, Source](), dict[str, str]()
        inside: dict[str, dict[str, str]] = {}
        for key in keys:
            if is_address(key):
                sources[key] = Remote(key)
            elif not self.folder:
                reasons[key] = _NOT_SAID
            elif (path := Path(self.folder, key)).is_file():
                sources[key] = path
            else:
                holder = next(self._holders(key), "")
                inside.setdefault(holder, {})[key] = key[len(holder) :].lstrip("/") if holder else key
        for holder, names in inside.items():
            try:
                found = self._within(holder, names.values())
            except ArgumentError as error:
                reasons |= dict.fromkeys(names, str(error))
                continue
            sources |= {key: found[name] for key, name in names.items() if name in found}
            reason = f"{Path(self.folder, holder)} has no such image any more" if holder or self.part else _GONE
            reasons |= {key: reason for key, name in names.items() if name not in found}
        return sources, reasons

    def _holders(self, key: str) -> Iterator[str]:
        """Yield the beginnings of a name that are archives or tables."""
        for end in (position for position, letter in enumerate(key) if letter == "/"):
            start = key[:end]
            if start.lower().endswith((".tar", ".parquet")) and Path(self.folder, start).is_file():
                yield start

    def _within(self, holder: str, names: Iterable[str]) -> dict[str, Source]:
        """Return where the images of an archive or a table lie, or of the array of a corruption."""
        if not holder:
            return self._in_array(names) if self.part else {}
        path = Path(self.folder, holder)
        if path.suffix.lower() == ".tar":
            return {**find_members(path, {*names})}
        rows = {int(name): name for name in names if name.isdecimal()}
        return {rows[row]: cell for row, cell in find_cells(path, self.image_column, {*rows}).items()}

    def _in_array(self, names: Iterable[str]) -> dict[str, Source]:
        corruption = parse_corruptions([self.part])[0]
        array = Path(self.folder, f"{corruption.name}.npy") if corruption else Path()
        if corruption is None or not array.is_file():
            return {}
        rows = picture_rows(array, corruption.severity)
        return {
            name: ArrayRow(str(array), rows[int(name)]) for name in names if name.isdecimal() and int(name) < len(rows)
        }
