"""The page as a person uses it, in Chromium: it fetches nothing, filters, shows each picture, and does not stall."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faircontext.report.page import build_page
from faircontext.runs.groups import find_runs
from made_pages import without_labels, write_gallery, write_images, write_pictured

pytestmark = pytest.mark.browser

Open = Callable[..., Any]

RIGHT = {"zero_shot": range(10), "mta": range(11), "fcl": range(2, 15)}
"""Of 20 images FCL breaks the first two and fixes five; eight stay right and five wrong."""


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the page of runs; at the end, nothing was fetched and nothing complained."""
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    file = tmp_path / "page.html"

    def open_runs(folder: Path, most: int = 1000) -> Any:
        file.write_text(build_page(find_runs([folder]), most).html, encoding="utf-8")
        page.goto(file.as_uri())
        return page

    yield open_runs
    context.close()
    assert said == []
    assert {url for url in asked if not url.startswith("data:image/jpeg")} == {file.as_uri()}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two data sets, one of them measured with a second backbone as well."""
    images, folder = write_images(tmp_path / "images", 20), tmp_path / "runs"
    write_pictured(folder / "one", images, "one", RIGHT, 20)
    write_pictured(folder / "two", images, "two", {"zero_shot": range(20), "fcl": range(19)}, 20, unreadable=(5,))
    write_pictured(folder / "other", images, "one", {"zero_shot": range(3), "fcl": range(4)}, 20, backbone="lite0")
    return folder


def outcomes(page: Any) -> dict[str, str]:
    return {
        button.get_attribute("data-outcome"): button.inner_text().split()[-1]
        for button in page.locator("#outcomes button").all()
    }


def all_pictures_show(page: Any) -> bool:
    page.wait_for_function("[...document.images].every((image) => image.complete)")
    return bool(page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)"))


@pytest.mark.smoke
def test_filters_count_what_they_show(open_page: Open, runs: Path) -> None:
    page = open_page(runs)
    counter = page.locator("#counter")
    assert page.locator("#method").input_value() == "fcl"
    assert counter.inner_text() == "39 of 39 images shown"  # one of 40 is unreadable
    assert outcomes(page) == {"all": "39", "fixed": "5", "broke": "3", "wrong": "5", "right": "26"}
    page.select_option("#set", label="one")
    assert outcomes(page) == {"all": "20", "fixed": "5", "broke": "2", "wrong": "5", "right": "8"}
    page.click("[data-outcome=fixed]")
    assert counter.inner_text() == "5 of 20 images shown"
    assert page.locator(".card").count() == page.locator(".card.fixed").count() == 5
    page.select_option("#class", "class A")  # images 0, broken, and 10, fixed
    assert counter.inner_text() == "1 of 20 images shown"
    assert page.locator(".card dd").all_inner_texts() == ["class A", "✗ class B", "✓ class A", "60.0%"]
    page.click("[data-outcome=all]")
    assert counter.inner_text() == "2 of 20 images shown"
    page.select_option("#class", "")
    page.select_option("#method", "mta")
    assert outcomes(page) == {"all": "20", "fixed": "1", "broke": "0", "wrong": "9", "right": "10"}
    page.select_option("#method", "zero_shot")
    assert outcomes(page) == {"all": "20", "wrong": "10", "right": "10"}
    assert all_pictures_show(page)


def test_a_cell_of_the_confusion_matrix_leads_to_its_images(open_page: Open, tmp_path: Path) -> None:
    run = write_pictured(tmp_path / "runs", write_images(tmp_path / "images", 20), "one", RIGHT, 20)
    page = open_page(run)
    heads, cells = page.locator("#matrix tr").first.locator("th"), page.locator("#matrix button")
    assert heads.all_inner_texts() == ["", *(f"class {name}" for name in "ABCDEFGHIJ")]
    assert sum(int(text) for text in cells.all_inner_texts()) == 20
    page.click("[aria-label='1 of class class A, answer class B']")  # image 0; image 10 is right
    assert page.locator("#counter").inner_text() == "1 of 20 images shown"
    assert page.locator(".card .path").all_inner_texts() == ["one: 00000.png"]
    page.select_option("#answer", "class A")
    assert page.locator(".card .path").all_inner_texts() == ["one: 00010.png"]
    page.select_option("#method", "zero_shot")
    assert page.locator("[aria-label='1 of class class A, answer class A']").is_visible()


def test_images_without_a_label_come_least_sure_first(open_page: Open, tmp_path: Path) -> None:
    images, sure = write_images(tmp_path / "images", 20), [0.5 + position % 7 / 20 for position in range(20)]
    run = write_pictured(tmp_path / "runs", images, "one", RIGHT, 20, confidence=sure)
    page = open_page(without_labels(run, {"fcl": [0, 7]}))
    paths = page.locator(".card .path").all_inner_texts()
    assert paths == [f"one: {position:05}.png" for position in sorted(range(20), key=lambda position: sure[position])]
    withheld = ["class A", "(none of these)", "class B", "50.0%"]
    assert page.locator(".card").first.locator("dd").all_inner_texts() == withheld
    assert not page.locator("#class").is_visible()
    assert not page.locator("#outcomes").is_visible()
    assert not page.locator("#confusion").is_visible()
    page.select_option("#answer", "(none of these)")
    assert page.locator("#counter").inner_text() == "2 of 20 images shown"
    page.select_option("#method", "zero_shot")
    assert page.locator(".card dd", has_text="(none of these)").count() == 0


def test_a_class_that_is_called_all_is_a_class(open_page: Open, tmp_path: Path) -> None:
    names = ["all", *(f"class {number}" for number in range(1, 10))]
    write_pictured(tmp_path / "runs", write_images(tmp_path / "images", 20), "one", RIGHT, 20, names=names)
    page = open_page(tmp_path / "runs")
    page.select_option("#class", "all")
    assert outcomes(page)["all"] == "2"


def test_tables_and_charts_follow_the_choice(open_page: Open, runs: Path) -> None:
    page = open_page(runs)
    rows = page.locator("tr[data-set]:visible")
    assert rows.count() == 2  # FCL on both data sets
    page.select_option("#set", label="one")
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["Zero-shot", "MTA", "FCL"]
    assert page.locator(".by-set:visible").inner_text() == "All methods on one"
    assert page.locator("figure[data-method]:visible svg").count() == 3
    page.select_option("#method", "zero_shot")
    assert page.locator("figure[data-method]:visible svg").count() == 2  # it has no gain over itself
    assert page.locator("#unreadable td").all_inner_texts() == ["two", "00005.png", "truncated"]


def test_runs_of_another_backbone_are_chosen(open_page: Open, runs: Path) -> None:
    page = open_page(runs)
    page.select_option("#group", index=1)
    assert outcomes(page) == {"all": "20", "fixed": "1", "broke": "0", "wrong": "16", "right": "3"}
    assert page.locator("main [data-group='1']:visible").count() == 2
    assert page.locator("main [data-group='0']:visible").count() == 0


def test_the_keyboard_is_enough(open_page: Open, runs: Path) -> None:
    page = open_page(runs)
    page.focus("[data-outcome=all]")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("#counter").inner_text() == "5 of 39 images shown"
    assert page.evaluate("document.activeElement.dataset.outcome") == "fixed"
    unnamed = "[...document.querySelectorAll('select, input')].filter((one) => !one.labels.length).length"
    assert page.evaluate(unnamed) == 0
    assert page.evaluate("[...document.images].every((image) => image.alt)")


def test_evidence_and_what_is_missing_are_shown(open_page: Open, runs: Path, tmp_path: Path) -> None:
    page = open_page(runs)
    assert page.locator("#hint").is_visible()
    assert not page.locator("#evidence").is_visible()
    write_gallery(runs / "gallery", runs / "one", [4, 17])
    (tmp_path / "images" / "00000.png").unlink()
    page = open_page(runs)
    page.check("#evidence")
    assert page.locator("#counter").inner_text() == "2 of 39 images shown"
    names = ["evidence of class D", "evidence of class B", "common evidence"]
    assert page.locator(".maps").first.locator("figcaption").all_inner_texts() == names
    assert all_pictures_show(page)
    page.uncheck("#evidence")
    assert page.locator(".none").all_inner_texts() == ["no picture: see the notes"] * 2


@pytest.fixture
def thousand(open_page: Open, tmp_path: Path) -> Any:
    images = write_images(tmp_path / "images", 1000, side=8)
    right = {"zero_shot": range(500), "fcl": range(100, 700)}
    write_pictured(tmp_path / "runs", images, "one", right, 1000)
    return open_page(tmp_path / "runs")


@pytest.mark.timing
def test_a_thousand_images_are_ready_within_three_seconds(thousand: Any) -> None:
    began = time.monotonic()
    thousand.reload()
    thousand.click("[data-outcome=fixed]")
    assert thousand.locator("#counter").inner_text() == "200 of 1,000 images, the first 60 shown"
    assert time.monotonic() - began < 3


def test_of_a_thousand_images_some_are_shown_and_more_on_request(thousand: Any) -> None:
    page = thousand
    page.click("[data-outcome=fixed]")
    assert page.locator("#counter").inner_text() == "200 of 1,000 images, the first 60 shown"
    page.click("#more")
    assert page.locator(".card").count() == 120
    assert page.evaluate("document.activeElement === document.querySelectorAll('.card')[60]")
    assert all_pictures_show(page)


@pytest.mark.timing
def test_ten_thousand_rows_do_not_stall(open_page: Open, tmp_path: Path) -> None:
    right = {"zero_shot": range(5000), "fcl": range(1000, 7000)}
    write_pictured(tmp_path / "runs", tmp_path / "gone", "one", right, 10_000)
    page = open_page(tmp_path / "runs", most=0)
    # The time of the page's own work, from the click to the next frame that can be drawn.
    timed = """(kind) => new Promise((resolve) => {
      const began = performance.now();
      document.querySelector(`[data-outcome=${kind}]`).click();
      document.body.offsetHeight;
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
    })"""
    assert max(page.evaluate(timed, kind) for kind in ("fixed", "wrong", "all")) < 500
    began = time.monotonic()
    page.select_option("#method", "zero_shot")
    assert time.monotonic() - began < 1
    assert page.locator("#counter").inner_text() == "10,000 of 10,000 images, the first 60 shown"


def test_narrow_dark_and_printed_pages_lose_nothing(open_page: Open, runs: Path) -> None:
    page = open_page(runs)
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => one.open)")
