"""What `scripts/record_outputs.py` runs commands on: two data sets, a tiny model and an experiment, all from seeds."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from PIL import Image

__all__ = ["draw_model", "draw_sets", "publish", "write_experiment"]

SEED = 7
LOGIT_SCALE = 60.0

FOLDERS = ("cat", "dog", "guitar", "house")
"""Class folders of the set `shapes`, as many as a collage has cells, with two images each."""

TABLE = ("sun", "moon", "star", "cloud", "rain", "snow")
"""Classes of the set `table`, more than a top-5 has, with an image each; that of `cloud` is damaged."""

PUBLISHED = ("imagenet", "imagenet_a", "imagenet_sketch", "imagenet_r", "imagenet_v2", "dtd")
"""Names under which runs are written again: all sets of one of the paper's tables, and one of another."""


def draw_sets(folder: Path) -> None:
    """Write two data sets of coloured patches and noise: class folders, and a table."""
    rng = np.random.default_rng(SEED)

    def draw(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        patches = rng.integers(0, 256, (4, 4, 3)).repeat(16, 0).repeat(16, 1)
        noisy = patches + rng.normal(0, 20, patches.shape)
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(path)

    for name in FOLDERS:
        for number in range(2):
            draw(folder / "shapes" / name / f"{number}.png")
    lines = ["path,label"]
    for label, name in enumerate(TABLE):
        draw(folder / "table" / "images" / f"{name}.png")
        lines.append(f"images/{name}.png,{label}")
    (folder / "table" / "images" / "cloud.png").write_bytes(b"\x89PNG but no more")
    (folder / "table" / "labels.csv").write_text("\n".join(lines) + "\n")
    (folder / "table" / "classnames.txt").write_text("\n".join(TABLE) + "\n")


def draw_model(folder: Path) -> None:
    """Write the tiny open_clip model with weights from NumPy: PyTorch draws others on other processors."""
    from safetensors.numpy import load_file, save_file  # here, since --lite needs neither

    from tiny_clip import write_model

    place = write_model(folder, "clip") / "open_clip_model.safetensors"
    weights = load_file(place)
    for number, (name, weight) in enumerate(sorted(weights.items())):
        if weight.ndim > 1:
            noise = np.random.default_rng([SEED, number]).standard_normal(weight.shape)
            drawn = noise * math.sqrt(weight.shape[0] / weight.size)
        else:
            drawn = np.full(weight.shape, 1.0 if re.search(r"\bln_\w+\.weight$", name) else 0.0)
        weights[name] = drawn.astype(np.float32)
    weights["logit_scale"] = np.array(math.log(LOGIT_SCALE), np.float32)
    save_file(weights, place)


def write_experiment(folder: Path, backbone: str, sets: Sequence[str]) -> None:
    """Write an experiment file of five variants, and a file of costs.

    Costs that are given are drawn as they are; those of rows would be the seconds of this run.
    """
    variants = {
        "base": {},
        "explore": {"calibrate": False},
        "few": {"masks": 8},
        "views": {"views": {"count": 4}},
        "tpt": {"method": "tpt"},
    }
    experiment = {"title": "variants", "backbone": backbone, "datasets": [*sets], "settings": {"masks": 16}}
    (folder / "variants.json").write_text(json.dumps(experiment | {"variants": variants}))
    costs = [
        {"method": name, "backbone": backbone, "seconds_mean": place / 10, "peak_memory_mb": 100.0 * place}
        for place, name in enumerate(("zero_shot", "tpt", "zero", "fcl"), 1)
    ]
    (folder / "costs.json").write_text(json.dumps({"costs": costs}))


def publish(runs: Sequence[Path], out: Path, methods: Sequence[str] = ("zero_shot", "tpt", "fcl")) -> None:
    """Write runs again as of a backbone and data sets that the paper reports, so that they are shown beside it.

    Args:
        runs: folders, taken in turn.
        out: folder of the new ones.
        methods: those that are kept.
    """
    for number, name in enumerate(PUBLISHED):
        source = runs[number % len(runs)]
        document: dict[str, Any] = json.loads((source / "run.json").read_text(encoding="utf-8"))
        config = document["config"]
        config["dataset"]["name"], config["backbone"]["name"] = name, "ViT-B-16"
        config |= {"pretrained": "openai", "preset": "paper", "methods": {m: config["methods"][m] for m in methods}}
        document["hashes"] = {method: document["hashes"][method] for method in methods}
        rows = pq.read_table(source / "rows.parquet")
        rows = rows.filter(pc.is_in(rows["method"], pa.array(methods)))
        place, names = rows.schema.get_field_index("dataset"), pa.array([name] * len(rows))
        (out / name).mkdir(parents=True)
        (out / name / "run.json").write_text(json.dumps(document), encoding="utf-8")
        pq.write_table(rows.set_column(place, "dataset", names), out / name / "rows.parquet")
