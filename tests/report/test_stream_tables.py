"""Tables and the figure of methods with a memory: over orders, by hand, and apart from the others."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binomtest

from faircontext import FairContextError
from faircontext.cli import main
from faircontext.metrics import difference_over_orders, means_by_part, paired_bootstrap
from faircontext.report.benchmarks import (
    ONLINE,
    SETS,
    StreamBlock,
    list_reported,
    published_accuracies,
    read_reported,
    stream_blocks,
)
from faircontext.report.figures import draw_positions
from faircontext.report.page import build_page
from faircontext.report.render import MissingError, Table
from faircontext.report.style import FigureResult
from faircontext.report.tables import compare_with_published, published_table, stream_tables, write_tables
from faircontext.runs.groups import find_runs, group_runs
from faircontext.runs.orders import arrange
from faircontext.runs.records import METHOD_TITLES
from faircontext.runs.results import DEPENDENT, TUNED, describe_result, read_results
from faircontext.runs.sidecars import Sidecars
from faircontext.runs.stream_results import StreamRuns, join_orders, split_streams
from made_runs import write_run, write_stream

pytestmark = pytest.mark.usefixtures("without_charts")  # but in what is shared

Shared = Callable[[Callable[[Path], object]], Path]

TDA = ((0, 12), (0, 13), (0, 17))
"""Of 20 images, which TDA has right in three orders; zero-shot has the first 10."""


def orders(folder: Path, dataset: str = "dtd", right: Sequence[tuple[int, int]] = TDA, **more: object) -> Path:
    for order, ends in enumerate(right):
        write_stream(
            folder, dataset, {"zero_shot": range(10), "tda": range(*ends), "zero": range(4, 15)}, order, **more
        )
    return folder


def streams(*folders: Path) -> list[StreamRuns]:
    return split_streams(group_runs(find_runs(folders)))[1]


def block_of(*folders: Path) -> StreamBlock:
    (block,) = stream_blocks(streams(*folders))
    return block


def three_orders(folder: Path) -> None:
    orders(folder)


def positions(folder: Path) -> FigureResult:
    return draw_positions(join_orders(group_runs(find_runs([folder])))[0], Sidecars())


def shown(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.columns, (cell.text for cell in row), strict=True)) for row in table.rows]


def text_of(folder: Path, *words: str) -> list[dict[str, str]]:
    text = write_tables(find_runs([folder]), words[0] if words else "paper", "csv", "top1", print)
    return [*csv.DictReader(io.StringIO(text))]


def test_a_method_with_a_memory_has_the_mean_of_its_orders(shared: Shared) -> None:
    accuracies, comparisons = stream_tables(block_of(shared(three_orders)))
    zero_shot, tda = shown(accuracies)
    low, high = binomtest(14, 20).proportion_ci(0.95, method="wilson")  # 12, 13 and 17 of 20 are 14 of 20
    assert tda["Mean top-1 [95%]"] == f"70.00 [{100 * low:.2f}, {100 * high:.2f}]"
    assert (tda["Orders"], tda["n"], tda["Min to max"]) == ("0 1 2", "20", "60.00 to 85.00")
    assert tda["SD of orders"] == f"{100 * np.std([0.6, 0.65, 0.85], ddof=1):.2f}"
    assert (tda["Images seen before"], tda["State (MB)"], tda["Backward passes"]) == ("9.5", "1.5", "0")
    assert (zero_shot["Method"], zero_shot["n"], zero_shot["Images seen before"]) == ("Zero-shot", "20", "0")
    assert zero_shot["Mean top-1 [95%]"].startswith("50.00 [")
    assert [row["Less"] for row in shown(comparisons)] == ["Zero-shot", "ZERO"]


def test_differences_are_on_order_0_and_over_all_orders(shared: Shared) -> None:
    _, comparisons = stream_tables(block_of(shared(three_orders)))
    row = next(row for row in shown(comparisons) if row["Less"] == "ZERO")
    own, other = (np.array([np.isin(np.arange(20), range(*ends)) for ends in side]) for side in (TDA, [(4, 15)] * 3))
    first, over = paired_bootstrap(own[0], other[0]), difference_over_orders(own, other)
    for name, found in (("Order 0: Δ [95%]", first), ("Mean of orders: Δ [95%]", over)):
        assert row[name] == f"{100 * found.value:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"
    assert row["Gained/lost"] == "+4 -3"
    assert row["p"] == f"{binomtest(4, 7).pvalue:.2g}"
    assert row["p of orders"] == row["p (Holm)"] == f"{over.p_value:.2g}"


def test_methods_with_a_memory_are_in_no_table_of_the_others(shared: Shared) -> None:
    text = write_tables(find_runs([shared(three_orders)]), "paper", "md", "top1", print)
    first, *rest = text.split("\n\n**")
    assert "TDA" not in first
    assert "ZERO" in first
    assert "order" not in first
    assert len(rest) == 2
    assert all("TDA" in table and "orders 0 1 2" in table for table in rest)


def test_an_episodic_run_is_compared_with_streams_of_the_same_settings(tmp_path: Path) -> None:
    write_run(tmp_path / "dtd", "dtd", {"zero_shot": range(10), "fcl": range(9)})
    runs = streams(orders(tmp_path))
    assert runs[0].baselines == ["zero_shot", "zero", "fcl"]
    episodic, _ = split_streams(group_runs(find_runs([tmp_path])))
    assert [group.methods for group in episodic] == [["zero_shot", "zero", "fcl"]]


def test_a_method_of_other_settings_in_another_order_is_refused(tmp_path: Path) -> None:
    for order, value in enumerate((1, 2)):
        right = {"zero_shot": range(10), "tda": range(10), "zero": range(9)}
        write_stream(tmp_path, "dtd", right, order, settings={"zero": {"percent": value}})
    with pytest.raises(FairContextError, match="both measure zero on dtd, with other settings"):
        write_tables(find_runs([tmp_path]), "paper", "md", "top1", print)


STREAM = {"settings": {"tda": {"alpha": 2.0}}, "views": {"count": 64}}
"""What a run says of TDA besides the order."""

OTHERS = {
    "settings": ({"settings": {"tda": {"alpha": 4.0}}}, r"settings\.alpha 2\.0 and 4\.0"),
    "limit": ({"limit": 15}, "limit 20 and 15"),
    "images": ({"images": 15}, r"limit 20 and 15; stream\.horizon 20 and 15"),
    "views": ({"views": {"count": 32}}, r"views\.count 64 and 32"),
    "split": ({"split": "val"}, r'dataset\.split "test" and "val"'),
    "setting that one lacks": ({"exif": True}, "exif null and true"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_orders_that_differ_in_more_than_the_order_are_not_averaged(kind: str, tmp_path: Path) -> None:
    other, named = OTHERS[kind]
    right = {"zero_shot": range(10), "tda": range(10)}
    first = write_stream(tmp_path, "dtd", right, 0, **STREAM)
    second = write_stream(tmp_path, "dtd", right, 1, **STREAM | other)
    runs = find_runs([tmp_path])
    said = f"^{first} and {second}: both measure tda on dtd, with other settings: {named}; .* variant tda-SUFFIX$"
    for layout in ("md", "csv"):
        with pytest.raises(FairContextError, match=said):
            write_tables(runs, "paper", layout, "top1", print)  # type: ignore[arg-type]
    with pytest.raises(FairContextError, match=said):
        build_page(runs, 0)
    with pytest.raises(FairContextError, match=said):
        positions(tmp_path)


def test_an_interrupted_order_and_a_limit_that_leaves_nothing_out_are_no_other_settings(tmp_path: Path) -> None:
    right = {"zero_shot": range(10), "tda": range(10)}
    write_stream(tmp_path, "dtd", right, 0, **STREAM)
    write_stream(tmp_path, "dtd", right, 1, **STREAM, limit=20)
    write_stream(tmp_path, "dtd", right, 2, **STREAM, answered=15)
    row = shown(stream_tables(block_of(tmp_path))[0])[1]
    assert (row["Orders"], row["n"]) == ("0 1 2", "15")


def test_one_order_has_no_deviation_and_is_tested_as_such(tmp_path: Path) -> None:
    accuracies, comparisons = stream_tables(block_of(orders(tmp_path, right=TDA[:1])))
    assert shown(accuracies)[1]["SD of orders"] == "-"
    row = shown(comparisons)[0]
    assert row["p of orders"] == row["p"] == f"{binomtest(2, 2).pvalue:.2g}"
    assert row["Order 0: Δ [95%]"] == row["Mean of orders: Δ [95%]"]
    without = tmp_path / "without"
    write_stream(without, "dtd", {"zero_shot": range(10), "tda": range(12)}, 1)
    row = shown(stream_tables(block_of(without))[1])[0]
    assert (row["Order 0: Δ [95%]"], row["Gained/lost"], row["p"]) == ("-", "-", "-")
    assert row["Mean of orders: Δ [95%]"].startswith("+10.00 [")


def test_data_sets_are_pooled_in_the_orders_that_all_have(tmp_path: Path) -> None:
    orders(tmp_path)
    orders(tmp_path, "eurosat", [(0, 20), (0, 20)])
    by_set, accuracies, _ = stream_tables(block_of(tmp_path))
    row = shown(accuracies)[-1]
    assert (row["Data set"], row["Orders"], row["n"]) == ("all sets", "0 1", "40")
    assert row["Mean top-1 [95%]"].startswith("81.25 [")  # (12 + 13) / 2 and 20 of 40
    assert shown(by_set) == [
        {"Method": "TDA", "DTD": f"70.00 ± {100 * np.std([0.6, 0.65, 0.85], ddof=1):.2f}", "EuroSAT": "100.00 ± 0.00"}
    ]
    rows = shown(stream_tables(block_of(tmp_path), long=True)[0])
    assert [(row["Data set"], row["Method"]) for row in rows] == [
        (name, method) for name in ("DTD", "EuroSAT", "all sets") for method in ("Zero-shot", "TDA")
    ]


def test_what_is_not_a_whole_data_set_says_so_once(tmp_path: Path) -> None:
    orders(tmp_path, images=20, listed=40, unreadable=[19], limit=20)
    notes = stream_tables(block_of(tmp_path))[0].footnotes
    assert [note for note in notes if note.startswith("DTD")] == [
        "DTD: 50% of 40 images, 20 of them are there.",
        "DTD: 1 of 20 files unreadable and left out.",
    ]
    for order in range(2):
        right = {"zero_shot": range(10), "tda": range(12)}
        write_stream(tmp_path / "stopped", "dtd", right, order, answered=5 * (order > 0))
    text = write_tables(find_runs([tmp_path / "stopped"]), "paper", "md", "top1", lambda _: None)
    assert "not complete (5 of 20 so far)" in text
    (row,) = (
        line for line in text.splitlines() if line.startswith("| DTD ") and "| TDA " in line and "Zero" not in line
    )
    assert "|      1 |   5 |" in row  # the order that has an answer


def test_without_an_answer_the_table_is_empty_and_is_there(tmp_path: Path) -> None:
    write_stream(tmp_path, "dtd", {"zero_shot": range(10), "tda": range(12)}, 0, answered=0)
    text = write_tables(find_runs([tmp_path]), "paper", "md", "top1", lambda _: None)
    assert text.startswith("**Top-1 accuracy (%) of ViT-B-16")


def test_arrangements_are_blocks_of_their_own(tmp_path: Path) -> None:
    orders(tmp_path, right=TDA[:2])
    orders(tmp_path, right=TDA[:2], arrangement="sorted")
    blocks = stream_blocks(streams(tmp_path))
    assert [block.title.rpartition("seed 0")[2] for block in blocks] == [", orders 0 1", ", orders 0 1, sorted"]
    assert len(join_orders(group_runs(find_runs([tmp_path])))) == 2


def test_settings_that_authors_chose_are_marked_wherever_a_number_is(tmp_path: Path) -> None:
    orders(tmp_path, "dtd", TDA[:2], tuned=["tda"])
    orders(tmp_path, "eurosat", TDA[:2])
    runs = find_runs([tmp_path])
    for style in ("paper", "long"):
        for layout in ("md", "latex", "rich"):
            text = write_tables(runs, style, layout, "top1", print)  # type: ignore[arg-type]
            mark = r"TDA\dag{}" if layout == "latex" else "TDA†"
            assert text.count(mark) >= 3
            assert f"{TUNED}: TDA on DTD." in text
        rows = text_of(tmp_path, style)
        name = "dataset" if style == "long" else "column"
        marks = {row[name]: row["mark"] for row in rows if row["method"] == "tda"}
        assert marks == {"dtd": TUNED, "eurosat": "", "all sets": TUNED}
    html = build_page(runs, 0).html
    assert f"† {TUNED}: TDA on DTD." in html
    assert positions(tmp_path).warnings == (f"† {TUNED}: TDA on DTD.",)


def test_csv_has_a_row_over_all_orders_and_the_others_once(shared: Shared) -> None:
    tmp_path = shared(three_orders)
    for style in ("paper", "long"):
        rows = text_of(tmp_path, style)
        assert [(row["method"], row["stream"]) for row in rows] == [
            *(("zero_shot", ""), ("zero", "")),
            ("tda", "orders 0 1 2"),
        ]
        tda = rows[-1]
        assert float(tda["value" if style == "paper" else "top1"]) == pytest.approx(0.7)
        assert float(tda["delta"]) == pytest.approx(0.2)
        assert (tda["orders"], tda["top1_min"], tda["top1_max"], tda["seen_before"]) == ("3", "0.6", "0.85", "9.5")
        assert (tda["state_mb"], tda["backward_passes"], rows[0]["state_mb"]) == ("1.5", "0", "")
    ece = write_tables(find_runs([tmp_path]), "paper", "csv", "ece", print)
    assert float([*csv.DictReader(io.StringIO(ece))][-1]["value"]) == pytest.approx(0.1)  # 0.6 against 0.6, 0.65, 0.85


def test_runs_without_a_memory_have_the_tables_and_columns_that_they_had(tmp_path: Path) -> None:
    write_run(tmp_path / "dtd", "dtd", {"zero_shot": range(10), "zero": range(11)})
    groups = group_runs(find_runs([tmp_path]))
    episodic, none = split_streams(groups)
    assert (episodic, none) == (groups, [])
    assert not {"stream", "orders", "mark"} & text_of(tmp_path)[0].keys()


def test_a_table_says_which_methods_have_a_memory_where_it_is_of_one_order(shared: Shared) -> None:
    """The page keeps a section for each order, whose images it shows."""
    html = build_page(find_runs([shared(three_orders)]), 0).html
    assert TUNED not in html
    for order in range(3):
        assert f"With a memory, in order {order}: TDA." in html
    assert html.count("Methods with a memory: ViT-B-16") == 2  # heading, and name of the region
    assert 'aria-label="Accuracy by position in the stream' in html


def test_images_seen_before_are_those_of_the_rows(tmp_path: Path) -> None:
    right = {"zero_shot": [], "tda": []}
    run = write_stream(tmp_path, "dtd", right, 1, unreadable=[3])
    results = {result.method: result for result in read_results(find_runs([run])[0])}
    place = arrange(np.arange(20), 1).tolist()
    tda = results["tda"]
    assert tda.has_memory
    assert tda.seen_before.tolist() == [place.index(position) for position in tda.positions.tolist()]
    assert not results["zero_shot"].has_memory
    assert set(results["zero_shot"].seen_before.tolist()) == {-1}


def test_accuracy_along_the_stream_is_over_orders_and_paired(shared: Shared) -> None:
    rows = positions(shared(three_orders)).data
    assert isinstance(rows, list)
    part = np.array([np.argsort(arrange(np.arange(20), order)) * 2 // 20 for order in range(3)])
    own = np.array([np.isin(np.arange(20), range(*ends)) for ends in TDA])
    base = np.tile(np.arange(20) < 10, (3, 1))
    gains = means_by_part(own.astype(float) - base, part, 2)[0]
    for index, row in enumerate(rows):
        assert row["accuracy"] == pytest.approx(own[part == index].mean())
        assert row["zero_shot"] == pytest.approx(base[part == index].mean())
        assert [row[name] for name in ("gain", "gain_low", "gain_high")] == [*vars(gains[index]).values()]
        assert (row["answers"], row["n"], row["orders"]) == (30, 20, "0 1 2")


def test_the_figure_is_of_all_orders_and_is_drawn_once(
    shared: Shared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, words = tmp_path / "figures", ["--only", "stream", "--out", str(tmp_path / "figures")]
    assert main(["figures", str(shared(three_orders)), *words]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["stream.csv", "stream.pdf", "stream.png"]
    assert len((out / "stream.csv").read_text().splitlines()) == 3
    pixels = matplotlib.image.imread(out / "stream.png")
    assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 20
    capsys.readouterr()
    write_run(tmp_path / "others", "dtd", {"zero_shot": range(10), "zero": range(11)})
    assert main(["figures", str(tmp_path / "others"), *words]) == 1
    assert "stream: not drawn: needs runs of a method with a memory" in capsys.readouterr().err


def test_published_numbers_are_facts_with_sources() -> None:
    assert set(ONLINE.values()) | {"online_sources"} <= {*list_reported()}
    sources = {row["source"]: row for row in read_reported("online_sources")}
    listed = {name for sets in SETS.values() for name in sets}
    known = published_accuracies("ViT-B-16-quickgelu")
    assert len(known) == 88
    assert len({(one.method, one.dataset, one.source) for one in known}) == len(known)
    assert {one.source for one in known} == sources.keys()
    for one in known:
        assert one.dataset in listed
        assert 0.2 < one.accuracy < 0.96
        assert one.tuned == ("yes" if one.method in ("TDA", "DMN-ZS", "BoostAdapter", "DPE") else "unknown")
        assert one.method in {*METHOD_TITLES.values(), "DynaPrompt"}
    assert all(row["title"] and row["kind"] for row in sources.values())
    by_key = {(one.method, one.dataset, one.source): one.accuracy for one in known}
    # Means over ten sets as the papers print them: TDA 67.53 and DPE 69.40.
    for method, mean in (("TDA", 67.53), ("DPE", 69.40)):
        assert 100 * np.mean([by_key[method, name, "DPE-T2"] for name in SETS["fine-grained"]]) == pytest.approx(
            mean, abs=0.006
        )
    assert published_accuracies("RN50") == []


def test_published_numbers_stand_beside_measured_ones(
    shared: Shared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [*compare_with_published(block_of(shared(three_orders)))]
    assert [(one.method, one.dataset, one.source, one.accuracy) for _, one in pairs] == [
        ("TDA", "dtd", "DPE-T2", 0.474)
    ]
    table = published_table(block_of(shared(three_orders)))
    (row,) = shown(table)
    assert (row["Published"], row["Tuned per set"], row["Prompts"]) == ("47.40", "yes", "templates")
    assert row["Difference [95%]"].startswith("+22.60 [")
    assert any(note.startswith("DPE-T2: DPE (arXiv 2410.12790), table 2") for note in table.footnotes)
    assert main(["tables", str(shared(three_orders)), "--compare", "paper", "--format", "md"]) == 0
    assert "and published: ViT-B-16" in capsys.readouterr().out
    with pytest.raises(MissingError, match="is known as published"):
        published_table(block_of(orders(tmp_path / "other", "mine")))


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=2, max_size=4))
def test_the_pooled_accuracy_is_the_mean_of_the_orders(
    tmp_path_factory: pytest.TempPathFactory, correct: list[list[bool]]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    for order, own in enumerate(correct):
        right = {"zero_shot": [], "tda": [position for position, value in enumerate(own) if value]}
        write_stream(folder, "dtd", right, order, images=6)
    found = streams(folder)[0].result("tda", ["dtd"])
    assert found is not None
    assert found.correct.tolist() == correct
    assert found.seen_before == 2.5
    assert sorted(np.unique(found.parts(3)).tolist()) == [0, 1, 2]


def test_a_set_that_forbids_a_curve_is_left_out_of_it_alone_and_said(tmp_path: Path) -> None:
    answers = {"zero_shot": range(10), "tda": range(12), "dmn": range(14)}
    for order in range(2):
        write_stream(tmp_path, "dtd", answers, order, memory=("tda", "dmn"))
        write_stream(tmp_path, "eurosat", {"zero_shot": range(10), "tda": range(12)}, order)
        write_stream(tmp_path, "food101", {"tda": range(12)}, order)  # zero-shot's rows are lost
        write_stream(tmp_path, "sun397", {"zero_shot": [0], "tda": [0]}, order, images=1)
    figure = positions(tmp_path)
    assert figure.warnings == (
        "TDA without Food101, where no image has zero-shot's answer",
        "TDA without SUN397, where fewer than two images left a trace",
        "DMN-ZS without EuroSAT, which has no answers of it",
        "DMN-ZS without Food101, which has no answers of it",
        "DMN-ZS without SUN397, which has no answers of it",
    )
    assert {(row["method"], row["n"]) for row in figure.data} == {("tda", 40), ("dmn", 20)}
    assert "TDA without Food101, where no image has" in build_page(find_runs([tmp_path]), 0).html


def test_without_an_order_of_all_sets_a_method_is_not_drawn_and_said(tmp_path: Path) -> None:
    for order, name in enumerate(("dtd", "eurosat")):
        write_stream(tmp_path, name, {"zero_shot": range(10), "tda": range(12)}, order)
    with pytest.raises(MissingError, match=r"--root DATA \(here TDA not drawn, as no order is of all data sets\)$"):
        positions(tmp_path)


@pytest.mark.parametrize(("images", "bands"), [(18, 0), (20, 2)])
def test_a_band_is_drawn_where_its_parts_have_ten_images(images: int, bands: int, tmp_path: Path) -> None:
    for order in range(2):
        write_stream(tmp_path, "dtd", {"zero_shot": range(5), "tda": range(9)}, order, images=images)
    figure = positions(tmp_path)
    assert sum(len(axis.collections) for axis in figure.figure.axes) == bands
    said = () if bands else ("TDA without bands, as a part has fewer than 10 images",)
    assert figure.warnings == said


def test_what_is_in_other_orders_is_said(tmp_path: Path) -> None:
    orders(tmp_path)
    orders(tmp_path, "food101")
    orders(tmp_path, "eurosat", TDA[:1])
    by_set, accuracies, _ = stream_tables(block_of(tmp_path))
    note = (
        "Not all are means of the same orders: most are in orders 0 1 2, TDA on EuroSAT in order 0. All sets together "
        "are of the orders that each of them has."
    )
    assert note in by_set.footnotes
    assert note in accuracies.footnotes
    assert not [
        line for line in stream_tables(block_of(orders(tmp_path / "one")))[0].footnotes if "same orders" in line
    ]


def test_tests_of_one_order_say_what_they_take_for_granted(tmp_path: Path) -> None:
    run = find_runs([write_stream(tmp_path, "dtd", {"zero_shot": range(10), "tda": range(12)}, 0)])[0]
    zero_shot, tda = read_results(run)
    said = "exact McNemar p = 0.5, as if answers were independent of each other, which those of a memory are not); "
    assert said in describe_result(tda)
    assert "independent" not in describe_result(zero_shot)
    assert f"Intervals and tests are {DEPENDENT}." in build_page([run], 0).html
