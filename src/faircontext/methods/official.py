"""Settings that authors chose for each data set, from their repositories: the rows of `official.csv`."""

import csv
from collections.abc import Mapping
from importlib.resources import files

__all__ = ["official_settings"]


def official_settings(method: str) -> Mapping[str, Mapping[str, object]]:
    """Return the settings of a method by data set; a setting that has none there keeps its default."""
    with files("faircontext.methods").joinpath("official.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.pop("method") == method]
    return {row.pop("dataset"): {name: _value(text) for name, text in row.items() if text} for row in rows}


def _value(text: str) -> object:
    """Return a whole number, a number or a word."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text
