"""Every metric says which argument is no array, whether a tensor or a list of the right values is given."""

import numpy as np
import pytest
import torch
from test_errors import unchecked

from faircontext.errors import ArgumentError
from faircontext.metrics.bootstrap import (
    bootstrap_mean,
    bootstrap_means,
    clustered_correlation,
    paired_bootstrap,
)
from faircontext.metrics.saliency import pointing_game
from faircontext.metrics.scores import (
    Comparison,
    brier_score,
    expected_calibration_error,
    mean_per_class,
    negative_log_likelihood,
    per_class_accuracy,
    reliability,
)

HALF, TRUE, INDEX, TOP = np.array([0.5, 0.25]), np.array([True, False]), np.array([0, 1]), np.array([[0, 1], [1, 0]])
METRICS = {
    "reliability": (reliability, {"confidence": HALF, "correct": TRUE}),
    "expected_calibration_error": (expected_calibration_error, {"confidence": HALF, "correct": TRUE}),
    "brier_score": (brier_score, {"label_probability": HALF, "probability_norm": HALF}),
    "negative_log_likelihood": (negative_log_likelihood, {"label_probability": HALF}),
    "per_class_accuracy": (
        lambda index, labels: per_class_accuracy(index, labels, 2),
        {"index": INDEX, "labels": INDEX},
    ),
    "mean_per_class": (lambda index, labels: mean_per_class(index, labels, 2), {"index": INDEX, "labels": INDEX}),
    "clustered_correlation": (clustered_correlation, {"first": HALF, "second": HALF, "clusters": INDEX}),
    "Comparison": (Comparison.of, {"method": TRUE, "reference": TRUE}),
    "bootstrap_mean": (bootstrap_mean, {"outcomes": HALF}),
    "bootstrap_means": (bootstrap_means, {"outcomes": HALF}),
    "paired_bootstrap": (paired_bootstrap, {"first": HALF, "second": HALF}),
    "pointing_game": (lambda region: pointing_game(np.ones((2, 2)), region), {"region": TOP > 0}),
}


@pytest.mark.parametrize("kind", ["Tensor", "list"])
@pytest.mark.parametrize(
    ("metric", "argument"), [(metric, argument) for metric, (_, given) in METRICS.items() for argument in given]
)
def test_what_is_no_array_is_named_with_the_fix(metric, argument, kind):
    call, given = METRICS[metric]
    call(**given)
    wrong = torch.from_numpy(given[argument]) if kind == "Tensor" else given[argument].tolist()
    with unchecked(), pytest.raises(ArgumentError) as caught:
        call(**{**given, argument: wrong})
    assert str(caught.value) == (
        f"{argument} is of type {kind}, not ndarray; metrics take NumPy arrays: numpy.asarray({argument})"
    )
    call(**{**given, argument: np.asarray(wrong)})
