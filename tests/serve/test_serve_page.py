"""The page of the service as a person uses it, in Chromium: nothing leaves the machine and nothing complains."""

import base64
import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from services import NAMES, Running, running

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
expect = sync_api.expect

pytestmark = pytest.mark.browser

DROP = """async (zone, files) => {
  const transfer = new DataTransfer();
  for (const [name, text] of files) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { type: "image/jpeg" }));
  }
  for (const kind of ["dragover", "drop"]) {
    zone.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}"""

PASTE = """(text) => {
  const transfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  transfer.items.add(new File([bytes], "pasted.jpg", { type: "image/jpeg" }));
  document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
}"""


@pytest.fixture
def page(browser: Any, service: Running) -> Iterator[Any]:
    """The page, opened; at the end, nothing went elsewhere and nothing complained."""
    said: list[str] = []
    elsewhere: list[str] = []
    context = browser.new_context(viewport={"width": 1000, "height": 800}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)
    # Chromium itself writes a line for each refusal, of which the page tells.
    page.on("console", lambda message: said.append(message.text) if "status of 422" not in message.text else None)
    page.on("pageerror", lambda error: said.append(str(error)))

    def only_here(route: Any) -> None:
        if route.request.url.startswith((service.url, "data:", "blob:")):
            route.continue_()
        else:
            elsewhere.append(route.request.url)
            route.abort()

    page.route("**/*", only_here)
    page.goto(service.url)
    expect(page.locator("#model")).to_contain_text("Model local-dir:clip")
    yield page
    context.close()
    assert elsewhere == []
    assert said == []


def drop(page: Any, zone: str, files: list[Path]) -> None:
    encoded = [[file.name, base64.b64encode(file.read_bytes()).decode()] for file in files]
    page.locator(zone).evaluate(DROP, encoded)


def add_classes(page: Any) -> None:
    page.select_option("#label-set", "")
    page.fill("#new-label", ", ".join(NAMES))
    page.press("#new-label", "Enter")
    expect(page.locator("#chips button")).to_have_count(len(NAMES))


def no_violations(page: Any) -> None:
    """Assert that axe finds nothing serious or critical."""
    found = axe.Axe().run(page).response["violations"]
    grave = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in grave] == []


def test_a_dropped_photo_is_answered_and_explained(page: Any, sent: list[Path], service: Running) -> None:
    add_classes(page)
    drop(page, "#photo-drop", sent[:1])
    expect(page.locator("#result")).to_be_visible()
    with service.http() as http:
        form, files = {"labels": "\n".join(NAMES)}, [("image", (sent[0].name, sent[0].read_bytes()))]
        found = http.post("/v1/explain", data=form, files=files).json()
    assert page.locator("#answer").inner_text() == found["headline"]
    assert page.locator("#words").inner_text() == found["in_words"]
    assert page.locator("#bars tbody th").all_inner_texts() == [one["name"] for one in found["candidates"]]
    rows = page.locator("#bars tbody tr").all()
    shares = [cell for row in rows for cell in row.locator("td.number").all_inner_texts()[:2]]
    assert shares == [f"{100 * one[when]:.1f} %" for one in found["candidates"] for when in ("before", "after")]
    widths = page.locator("#bars .bar.after").evaluate_all("(bars) => bars.map((bar) => parseFloat(bar.style.width))")
    assert widths == pytest.approx([100 * one["after"] for one in found["candidates"]], abs=0.01)
    assert page.locator("#views img").count() == len(found["views"])
    assert page.locator("#photo-status").inner_text() == f"Answered: {found['headline']}."
    assert page.evaluate("document.activeElement.id") == "answer"
    # The evidence of a candidate, against another, and the slider.
    first, second = (found["candidates"][index] for index in (0, 1))
    assert page.locator("#over").get_attribute("src") == found["pictures"][first["picture"]]
    assert page.locator("#under").get_attribute("src") == found["pictures"]["image"]
    page.select_option("#candidate", label=second["name"])
    assert page.locator("#over").get_attribute("src") == found["pictures"][second["picture"]]
    page.select_option("#rival", label=first["name"])
    assert page.locator("#over").get_attribute("src") == found["pictures"]["contrast_00_01"]
    assert f"Evidence of {first['name']} against {second['name']}" == page.locator("#over").get_attribute("alt")
    page.locator("#strength").fill("25")
    assert page.evaluate("document.getElementById('over').style.opacity") == "0.25"
    assert page.evaluate("[...document.images].every((image) => !image.offsetParent || image.naturalWidth > 0)")
    no_violations(page)


def test_other_methods_show_zero_shot_beside_them_and_a_photo_can_be_pasted(page: Any, sent: list[Path]) -> None:
    page.select_option("#label-set", "pets")
    assert page.locator("#chips").inner_text().split() == list(NAMES)
    page.click("#settings-details summary")
    page.select_option("#method", "mta")
    page.evaluate(PASTE, base64.b64encode(sent[1].read_bytes()).decode())
    expect(page.locator("#result")).to_be_visible()
    assert page.locator("#photo-name").inner_text() == "pasted.jpg"
    assert page.locator("#before-name").inner_text() == "before: zero-shot"
    assert page.locator("#bars tbody tr").count() == len(NAMES)
    assert not page.locator("#evidence").is_visible()


def test_a_person_can_ask_for_none_of_these_and_for_all_of_a_long_photo(page: Any, sent: list[Path]) -> None:
    page.select_option("#label-set", "pets")
    page.select_option("#unknown", "0.8")
    page.click("#settings-details summary")
    page.fill("#settings", "masks=4")
    page.select_option("#plain", "pad")
    with page.expect_request("**/v1/explain") as asked:
        page.set_input_files("#photo-file", sent[0])
    assert b'name="plain"\r\n\r\npad' in asked.value.post_data_buffer
    expect(page.locator("#answer")).to_have_text("none of these")
    page.fill("#settings", "")
    batch(page, sent[:2], opened=True)
    expect(page.locator("#batch-status")).to_have_text("2 of 2 answered.")
    assert [row[2] for row in table(page)] == ["none of these"] * 2
    page.select_option("#kind", "unknown")
    assert len(table(page)) == 2


def test_what_is_refused_is_told_and_a_correction_is_answered(page: Any, sent: list[Path]) -> None:
    page.select_option("#label-set", "pets")
    page.click("#settings-details summary")
    page.fill("#settings", "maks=3")
    page.set_input_files("#photo-file", sent[0])
    expect(page.locator("#problem")).to_have_text("unknown setting of fcl 'maks'; did you mean 'masks'?")
    page.fill("#settings", "masks=4")
    page.click("#ask")
    expect(page.locator("#result")).to_be_visible()
    assert not page.locator("#problem").is_visible()
    page.set_input_files("#photo-file", sent[3])
    assert not page.locator("#result").is_visible()
    expect(page.locator("#problem")).to_have_text("03.jpg: not an image but text")
    assert not page.locator("#result").is_visible()
    page.set_input_files("#photo-file", sent[1])
    expect(page.locator("#result")).to_be_visible()
    assert not page.locator("#problem").is_visible()
    page.fill("#seed", "x")
    page.click("#ask")
    expect(page.locator("#problem")).to_contain_text("invalid seed")
    assert not page.locator("#result").is_visible()
    page.select_option("#method", "zero_shot")
    page.fill("#seed", "")
    page.fill("#settings", "")
    page.set_input_files("#photo-file", sent[3])
    expect(page.locator("#problem")).to_have_text("03.jpg: not an image but text")
    assert not page.locator("#result").is_visible()


def test_a_new_photo_ends_the_question_before_it(page: Any, sent: list[Path], tmp_path: Path, service: Running) -> None:
    with Image.open(sent[1]) as image:
        image.crop((0, 0, 50, 40)).save(tmp_path / "small.png")
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url))
    held: list[Any] = []  # the first request and one more are not passed on, as by a slow network

    def hold(route: Any) -> None:
        if len(held) in (0, 2):
            held.append(route)
        else:
            held.append(None)
            route.continue_()

    page.route("**/v1/explain", hold)
    page.select_option("#label-set", "pets")
    page.click("#settings-details summary")
    page.fill("#settings", "masks=500 steps=200")
    page.set_input_files("#photo-file", sent[0])
    expect(page.locator("#photo-status")).to_have_text("Looking at the photo …")
    page.fill("#settings", "masks=4")
    page.set_input_files("#photo-file", tmp_path / "small.png")
    expect(page.locator("#result")).to_be_visible()
    assert ended == [f"{service.url}/v1/explain"]
    with service.http() as http:
        form, files = {"label_set": "pets", "settings": "masks=4"}, {"image": (tmp_path / "small.png").read_bytes()}
        found = http.post("/v1/explain", data=form, files=files).json()
    assert page.locator("#answer").inner_text() == found["headline"]
    assert page.locator("#words").inner_text() == found["in_words"]
    assert page.locator("#photo-name").inner_text() == "small.png"
    assert page.locator("#preview").evaluate("(image) => [image.naturalWidth, image.naturalHeight]") == [50, 40]
    assert page.locator("#ask").is_enabled()
    assert not page.locator("#cancel").is_visible()
    # A photo that is not asked about, for want of classes, ends the question too.
    page.fill("#settings", "masks=500 steps=200")
    page.click("#ask")
    expect(page.locator("#cancel")).to_be_visible()
    assert not page.locator("#result").is_visible()
    page.select_option("#label-set", "")
    page.set_input_files("#photo-file", sent[0])
    expect(page.locator("#cancel")).to_be_hidden()
    page.wait_for_timeout(100)
    assert len(ended) == 2
    assert page.locator("#photo-status").inner_text() == ""


def batch(page: Any, files: list[Path], method: str = "zero_shot", opened: bool = False) -> None:
    page.select_option("#label-set", "pets")
    if not opened:
        page.click("#settings-details summary")
    page.select_option("#method", method)
    page.click("#tab-batch")
    drop(page, "#batch-drop", files)
    expect(page.locator("#batch-status")).to_have_text(f"0 of {len(files)} answered.")
    page.click("#start")


def table(page: Any) -> list[list[str]]:
    return [row.locator("td").all_inner_texts()[1:] for row in page.locator("#answers tbody tr").all()]


def test_twenty_photos_with_two_broken_ones(page: Any, sent: list[Path]) -> None:
    batch(page, sent)
    expect(page.locator("#batch-status")).to_have_text("20 of 20 answered, 2 of them unreadable.")
    rows = table(page)
    assert [row[1] for row in rows] == [path.name for path in sent]
    assert [row[1] for row in rows if row[2] == "unreadable"] == ["03.jpg", "08.jpg"]
    assert all(row[6] for row in rows if row[2] == "unreadable")
    assert page.locator("#progress").evaluate("(bar) => bar.value") == 20
    expect(page.locator("#answers img")).to_have_count(18)
    page.click("[data-key=confidence]")
    page.click("[data-key=confidence]")
    falling = [float(row[4].split()[0]) for row in table(page) if row[4]]
    assert falling == sorted(falling, reverse=True)
    assert page.locator("th[aria-sort]").inner_text().startswith("probability")
    page.select_option("#kind", "error")
    assert sorted(row[1] for row in table(page)) == ["03.jpg", "08.jpg"]
    page.select_option("#kind", "all")
    page.fill("#filter", "1.jpg")
    assert sorted(row[1] for row in table(page)) == ["01.jpg", "11.jpg"]
    page.fill("#filter", "")
    with page.expect_download() as download:
        page.click("#csv")
    lines = [*csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8")))]
    shown = table(page)
    assert [line["file"] for line in lines] == [row[1] for row in shown]
    for line, row in zip(lines, shown, strict=True):
        probability = f"{100 * float(line['confidence']):.1f} %" if line["confidence"] else ""
        assert [line["prediction"] or "unreadable", line["zero_shot"], probability] == row[2:5]
        assert [line["votes"], line["error"]] == row[5:7]
    no_violations(page)


def test_a_batch_is_stopped_and_goes_on(page: Any, sent: list[Path]) -> None:
    page.click("#settings-details summary")
    page.fill("#settings", "masks=500 steps=50")
    page.click("#settings-details summary")
    batch(page, sent[10:20], "fcl")
    page.locator("#batch-status", has_text=re.compile("[24] of 10 answered")).wait_for()
    page.click("#stop")
    status = page.locator("#batch-status", has_text="Stopped.")
    status.wait_for()
    done = int(status.inner_text().split()[1])
    assert 0 < done < 10
    page.fill("#settings", "masks=4")
    page.click("#start")
    expect(page.locator("#batch-status")).to_have_text("10 of 10 answered.")


def test_the_keyboard_is_enough(page: Any, sent: list[Path]) -> None:
    page.on("filechooser", lambda _: None)  # from now on the browser hands choosers over, which takes it a moment
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "label-set"
    page.keyboard.press("m")  # my own
    page.keyboard.press("Tab")
    for name in NAMES[:3]:
        page.keyboard.type(name)
        page.keyboard.press("Enter")
    expect(page.locator("#chips button")).to_have_count(3)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == f"Remove {NAMES[0]}"
    page.keyboard.press("Enter")
    expect(page.locator("#chips button")).to_have_count(2)
    for _ in range(40):
        if page.evaluate("document.activeElement.id") == "photo-file":
            break
        page.keyboard.press("Tab")
    expect(page.locator("#photo-file")).to_be_focused()
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(sent[0])
    expect(page.locator("#result")).to_be_visible()
    page.focus("#tab-photo")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-batch"
    assert page.locator("#batch").is_visible()
    fields = "[...document.querySelectorAll('select, input, textarea, progress')]"
    assert page.evaluate(f"{fields}.filter((one) => !one.labels.length).length") == 0


def test_narrow_and_dark_pages_lose_nothing(page: Any, sent: list[Path]) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    add_classes(page)
    page.set_input_files("#photo-file", sent[0])
    expect(page.locator("#result")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
    bars = page.locator("#bars td.bars").first.bounding_box()
    assert bars["width"] > 250
    assert bars["y"] >= sum(page.locator("#bars tbody .number").first.bounding_box()[side] for side in ("y", "height"))
    heads = page.locator("#bars thead .number").evaluate_all(
        "(cells) => cells.map((c) => c.getBoundingClientRect().right)"
    )
    first = page.locator("#bars tbody tr").first.locator(".number")
    assert first.evaluate_all("(cells) => cells.map((c) => c.getBoundingClientRect().right)") == heads
    no_violations(page)
    batch(page, sent[2:4])
    expect(page.locator("#batch-status")).to_have_text("2 of 2 answered, 1 of them unreadable.")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    reason = page.locator("#answers .reason")
    assert reason.all_inner_texts() == ["not an image but text"]
    assert reason.bounding_box()["x"] + reason.bounding_box()["width"] < 360 - 13
    assert page.locator("#sideways").is_visible()
    no_violations(page)
    page.set_viewport_size({"width": 1000, "height": 740})
    assert not reason.is_visible()
    assert not page.locator("#sideways").is_visible()
    assert table(page)[1][6] == "not an image but text"


def test_the_documentation_of_the_api_needs_no_network(page: Any, service: Running) -> None:
    page.goto(f"{service.url}/docs")
    expect(page.locator(".opblock")).to_have_count(7)


def test_the_page_asks_for_the_token(
    browser: Any, model_words: tuple[str, ...], sent: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("a-word-of-sixteen-signs")
    with running(tmp_path, *model_words, "--labels", "a,b", "--token", str(tmp_path / "token")) as started:
        page = browser.new_page()
        page.goto(started.url)
        expect(page.locator("#problem")).to_contain_text("invalid Authorization")
        page.fill("#token", "a-word-of-sixteen-signs")
        page.press("#token", "Enter")
        expect(page.locator("#model")).to_contain_text("Model")
        page.set_input_files("#photo-file", sent[0])
        expect(page.locator("#result")).to_be_visible()
        assert not page.locator("#access").is_visible()
        page.close()
