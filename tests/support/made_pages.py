"""Runs with image files and kept evidence, for pages."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from PIL import Image

from faircontext.runs.records import Answer, to_table
from faircontext.runs.store import write_run as write_rows
from faircontext.types import MAP_SIDE, store_maps
from made_runs import CLASSES, write_run

NAMES = tuple(f"class {letter}" for letter in "ABCDEFGHIJ")


def write_images(folder: Path, number: int, side: int = 32) -> Path:
    """Write images called as those of `write_run`, each of another colour."""
    folder.mkdir(parents=True)
    for position in range(number):
        pixels = np.full((side, 2 * side, 3), (position % 256, position // 256 * 40 % 256, 128), np.uint8)
        pixels[: side // 2, :side] = 255
        Image.fromarray(pixels).save(folder / f"{position:05}.png")
    return folder


def write_pictured(
    folder: Path, images: Path, dataset: str, right: Mapping[str, Sequence[int]], number: int, **options: Any
) -> Path:
    """Write a run, see `write_run`, that knows where its images are and what its classes are called."""
    run = write_run(folder, dataset, right, number, **({"names": [*NAMES]} | options))
    document = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(document | {"folder": str(images)}))
    return run


def without_labels(run: Path, withheld: Mapping[str, Sequence[int]]) -> Path:
    """Take the labels out of a run, and for each method some predictions, which are withheld."""
    rows = pq.read_table(run / "rows.parquet")
    none = [row["position"] in withheld.get(row["method"], ()) for row in rows.to_pylist()]
    kept = pc.if_else(pa.array(none), "", rows["prediction"])
    columns = {"label_index": pa.nulls(len(rows)), "label": pa.array([""] * len(rows)), "prediction": kept}
    for name, values in columns.items():
        field = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), field, values.cast(field.type))
    pq.write_table(rows, run / "rows.parquet")
    return run


def write_gallery(folder: Path, like: Path, positions: Sequence[int]) -> Path:
    """Write a run of the analysis `gallery` on images of a run: the candidates are 3, 1 and 0."""
    document = json.loads((like / "run.json").read_text())
    config = document["config"] | {"methods": {"gallery": {}}}
    height, width = torch.meshgrid(torch.linspace(0, 1, 224), torch.linspace(0, 1, 224), indexing="ij")
    picture = torch.stack([255 * height, 255 * width, 128 + 0 * width]).to(torch.uint8)
    kept = store_maps(picture.permute(1, 2, 0).numpy(), _small(torch.stack([height, width, height * width])))
    diagnostics = json.dumps(kept | {"posterior": [0.3, 0.6, 0.1], "explored": 3.0, "answer": 1.0})
    records = [
        Answer(
            path=f"{position:05}.png",
            method="gallery",
            dataset=config["dataset"]["name"],
            config="abc",
            position=position,
            label_index=position % CLASSES,
            zero_shot_index=1,
            index=1,
            candidates=(3, 1, 0),
            diagnostics=diagnostics,
        )
        for position in positions
    ]
    hashes = {"gallery": "abc"}
    return write_rows(folder, document | {"config": config, "hashes": hashes, "status": "complete"}, to_table(records))


def _small(maps: torch.Tensor) -> np.ndarray:
    """Return maps as they are stored, averaged down."""
    return torch.nn.functional.adaptive_avg_pool2d(maps, MAP_SIDE).numpy()
