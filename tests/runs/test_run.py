"""Runs over many images: rows in order, bad files as rows, and the comparison with zero-shot."""

import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from faircontext import (
    FCL,
    TPT,
    ZERO,
    Backbone,
    Episode,
    FairContextError,
    ImageError,
    LabelSpace,
    Method,
    ViewRecipe,
    ZeroShot,
    load_image,
)
from faircontext.datasets.spec import Sample
from faircontext.imageio import DecodedImage
from faircontext.methods.variants import FCLVariants
from faircontext.names import FolderTruth
from faircontext.runs.answer import Predictor, answer_images
from faircontext.runs.decisions import AnsweredImage
from faircontext.views import Geometry, Views
from helpers import assert_identical, same_bits

RECIPE = ViewRecipe(count=8, scale=(0.3, 1.0))
METHOD = FCL(masks=8, k=3, beta=5.0)


def items_of(files: list[Path], labels: LabelSpace) -> list[Sample]:
    truth = FolderTruth(labels.names, files)
    return [Sample(str(file), file, truth(file)) for file in files]


@pytest.fixture(scope="module")
def labels(lite: Backbone) -> LabelSpace:
    return LabelSpace(("dog", "cat", "rocket"), lite)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, photo_files: dict[str, Path]) -> list[Path]:
    """A photo in its class's folder, three files that are no images, and a photo in no class's folder."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "Cat").mkdir()
    (folder / "other").mkdir()
    (folder / "Cat" / "1.png").write_bytes(photo_files["cat"].read_bytes())
    (folder / "Cat" / "empty.jpg").touch()
    (folder / "Cat" / "cut.jpg").write_bytes(photo_files["rocket"].read_bytes()[:20_000])
    (folder / "other" / "2.jpg").write_bytes(photo_files["rocket"].read_bytes())
    names = ("Cat/1.png", "Cat/empty.jpg", "missing.jpg", "Cat/cut.jpg", "other/2.jpg")
    return [folder / name for name in names]


@pytest.fixture(scope="module")
def answers(files: list[Path], labels: LabelSpace) -> list[AnsweredImage]:
    return list(answer_images(items_of(files, labels), Predictor(labels, {"fcl": METHOD}, RECIPE), seed=3))


def test_there_is_a_row_per_file_in_order(answers: list[AnsweredImage], files: list[Path]) -> None:
    assert [answer.answers[0].path for answer in answers] == [str(path) for path in files]
    assert {answer.answers[0].method for answer in answers} == {"fcl"}
    assert all(answer.answers[0].seconds + answer.answers[0].shared_seconds > 0 for answer in answers)


def test_a_folder_named_after_a_class_is_the_truth(answers: list[AnsweredImage]) -> None:
    assert [answer.answers[0].label for answer in answers] == ["cat", "cat", "", "cat", ""]


def test_bad_files_are_rows_that_say_why_and_end_nothing(answers: list[AnsweredImage], files: list[Path]) -> None:
    assert [bool(answer.answers[0].error) for answer in answers] == [False, True, True, True, False]
    for answer, path in zip(answers[1:4], files[1:4], strict=True):
        with pytest.raises(ImageError) as refused:
            load_image(path)
        assert answer.answers[0].error == refused.value.reason
        assert answer.predictions == ()
        assert (answer.answers[0].zero_shot, answer.answers[0].prediction) == ("", "")
        assert (answer.answers[0].votes, answer.answers[0].confidence) == (None, None)


def test_a_row_holds_what_the_methods_answer(
    answers: list[AnsweredImage], files: list[Path], labels: LabelSpace
) -> None:
    for answer, path in ((answers[0], files[0]), (answers[4], files[4])):
        prediction = METHOD(Episode(load_image(path), labels, RECIPE, seed=3))
        zero_shot = ZeroShot()(Episode(load_image(path), labels))
        assert_identical(answer.predictions[0], prediction)
        assert answer.answers[0].prediction == labels.names[prediction.index]
        assert answer.answers[0].zero_shot == labels.names[zero_shot.index]
        assert answer.answers[0].votes == int(prediction.votes[prediction.index])
        assert answer.answers[0].confidence == prediction.confidence
        assert answer.answers[0].fallback == ""
    assert (answers[0].answers[0].prediction, answers[4].answers[0].prediction) == ("cat", "rocket")


def test_zero_shot_is_not_run_twice_beside_itself(files: list[Path], labels: LabelSpace) -> None:
    (answer,) = answer_images(items_of(files[:1], labels), Predictor(labels, {"zero_shot": ZeroShot()}, RECIPE))
    assert answer.answers[0].prediction == answer.answers[0].zero_shot == "cat"
    assert answer.answers[0].votes is None
    assert answer.answers[0].method == "zero_shot"


def test_a_fallback_is_in_its_row(files: list[Path], lite: Backbone) -> None:
    space = LabelSpace(("cat",), lite)
    (answer,) = answer_images(items_of(files[:1], space), Predictor(space, {"fcl": METHOD}, RECIPE))
    assert answer.answers[0].fallback == "fewer than two candidates: nothing to calibrate"


def test_images_are_answered_as_they_are_asked_for(files: list[Path], labels: LabelSpace, tmp_path: Path) -> None:
    later = tmp_path / "later.png"
    answers = answer_images(items_of([files[0], later], labels), Predictor(labels, {"zero": ZERO()}, RECIPE))
    assert next(answers).answers[0].error == ""
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(later)
    assert next(answers).answers[0].error == ""


def test_an_answer_is_counted_by_index_where_two_classes_have_one_name(files: list[Path], lite: Backbone) -> None:
    space = LabelSpace(("cat", "dog", "cat"), lite)
    items = [
        Sample("first", files[0], 0),
        Sample("second", files[0], 2),
        Sample("none", files[0]),
        Sample("bad", files[1], 2),
    ]
    answers = list(answer_images(items, Predictor(space, {"zero_shot": ZeroShot()}, RECIPE)))
    assert [(answer.answers[0].label_index, [found.index for found in answer.predictions]) for answer in answers] == [
        (0, [0]),
        (2, [0]),
        (None, [0]),
        (2, []),
    ]
    assert [answer.answers[0].label for answer in answers] == ["cat", "cat", "", "cat"]


def test_several_methods_share_an_image_and_zero_shot_keeps_its_place(
    files: list[Path], labels: LabelSpace, answers: list[AnsweredImage]
) -> None:
    methods = {"zero_shot": ZeroShot(), "fcl-8": METHOD, "zero": ZERO()}
    several = list(answer_images(items_of(files, labels), Predictor(labels, methods, RECIPE), seed=3))
    assert [[row.method for row in answer.answers] for answer in several] == [[*methods]] * len(files)
    for together, alone in zip(several, answers, strict=True):
        assert together.error == alone.error
        if not together.error:
            assert_identical(together.predictions[1], alone.predictions[0])
            assert together.answers[0].prediction == together.answers[2].zero_shot == alone.answers[0].zero_shot


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("methods", [{"zero_shot": ZeroShot(), "fcl": METHOD, "tpt": TPT()}])
def test_answers_do_not_depend_on_who_reads_the_files(
    files: list[Path], labels: LabelSpace, methods: dict[str, Method], workers: int
) -> None:
    recipe = replace(RECIPE, augmix="auto", regime="fine-grained")
    items = items_of(files, labels)
    alone = list(answer_images(items, Predictor(labels, methods, recipe), seed=3))
    ahead = list(answer_images(items, Predictor(labels, methods, recipe), seed=3, workers=workers))
    for one, other in zip(alone, ahead, strict=True):
        first, second = (
            [replace(row, seconds=0.0, shared_seconds=None) for row in each.answers] for each in (one, other)
        )
        assert first == second
        for first, second in zip(one.predictions, other.predictions, strict=True):
            assert_identical(first, second)


@pytest.mark.parametrize(
    "changes",
    [
        {"estimator": "covariance", "smoothing": 0.15},
        {"estimator": "least-squares", "grids": (3, 4, 5), "area": 0.1},
        {"masks": "auto", "budget": 60, "reliability": 0.9, "area": 0.5, "smoothing": 0.15},
    ],
    ids=str,
)
def test_settings_of_evidence_answer_alike_alone_in_any_order_and_in_a_shared_run(
    files: list[Path], labels: LabelSpace, changes: dict[str, Any]
) -> None:
    methods = {"fcl": FCLVariants(**{"masks": 8, "k": 3, "beta": 5.0, **changes})}
    items = items_of([file for file in files if file.suffix == ".png" or file.name == "2.jpg"], labels)
    assert len(items) == 2
    together = list(answer_images(items, Predictor(labels, methods, RECIPE), seed=3))
    backwards = list(answer_images(items[::-1], Predictor(labels, methods, RECIPE), seed=3))[::-1]
    shared = list(
        answer_images(items, Predictor(labels, {"fcl-7": replace(METHOD, masks=7), **methods}, RECIPE), seed=3)
    )
    for item, *runs in zip(items, together, backwards, shared, strict=True):
        alone = next(answer_images([item], Predictor(labels, methods, RECIPE), seed=3)).predictions[0]
        assert alone.diagnostics["evidence_masks"] > 0
        for run in runs:
            assert_identical(alone, run.predictions[-1])


def test_zero_shot_alone_encodes_many_images_at_once_and_answers_alike(
    files: list[Path], labels: LabelSpace, lite: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    encode = lite.encode_image
    monkeypatch.setattr(lite, "encode_image", lambda pixels: calls.append(len(pixels)) or encode(pixels))
    items = items_of([*files, files[0]], labels)
    answers = list(answer_images(items, Predictor(labels, {"zero_shot": ZeroShot()}, RECIPE)))
    assert calls == [3]  # the three that can be read
    for item, answer in zip(items, answers, strict=True):
        if not answer.error:
            assert_identical(answer.predictions[0], ZeroShot()(Episode(load_image(item.path), labels)))
    assert_identical(answers[0].predictions[0], answers[-1].predictions[0])


def test_views_go_to_another_process_without_shared_memory(make_image: Callable[..., np.ndarray]) -> None:
    views = Views(make_image(0), Geometry(32, "bicubic"), replace(RECIPE, augmix="auto"), seed=3)
    tensors = [views.plain, views.all, views.augmented.all]
    copy = pickle.loads(ForkingPickler.dumps(views))  # as processes hand things over
    assert not any(tensor.is_shared() for tensor in tensors)
    for tensor, other in zip(tensors, [copy.plain, copy.all, copy.augmented.all], strict=True):
        assert same_bits(tensor, other)
    assert copy.id == views.id
    assert same_bits(copy.with_seed(4).all, views.with_seed(4).all)


@pytest.mark.slow
def test_a_killed_reader_ends_the_run_with_a_line(files: list[Path], labels: LabelSpace) -> None:
    with pytest.raises(FairContextError, match=r"process that reads images was killed.*fewer workers"):
        list(
            answer_images(
                items_of(files, labels), Predictor(labels, {"zero": ZERO()}, RECIPE), read=end_process, workers=1
            )
        )


def end_process(_: Path) -> DecodedImage:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
