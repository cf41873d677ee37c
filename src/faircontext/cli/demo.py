"""`faircontext demo`: FCL on real photos, plain and corrupted, with a table and pictures of its evidence."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import PIL.Image
import PIL.ImageFilter
from jaxtyping import UInt8

from faircontext.cli.options import parse_options
from faircontext.errors import ArgumentError, FairContextError, reason_of
from faircontext.imageio import load_image

if TYPE_CHECKING:
    from faircontext.bench.run import Outcome
    from faircontext.episode import Episode
    from faircontext.methods import FCL
    from faircontext.report.picture_figures import EvidenceRow
    from faircontext.runs.records import Row

Image = UInt8[np.ndarray, "height width 3"]

__all__ = ["Demo", "run"]

PHOTOS = {
    "astronaut.png": "astronaut",
    "chelsea.png": "tabby cat",
    "coffee.png": "cup of coffee",
    "rocket.jpg": "rocket",
    "motorcycle_left.png": "motorcycle",
}
"""Files of scikit-image's sample data and what they show."""

LABELS = (
    *PHOTOS.values(),
    *("dog", "tiger", "fox", "rabbit", "horse", "doctor", "firefighter", "diver", "bowl of soup", "teapot", "cake"),
    *("lighthouse", "crane", "fireworks", "airplane", "bicycle", "car", "train", "sailboat", "guitar"),
)


@dataclass(frozen=True)
class Demo:
    """Run FCL on sample photos, plain and under strong corruptions, and write a picture of the evidence in each.

    Needs scikit-image for the photos: pip install "faircontext[demo]".
    """

    out: Path = Path("demo")
    """Folder for the pictures."""
    backbone: str = "lite0"
    """See: faircontext list backbones."""
    masks: int = 100
    """Number of masks per image."""
    seed: int = 0
    """Seed of views, masks and noise."""


def _add_noise(image: Image, seed: int) -> Image:
    """Add Gaussian noise with a standard deviation of 0.35 of the range."""
    noise = np.random.default_rng(seed).normal(0.0, 0.35, image.shape)
    return np.rint(255.0 * (image / 255.0 + noise).clip(0.0, 1.0)).astype(np.uint8)


def _blur(image: Image) -> Image:
    """Blur by a thirtieth of the shorter side and take half of the light away."""
    blurred = PIL.Image.fromarray(image).filter(PIL.ImageFilter.GaussianBlur(min(image.shape[:2]) / 30))
    return np.asarray(blurred) // 2


def _variants(image: Image, seed: int) -> dict[str, Image]:
    return {"plain": image, "strong noise": _add_noise(image, seed), "dim and blurred": _blur(image)}


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse_options(Demo, arguments, "demo")
    photos = _photos()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--out {options.out}: cannot be made: {reason_of(error)}") from None
    print(f"loading {options.backbone} ...", flush=True)

    from faircontext.backbones import create_backbone
    from faircontext.episode import Episode
    from faircontext.labels import LabelSpace
    from faircontext.methods import FCL, create_method
    from faircontext.report.picture_figures import evidence_figure

    backbone = create_backbone(options.backbone)
    labels, recipe = LabelSpace(LABELS, backbone), backbone.view_recipe("recommended")
    fcl = create_method("fcl", preset="recommended", backbone=backbone, masks=options.masks)
    assert isinstance(fcl, FCL)
    print(
        f"FCL (preset recommended, {backbone.precision}) on {len(photos)} photos, plain and corrupted, between "
        f"{len(labels)} classes: {recipe.number} views and {options.masks} masks for each image",
        flush=True,
    )
    rows, outcomes, pictures = [], [], []
    for path, truth in photos.items():
        drawn = []
        for variant, image in _variants(load_image(path), options.seed).items():
            row, outcome, picture = _answer(Episode(image, labels, recipe, options.seed), fcl, variant, truth)
            print(
                f"  {truth}, {variant}: zero-shot {row.zero_shot}, FCL {row.prediction} ({row.seconds:.1f} s)",
                flush=True,
            )
            rows.append(row)
            outcomes.append(outcome)
            drawn.append(picture)
        pictures.append(options.out / f"{path.stem}.png")
        evidence_figure(f"{truth.capitalize()}: what FCL answered, and on what evidence", drawn).savefig(
            pictures[-1], dpi=110
        )
    _print_results(rows, outcomes, pictures)
    return 0


def _photos() -> dict[Path, str]:
    """Return scikit-image's sample photos and what they show, without importing (or downloading) anything."""
    spec = find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise FairContextError('the demo needs the photos of scikit-image: pip install "faircontext[demo]"')
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return {folder / name: truth for name, truth in PHOTOS.items()}


def _answer(episode: "Episode", fcl: "FCL", variant: str, truth: str) -> "tuple[Row, Outcome, EvidenceRow]":
    """Answer one image, and return its row of the table, what is counted of it, and its row of the picture."""
    from faircontext.bench.run import Outcome
    from faircontext.methods import ZeroShot
    from faircontext.report.evidence import evidence_row
    from faircontext.runs.records import Row

    begin = time.perf_counter()
    adaptation = fcl.adapt(episode)
    names, prediction = episode.labels.names, adaptation.prediction
    zero_shot = ZeroShot()(episode).index
    row = Row(
        path=variant,
        label=truth,
        zero_shot=names[zero_shot],
        prediction=names[prediction.index],
        votes=0 if prediction.votes is None else int(prediction.votes[prediction.index]),
        confidence=prediction.confidence,
        method=fcl.name,
        fallback=prediction.fallback or "",
        seconds=time.perf_counter() - begin,
    )
    outcome = Outcome(names.index(truth), zero_shot, prediction.index)
    return row, outcome, evidence_row(f"{variant}: {row.prediction}", episode, adaptation)


def _print_results(rows: "Sequence[Row]", outcomes: "Sequence[Outcome]", pictures: Sequence[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    from faircontext.bench.run import compare

    table = Table("photo", "variant", "zero-shot", "FCL", "votes", "prob.", "seconds")
    for row, outcome in zip(rows, outcomes, strict=True):
        answers = [
            f"[{'green' if index == outcome.label else 'red'}]{name}"
            for name, index in ((row.zero_shot, outcome.zero_shot), (row.prediction, outcome.prediction))
        ]
        table.add_row(
            row.label, row.path, *answers, f"{row.votes}", f"{row.confidence or 0.0:.2f}", f"{row.seconds:.1f}"
        )
    Console().print(table)
    comparison = compare(outcomes)
    if comparison is not None:
        print(f"zero-shot  {comparison.zero_shot}\nfcl        {comparison.method}")
        print(f"paired: exact McNemar p = {comparison.p_value:.3g}; a few photos show the tool, not its gain")
    print("pictures:", *pictures, sep="\n  ")
