import io

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from faircontext.report.figures import EvidenceRow, evidence_figure, overlay


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).random((6, 8, 3)).astype(np.float32)


def row(image: np.ndarray, names: list[str], maps: int) -> EvidenceRow:
    scores = np.linspace(0.6, 0.1, len(names)).astype(np.float32)
    evidence = np.arange(48, dtype=np.float32).reshape(6, 8)
    votes = [(3, 2)] + [(0, 0)] * (len(names) - 1)
    return EvidenceRow("a photo", image, names, scores, scores[::-1].copy(), votes, [("a map", evidence)] * maps)


def test_an_overlay_is_grey_under_the_colour_of_the_relative_evidence(image: np.ndarray) -> None:
    evidence = np.zeros((6, 8), dtype=np.float32)
    evidence[2, 3], evidence[4, 5] = 2.0, 1.0
    pixels = overlay(image, evidence)
    for place, relative in {(2, 3): 1.0, (4, 5): 0.5, (0, 0): 0.0}.items():
        opacity = 0.15 + 0.5 * relative
        expected = (1 - opacity) * image[place].mean() + opacity * np.array(colormaps["viridis"](relative)[:3])
        assert np.abs(pixels[place] - 255 * expected).max() <= 1.5


def test_an_overlay_does_not_depend_on_the_scale_of_the_map(image: np.ndarray) -> None:
    evidence = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)
    assert np.abs(overlay(image, evidence).astype(int) - overlay(image, 100 * evidence - 7)).max() <= 1


def test_a_constant_map_is_drawn_dark_and_without_a_warning(image: np.ndarray) -> None:
    flat = np.full((6, 8), 3.0, dtype=np.float32)
    assert np.array_equal(overlay(image, flat), overlay(image, 0 * flat))


def test_a_figure_shows_each_row_with_its_scores_votes_and_maps(image: np.ndarray) -> None:
    rows = [row(image, ["cat", "dog", "a name that is much too long to be shown"], 3), row(image, ["cat"], 0)]
    figure = evidence_figure("a title", rows)
    first = figure.axes[:5]
    assert [bar.get_width() for bar in first[1].containers[0]] == pytest.approx([0.6, 0.35, 0.1])
    assert [bar.get_width() for bar in first[1].containers[1]] == pytest.approx([0.1, 0.35, 0.6])
    assert [text.get_text() for text in first[1].texts] == ["3 → 2 votes"]
    assert [label.get_text() for label in first[1].get_yticklabels()] == ["cat", "dog", "a name that is much t…"]
    assert [axis.get_title() for axis in first[2:]] == ["a map"] * 3
    assert not any(axis.images for axis in figure.axes[7:])
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert Image.open(file).size[0] > 1000
