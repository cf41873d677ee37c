import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image

from faircontext import FCL, Episode, ViewRecipe, ZeroShot
from faircontext.explore import normalised_entropy
from faircontext.occlusion import occlude
from faircontext.report.explain import SCHEMA_VERSION, Explanation, evidence_row, explain_in_words, write_explanation
from faircontext.report.images import overlay, overlay_weights, strongest
from helpers import read_arrays

METHOD = FCL(masks=16, k=4, beta=5.0, lr=0.006)


@pytest.fixture(scope="module")
def explanation(make_episode: Callable[..., Episode], photos: dict[str, np.ndarray]) -> Explanation:
    return explain(make_episode(photos["cat"], views=16), METHOD)


def explain(episode: Episode, method: FCL) -> Explanation:
    run = {"backbone": "lite0", "preset": "paper"}
    found = method.adapt(episode)
    return Explanation("<a photo>.jpg", episode, method, found, ZeroShot()(episode).index, run, ("a <note>",))


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_and_all_its_pieces_are_written_and_listed(explanation: Explanation, tmp_path: Path) -> None:
    page = write_explanation(explanation, tmp_path / "new" / "folder")
    manifest = json.loads((page.parent / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["schema_version"] == SCHEMA_VERSION
    written = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*") if path.is_file()}
    assert written == {*manifest["files"], "manifest.json"}
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    assert len(links.sources) == 1 + 2 + 4 + 4  # the image, contrast, common evidence, candidates, views that voted
    assert set(links.sources) <= written


def test_the_page_shows_text_as_text(explanation: Explanation, tmp_path: Path) -> None:
    text = write_explanation(explanation, tmp_path).read_text(encoding="utf-8")
    assert "&lt;a photo&gt;.jpg" in text
    assert "a &lt;note&gt;" in text
    assert "<a photo>" not in text


@pytest.mark.parametrize("probability", [0.3, 0.9])
def test_the_page_is_headed_by_the_answer_and_how_sure_it_is(
    explanation: Explanation, probability: float, tmp_path: Path
) -> None:
    found = explanation.adaptation.prediction
    first, second = found.ranking[:2].tolist()
    probabilities = torch.zeros_like(found.probabilities)
    probabilities[[first, second]] = torch.tensor([probability, 1 - probability])
    adaptation = replace(explanation.adaptation, prediction=replace(found, probabilities=probabilities))
    page = write_explanation(replace(explanation, adaptation=adaptation), tmp_path).read_text("utf-8")
    name, other = (explanation.episode.labels.names[index] for index in (first, second))
    assert f"<h1>{f'{name}, 30%, close to {other}' if probability < 0.5 else name}</h1>" in page


def test_the_page_says_in_words_what_the_model_is(explanation: Explanation, tmp_path: Path) -> None:
    model = {"activation": "GELU", "warnings": ["the weights are of another size"]}
    flags = {"resize_positions": True, "truncate": True, "exif": False}
    run = {"backbone": "tiny", "precision": "fp32", "preset": "paper", "masks": 16, "seed": 0, "max_pixels": 2000}
    page = write_explanation(replace(explanation, run=run | flags | {"model": model}), tmp_path)
    (line,) = re.findall(r'<p class="soft">(Backbone .*?) · faircontext ', " ".join(page.read_text("utf-8").split()))
    assert line.split(" · ") == [
        "Backbone tiny in fp32",
        "activation GELU",
        "the weights are of another size",
        "positions of the weights were resized",
        "preset paper",
        "16 masks",
        "seed 0",
        "class names that are too long were cut",
        "the orientation that the file states is ignored",
        "images of up to 2,000 pixels are read",
    ]
    engine = {"name": "openvino", "version": "2026.4"}
    fast = write_explanation(replace(explanation, run=run | {"engine": engine}), tmp_path)
    assert "Backbone tiny in fp32, run by openvino 2026.4" in fast.read_text("utf-8")
    plain = write_explanation(replace(explanation, run=run | dict.fromkeys(flags, False) | {"model": {}}), tmp_path)
    assert not re.search("True|False|None|[{}]", plain.read_text("utf-8").rpartition('<p class="soft">')[2])


def test_the_arrays_are_the_adaptations(explanation: Explanation, tmp_path: Path) -> None:
    write_explanation(explanation, tmp_path)
    arrays, found = read_arrays(tmp_path / "pieces" / "arrays.npz"), explanation.adaptation
    assert np.array_equal(arrays["evidence"], found.evidence.maps)
    assert np.array_equal(arrays["common"], found.common)
    assert np.array_equal(arrays["posterior_after"], found.after.posterior)
    assert np.array_equal(arrays["candidates"], found.candidates)


def test_the_pictures_are_the_image_and_the_evidence_of_the_candidates_in_order(
    explanation: Explanation, tmp_path: Path
) -> None:
    write_explanation(explanation, tmp_path)
    found, episode = explanation.adaptation, explanation.episode
    image = np.array(Image.open(tmp_path / "pieces" / "image.png"))
    assert np.array_equal(image, episode.plain.permute(1, 2, 0))
    maps, second = found.evidence.maps.numpy(), int(found.after.ranking[1])
    error = found.evidence.error(episode.x.shape[-1])[second].numpy()
    expected = overlay(episode.x.permute(1, 2, 0).numpy(), maps[second], strongest(*maps), error)
    assert np.array_equal(np.array(Image.open(tmp_path / "pieces" / "evidence_01.png")), expected)
    view = np.array(Image.open(tmp_path / "pieces" / "view_00.png"))
    assert np.array_equal(view, episode.views[int(found.exploration.selected[0])].permute(1, 2, 0))


@pytest.mark.parametrize(
    ("plain", "rows", "seen"),
    [
        ("pad", slice(24, 40), "the whole of it, made smaller, with black beside it"),
        ("squash", slice(0, 64), "the whole of it, with its sides made equal"),
    ],
)
def test_a_long_photo_and_its_evidence_stand_where_the_model_sees_them(
    explanation: Explanation, plain: Literal["pad", "squash"], rows: slice, seen: str, tmp_path: Path
) -> None:
    photo = np.zeros((100, 400, 3), np.uint8)
    photo[:, :200], photo[:, 200:] = (200, 0, 0), (0, 0, 100)
    square = np.zeros((64, 64, 3), np.uint8)
    square[rows, :32], square[rows, 32:] = (200, 0, 0), (0, 0, 100)
    episode = Episode(photo, explanation.episode.labels, ViewRecipe(count=8, plain=plain))
    explained = explain(episode, METHOD)
    page = write_explanation(explained, tmp_path)
    away = np.abs(np.arange(64) - 31.5) > 4  # from the edge between the colours, which a filter makes soft
    shown = {name: np.array(Image.open(tmp_path / "pieces" / f"{name}.png")) for name in ("image", "evidence_00")}
    assert np.array_equal(shown["image"][:, away], square[:, away])
    evidence, best = explained.adaptation.evidence, int(explained.adaptation.after.ranking[0])
    error = evidence.error(64)[best].numpy()
    drawn = overlay(square / 255.0, evidence.maps[best].numpy(), strongest(*evidence.maps.numpy()), error)
    assert np.abs(shown["evidence_00"].astype(int) - drawn)[:, away].max() <= 1
    # Masks hide parts of the square, and the black beside the photo has nothing to hide.
    hidden = occlude(episode.x, torch.from_numpy(~square.any(-1))[None])
    assert torch.equal(hidden[0], episode.x)
    assert f"Of the picture the model sees {seen}" in page.read_text("utf-8")


def test_a_second_explanation_replaces_the_first(explanation: Explanation, tmp_path: Path) -> None:
    write_explanation(explanation, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [*manifest["files"], "pieces/evidence_77.png"]}))
    for name in ("evidence_77", "mine"):
        (tmp_path / "pieces" / f"{name}.png").touch()
    write_explanation(explanation, tmp_path)
    assert not (tmp_path / "pieces" / "evidence_77.png").exists()
    assert (tmp_path / "pieces" / "mine.png").exists()  # somebody's own file stays


def test_words_count_the_votes_and_name_the_answer(explanation: Explanation) -> None:
    words, found = explain_in_words(explanation), explanation.adaptation
    counted = [int(number) for number in re.findall(r"(\d+) for ", words)]
    assert sum(counted) == len(found.exploration.selected) == 4
    assert words.startswith("The model looked at 16 crops of the picture, and the 4 it was surest about voted: ")
    assert explanation.episode.labels.names[found.prediction.index] in words


SURE = r"the crops are sure among the candidates: their normalised entropy is (0\.\d{3}), and safe=true .* from 0\.8 on"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"calibrate": False}, "calibration is off"),
        ({"k": 1}, "fewer than two candidates: nothing to calibrate"),
        ({"safe": True}, SURE),
        ({"steps": 0}, "steps=0: no step was taken"),
        ({"steps": 0, "context": "cl-hp"}, "steps=0: no step was taken"),
        ({"lr": 0.0}, "lr=0: the steps had no length"),
        ({"lambda_cal": 0.0}, "lambda_cal=0: nothing asked for a change"),
        ({"lr": 1e37}, "the loss was not finite: answered by exploration alone"),
    ],
    ids=str,
)
def test_words_and_page_say_why_nothing_was_learnt(
    make_episode: Callable[..., Episode], photos: dict, tmp_path: Path, settings: dict, reason: str
) -> None:
    explained = explain(make_episode(photos["cat"]), replace(METHOD, **settings))
    said = re.search(r"Nothing was learnt \((.*?)\)\.", explain_in_words(explained))
    assert said is not None
    assert re.fullmatch(reason, said[1])
    assert "was then adjusted" not in explain_in_words(explained)
    text = write_explanation(explained, tmp_path).read_text(encoding="utf-8")
    assert "learnt on this picture" not in text
    row = evidence_row("a photo", explained.episode, explained.adaptation)
    assert row.title == "a photo\n(nothing was learnt)"
    # CL-HP's tokens change the prompt before they are learnt: only there is something to compare.
    assert ("before and after" in text) == (settings.get("context") == "cl-hp")
    if settings.get("safe"):
        found = explained.adaptation
        assert float(re.fullmatch(reason, said[1])[1]) == pytest.approx(normalised_entropy(found.before), abs=1e-3)


def test_words_say_what_initial_tokens_changed(make_episode: Callable[..., Episode], photos: dict) -> None:
    explained = explain(make_episode(photos["cat"]), replace(METHOD, steps=0, context="cl-hp"))
    found, names = explained.adaptation, explained.episode.labels.names
    other = next(index for index in found.candidates.tolist() if index != found.prediction.index)
    prediction = replace(found.prediction, index=other)
    words = explain_in_words(replace(explained, adaptation=replace(found, prediction=prediction)))
    explored = names[int(found.candidates[found.before.ranking[0]])]
    assert f"The tokens put before the prompt changed the answer from {explored} to {names[other]}." in words


def test_words_say_what_pairs_were_made_alike_on(make_episode: Callable[..., Episode], photos: dict) -> None:
    words = explain_in_words(explain(make_episode(photos["cat"]), METHOD))
    assert "The prompt was then tuned so that the evidence shared by " in words


def test_a_page_without_calibration_has_no_evidence(
    make_episode: Callable[..., Episode], photos: dict, tmp_path: Path
) -> None:
    page = write_explanation(explain(make_episode(photos["cat"]), FCL(calibrate=False)), tmp_path)
    assert "Where the evidence is" not in page.read_text(encoding="utf-8")
    assert not list((tmp_path / "pieces").glob("evidence_*"))


def test_a_figures_row_is_ordered_by_the_final_ranking(explanation: Explanation) -> None:
    found, names = explanation.adaptation, explanation.episode.labels.names
    drawn = evidence_row("a photo", explanation.episode, found)
    order = found.after.ranking
    assert drawn.names == [names[index] for index in found.candidates[order].tolist()]
    assert np.array_equal(drawn.after, found.after.posterior[order])
    first, second = found.candidates[order[:2]].tolist()
    pairs = found.candidates[found.pairs]
    pair = next(p for p in range(pairs.shape[1]) if set(pairs[:, p].tolist()) == {first, second})
    titles = [f"evidence: {drawn.names[0]}", f"evidence: {drawn.names[1]}", "common evidence of both"]
    assert [panel.title for panel in drawn.panels[:2]] + [drawn.panels[3].title] == titles
    weights = (found.common[pair] / found.common[pair].max()).numpy()
    assert np.array_equal(drawn.panels[3].pixels, overlay_weights(drawn.image, weights))
    assert [panel.caption[:8] for panel in drawn.panels] == ["repeats "] * 3 + [""]
