from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from faircontext.report.evidence_figures import EvidenceRow, Panel, evidence_figure
from faircontext.report.images import overlay, overlay_weights, strongest
from faircontext.report.style import save_figure


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).random((6, 8, 3)).astype(np.float32)


def row(image: np.ndarray, names: list[str], maps: int) -> EvidenceRow:
    scores = np.linspace(0.6, 0.1, len(names)).astype(np.float32)
    panel = Panel("a map", overlay(image, np.arange(48, dtype=np.float32).reshape(6, 8)), "repeats 0.80")
    votes = [(3, 2)] + [(0, 0)] * (len(names) - 1)
    return EvidenceRow("a photo", image, names, scores, scores[::-1].copy(), votes, [panel] * maps)


ORANGE, BLUE = np.array([213, 94, 0]), np.array([0, 114, 178])


def expected_pixel(image: np.ndarray, colour: np.ndarray, opacity: float) -> np.ndarray:
    return (1 - opacity) * 255 * (0.25 + 0.75 * image.mean()) + opacity * colour


def test_an_overlay_is_orange_above_the_mean_and_blue_below_it(image: np.ndarray) -> None:
    evidence = np.zeros((6, 8), dtype=np.float32)
    evidence[2, 3], evidence[4, 5] = 0.4, -1.6
    distance = evidence - evidence.mean()
    pixels = overlay(image, evidence, limit=2.0)
    for place, colour in {(2, 3): ORANGE, (4, 5): BLUE, (0, 0): ORANGE}.items():
        expected = expected_pixel(image[place], colour, 0.75 * abs(distance[place]) / 2.0)
        assert np.abs(pixels[place] - expected).max() <= 1.5


def test_maps_on_one_scale_keep_their_proportion(image: np.ndarray) -> None:
    evidence = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
    assert strongest(evidence, 3 * evidence) == pytest.approx(3 * strongest(evidence), rel=1e-5)
    alone, beside = overlay(image, evidence), overlay(image, evidence, strongest(evidence, 3 * evidence))
    grey = 255 * (0.25 + 0.75 * image.mean(-1, keepdims=True))
    calm = np.abs(evidence - evidence.mean()) < 0.45 * strongest(evidence)  # no outline there
    np.testing.assert_allclose((alone - grey)[calm], 3 * (beside - grey)[calm], atol=3)


def test_an_overlay_does_not_depend_on_the_scale_of_the_map(image: np.ndarray) -> None:
    evidence = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
    assert np.abs(overlay(image, evidence).astype(int) - overlay(image, 100 * evidence - 7)).max() <= 1


def test_what_half_of_the_strongest_reaches_is_outlined_in_black(image: np.ndarray) -> None:
    evidence = np.zeros((6, 8), dtype=np.float32)
    evidence[1:4, 2:5] = 1.0
    black = (overlay(image, evidence) == 0).all(-1)
    ring = np.zeros((6, 8), dtype=bool)
    ring[1:4, 2:5] = True
    ring[2, 3] = False
    assert np.array_equal(black, ring)


def test_what_is_below_two_standard_errors_is_pale(image: np.ndarray) -> None:
    evidence = np.random.default_rng(1).normal(size=(6, 8))
    grey = 255 * (0.25 + 0.75 * image.mean(-1, keepdims=True))
    limit = 10 * strongest(evidence)  # no outline
    plain = np.abs(overlay(image, evidence, limit) - grey)
    certain = np.abs(overlay(image, evidence, limit, np.zeros((6, 8))) - grey)
    unsure = np.abs(overlay(image, evidence, limit, np.full((6, 8), strongest(evidence))) - grey)
    assert np.array_equal(certain, plain)
    assert unsure.sum() < 0.5 * plain.sum()


def test_a_constant_map_is_grey_and_without_a_warning(image: np.ndarray) -> None:
    flat = overlay(image, np.full((6, 8), 3.0, dtype=np.float32))
    assert np.array_equal(flat, overlay(image, np.zeros((6, 8), dtype=np.float32)))
    assert np.ptp(flat.astype(int), axis=-1).max() == 0


def test_shares_are_always_on_the_scale_from_0_to_1(image: np.ndarray) -> None:
    for share in (0.0, 0.5, 1.0):
        pixels = overlay_weights(image, np.full((6, 8), share))
        grey = 0.25 + 0.75 * image.mean(-1, keepdims=True)
        expected = 255 * (0.5 * grey + 0.5 * np.array(colormaps["cividis"](share)[:3]))
        assert np.abs(pixels - expected).max() <= 1


def test_a_figure_shows_each_row_with_its_scores_votes_and_maps(image: np.ndarray, tmp_path: Path) -> None:
    rows = [row(image, ["cat", "dog", "a name that is much too long to be shown"], 3), row(image, ["cat"], 0)]
    figure = evidence_figure("a title", rows)
    first = figure.axes[:5]
    assert [bar.get_width() for bar in first[1].containers[0]] == pytest.approx([0.6, 0.35, 0.1])
    assert [bar.get_width() for bar in first[1].containers[1]] == pytest.approx([0.1, 0.35, 0.6])
    assert [text.get_text() for text in first[1].texts] == ["3 → 2 votes"]
    assert [label.get_text() for label in first[1].get_yticklabels()] == ["cat", "dog", "a name that is much…"]
    assert [axis.get_title() for axis in first[2:]] == ["a map"] * 3
    assert not any(axis.images for axis in figure.axes[7:])
    sizes = {label.get_fontsize() for axis in first for label in axis.get_xticklabels() + axis.get_yticklabels()}
    assert sizes == {7.0}  # of our style, without being asked for
    assert not first[1].spines["top"].get_visible()
    (legend,) = figure.legends
    assert {text.get_fontsize() for text in legend.get_texts()} == {7.0}
    save_figure(figure, tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.size[0] == 441  # 11 inches
