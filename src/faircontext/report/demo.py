"""FCL on sample photos that come with scikit-image, plain and corrupted, with pictures of its evidence."""

import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageFilter

from faircontext.backbones import create_backbone
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FairContextError, reason_of
from faircontext.imageio import load_image
from faircontext.labels import LabelSpace
from faircontext.methods import FCL, ZeroShot, create_method
from faircontext.metrics.scores import Comparison
from faircontext.report.adaptation import evidence_row
from faircontext.report.picture_figures import EvidenceRow, evidence_figure
from faircontext.runs.records import Row
from faircontext.types import Image

__all__ = ["LABELS", "PHOTOS", "run_demo", "sample_photos"]

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


def run_demo(out: Path, backbone_name: str, masks: int, seed: int) -> None:
    """Run FCL on the sample photos, print the predictions, and write a picture of the evidence in each.

    Args:
        out: folder for the pictures; it is made.
        backbone_name: see `create_backbone`.
        masks: for each image.
        seed: of views, masks and noise.

    Raises:
        FairContextError: the photos are not installed, or an argument has a value that cannot be used.
    """
    photos = sample_photos()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--out {out}: cannot be made: {reason_of(error)}") from None
    print(f"loading {backbone_name} ...", flush=True)

    backbone = create_backbone(backbone_name)
    labels, recipe = LabelSpace(LABELS, backbone), backbone.view_recipe("recommended")
    fcl = create_method("fcl", preset="recommended", backbone=backbone, masks=masks)
    assert isinstance(fcl, FCL)
    print(
        f"FCL (preset recommended, {backbone.precision}) on {len(photos)} photos, plain and corrupted, between "
        f"{len(labels)} classes: {recipe.number} views and {masks} masks for each image",
        flush=True,
    )
    rows, correct, pictures = list[Row](), list[tuple[bool, bool]](), list[Path]()
    for path, truth in photos.items():
        drawn = []
        for variant, image in _variants(load_image(path), seed).items():
            row, outcome, picture = _answer(Episode(image, labels, recipe, seed), fcl, variant, truth)
            print(
                f"  {truth}, {variant}: zero-shot {row.zero_shot}, FCL {row.prediction} ({row.seconds:.1f} s)",
                flush=True,
            )
            rows.append(row)
            correct.append(outcome)
            drawn.append(picture)
        pictures.append(out / f"{path.stem}.png")
        evidence_figure(f"{truth.capitalize()}: what FCL answered, and on what evidence", drawn).savefig(
            pictures[-1], dpi=110
        )
    _print_results(rows, correct, pictures)


def sample_photos() -> dict[Path, str]:
    """Return scikit-image's sample photos and what they show, without importing (or downloading) anything."""
    spec = find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise FairContextError('the demo needs the photos of scikit-image: pip install "faircontext[demo]"')
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return {folder / name: truth for name, truth in PHOTOS.items()}


def _answer(episode: Episode, fcl: FCL, variant: str, truth: str) -> tuple[Row, tuple[bool, bool], EvidenceRow]:
    """Answer one image; return its row of the table, whether FCL and zero-shot are correct, and its picture's row."""
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
    label = names.index(truth)
    return (
        row,
        (prediction.index == label, zero_shot == label),
        evidence_row(f"{variant}: {row.prediction}", episode, adaptation),
    )


def _print_results(rows: Sequence[Row], correct: Sequence[tuple[bool, bool]], pictures: Sequence[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("photo", "variant", "zero-shot", "FCL", "votes", "prob.", "seconds")
    for row, (fcl, zero_shot) in zip(rows, correct, strict=True):
        names = ((row.zero_shot, zero_shot), (row.prediction, fcl))
        answers = [f"[{'green' if good else 'red'}]{name}" for name, good in names]
        table.add_row(
            row.label, row.path, *answers, f"{row.votes}", f"{row.confidence or 0.0:.2f}", f"{row.seconds:.1f}"
        )
    Console().print(table)
    found = Comparison.of(*(np.array(side) for side in zip(*correct, strict=True)))
    print(f"zero-shot  {found.reference}\nfcl        {found.accuracy}")
    print(f"paired: exact McNemar p = {found.p_value:.3g}; a few photos show the tool, not its gain")
    print("pictures:", *pictures, sep="\n  ")
