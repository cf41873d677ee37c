"""The benchmark of evidence maps: its rivals on images whose truth is known, and the whole script on a tiny set."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("captum", reason="the benchmark's extra is not installed: pip install 'faircontext[benchmark]'")

from faircontext import Backbone, LabelSpace, load_image
from faircontext.methods.fcl import FCL
from faircontext.metrics.saliency import localise

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2]
RESULTS = FOLDER / "docs" / "results" / "evidence.json"


@pytest.fixture(scope="module")
def script() -> Iterator[object]:
    sys.path.insert(0, str(FOLDER / "benchmarks"))
    try:
        import evidence

        yield evidence
    finally:
        sys.path.remove(str(FOLDER / "benchmarks"))
        for name in ("evidence", "evidence_page", "explainers", "rivals"):
            sys.modules.pop(name, None)


@pytest.fixture
def subject(script: object, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]) -> object:
    labels = LabelSpace(("cat", "dog", "horse"), tiny("clip"))
    found = script.Subject(make_image(3, 64, 64), labels, 5.0)
    size = labels.backbone.image_size
    found.top_left = torch.zeros(size, size, dtype=torch.bool)
    found.top_left[: size // 2, : size // 2] = True

    def posterior(features: torch.Tensor) -> torch.Tensor:
        """Return what the tests encode: class 0 by how much of the upper left quarter is not black."""
        return torch.stack(
            [features[..., 0], 1 - features[..., 0], torch.full_like(features[..., 0], 0.5)], -1
        ).double()

    def encode(_: object, count: int, pixels: Callable[[int, int], torch.Tensor]) -> torch.Tensor:
        pictures = pixels(0, count)
        seen = (pictures / found.episode.x.clamp_min(1e-3)).mean(1)[:, found.top_left].mean(1)
        return (0.05 + 0.9 * seen)[:, None]

    found.posterior, found.encode = posterior, encode
    return found


def test_rivals_find_the_quarter_that_a_model_looks_at(script: object, subject: object) -> None:
    quarter = np.kron(np.arange(4).reshape(2, 2), np.ones((script.SIDE // 2, script.SIDE // 2), int))
    windows = [window for window in script.WINDOWS if window.window != 0.5]
    for explainer in (script.Rise(), *windows, script.Lime(alpha=1e-3)):
        maps = explainer.maps(subject, 400)
        assert maps.shape == (3, script.SIDE, script.SIDE)
        assert localise(maps[0], quarter).auc[0] > 0.85, explainer
        assert localise(maps[1], quarter).auc[0] < 0.5, explainer


def test_the_first_masks_are_those_of_fewer(
    script: object, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray], tmp_path: Path
) -> None:
    labels, picture = LabelSpace(("cat", "dog", "horse"), tiny("clip")), make_image(3, 64, 64)
    for explainer in (script.RECOMMENDED, script.Rise(), script.Lime(alpha=1e-3)):
        more = script.Subject(picture, labels, 5.0, tmp_path)
        long = explainer.maps(more, 40)
        after = explainer.maps(more, 20)
        alone = explainer.maps(script.Subject(picture, labels, 5.0), 20)
        assert torch.equal(after, alone)
        assert not torch.equal(long, after)


def test_the_packages_maps_are_those_of_the_method(
    script: object, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat", "dog", "horse"), tiny("clip"))
    subject = script.Subject(make_image(3, 64, 64), labels, 5.0)
    ours = script.RECOMMENDED
    method = FCL(masks=20, beta=5.0, grids=ours.grids, estimator=ours.estimator, smoothing=ours.smoothing)
    whole = method.evidence(subject.episode, labels.text[0])
    found = ours.evidence(subject, 20)
    assert torch.equal(found.importance, whole.importance)
    assert all(torch.equal(*pair) for pair in zip(found.masks.cells, whole.masks.cells, strict=True))


def test_a_gradient_method_counts_its_passes(
    script: object, tiny: Callable[[str], Backbone], make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat", "dog", "horse"), tiny("clip"))
    subject = script.Subject(make_image(3, 64, 64), labels, 5.0)
    assert subject.z.shape == labels.text[0][0].shape  # encoded in inference mode, before gradients are asked for
    maps = script.GradCam().maps(subject, 7)
    assert maps.shape == (3, script.SIDE, script.SIDE)
    assert maps.isfinite().all()
    assert maps[0].std() > 0
    with pytest.raises(ValueError, match="costs 7 encoded images, more than 6"):
        script.GradCam().maps(subject, 6)


def test_the_script_on_a_tiny_set(
    script: object,
    tiny_folder: Callable[[str], Path],
    make_image: Callable[..., np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for label in range(4):
        folder = tmp_path / "data" / "mine" / f"thing {label}"
        folder.mkdir(parents=True)
        for photo in range(2):
            Image.fromarray(make_image(10 * label + photo, 40, 50)).save(folder / f"{photo}.png")
    model = tiny_folder("clip")
    words = f"--backbone local-dir:{model} --data {tmp_path / 'data'} --features {tmp_path / 'kept'} --sets mine:2:2:25"
    more = "--photos 2 --curve-images 25 --gradient-collages 2 --gradient-masks 25 --random= --model"
    out, figure = tmp_path / "evidence.json", tmp_path / "evidence.png"
    runs = []
    for _ in range(2):
        script.main([*words.split(), *more.split(), str(model), "--out", str(out), "--figure", str(figure)])
        runs.append(json.loads(out.read_text()))
        runs[-1].pop("cost")  # seconds
    assert runs[0] == runs[1]
    (found,) = runs[0]["sets"]
    assert (found["name"], found["side"], found["classes"]) == ("mine", 2, 4)
    for title in ("recommended", "paper", "RISE", *runs[0]["chosen"].values()):
        values = np.array(found["scores"][title]["25"])
        assert values.shape == (2, 3)
        assert ((values >= 0) & (values <= 1)).all()
    for areas in runs[0]["curves"]["areas"].values():
        assert all(0 <= area <= 1 for name in ("insertion", "deletion") for area in areas[name])
        assert len(areas["insertion"]) == len(areas["deletion"]) == 2
    assert len(runs[0]["agreement"]["spearman"]["recommended"]["25"]) == 2
    assert str(tmp_path) not in out.read_text()
    assert load_image(figure).shape[1] > 1000
    assert "| recommended | " in capsys.readouterr().out


def test_the_table_of_the_page_is_that_of_the_results(script: object) -> None:
    page = (FOLDER / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert script.tables(json.loads(RESULTS.read_text(encoding="utf-8")))["pooled"] in page
