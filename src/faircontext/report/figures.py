"""All figures by name, drawn from runs alone and written as PDF, as PNG and as the data that they show.

The same records give the same bytes: no file holds a date or the name of a program, and all that is drawn by chance is
seeded.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from faircontext.errors import ArgumentError, unknown_name
from faircontext.files import to_json, write_whole, writing
from faircontext.report.accuracy_figures import (
    draw_ablations,
    draw_gain,
    draw_masks,
    draw_pareto,
    draw_positions,
    draw_reliability,
    draw_risk_coverage,
)
from faircontext.report.evidence_figures import draw_decomposition, draw_ecec, draw_entropy, draw_gallery, draw_scores
from faircontext.report.render import MissingError, to_csv
from faircontext.report.style import FigureResult, save_figure, styled
from faircontext.runs.groups import RunGroup, RunSettings, find_runs, group_runs, incomplete
from faircontext.runs.label_results import is_multi_label
from faircontext.runs.sidecars import Sidecars, find_sidecars
from faircontext.runs.stream_results import join_orders

__all__ = ["FIGURES", "Written", "draw_figures", "draw_from", "load_groups"]

Draw = Callable[[RunGroup, Sidecars], FigureResult]
"""Draws a figure; what is missing, and how it is made, is a `MissingError`."""

FIGURES: Mapping[str, Draw] = {
    "scores": draw_scores,
    "ecec": draw_ecec,
    "entropy": draw_entropy,
    "calibration-gain": draw_gain,
    "masks": draw_masks,
    "pareto": draw_pareto,
    "reliability": draw_reliability,
    "risk-coverage": draw_risk_coverage,
    "stream": draw_positions,
    "gallery": draw_gallery,
    "decomposition": draw_decomposition,
    "ablations": draw_ablations,
}
"""In the order in which they are drawn: the paper's first."""

_SHARED = frozenset({"ablations"})
"""Figures that do not depend on the settings of runs, so that they are drawn once for all."""

_OVER_ORDERS = frozenset({"stream"})
"""Figures of all orders of a stream together; others are of one order each."""


def load_groups(paths: Sequence[Path]) -> tuple[list[RunGroup], Sidecars]:
    """Read runs and the files beside them, see `find_sidecars`; where there are files only, one group has no run.

    Raises:
        ArgumentError: there is nothing, or something cannot be read.
    """
    folders, sidecars = find_sidecars(paths)
    nothing = RunGroup(RunSettings("", "", "", "", "", 0), ())
    runs = find_runs(folders) if folders else []
    if several := [run for run in runs if is_multi_label(run)]:
        raise ArgumentError(
            f"{several[0].folder}: its images may have several labels, and figures are of one label an image; see "
            "faircontext tables --style long for the average precision of each class"
        )
    return (group_runs(runs) if folders else [nothing]), sidecars


def draw_from(
    paths: Sequence[Path],
    only: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> int:
    """Draw the figures that runs allow, and return 1 where what was asked for by name, or all, could not be drawn.

    Args:
        paths: folders of runs and of the files beside them, see `find_sidecars`.
        only: names of figures, all where there is none.
        folder: where files go; it is made.
        say: takes a line for each figure.
        warn: takes warnings.

    Raises:
        ArgumentError: there is no figure of a name, nothing to draw from, or a file cannot be read or written.
    """
    for name in only:
        if name not in FIGURES:
            raise unknown_name("figure", name, FIGURES)
    names = [name for name in FIGURES if not only or name in only]
    groups, sidecars = load_groups(paths)
    if not _SHARED.issuperset(names):  # what needs no runs is drawn beside any
        for line in dict.fromkeys(line for group in groups for line in incomplete(group)):
            warn(line)
    written = draw_figures(groups, sidecars, names, folder)
    for figure in written:
        if figure.files:
            first, *rest = figure.files
            say(f"{first} (and {', '.join(path.suffix for path in rest)})")
        for line in figure.warnings:
            warn(f"{figure.name}: {'' if figure.files else 'not drawn: '}{line}")
    absent = [figure for figure in written if not figure.files]
    return int(len(absent) == len(written) or bool(only and absent))


@dataclass(frozen=True)
class Written:
    """What became of a figure: its name, the files that were written, and warnings, or why it could not be drawn."""

    name: str
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()


def draw_figures(groups: Sequence[RunGroup], sidecars: Sidecars, names: Sequence[str], folder: Path) -> list[Written]:
    """Draw figures of all groups of runs and write them.

    A figure that several groups allow is written once for each, with the settings that tell them apart in its name.

    Args:
        groups: what was measured; one without runs where there are sidecars only.
        sidecars: what lies beside the runs.
        names: of the figures.
        folder: where files go; it is made.

    Raises:
        ArgumentError: a file cannot be written, or a row cannot be read.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        # One at a time: what is drawn, and as what, does not depend on what else is.
        with styled():
            asked = groups[:1] if name in _SHARED else join_orders(groups) if name in _OVER_ORDERS else groups
            drawn, reasons = list[tuple[RunGroup, FigureResult]](), dict[str, None]()
            for group in asked:
                try:
                    drawn.append((group, FIGURES[name](group, sidecars)))
                except MissingError as missing:
                    reasons[str(missing)] = None
            stems = _stems(name, [group for group, _ in drawn])
            for stem, (_, result) in zip(stems, drawn, strict=True):
                with _missing_letters() as letters:
                    files = _write(folder / stem, result)
                written.append(Written(stem, files, (*result.warnings, *letters)))
        if not drawn:
            written.append(Written(name, (), tuple(reasons)))
    return written


def _stems(name: str, groups: Sequence[RunGroup]) -> list[str]:
    """Return names of files, which hold the settings in which the groups differ."""
    rows = [(*map(str, s[:5]), f"seed{s.seed}", s.shift, s.stream) for s in (group.settings for group in groups)]
    differs = [len({*column}) > 1 for column in zip(*rows, strict=True)]
    stems = []
    for row in rows:
        parts = [part for part, other in zip(row, differs, strict=True) if other and part]
        stems.append(re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join([name, *parts])).strip("-"))
    return [stem if stems.count(stem) == 1 else f"{stem}-{index}" for index, stem in enumerate(stems)]


@contextmanager
def _missing_letters() -> Iterator[list[str]]:
    """Yield a list that has a line in the end where the font lacks letters, in place of a warning for each."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.filterwarnings("always", "Glyph ")
        yield lines
    letters = set()
    for warning in heard:
        if match := re.match(r"Glyph (\d+) ", str(warning.message)):
            letters.add(chr(int(match[1])))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if letters:
        lines.append(f"letters that the font lacks are drawn as boxes: {''.join(sorted(letters))}")


def _write(stem: Path, result: FigureResult) -> tuple[Path, ...]:
    if isinstance(result.data, Mapping):
        suffix, text = ".json", to_json(result.data, indent=None) + "\n"
    else:
        suffix, text = ".csv", to_csv(result.data)
    pdf, png, data = (stem.with_name(stem.name + ending) for ending in (".pdf", ".png", suffix))
    save_figure(result.figure, pdf)
    save_figure(result.figure, png)
    write_whole(data, text)
    return pdf, png, data
