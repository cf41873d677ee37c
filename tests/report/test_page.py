"""Pages of runs with known answers: what is in them, read as a browser would read it."""

import base64
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from faircontext import FairContextError
from faircontext.cli import main
from faircontext.report.benchmarks import split_by_benchmark
from faircontext.report.figures import gains_figure, reliability_figure
from faircontext.report.images import choose
from faircontext.report.page import OUTCOMES, Page, build_page, outcome_of
from faircontext.report.style import inline_svg, styled
from faircontext.report.tables import pooled_table
from faircontext.runs.groups import find_runs, group_runs
from made_pages import NAMES, without_labels, write_gallery, write_images, write_pictured
from made_reports import RIGHT, experiment, pictured
from made_runs import write_run

pytestmark = pytest.mark.usefixtures("without_charts")  # but in what is shared


class Reader(HTMLParser):
    """Takes the data out of a page, and everything that would be fetched or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.data = ""
        self._embedded = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._embedded = dict(attrs).get("id") == "data"

    def handle_data(self, data: str) -> None:
        if self._embedded:
            self.data += data
        self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._embedded = self._embedded and tag != "script"


def page_of(*folders: Path, most: int = 1000) -> Page:
    return build_page(find_runs(folders), most)


def data_of(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Reader(page.html).data)
    return found


@pytest.fixture(scope="module")
def page(shared: Callable[[Callable[[Path], object]], Path]) -> Page:
    return page_of(shared(pictured))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images", 20)


@pytest.fixture
def run(tmp_path: Path, images: Path) -> Path:
    return write_pictured(tmp_path / "runs" / "mine", images, "mine", RIGHT, 20)


def test_outcomes_are_told_by_index() -> None:
    found = {outcome_of(answer, first, 1) for answer in (1, 2) for first in (1, 3)}
    assert {*found, outcome_of(1, 1, None)} == OUTCOMES.keys()
    assert {outcome_of(answer, first, None) for answer in (0, 1) for first in (0, 1)} == {"unlabelled"}
    assert outcome_of(1, 2, 1) == "fixed"
    assert outcome_of(2, 1, 1) == "broke"


def test_every_image_has_its_outcome_classes_and_picture(page: Page) -> None:
    found = data_of(page)
    (panel,) = found["panels"]
    assert Counter(panel["methods"]["fcl"]["outcome"]) == {"0": 5, "1": 2, "2": 8, "3": 5}
    assert Counter(panel["methods"]["zero_shot"]["outcome"]) == {"2": 10, "3": 10}
    names = panel["names"]
    assert [names[place] for place in panel["labels"]] == [NAMES[position % 10] for position in range(20)]
    assert names[panel["methods"]["fcl"]["answers"][0]] == "class B"
    assert names[panel["zero"][0]] == "class A"
    assert set(panel["methods"]["fcl"]["confidence"]) == {600}
    assert panel["methods"]["fcl"]["votes"] is None
    assert sorted(panel["pictures"]) == [*range(20)]
    assert (page.images, page.pictures, page.warnings) == (20, 20, ())
    for position in (0, 7, 19):
        text = found["thumbnails"][panel["pictures"][position]]
        picture = Image.open(io.BytesIO(base64.b64decode(text)))
        assert picture.format == "JPEG"
        assert max(picture.size) <= 112
        assert np.abs(np.asarray(picture)[-5, -5].astype(int) - (position, 0, 128)).max() < 12


def test_the_page_asks_nobody_for_anything(page: Page) -> None:
    text = page.html
    for tag, attributes in Reader(text).tags:
        assert tag not in ("link", "iframe", "object", "embed")
        assert not attributes.keys() & {"src", "srcset", "data", "action", "style-src"}
        assert (attributes.get("href") or "#").startswith("#")
    assert "default-src 'none'" in text
    assert "innerHTML" not in text
    assert not re.search(r"@import|url\((?!#)", text)


def test_what_was_run_is_said_in_words(run: Path) -> None:
    document = json.loads((run / "run.json").read_text())
    document["config"] |= {"views": {"count": 64, "scale": [0.5, 1.0]}, "versions": {"torch": "2.9"}}
    document["config"]["methods"]["fcl"] = {"masks": 8, "grids": [7, 9], "beta": None}
    document["sessions"] = [{"seconds": 120.0, "processors": 4, "system": "Linux"}] * 2
    (run / "run.json").write_text(json.dumps(document))
    texts = Reader(page_of(run).html).texts
    assert {"count 64, scale 0.5/1", "torch 2.9", "processors 4, system Linux", "4 minutes in 1 run"} <= {*texts}
    assert "masks 8, grids 7/9, beta none" in texts


def test_charts_are_of_each_method_with_what_they_show(page: Page) -> None:
    shown = [attributes.get("aria-label") or "" for tag, attributes in Reader(page.html).tags if tag == "svg"]
    kinds = [f"{kind} {method}" for method in ("Zero-shot", "FCL") for kind in ("Gain of", "Reliability of", "Risk of")]
    assert [" ".join(label.split()[:3]).rstrip(":") for label in shown] == kinds[1:]
    assert "AURC" in page.html


def test_names_from_files_are_never_markup(tmp_path: Path, images: Path) -> None:
    evil = "</script><b>bold</b><!-- <script>"
    names = [evil, "\ud83d half", *NAMES[2:]]
    write_pictured(tmp_path / "runs", images, "a<b>set", RIGHT, 20, names=names, prompts=evil)
    page = page_of(tmp_path / "runs")
    page.html.encode()
    reader = Reader(page.html)
    assert not [tag for tag, _ in reader.tags if tag == "b"]
    assert sum(tag == "script" for tag, _ in reader.tags) == 2
    assert evil in json.loads(reader.data)["panels"][0]["names"]
    assert "a<b>set" in reader.texts


def test_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    write_run(tmp_path, "mine", RIGHT)  # without names: all are called missile; nor does it know where its images are
    page = page_of(tmp_path)
    (panel,) = data_of(page)["panels"]
    assert panel["names"] == [f"missile (class {index})" for index in range(10)]
    assert page.pictures == 0
    assert page.warnings == ("20 of 20 images have no picture: the run does not say where its images are (00000.png)",)


def test_unreadable_files_are_listed_and_no_images(tmp_path: Path, images: Path) -> None:
    write_pictured(tmp_path / "runs", images, "mine", RIGHT, 20, unreadable=(3, 4))
    page = page_of(tmp_path / "runs")
    (panel,) = data_of(page)["panels"]
    assert len(panel["paths"]) == page.images == 18
    assert "00003.png" not in panel["paths"]
    texts = Reader(page.html).texts
    assert [texts.count(name) for name in ("00003.png", "00004.png", "truncated")] == [1, 1, 2]
    assert "2 unreadable files" in " ".join(page.html.split())


def test_files_that_are_gone_get_a_placeholder_and_one_note(run: Path, images: Path) -> None:
    (images / "00005.png").unlink()
    (images / "00006.png").write_text("no image any more")
    page = page_of(run)
    (panel,) = data_of(page)["panels"]
    assert [place for place, number in enumerate(panel["pictures"]) if number == -2] == [5, 6]
    assert page.warnings == (
        "1 of 20 images has no picture: no such file (00005.png)",
        "1 of 20 images has no picture: not an image but text (00006.png)",
    )
    assert all(page.html.count(line) == 1 for line in page.warnings)


def test_changed_images_get_pictures_first_and_others_evenly() -> None:
    everything = [*range(100)]
    assert choose(everything, {3, 50}, 100) == everything
    assert choose(everything, {3, 50}, 0) == []
    chosen = choose(everything, {3, 50}, 12)
    assert {3, 50} <= {*chosen}
    assert len(chosen) == 12
    assert all(sum(low <= image < low + 20 for image in chosen) >= 2 for low in range(0, 100, 20))
    assert choose(everything, {*range(0, 100, 2)}, 5) == [0, 20, 40, 60, 80]


def test_a_page_with_fewer_pictures_than_images_says_so(run: Path) -> None:
    page = page_of(run, most=9)
    (panel,) = data_of(page)["panels"]
    pictured = [place for place, number in enumerate(panel["pictures"]) if number >= 0]
    assert {0, 1, 10, 11, 12, 13, 14} <= {*pictured}  # those that FCL changed
    assert len(pictured) == page.pictures == 9
    assert page.warnings == ("11 of 20 images have no picture, so that the page stays small",)


def test_runs_of_a_group_share_their_pictures_and_backbones_are_groups(run: Path, images: Path) -> None:
    write_pictured(run.parent / "more", images, "mine", {"zero_shot": range(10), "tpt": range(12)}, 20)
    write_pictured(run.parent / "other", images, "mine", RIGHT, 20, backbone="ViT-L-14", preset="official")
    write_gallery(run.parent / "gallery", run.parent / "other", [4])
    found = data_of(page_of(run.parent))
    assert [[*panel["methods"]] for panel in found["panels"]] == [["zero_shot", "fcl"], ["tpt"], ["zero_shot", "fcl"]]
    assert [group["title"].split()[0] for group in found["groups"]] == ["ViT-B-16", "ViT-L-14"]
    assert [panel["group"] for panel in found["panels"]] == [0, 0, 1]
    assert [[*panel["evidence"]] for panel in found["panels"]] == [[], [], ["4"]]  # of the same backbone
    assert len(found["thumbnails"]) == 20


def test_evidence_is_shown_beside_its_images(run: Path) -> None:
    write_gallery(run.parent / "gallery", run, [4, 17])
    found = data_of(page_of(run.parent))
    (panel,) = found["panels"]
    assert panel["evidence"] == {"4": 0, "17": 1}
    assert found["evidence"][0]["names"] == ["class D", "class B"]  # as explored, which the figures show as well
    pictures = [Image.open(io.BytesIO(base64.b64decode(text))) for text in found["evidence"][0]["pictures"]]
    assert [picture.size for picture in pictures] == [(112, 112)] * 3
    # evidence of B grows to the right, that of D downwards: orange, or yellow, where it is high, blue where low
    second, first, common = (np.asarray(picture).astype(int)[..., [0, 2]] @ [1, -1] for picture in pictures)
    assert first[5, -5] > first[-5, 5] + 60
    assert second[-5, 5] > second[5, -5] + 60
    assert common[-5, -5] > common[5, 5] + 20


def test_evidence_that_cannot_be_read_is_refused_by_its_run_and_image(run: Path) -> None:
    write_gallery(run.parent / "gallery", run, [4])
    place = run.parent / "gallery" / "run.json"
    document = json.loads(place.read_text())
    document["config"]["names"] = []
    place.write_text(json.dumps(document))
    with pytest.raises(FairContextError, match=r"gallery: the gallery row of 00004.png cannot be drawn"):
        page_of(run.parent)


@pytest.mark.parametrize("ran_in", ["work", "elsewhere", None])
def test_a_relative_folder_of_images_is_found_from_anywhere(
    ran_in: str | None, run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads((run / "run.json").read_text()) | {"folder": images.name}
    if ran_in == "work":
        document["working_directory"] = str(images.parent)
    if ran_in == "elsewhere":  # runs and images have moved together
        document["working_directory"] = str(tmp_path / "gone")
    (run / "run.json").write_text(json.dumps(document))
    (tmp_path / "reading").mkdir()
    monkeypatch.chdir(tmp_path / "reading" if ran_in == "work" else images.parent)
    assert page_of(run).pictures == 20


def test_analyses_alone_are_no_page(run: Path, tmp_path: Path) -> None:
    write_gallery(tmp_path / "gallery", run, [4])
    with pytest.raises(FairContextError, match="no run has answered an image"):
        page_of(tmp_path / "gallery")


def test_all_data_sets_together_are_counted_by_image(tmp_path: Path) -> None:
    write_run(tmp_path / "one", "one", RIGHT)
    write_run(tmp_path / "two", "two", {"zero_shot": range(20), "fcl": range(19)})
    (group,) = split_by_benchmark(group_runs(find_runs([tmp_path])))
    row = dict(zip(pooled_table(group).columns, (cell.text for cell in pooled_table(group).rows[1]), strict=True))
    assert (row["Sets"], row["n"], row["Gained/lost"]) == ("2", "40", "+5 -3")
    assert row["Top-1 [95%]"].startswith("80.00 [")
    assert row["Δ [95%]"].startswith("+5.00 [")
    assert row["Mean Δ of sets [95%]"].startswith("+5.00 [")
    assert (row["p"], row["p (Holm)"]) == ("0.73", "0.73")
    assert pooled_table(group).footnotes[1].startswith("Without an interval over sets like these: 2 data sets")
    write_run(tmp_path / "more", "one", {"zero_shot": range(10), "tpt": range(10)}, answered=12)
    (group,) = split_by_benchmark(group_runs(find_runs([tmp_path])))
    assert any(note.startswith("Methods answered different images") for note in pooled_table(group).footnotes)


def test_charts_take_the_colour_of_the_page_and_say_what_they_show(tmp_path: Path) -> None:
    write_run(tmp_path, "$x$ 漢 <b>", RIGHT)
    (group,) = split_by_benchmark(group_runs(find_runs([tmp_path])))
    result = group.results["$x$ 漢 <b>"]["fcl"]
    assert result.comparison is not None
    with styled():
        gains = gains_figure("FCL", "zero-shot", "", {result.dataset: result.comparison}, None)
        first = inline_svg(gains.figure, "a", 'gain of "FCL" <now>')
        second = inline_svg(reliability_figure("", "", {"fcl": [result]}).figure, "b", "reliability")
    for text in (first, second):
        assert "currentColor" in text
        assert "#000000" not in text
        assert "NaN" not in text
    assert "$x$ 漢 &lt;b&gt;" in first
    assert 'aria-label="gain of &quot;FCL&quot; &lt;now>"' in first
    ids = [{*re.findall(r'id="([^"]*)"', text)} for text in (first, second)]
    assert not ids[0] & ids[1]
    assert all(target in ids[0] for target in re.findall(r'(?:url\(#|href="#)([^")]*)', first))


def test_a_run_that_goes_on_or_has_no_answers_is_no_crash(tmp_path: Path, images: Path) -> None:
    write_pictured(tmp_path / "runs" / "some", images, "some", RIGHT, 20, answered=6)
    write_pictured(tmp_path / "runs" / "none", images, "none", RIGHT, 20, answered=0)
    write_pictured(tmp_path / "runs" / "unreadable", images, "unreadable", RIGHT, 20, unreadable=range(20))
    page = page_of(tmp_path / "runs")
    assert page.images == 6
    assert any(line.endswith("6 of 20 images so far") for line in page.warnings)


def test_a_thousand_pictures_are_a_few_megabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for position in range(10):  # noise is what JPEG compresses worst
        pixels = rng.integers(0, 256, (28, 28, 3), np.uint8).repeat(4, 0).repeat(4, 1)
        Image.fromarray(pixels).save(folder / f"{position:05}.png")
    write_pictured(tmp_path / "runs", folder, "mine", RIGHT, 10)
    size = sum(map(len, data_of(page_of(tmp_path / "runs"))["thumbnails"]))
    assert size * 100 < 20e6


def test_without_labels_there_are_no_accuracies_and_the_least_sure_have_pictures(tmp_path: Path) -> None:
    sure = [position / 100 for position in range(100)][::-1]
    run = write_pictured(tmp_path / "runs", write_images(tmp_path / "many", 100), "mine", RIGHT, 100, confidence=sure)
    page = page_of(without_labels(run, {"zero_shot": [1], "fcl": [1, 3]}))
    (panel,) = data_of(page_of(run, most=60))["panels"]
    assert [panel["methods"][name]["withheld"] for name in ("zero_shot", "fcl")] == [[1], [1, 3]]
    assert [position for position, number in enumerate(panel["pictures"]) if number >= 0] == [*range(40, 100)]
    text = " ".join(Reader(page.html).texts)
    assert "No image has a label: there is no accuracy." in text
    assert "All data sets together" not in text
    assert "<svg" not in page.html


def test_the_command_writes_the_page_and_notes(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(out), "--thumbnails", "9"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{out}: 20 images, 9 of them with pictures; 0.")
    assert captured.err == "note: 11 of 20 images have no picture, so that the page stays small\n"
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--thumbnails", "-1"], "thumbnails=-1"),
        (["--out", ""], "--out is empty"),
        (["--out", "{run}/run.json"], "would be written over what is read"),
        (["--out", "{run}/gone/page.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run), *(word.format(run=run) for word in words)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_an_ablation_is_a_page_of_its_passes(tmp_path: Path) -> None:
    found = data_of(page_of(experiment(tmp_path / "first", 64, 100)))
    assert [[name for name, _ in group["methods"]] for group in found["groups"]] == [
        ["zero_shot", "fcl-seven"],
        ["zero_shot", "fcl-base", "fcl-explore", "fcl-late"],
    ]
    assert [[*panel["methods"]] for panel in found["panels"][1:]] == [
        ["zero_shot", "fcl-base", "fcl-explore"],
        ["fcl-late"],
    ]
