"""Comparing two recordings of `scripts/record_outputs.py`: JSON values, with a tolerance for numbers, also in texts."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

__all__ = ["Comparison", "rename"]

_NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
_DECIMAL = re.compile(r"[-+]?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
_HASH = re.compile(r"(?<![\w.])[0-9a-f]{12}(?:[0-9a-f]{52})?(?!\w)")


@dataclass(frozen=True)
class Comparison:
    """How two recordings are compared.

    Attributes:
        tolerance: of floats, relative to those larger than 1.
        elsewhere: whether the processor or libraries may differ: hashes are left out, and printed numbers may differ by
            one in the last digit.
    """

    tolerance: float = 1e-4
    elsewhere: bool = False

    def folders(self, first: Path, second: Path, renamed: Mapping[str, str] | None = None) -> Iterator[str]:
        """Yield a line for each difference of two recordings; names of the first are mapped before."""
        before, after = ({path.name: path for path in sorted(folder.glob("*.json"))} for folder in (first, second))
        for folder, found in ((first, before), (second, after)):
            if not found:
                raise SystemExit(f"{folder}: holds no recording")
        for name in sorted(before.keys() | after.keys()):
            if name not in before or name not in after:
                yield f"{name}: only in {first if name in before else second}"
                continue
            old, new = (json.loads(found[name].read_text(encoding="utf-8")) for found in (before, after))
            yield from self.values(rename(old, renamed or {}), new, f"{name}:")

    def values(self, first: Any, second: Any, place: str, rows: Sequence[str] = ()) -> Iterator[str]:
        """Yield a line for each difference of two JSON values.

        Args:
            first: one of them.
            second: the other.
            place: where they are, which begins each line.
            rows: names of the entries, where the values are lists that stand for a column.
        """
        if isinstance(first, dict) and isinstance(second, dict):
            rows = row_names(first)
            for key in sorted(first.keys() | second.keys()):
                if key in first and key in second:
                    yield from self.values(first[key], second[key], f"{place} {key}", rows)
                else:
                    yield f"{place} {key}: only in the {'first' if key in first else 'second'}"
        elif isinstance(first, list) and isinstance(second, list):
            if len(first) != len(second):
                yield f"{place}: {len(first)} entries and {len(second)}"
                if all(isinstance(line, str) for line in (*first, *second)):
                    yield from self._lines(first, second, place)
                    return
            names = rows if len(rows) == len(first) else [entry_name(entry) for entry in first]
            for number, (name, one, other) in enumerate(zip(names, first, second, strict=False)):
                yield from self.values(one, other, f"{place} [{f'{number}: {name}' if name else number}]")
        elif not self._are_equal(first, second):
            yield f"{place}: {' and '.join(excerpts(first, second))}"

    def _lines(self, first: Sequence[str], second: Sequence[str], place: str) -> Iterator[str]:
        """Compare texts of which one has more lines: a line that came or went is no difference in all after it."""
        old, new = ([_NUMBER.sub("0", line) for line in lines] for lines in (first, second))
        for _, start, stop, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            pairs = zip_longest(first[start:stop], second[begin:end])
            for number, (one, other) in enumerate(pairs, start):
                if one is None or other is None:
                    line, where = (other, "second") if one is None else (one, "first")
                    yield f"{place} [{number}]: only in the {where}: {line[:80]}"
                else:
                    yield from self.values(one, other, f"{place} [{number}]")

    def _are_equal(self, first: Any, second: Any) -> bool:
        if isinstance(first, str) and isinstance(second, str):
            return first == second or self._texts_are_equal(first, second)
        kinds = {type(first), type(second)}
        if kinds <= {int, float} and float in kinds:
            return self._are_close(first, second)
        return type(first) is type(second) and bool(first == second)

    def _texts_are_equal(self, first: str, second: str) -> bool:
        """Compare texts: numbers with a decimal point have the tolerance, all else must be the same."""
        if self.elsewhere:
            first, second = (_HASH.sub("HASH", text) for text in (first, second))
        parts = [_NUMBER.split(text) for text in (first, second)]  # every other one is a number
        same_count = len(parts[0]) == len(parts[1])
        return same_count and all(map(self._parts_are_equal, *parts))

    def _parts_are_equal(self, first: str, second: str) -> bool:
        decimal = [_DECIMAL.fullmatch(text) is not None for text in (first, second)]
        is_number = all(_NUMBER.fullmatch(text) for text in (first, second))
        # Of another processor, 1 may stand beside 0.9996; else a point that comes or goes is another way of printing.
        if not is_number or not (any(decimal) if self.elsewhere else all(decimal)):
            return first == second
        decimals = max(len(text.partition("e")[0].partition(".")[2]) for text in (first, second))
        return self._are_close(float(first), float(second), 10.0**-decimals if self.elsewhere else 0.0)

    def _are_close(self, first: float, second: float, more: float = 0.0) -> bool:
        if math.isnan(first) or math.isnan(second):
            return math.isnan(first) and math.isnan(second)
        if math.isinf(first) or math.isinf(second):
            return first == second
        # A difference of one digit is not quite one in binary.
        return abs(first - second) <= (self.tolerance * max(1.0, abs(first), abs(second)) + more) * (1 + 1e-9)


def rename(value: Any, names: Mapping[str, str]) -> Any:
    """Return a JSON value with old names in keys and texts replaced; each place is replaced once."""
    if not names:
        return value
    if isinstance(value, dict):
        return {rename(key, names): rename(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [rename(inner, names) for inner in value]
    if isinstance(value, str):
        old = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        return re.sub(rf"(?<!\w)(?:{old})(?!\w)", lambda found: names[found[0]], value)
    return value


def row_names(columns: Mapping[str, Any]) -> list[str]:
    """Return what the rows of columns are called: the image, and the method that answered it."""
    paths, methods = columns.get("path"), columns.get("method")
    if not (isinstance(paths, list) and isinstance(methods, list)):
        return []
    return [f"{path} {method}" for path, method in zip(paths, methods, strict=False)]


def entry_name(entry: Any, longest: int = 60) -> str:
    """Return what an entry of a list is called: a command by its words, an answer by its image and method."""
    named = entry if isinstance(entry, dict) else {}
    words = [named[key] for key in ("command", "label", "path", "method") if isinstance(named.get(key), str)]
    name = " ".join(words)
    return name if len(name) <= longest else f"{name[:longest]} ..."


def excerpts(first: Any, second: Any, longest: int = 80) -> tuple[str, str]:
    """Return two values as text on one line, long ones from a little before where they differ."""
    texts = [json.dumps(value, ensure_ascii=False, sort_keys=True) for value in (first, second)]
    if max(map(len, texts)) > longest:
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
        start = max(0, len([*alike]) - longest // 4)
        texts = [("..." if start else "") + text[start : start + longest] for text in texts]
    return texts[0], texts[1]
