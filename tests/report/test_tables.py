"""Tables of runs with known answers: every figure is worked out by hand or by scipy."""

import csv
import io
import json
import re
from collections.abc import Callable
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from PIL import Image
from scipy.stats import binomtest

from carried import carry_out
from faircontext import FCL, Backbone, FairContextError, LabelSpace, ViewRecipe, ZeroShot
from faircontext.datasets.spec import CATALOGUE, Dataset, Sample
from faircontext.imageio import read_image
from faircontext.metrics.bootstrap import paired_bootstrap
from faircontext.metrics.scores import Comparison, compare_sets
from faircontext.metrics.stats import holm
from faircontext.report.benchmarks import (
    METRICS,
    OOD,
    SETS,
    TABLES,
    TableGroup,
    list_reported,
    read_reported,
    reported_accuracies,
    split_by_benchmark,
)
from faircontext.report.render import (
    Cell,
    MissingError,
    Table,
    escape_latex,
    escape_markdown,
    to_csv,
    to_latex,
    to_markdown,
    to_terminal,
)
from faircontext.report.tables import (
    adjusted_p_values,
    compare_with_paper,
    comparison_table,
    long_records,
    long_table,
    paper_records,
    paper_table,
    write_tables,
)
from faircontext.runs.answer import Predictor
from faircontext.runs.executors import answer_here
from faircontext.runs.groups import find_runs, group_runs, incomplete
from faircontext.runs.plan import Plan
from faircontext.runs.results import Result, read_results
from faircontext.runs.store import Run
from made_runs import write_run

ALL = range(20)


def groups(*folders: Path) -> list[TableGroup]:
    return split_by_benchmark(group_runs(find_runs(folders)))


def only(*folders: Path) -> TableGroup:
    (group,) = groups(*folders)
    return group


def column(table: Table, heading: str) -> dict[str, tuple[str, str]]:
    place = table.columns.index(heading)
    return {row[0].text: (row[place].text, row[place].rank) for row in (*table.rows, *table.foot)}


def natural_shift(folder: Path) -> Path:
    """Runs on all five sets: zero-shot has 10 of 20 right, TPT 11 to 15, FCL 12 to 16."""
    for number, name in enumerate(SETS["natural-shift"]):
        right = {"zero_shot": range(10), "tpt": range(11 + number), "fcl": range(12 + number)}
        write_run(folder / name, name, right)
    return folder


def test_rows_and_columns_stand_in_the_paper_s_order_with_its_averages(tmp_path: Path) -> None:
    table = paper_table(only(natural_shift(tmp_path)))
    means = ("Avg.", "Δ Avg.", "OOD Avg.", "Δ OOD Avg.")
    assert table.columns == ("Method", "ImageNet", "ImageNet-A", "ImageNet-K", "ImageNet-R", "ImageNet-V", *means)
    assert [row[0].text for row in table.rows] == ["Zero-shot", "TPT", "FCL"]
    tpt = dict(zip(table.columns, (cell.text for cell in table.rows[1]), strict=True))
    # 11, 12, 13, 14, 15 of 20; the last four are out of distribution
    assert [tpt[name] for name in ("ImageNet", "ImageNet-A", "ImageNet-V")] == ["55.00", "60.00", "75.00"]
    assert [tpt[name] for name in means] == ["65.00", "+15.00", "67.50", "+17.50"]
    assert column(table, "Δ Avg.")["Zero-shot"] == ("-", "")


def test_a_part_of_a_benchmark_is_not_called_the_average(tmp_path: Path) -> None:
    for name in ("dtd", "caltech101"):
        write_run(tmp_path / name, name, {"zero_shot": range(5), "fcl": range(9)})
    columns = paper_table(only(tmp_path)).columns
    assert columns == ("Method", "Caltech101", "DTD", "Avg. (2 of 10)", "Δ Avg. (2 of 10)")


def test_methods_stand_in_the_paper_s_order_and_variants_after_their_method(tmp_path: Path) -> None:
    names = "fcl-400 fcl-50 fcl other rtpt zero mta ctpt tpt tps ttl rlcf zero_shot"
    write_run(tmp_path, "mine", {name: [0] for name in names.split()})
    shown = [row[0].text for row in paper_table(only(tmp_path)).rows]
    baselines = ["TPT", "C-TPT", "RLCF", "MTA", "ZERO", "TTL", "TPS", "R-TPT"]
    assert shown == ["Zero-shot", *baselines, "FCL", "FCL-400", "FCL-50", "other"]


def three(*numbers: int) -> list[tuple[str, dict[str, range], dict[str, Any]]]:
    return [("dtd", {name: range(n) for name, n in zip(("zero_shot", "tpt", "fcl"), numbers, strict=True)}, {})]


NLL = [f"{-np.dot(counts, np.log([0.6, 0.3, 0.05])) / 20:.4f}" for counts in ((5, 7, 8), (15, 2, 3))]
"""Of 20 images of which the first 5, or 15, are right; of the others those at even positions are less unlikely."""

CELLS: dict[str, tuple[list[tuple[str, dict[str, Any], dict[str, Any]]], str, dict[str, str], str]] = {
    "rising": (three(10, 12, 14), "top1", {"DTD|TPT": "60.00 second", "DTD|FCL": "70.00 best"}, ""),
    "zero-shot takes part": (
        three(14, 12, 10),
        "top1",
        {"DTD|Zero-shot": "70.00 best", "DTD|FCL": "50.00"},
        "",
    ),
    "two are the best": (three(14, 14, 10), "top1", {"DTD|TPT": "70.00 best", "DTD|FCL": "50.00 second"}, ""),
    "two are second": (
        three(10, 14, 10),
        "top1",
        {"DTD|Zero-shot": "50.00 second", "DTD|FCL": "50.00 second"},
        "",
    ),
    "one alone is not the best": ([("dtd", {"zero_shot": range(5)}, {})], "top1", {"DTD|Zero-shot": "25.00"}, ""),
    "less is better": (
        three(5, 10, 15),
        "nll",
        {"DTD|Zero-shot": NLL[0], "DTD|FCL": f"{NLL[1]} best"},
        "Less is better.",
    ),
    "a row is not whole": (
        [
            (name, {"zero_shot": range(10), "fcl": range(12 + n)} | ({"tpt": range(11 + n)} if n else {}), {})
            for n, name in enumerate(SETS["natural-shift"])
        ],
        "top1",
        {"ImageNet|TPT": "-", "Avg.|TPT": "-", "OOD Avg.|TPT": "67.50 second"},
        "Δ TPT: +17.50",
    ),
    "methods of several runs": (
        [("dtd", {"zero_shot": range(3), "tpt": range(5)}, {}), ("dtd", {"zero_shot": range(3), "fcl": range(6)}, {})],
        "top1",
        {"DTD|TPT": "25.00 second", "DTD|FCL": "30.00 best", "DTD|n": "20"},
        "",
    ),
    "methods on other images": (  # the number of the run with more images; gains over zero-shot of each one's own run
        [
            ("dtd", {"zero_shot": range(3), "tpt": range(5)}, {"images": 10}),
            ("dtd", {"zero_shot": range(3), "fcl": range(6)}, {}),
        ],
        "top1",
        {"DTD|Zero-shot": "15.00", "DTD|FCL": "30.00", "DTD|n": "10 to 20", "Δ|TPT": "+20.00"},
        "Not ranked, as methods answered different images: DTD.",
    ),
    "unreadable files": (
        [("dtd", {"zero_shot": range(10), "fcl": range(12)}, {"unreadable": [0, 19]})],
        "top1",
        {"DTD|FCL": "61.11 best", "DTD|n": "18"},
        "DTD: 2 of 20 files unreadable and left out; counted as wrong: Zero-shot 45.00 [25.82, 65.79], FCL 55.00 [",
    ),
    "nothing but unreadable files": (
        [("dtd", {"zero_shot": range(10), "fcl": range(12)}, {"unreadable": ALL})],
        "top1",
        {"DTD|FCL": "-", "DTD|n": "0"},
        "",
    ),
}
"""Runs, what is measured of them, cells by column and row, and how a footnote begins."""


@pytest.mark.parametrize("case", CELLS)
def test_cells_and_ranks(case: str, tmp_path: Path) -> None:
    runs, metric, cells, note = CELLS[case]
    for number, (dataset, right, config) in enumerate(runs):
        write_run(tmp_path / str(number), dataset, right, **config)
    table = paper_table(only(tmp_path), metric)
    found = {key: " ".join(filter(None, column(table, key.split("|")[0])[key.split("|")[1]])) for key in cells}
    assert found == cells
    assert any(footnote.startswith(note) for footnote in table.footnotes)


def test_every_accuracy_has_its_number_and_wilson_s_interval(tmp_path: Path) -> None:
    write_run(tmp_path, "dtd", {"zero_shot": range(9), "fcl": range(17)})
    group = only(tmp_path)
    for name, right in (("zero_shot", 9), ("fcl", 17)):
        found = METRICS["top1"].measure([group.results["dtd"][name]])
        expected = binomtest(right, 20).proportion_ci(0.95, method="wilson")
        assert found is not None
        assert (found.value, found.low, found.high) == pytest.approx((right / 20, expected.low, expected.high))
    low, _ = binomtest(17, 20).proportion_ci(0.95, method="wilson")  # the longest arm of both
    foot = column(paper_table(group), "DTD")
    assert foot["n"][0] == "20"
    assert foot["±95%"][0] == f"±{100 * (17 / 20 - low):.2f}"


@pytest.mark.parametrize("style", ["paper", "long"])
@pytest.mark.parametrize("layout", ["md", "csv"])
def test_the_rows_of_a_run_are_read_once(
    style: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dtd", "imagenet_a", "own"):  # one of each benchmark
        write_run(tmp_path / name, name, {"zero_shot": range(8), "fcl": range(12)})
    read = list[str]()

    def counting(run: Run) -> list[Result]:
        read.append(run.folder.name)
        return read_results(run)

    monkeypatch.setattr("faircontext.runs.groups.read_results", counting)
    write_tables(find_runs([tmp_path]), style, layout, "top1", print)
    assert sorted(read) == ["dtd", "imagenet_a", "own"]


def test_gains_are_paired_by_image(tmp_path: Path) -> None:
    write_run(tmp_path, "dtd", {"zero_shot": range(10), "fcl": range(4, 16)})
    group = only(tmp_path)
    result = group.results["dtd"]["fcl"]
    assert result.comparison is not None
    assert (result.comparison.gained, result.comparison.lost) == (6, 4)
    found = METRICS["top1"].gain([result])
    own, base = np.isin(ALL, range(4, 16)), np.isin(ALL, range(10))
    assert found is not None
    assert found.images == paired_bootstrap(own, base)
    assert found.value == pytest.approx(0.1)
    assert found.images.low < 0 < found.images.high
    row = long_table(group).rows[1]
    assert row[6].text == "+6 -4"
    assert row[7].text == f"{binomtest(6, 10).pvalue:.2g}"


def test_a_gain_over_several_sets_weighs_sets_alike(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "dtd", {"zero_shot": [], "fcl": range(10)}, images=10)
    write_run(tmp_path / "b", "eurosat", {"zero_shot": range(90), "fcl": range(90)}, images=90)
    results = list(only(tmp_path).row("fcl").values())
    found = METRICS["top1"].gain(results)
    assert found == compare_sets([Comparison(0, 10, 0, 0), Comparison(90, 0, 0, 0)], "set")
    assert found is not None
    assert found.value == 0.5


def test_p_values_are_corrected_by_holm_over_the_data_sets(tmp_path: Path) -> None:
    for name, gained in (("dtd", 6), ("eurosat", 8), ("caltech101", 1)):
        write_run(tmp_path / name, name, {"zero_shot": [], "fcl": range(gained)})
    found = adjusted_p_values(only(tmp_path), "fcl")
    raw = {name: binomtest(n, n).pvalue for name, n in (("dtd", 6), ("eurosat", 8), ("caltech101", 1))}
    assert {name: pair["p"] for name, pair in found.items()} == pytest.approx(raw)
    assert found["eurosat"]["p_holm"] == pytest.approx(3 * raw["eurosat"])
    assert found["dtd"]["p_holm"] == pytest.approx(2 * raw["dtd"])
    assert [pair["p_holm"] for pair in found.values()] == list(holm([pair["p"] for pair in found.values()]))


def test_the_mean_per_class_weighs_classes_alike(tmp_path: Path) -> None:
    labels = [0] * 16 + [1] * 3 + [7]
    write_run(tmp_path, "dtd", {"zero_shot": [*range(8), 16]}, labels=labels)
    found = METRICS["mean_per_class"].measure([only(tmp_path).results["dtd"]["zero_shot"]])
    assert found is not None
    assert found.value == pytest.approx((8 / 16 + 1 / 3 + 0) / 3)
    assert found.low < found.value < found.high


def test_probabilistic_metrics_against_their_definitions(tmp_path: Path) -> None:
    write_run(tmp_path, "dtd", {"zero_shot": range(12)})
    result = only(tmp_path).results["dtd"]["zero_shot"]
    p = np.array([0.6 if i < 12 else 0.3 if i % 2 == 0 else 0.05 for i in ALL])
    values = {name: METRICS[name].measure([result]) for name in ("brier", "nll", "ece")}
    assert {name: value.value for name, value in values.items() if value} == pytest.approx(
        {"brier": np.mean(0.5 - 2 * p + 1), "nll": -np.mean(np.log(p)), "ece": 0.0}, abs=1e-12
    )
    assert values["ece"] is not None
    assert isnan(values["ece"].low)


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({"listed": 2465}, "DTD: 0.81% of 2,465 images, 20 of them are there."),
        ({"listed": 40}, "DTD: 50% of 40 images, 20 of them are there."),
        ({"answered": 5}, "DTD: 25% of 20 images, not complete (5 of 20 so far)."),
        ({"answered": 5, "limit": 10}, "DTD: 25% of 20 images, limit 10, not complete (5 of 10 so far)."),
        ({"answered": 7, "shard": [1, 3]}, "DTD: 35% of 20 images, shard 1 of 3, not complete (7 of 7 so far)."),
        ({"split": "official"}, "DTD: split official."),
    ],
)
def test_what_is_not_a_whole_data_set_says_so(config: dict, note: str, tmp_path: Path) -> None:
    write_run(tmp_path, "dtd", {"zero_shot": range(3), "fcl": range(4)}, **config)
    assert note in paper_table(only(tmp_path)).footnotes
    assert note in long_table(only(tmp_path)).footnotes


def test_incomplete_runs_and_shards_are_named_beforehand(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "dtd", {"zero_shot": range(3)}, answered=4)
    write_run(tmp_path / "b", "eurosat", {"zero_shot": range(3)}, answered=10, shard=[0, 2])
    write_run(tmp_path / "c", "sun397", {"zero_shot": range(3)})
    assert [line for group in groups(tmp_path) for line in incomplete(group)] == [
        f"{tmp_path / 'a'}: 4 of 20 images so far",
        f"{tmp_path / 'b'}: shard 0 of 2 (counted from 0); 10 of 10 images so far",
    ]


def test_runs_that_differ_get_tables_of_their_own(tmp_path: Path) -> None:
    right = {"zero_shot": range(3)}
    write_run(tmp_path / "1", "dtd", right)
    write_run(tmp_path / "2", "dtd", right, seed=1)
    write_run(tmp_path / "3", "dtd", right, preset="recommended")
    write_run(tmp_path / "4", "dtd", right, backbone="lite0", pretrained=None)
    write_run(tmp_path / "5", "imagenet", right)
    write_run(tmp_path / "6", "mine", right)
    found = [(group.benchmark, group.settings.backbone) for group in groups(tmp_path)]
    assert len(found) == 6
    assert found[0] == ("natural-shift", "ViT-B-16")
    assert found[4:] == [("own", "ViT-B-16"), ("fine-grained", "lite0")]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {}, "both measure fcl on dtd, with the same settings; name one"),
        ({}, {"settings": {"fcl": {"masks": 50}}}, "both measure fcl on dtd, with other settings; name one, or call a"),
        ({"shard": [0, 2]}, {"shard": [1, 2]}, "are shards of dtd; join them with faircontext merge, or name one"),
        ({"right": {"zero_shot": [1]}}, {"right": {"zero_shot": [1]}}, "both measure zero_shot on dtd"),
    ],
)
def test_doubled_runs_are_refused_by_the_names_of_both(first: dict, second: dict, message: str, tmp_path: Path) -> None:
    for folder, config in (("a", first), ("b", second)):
        write_run(tmp_path / folder, "dtd", **{"right": {"zero_shot": range(3), "fcl": range(4)}} | config)
    with pytest.raises(FairContextError, match=re.escape(f"{tmp_path / 'a'} and {tmp_path / 'b'}: {message}")):
        groups(tmp_path)


def test_a_folder_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "dtd", {"zero_shot": range(3), "fcl": range(4)})
    assert only(tmp_path, tmp_path / "a", tmp_path / "a" / ".." / "a").methods == ["zero_shot", "fcl"]


def test_gains_do_not_need_zero_shot_s_own_rows(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "dtd", {"zero_shot": range(4), "fcl": range(6)})
    document = json.loads((folder / "run.json").read_text())
    del document["config"]["methods"]["zero_shot"]
    (folder / "run.json").write_text(json.dumps(document))
    rows = pq.read_table(folder / "rows.parquet")
    pq.write_table(rows.filter(pc.equal(rows["method"], "fcl")), folder / "rows.parquet")
    group = only(folder)
    assert column(paper_table(group), "Δ")["FCL"][0] == "+10.00"
    assert column(paper_table(group, "nll"), "Δ")["FCL"][0] == "-"  # its probabilities are not on the rows of FCL


@pytest.mark.parametrize("broken", ["{}", '{"schema_version": 1}', '{"schema_version": 1, "config": {"methods": {}}}'])
def test_a_run_that_cannot_be_read_is_named(broken: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(broken)
    with pytest.raises(FairContextError, match=re.escape(str(tmp_path))):
        groups(tmp_path)


def test_every_reported_average_is_the_mean_of_its_columns() -> None:
    for backbone, benchmark in TABLES:
        for method, row in reported_accuracies(backbone, benchmark).items():
            # each column is rounded by up to 0.005, the average once more
            assert row["avg"] == pytest.approx(np.mean([row[name] for name in SETS[benchmark]]), abs=0.01), method
            if "ood_avg" in row:
                assert row["ood_avg"] == pytest.approx(np.mean([row[name] for name in OOD]), abs=0.01), method


def test_reported_gains_are_differences_of_reported_averages() -> None:
    tables = {size: reported_accuracies(f"ViT-B-{size}", "natural-shift") for size in (16, 32)}
    for row in read_reported("delta_over_clip"):
        for size, table in tables.items():
            for name in ("avg", "ood_avg"):
                difference = table[row["method"]][name] - table["CLIP"][name]
                assert float(row[f"{name}_b{size}"]) == pytest.approx(difference, abs=0.0101), row


def test_reported_tables_are_complete_and_named() -> None:
    assert len(list_reported()) == 13
    assert CATALOGUE.keys() == {n for sets in SETS.values() for n in sets}
    with pytest.raises(FairContextError, match=r"unknown reported table 'efficiency'; did you mean 'efficiency_a6000'"):
        read_reported("efficiency")


def test_comparison_is_with_the_paper_s_row_and_column(tmp_path: Path) -> None:
    write_run(tmp_path / "1", "imagenet", {"zero_shot": range(10), "fcl": range(14), "fcl-50": range(13)})
    found = {one.method: one for one in compare_with_paper(only(tmp_path))}
    assert {name: one.reported for name, one in found.items()} == pytest.approx({"zero_shot": 0.6672, "fcl": 0.6946})
    low, high = binomtest(14, 20).proportion_ci(0.95, method="wilson")
    ends = found["fcl"].difference
    assert tuple(vars(ends.images).values()) == pytest.approx((0.7 - 0.6946, low - 0.6946, high - 0.6946))


def test_the_hard_prompt_is_known_by_its_setting(tmp_path: Path) -> None:
    settings = {"fcl": {"context": "cl"}, "fcl-prompt": {"context": "cl-hp"}}
    write_run(tmp_path, "imagenet", {"zero_shot": [], "fcl": [1], "fcl-prompt": [2]}, settings=settings)
    found = {one.method: one.reported for one in compare_with_paper(only(tmp_path))}
    assert found == pytest.approx({"zero_shot": 0.6672, "fcl": 0.6946, "fcl-prompt": 0.6967})


def test_averages_are_compared_only_where_all_columns_are_there(tmp_path: Path) -> None:
    whole = {(one.scope.heading, one.method): one for one in compare_with_paper(only(natural_shift(tmp_path / "all")))}
    assert whole["Avg.", "fcl"].reported == pytest.approx(0.6422)
    assert whole["Avg.", "fcl"].n == 100
    assert whole["OOD Avg.", "tpt"].reported == pytest.approx(0.6080)
    for name in ("dtd", "eurosat"):
        write_run(tmp_path / "part" / name, name, {"zero_shot": range(9)})
    assert {one.scope.heading for one in compare_with_paper(only(tmp_path / "part"))} == {"DTD", "EuroSAT"}


@pytest.mark.parametrize(
    ("backbone", "dataset", "message"),
    [
        ("RN50", "imagenet", "the paper reports no accuracy of RN50; it has ViT-B-16 and ViT-B-32"),
        ("ViT-B-32", "dtd", "the paper reports no fine-grained accuracy of ViT-B-32"),
        ("ViT-B-16", "mine", "the paper reports no own accuracy of ViT-B-16"),
    ],
)
def test_what_the_paper_lacks_is_said_in_a_line(backbone: str, dataset: str, message: str, tmp_path: Path) -> None:
    write_run(tmp_path, dataset, {"zero_shot": range(9)}, backbone=backbone)
    with pytest.raises(MissingError) as raised:
        comparison_table(only(tmp_path))
    assert str(raised.value) == message


def test_the_quickgelu_twin_is_the_paper_s_backbone(tmp_path: Path) -> None:
    write_run(tmp_path, "imagenet", {"zero_shot": range(9)}, backbone="ViT-B-32-quickgelu")
    (one,) = compare_with_paper(only(tmp_path))
    assert one.reported == pytest.approx(0.6204)


def test_differences_from_the_paper_s_setting_are_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "dtd", {"zero_shot": [1]}, listed=1692, pretrained="laion", preset="official")
    table = comparison_table(only(folder))
    words = " ".join(table.footnotes)
    for part in ("the paper counts 1,880 images; this split has 1,692", "these are laion", "of preset official"):
        assert part in words
    plain = write_run(tmp_path / "plain", "dtd", {"zero_shot": [1]}, listed=1880)
    assert len(comparison_table(only(plain)).footnotes) == 1


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_of_style_paper_is_a_row_per_method_and_column(tmp_path: Path) -> None:
    rows = read_csv(to_csv(paper_records(groups(natural_shift(tmp_path)), compared=True)))
    assert len(rows) == 3 * 7
    found = {(row["column"], row["method"]): row for row in rows}
    cell = found["imagenet_a", "tpt"]
    low, high = binomtest(12, 20).proportion_ci(0.95, method="wilson")
    assert [float(cell[name]) for name in ("n", "value", "value_low", "value_high", "delta", "reported")] == (
        pytest.approx([20, 0.6, low, high, 0.1, 0.5475])
    )
    assert float(found["ood_avg", "fcl"]["difference"]) == pytest.approx(0.725 - 0.6291)
    assert found["avg", "zero_shot"]["delta"] == ""


def test_csv_of_style_long_has_every_metric(tmp_path: Path) -> None:
    write_run(tmp_path, "dtd", {"zero_shot": range(10), "fcl": range(4, 16)}, unreadable=[19], listed=40)
    zero_shot, fcl = read_csv(to_csv(long_records(groups(tmp_path))))
    assert [fcl[name] for name in ("n", "unreadable", "listed", "gained", "lost")] == ["19", "1", "40", "6", "4"]
    assert float(fcl["top1"]) == pytest.approx(12 / 19)
    assert float(fcl["top1_unreadable_wrong"]) == pytest.approx(12 / 20)
    assert float(fcl["p"]) == float(fcl["p_holm"]) == pytest.approx(binomtest(6, 10).pvalue)
    assert zero_shot["p"] == zero_shot["delta"] == ""
    assert {float(fcl[name]) > 0 for name in ("ece", "brier", "nll", "top5", "mean_per_class")} == {True}


NASTY = r"my_set|a&b%c#d$e{f}g~h^i\j*k[l]m<n>"


def test_names_are_escaped_for_each_format(tmp_path: Path) -> None:
    write_run(tmp_path, NASTY, {"zero_shot": range(5), "fcl": range(6)})
    group = only(tmp_path)
    head = to_markdown(paper_table(group)).splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", head)) == 4  # bars of the table alone
    assert r"my\_set\|a&amp;b%c\#d\$e\{f\}g\~h^i\\j\*k\[l\]m&lt;n&gt;" in head
    text = to_latex(paper_table(group))
    escaped = r"my\_set\textbar{}a\&b\%c\#d\$e\{f\}g\textasciitilde{}h\textasciicircum{}i\textbackslash{}j"
    assert escaped in text
    assert NASTY in to_terminal(paper_table(group))
    assert read_csv(to_csv(paper_records([group])))[0]["column"] == NASTY


def test_latex_marks_ranks_and_rules_as_the_paper_does(tmp_path: Path) -> None:
    write_run(tmp_path, "dtd", {"zero_shot": range(5), "tpt": range(7), "fcl": range(6)})
    lines = to_latex(paper_table(only(tmp_path))).splitlines()
    rows = [line for line in lines if line.endswith(r"\\") and line.count("&") == 2]
    assert rows[1] == r"Zero-shot & 25.00 & - \\"
    assert rows[2] == r"TPT & \textbf{35.00} & +10.00 \\"
    assert rows[3] == r"FCL & \underline{30.00} & +5.00 \\"
    assert lines.count(r"\midrule") == 4  # below the heading, zero-shot, the baselines and FCL
    assert r"\begin{tabular}{l|r|r}" in lines


def test_ranks_are_marked_in_every_format(tmp_path: Path) -> None:
    write_run(tmp_path / "one", "dtd", {"zero_shot": range(5), "tpt": range(7), "fcl": range(6)})
    table = paper_table(only(tmp_path / "one"))
    marks = [(to_markdown, "**35.00**", "<u>30.00</u>"), (to_terminal, "35.00*", "30.00+")]
    marks.append((partial(to_terminal, width=80), "\x1b[1m35.00\x1b[0m", "\x1b[4m30.00\x1b[0m"))
    assert all(mark in write(table) for write, *signs in marks for mark in signs)
    assert "\x1b" not in to_terminal(table)
    rows = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1  # aligned in the source as well
    assert "…" not in to_terminal(paper_table(only(natural_shift(tmp_path / "all"))), 60)  # digits survive


def braces(text: str) -> bool:
    depth = 0
    for sign in re.findall(r"(?<!\\)(?:\\\\)*([{}])", text):
        depth += 1 if sign == "{" else -1
        if depth < 0:
            return False
    return depth == 0


@given(st.text(max_size=30))
def test_latex_is_balanced_whatever_the_names(text: str) -> None:
    assert braces(escape_latex(text))
    table = Table(text, ("Method", text), ((Cell(text), Cell(text, "best")),), (), (text,))
    written = to_latex(table)
    assert braces(written)
    body = written[written.index(r"\midrule") : written.index(r"\bottomrule")]
    assert len(re.findall(r"(?<!\\)&", body)) == 1
    assert not re.search(r"(?<!\\)[#%$]", re.sub(r"\$(?:-|\\Delta|\\pm)\$", "", body))
    assert body.count("\n") == 2
    opened, closed = (re.findall(rf"^\\{word}{{(\S+?)}}", written, re.MULTILINE) for word in ("begin", "end"))
    assert opened == closed[::-1]


@given(st.text(max_size=30))
def test_markdown_has_the_same_cells_whatever_the_names(text: str) -> None:
    table = Table("title", ("Method", text), ((Cell(text), Cell(text, "second")),))
    lines = to_markdown(table).splitlines()
    assert lines[5:] == ["", "- Best bold, second underlined, by what is printed."]
    for line in lines[2:5]:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    assert "<" not in escape_markdown(text)


def test_a_run_of_evaluate_becomes_a_table(
    tmp_path: Path, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    samples = []
    for number in range(6):
        path = tmp_path / f"{number}.png"
        Image.fromarray(make_image(number, 40, 50)).save(path)
        samples.append(Sample(path.name, path, number % 3))
    names = ("cat", "dog", "house")
    methods = {"zero_shot": ZeroShot(), "fcl-8": FCL(masks=8, k=2)}
    setup = Predictor(LabelSpace(names, tiny("clip")), methods, ViewRecipe(count=8, scale=(0.3, 1.0)))
    facts = {"preset": "paper", "prompts": "single", "pretrained": None}
    plan = Plan(Dataset("pictures", tmp_path, "a folder", "all", names, tuple(samples)), setup, 0, None, None, facts)
    run = carry_out(plan, tmp_path, partial(answer_here, read=read_image, workers=0), False, {}, pytest.fail)
    right = [row for row in run.rows.to_pylist() if row["method"] == "fcl-8" and row["index"] == row["label_index"]]
    table = paper_table(only(tmp_path))
    assert column(table, "pictures")["FCL-8"][0] == f"{100 * len(right) / 6:.2f}"
    assert column(table, "pictures")["n"][0] == "6"
    (record,) = [record for record in long_records(groups(tmp_path)) if record["method"] == "fcl-8"]
    assert record["config"] == plan.hashes["fcl-8"]
    assert record["complete"] is True
