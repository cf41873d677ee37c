"""Fit the lite backbone's logit scale: least negative log-likelihood of zero-shot over labelled images, pooled.

Usage: FAIRCONTEXT_DATA=FOLDER python scripts/fit_lite_scale.py [lite0]

Each folder below FAIRCONTEXT_DATA with a labels.csv (path, label) and a classnames.txt is one label space.
"""

import csv
import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from faircontext import Episode, LabelSpace, create_backbone, load_image
from faircontext.backbones import Backbone


def cosines(folder: Path, backbone: Backbone) -> tuple[Tensor, Tensor]:
    """Return the cosines (images, classes) of a data set's images to its classes, and the true labels (images,)."""
    labels = LabelSpace(folder.joinpath("classnames.txt").read_text().splitlines(), backbone)
    with folder.joinpath("labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    images = torch.stack([Episode(load_image(folder / row["path"]), labels).x for row in rows])
    return backbone.encode_image(images) @ labels.zero_shot_text.T, torch.tensor([int(row["label"]) for row in rows])


def main() -> None:
    """Print the scale, and how many images it was fitted on."""
    backbone = create_backbone(sys.argv[1] if len(sys.argv) > 1 else "lite0")
    folders = sorted(file.parent for file in Path(os.environ["FAIRCONTEXT_DATA"]).glob("*/labels.csv"))
    sets = [cosines(folder, backbone) for folder in folders]
    number = sum(len(labels) for _, labels in sets)

    def loss(scale: float) -> float:
        return sum(F.cross_entropy(scale * scores, labels, reduction="sum").item() for scores, labels in sets) / number

    best = minimize_scalar(loss, bounds=(1.0, 100.0), method="bounded")
    print(f"{backbone.name}: exp(logit_scale) = {best.x:.2f}, {best.fun:.4f} nats, {number} images of {len(sets)} sets")


if __name__ == "__main__":
    main()
