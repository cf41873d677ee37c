"""A difference over several data sets has both of its intervals wherever it is shown, and one with fewer than five."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from faircontext.metrics.bootstrap import PooledMean
from faircontext.metrics.scores import compare_sets
from faircontext.report.benchmarks import TableGroup, split_by_benchmark, stream_blocks
from faircontext.report.figures import FIGURES, load_groups
from faircontext.report.page import build_page
from faircontext.report.render import Table, to_latex, to_markdown
from faircontext.report.style import BOTH, styled
from faircontext.report.tables import paper_table, perturbation_tables, pooled_table, stream_tables, write_tables
from faircontext.runs.ablate import compare_results, describe_difference
from faircontext.runs.groups import find_runs, group_runs
from faircontext.runs.results import Result
from faircontext.runs.stream_results import split_streams
from made_runs import write_run, write_stream

Ends = tuple[float, float] | None
RIGHT = [range(20), *[range(10)] * 4]
"""Of 20 images, by data set: ten are gained on one, nothing on the others."""


def five_sets(folder: Path) -> None:
    write_sets(folder, 5)


def four_sets(folder: Path) -> None:
    write_sets(folder, 4)


def write_sets(folder: Path, count: int) -> None:
    settings = {"fcl": {"masks": 400}, "fcl-50": {"masks": 50}, "fcl-explore": {"masks": 400, "calibrate": False}}
    for name, right in zip("abcde"[:count], RIGHT, strict=False):
        methods = {"zero_shot": range(10), "fcl": right, "fcl-50": range(10), "fcl-explore": range(10)}
        write_run(folder / "plain" / name, name, methods, settings=settings)
        fog = {"zero_shot": range(10), "fcl": right}
        write_run(folder / "fog" / name, name, fog, shift={"kind": "corruption", "name": "fog", "severity": 3})
        for order in (0, 1):
            write_stream(folder / "streams", name, {"zero_shot": range(10), "tda": right}, order)


def results(folder: Path, method: str = "fcl") -> list[Result]:
    return [*table_group(folder / "plain").row(method).values()]


def table_group(folder: Path) -> TableGroup:
    (group,) = split_by_benchmark(group_runs(find_runs([folder])))
    return group


def expected(folder: Path, each: str = "image") -> PooledMean:
    return compare_sets([result.comparison for result in results(folder)], each)


def read(pattern: str, text: str, scale: float = 100) -> Ends:
    """Return the two numbers that a pattern finds in a text, where it does."""
    found = re.search(pattern, text)
    return found and tuple(float(end) / scale for end in found.groups())


BRACKETS = r"\[([+-][\d.]+), ([+-][\d.]+)\]"


def in_table(table: Table, heading: str, *row: str) -> Ends:
    """Return the ends in a row of a table, which its notes and other writers show as well."""
    known = any("what is to be expected on other sets like these" in note for note in table.footnotes)
    assert known == (heading in table.columns)
    assert known or any("say little of others; it takes 5" in note for note in table.footnotes)
    if not known:
        return None
    assert all("95% sets" in write(table).replace("\\", "") for write in (to_markdown, to_latex))
    (cells,) = (cells for cells in table.rows if tuple(cell.text for cell in cells[: len(row)]) == row)
    return read(BRACKETS, cells[table.columns.index(heading)].text)


def in_paper_table(folder: Path) -> Ends:
    table = paper_table(table_group(folder / "plain"))
    (note,) = (note for note in table.footnotes if note.startswith("Δ FCL:"))
    found = read(rf"\[95% sets\] {BRACKETS}", note)
    assert [row[0].text for row in table.foot] == ["n", "±95%", *["±95% sets"] * (found is not None)]
    return found


def in_streams(folder: Path, heading: str) -> Ends:
    (block,) = stream_blocks(split_streams(group_runs(find_runs([folder / "streams"])))[1])
    return in_table(stream_tables(block)[-1], heading, "all sets", "TDA", "Zero-shot")


def in_corruptions(folder: Path) -> Ends:
    return in_table(perturbation_tables([table_group(folder / "fog")])[1], "Δ [95% sets]", "all sets", "FCL")


def in_csv(folder: Path, style: str, name: str, whole: str, method: str) -> Ends:
    """Return the ends in the row of a method on all data sets together."""
    rows = csv.DictReader(io.StringIO(write_tables(find_runs([folder]), style, "csv", "top1", pytest.fail)))
    (row,) = (row for row in rows if (row[name], row["method"]) == (whole, method))
    assert row["delta_low"]
    ends = [row[f"delta_sets_{end}"] for end in ("low", "high")]
    return tuple(map(float, ends)) if all(ends) else None


def in_figure(name: str, value: str, *paths: Path) -> Ends:
    """Return the ends in the first row that has them; where there is one, the figure says which interval is which."""
    groups, sidecars = load_groups(paths)
    with styled():
        result = FIGURES[name](groups[-1], sidecars)
    ends = [(row[f"{value}sets_low"], row[f"{value}sets_high"]) for row in result.data]
    known = [pair for pair in ends if pair not in (("", ""), (None, None))]
    texts = "\n".join(text.get_text() for text in result.figure.findobj(lambda a: hasattr(a, "get_text")))
    assert (BOTH in texts or "dotted: over sets like these" in texts) == bool(known)
    return known[0] if known else None


def ablation(folder: Path) -> dict:
    return compare_results(results(folder), results(folder, "fcl-explore"))


def in_ablation_figure(folder: Path) -> Ends:
    document = {"name": "x", "reference": "y", "variants": [{"label": "fcl", **ablation(folder)}]}
    (folder / "x.results.json").write_text(json.dumps(document))
    return in_figure("ablations", "difference_", folder / "x.results.json")


SURFACES: dict[str, tuple[Callable[[Path], Ends], str]] = {
    "pooled table": (lambda f: in_table(pooled_table(table_group(f / "plain")), "Δ [95% sets]", "FCL"), "image"),
    "mean of sets in it": (
        lambda f: in_table(pooled_table(table_group(f / "plain")), "Mean Δ of sets [95% sets]", "FCL"),
        "set",
    ),
    "paper table": (in_paper_table, "set"),
    "streams, order 0": (lambda f: in_streams(f, "Order 0: Δ [95% sets]"), "image"),
    "streams, mean of orders": (lambda f: in_streams(f, "Mean of orders: Δ [95% sets]"), "image"),
    "mean over corruptions": (in_corruptions, "image"),
    "CSV": (lambda f: in_csv(f / "plain", "paper", "column", "avg", "fcl"), "set"),
    "CSV of streams": (lambda f: in_csv(f / "streams", "long", "dataset", "all sets", "tda"), "image"),
    "CSV of corruptions": (lambda f: in_csv(f / "fog", "shift", "dataset", "all sets", "fcl"), "image"),
    "figure of gains": (lambda f: in_figure("calibration-gain", "", f / "plain"), "set"),
    "figure of masks": (lambda f: in_figure("masks", "difference_", f / "plain"), "other sign"),
    "figure of positions": (lambda f: in_figure("stream", "gain_", f / "streams"), "of a part"),
    "figure of ablations": (in_ablation_figure, "image"),
    "page": (
        lambda f: read(rf"{BRACKETS} over sets like these", build_page(find_runs([f / "plain"]), 0).html),
        "image",
    ),
    "ablate": (lambda f: read(r"; sets ([\d.+-]+) to ([\d.+-]+)\)", describe_difference(ablation(f))), "image"),
}
"""Where differences over several data sets are shown, and what weighs the same in them."""


@pytest.mark.parametrize("surface", SURFACES)
def test_a_difference_over_five_sets_has_both_intervals_and_over_four_one(
    surface: str, shared: Callable[[Callable[[Path], object]], Path]
) -> None:
    shown, each = SURFACES[surface]
    assert shown(shared(four_sets)) is None
    ends, folder = shown(shared(five_sets)), shared(five_sets)
    if each in ("image", "set"):
        gain = expected(folder, each)
        assert gain.images.low > 0
        assert ends == pytest.approx((gain.sets.low, gain.sets.high), abs=6e-4)
        assert ends[0] <= 0
    elif each == "other sign":  # fewer masks less most masks
        gain = expected(folder, "set")
        assert ends == pytest.approx((-gain.sets.high, -gain.sets.low), abs=0.02)
    else:
        assert ends[0] <= 0 < ends[1]
