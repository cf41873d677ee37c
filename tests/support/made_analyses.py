"""Runs of analyses with known numbers, as they are written to disk."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from faircontext.runs.records import Answer, to_table
from faircontext.runs.store import write_run
from faircontext.types import MAP_SIDE, store_maps
from made_runs import describe_run

NAMES = tuple(f"class {number}" for number in range(10))


def analysis_run(
    folder: Path,
    name: str,
    diagnostics: Sequence[Mapping[str, Any]],
    dataset: str = "mine",
    labels: Sequence[int] | None = None,
    answers: Sequence[int] | None = None,
    candidates: Sequence[int] = (0, 1, 2),
    names: Sequence[str] = NAMES,
    backbone: str = "lite0",
    errors: Sequence[int] = (),
) -> Path:
    """Write a run of an analysis with a row per image, and return its folder.

    Args:
        folder: of the run.
        name: of the analysis.
        diagnostics: of each image.
        dataset: name of the data set.
        labels: true classes, 0 where they are not given.
        answers: zero-shot's; the true class on even images, the one after it on odd images, where they are not given.
        candidates: of each image.
        names: of classes.
        backbone: its name.
        errors: images that are unreadable.
    """
    number = len(diagnostics)
    truth = [0] * number if labels is None else labels
    given = [label + place % 2 for place, label in enumerate(truth)] if answers is None else answers
    config: dict[str, Any] = {"names": [*names], "pretrained": None}
    document = describe_run(dataset, {name: {}}, number, len(names), backbone, **config)
    document |= {"status": "complete", "sessions": [], "counts": {"images": number, "unreadable": len(errors)}}
    document["folder"] = "/nowhere"
    rows = [
        Answer(
            path=f"{place:05}.png",
            method=name,
            dataset=dataset,
            config="abc",
            position=place,
            error="truncated" if place in errors else "",
            label_index=truth[place],
            index=None if place in errors else given[place],
            zero_shot_index=None if place in errors else given[place],
            candidates=tuple(candidates),
            diagnostics=json.dumps(found),
        )
        for place, found in enumerate(diagnostics)
    ]
    return write_run(folder, document, to_table(rows))


def gallery_row(seed: int, candidates: int = 3, side: int = 2 * MAP_SIDE) -> dict[str, Any]:
    """Return diagnostics of an image whose candidates' evidence lies in different places."""
    rng = np.random.default_rng(seed)
    image = torch.from_numpy(rng.integers(60, 255, (3, side, side), np.uint8))
    evidence = torch.zeros(candidates, side, side)
    for place in range(candidates):
        row, column = rng.integers(0, side // 2, 2)
        evidence[place, row : row + side // 3, column : column + side // 3] = 2.0
    posterior = np.sort(rng.dirichlet(np.ones(candidates)))[::-1]
    return {
        **store_maps(image.permute(1, 2, 0).numpy(), _small(evidence)),
        "posterior": posterior.tolist(),
        "before": posterior.tolist(),
        "after": posterior.tolist(),
        "explored": 0.0,
        "answer": 0.0,
    }


def _small(maps: torch.Tensor) -> np.ndarray:
    """Return maps as they are stored, averaged down."""
    return torch.nn.functional.adaptive_avg_pool2d(maps, MAP_SIDE).numpy()
