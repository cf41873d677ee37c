"""Pointing at the cells of collages: known maps have known numbers, and the truth comes from the file's name alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from faircontext import Backbone, Episode, LabelSpace
from faircontext.analysis import Pointing
from faircontext.analysis.stability import cell_regions
from faircontext.cli import main
from faircontext.errors import ArgumentError
from faircontext.evidence import Evidence
from faircontext.metrics.saliency import localise
from faircontext.runs.analyses import analysis_rows, describe_analysis, pointed
from faircontext.runs.records import AnalysisRow
from faircontext.runs.store import load_run
from made_analyses import analysis_run


def test_cells_of_an_image_whose_side_they_do_not_divide() -> None:
    regions = cell_regions(3, 4, 7)
    assert regions[0].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert regions[:, 0].tolist() == [0, 0, 3, 6]


@dataclass(frozen=True)
class Known:
    """Maps that are given."""

    maps: torch.Tensor


class Given(Pointing):
    """The analysis with maps that are one in the cell of each class, in the order of labels."""

    def evidence(self, episode: Episode, text: torch.Tensor) -> Evidence:
        order = (episode.labels.text[0] @ text.T).argmax(0)  # label of each candidate
        height, width = episode.x.shape[1:]
        cells = torch.from_numpy(cell_regions(self.side, height, width))
        return Known((cells == order[:, None, None]).float())


def test_a_map_that_is_one_in_its_own_cell(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat", "dog", "horse", "snail", "house"), tiny("clip"))
    prediction = Given(side=2)(Episode(make_image(1, 64, 64), labels))
    assert sorted(prediction.candidates) == [0, 1, 2, 3, 4]
    found = {name: np.array(prediction.diagnostics[name]).reshape(5, 4) for name in ("auc", "pointing", "energy")}
    for row_, label in enumerate(prediction.candidates):
        if label == 4:  # shown nowhere: its map is zero
            assert found["auc"][row_].tolist() == [0.5] * 4
            assert found["pointing"][row_].tolist() == [0.25] * 4
            assert found["energy"][row_].tolist() == [0.0] * 4
        else:
            own = np.arange(4) == label
            assert found["pointing"][row_].tolist() == own.tolist()
            assert found["energy"][row_].tolist() == own.tolist()
            assert found["auc"][row_] == pytest.approx(np.where(own, 1.0, 1 / 3))


def test_real_maps_are_those_that_are_measured(
    tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat", "dog", "horse", "snail"), tiny("clip"))
    method = Pointing(masks=32, grids=(2, 3, 4), estimator="covariance", smoothing=0.1, k=3, side=3)
    episode = Episode(make_image(2, 64, 64), labels)
    prediction = method(episode)
    assert len(prediction.candidates) == 3
    assert prediction.candidates[0] == prediction.index  # the classes that the plain view favours, best first
    assert "view_features" not in episode.__dict__  # no view is encoded
    maps = method.evidence(episode, labels.text[0][list(prediction.candidates)]).maps
    regions = cell_regions(3, *maps.shape[1:])
    assert prediction.diagnostics["side"] == 3
    for name in ("auc", "pointing", "energy"):
        expected = np.concatenate([getattr(localise(one, regions), name) for one in maps])
        assert prediction.diagnostics[name] == tuple(expected.tolist())


def test_one_class_finds_nothing(tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> None:
    assert Pointing(masks=4)(Episode(make_image(1), LabelSpace(("cat",), tiny("clip")))).diagnostics == {}


@pytest.mark.parametrize("side", [1, 17])
def test_impossible_sides(side: int) -> None:
    with pytest.raises(ArgumentError, match=f"side={side} is not possible"):
        Pointing(side=side)


def row(**values: list[list[float]]) -> dict[str, object]:
    """Return diagnostics with rows of candidates, each with four cells."""
    return {"side": 2, **{name: np.ravel(rows).tolist() for name, rows in values.items()}}


def test_own_cells_come_from_the_name_and_collages_are_what_is_drawn() -> None:
    same = [[0.1, 0.2, 0.3, 0.9], [0.8, 0.2, 0.3, 0.4], [0.5, 0.5, 0.5, 0.5]]
    values = row(auc=same, pointing=same, energy=same)
    image = AnalysisRow("mine", "images/c0000_2x2_3-1-0-2.png", 0, 0, (2, 3, 7), (), values)
    cells, means = pointed(image)  # class 2 is in the last cell, class 3 in the first; 1 and 0 are no candidates
    assert cells == 2
    assert means == {name: pytest.approx(0.85) for name in ("auc", "pointing", "energy")}
    for path in ("images/c0000_3x3_3-1-0-2-4-5-6-7-8.png", "images/dog.png", "images/c0000_2x2_9-10-11-12.png"):
        assert pointed(replace(image, path=path)) is None


def test_the_summary_prints_each_measure_with_its_collages(tmp_path: Path) -> None:
    values = [
        row(auc=[[level] * 4] * 3, pointing=[[1.0, 0, 0, 0]] * 3, energy=[[0.25] * 4] * 3) for level in (0.6, 0.8)
    ]
    run = load_run(analysis_run(tmp_path / "run", "pointing", [*values, values[0]]))
    names = ["images/c0000_2x2_0-1-2-3.png", "images/c0001_2x2_3-0-1-2.png", "dog.png"]
    rows = [replace(row, path=name) for row, name in zip(analysis_rows(run, "pointing"), names, strict=True)]
    title, *lines = describe_analysis(rows, "pointing")
    assert title.startswith("pointing: 3 images")
    assert lines[0].strip().startswith("1 of 3 images left out: not named as collages of 2 x 2 cells are")
    assert lines[1].strip() == (
        "auc in the class's own cell: 0.7000 (0.6000 to 0.8000, n = 2 collages, 6 cells; by chance 0.5000)"
    )
    assert lines[2].strip().startswith("pointing in the class's own cell: 0.1667 (0.0000 to 0.3333, n = 2 collages")
    assert lines[3].strip().startswith("energy in the class's own cell: 0.2500")
    assert lines[4].strip() == "2 cells left out, of classes that are no candidates; raise k"
    assert [row.candidates for row in rows] == [(0, 1, 2)] * 3


def test_from_photos_to_the_summary(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_folder: Callable[[str], Path]
) -> None:
    out = tmp_path / "collages"
    arguments = ["data", "collage", "office_caltech10_amazon", "--root", str(data), "--side", "3", "--limit", "2"]
    assert main([*arguments, "--out", str(out)]) == 0
    words = ["--datasets", str(out), "--root", str(tmp_path), "--out", str(tmp_path / "runs"), "--set", "side=3"]
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}"]
    assert main(["analyze", "pointing", *words, "masks=16", *model]) == 0
    text = capsys.readouterr().out
    assert "n = 2 collages, 18 cells; by chance 0.1111)" in text
