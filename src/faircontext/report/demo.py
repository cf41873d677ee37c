"""FCL on sample photos of scikit-image, plain and corrupted, with a figure of the evidence in each."""

import time
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
from faircontext.report.evidence_figures import evidence_figure
from faircontext.report.explain import evidence_row
from faircontext.report.render import Column, Table, to_terminal
from faircontext.report.style import save_figure
from faircontext.system import keep_freed_memory
from faircontext.types import Image

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


_HEADINGS = ("photo", "variant", "zero-shot", "FCL", "votes", "prob.", "seconds")


def _variants(image: Image, seed: int) -> dict[str, Image]:
    """Return an image as it is, with noise of 0.35 of the range, and with half of its light and blurred."""
    noise = np.random.default_rng(seed).normal(0.0, 0.35, image.shape)
    noisy = np.rint(255.0 * (image / 255.0 + noise).clip(0.0, 1.0)).astype(np.uint8)
    blur = PIL.ImageFilter.GaussianBlur(min(image.shape[:2]) / 30)
    blurred = np.asarray(PIL.Image.fromarray(image).filter(blur)) // 2
    return {"plain": image, "strong noise": noisy, "dim and blurred": blurred}


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
    keep_freed_memory()
    labels, recipe = LabelSpace(LABELS, backbone), backbone.view_recipe("recommended")
    fcl = create_method("fcl", preset="recommended", backbone=backbone, masks=masks)
    assert isinstance(fcl, FCL)
    print(
        f"FCL (preset recommended, {backbone.arithmetic}) on {len(photos)} photos, plain and corrupted, between "
        f"{len(labels)} classes: {recipe.count} views and {masks} masks for each image",
        flush=True,
    )
    records, images = list[dict[str, str]](), list[Path]()
    for path, truth in photos.items():
        drawn = []
        for variant, image in _variants(load_image(path), seed).items():
            print(f"  {truth}, {variant}: ", end="", flush=True)  # at once: an image may take a while
            begin, episode = time.perf_counter(), Episode(image, labels, recipe, seed)
            adaptation, zero_shot = fcl.adapt(episode), ZeroShot()(episode).index
            seconds = f"{time.perf_counter() - begin:.1f}"
            prediction, first = adaptation.prediction, LABELS[zero_shot]
            name = LABELS[prediction.index]
            print(f"zero-shot {first}, FCL {name} ({seconds} s)", flush=True)
            shown = [f"{one}{'' if one == truth else ' (wrong)'}" for one in (first, name)]
            votes = 0 if prediction.votes is None else int(prediction.votes[prediction.index])
            cells = (truth, variant, *shown, f"{votes}", f"{prediction.confidence:.2f}", seconds)
            records.append(dict(zip(_HEADINGS, cells, strict=True)))
            drawn.append(evidence_row(f"{variant}: {name}", episode, adaptation))
        images.append(out / f"{path.stem}.png")
        save_figure(
            evidence_figure(f"{truth.capitalize()}: what FCL answered, and on what evidence", drawn), images[-1]
        )
    columns = [Column(heading, heading) for heading in _HEADINGS]
    print(to_terminal(Table.of("", columns, records, text_columns=4)), end="")
    answers = (np.array([row[name] == row["photo"] for row in records]) for name in ("FCL", "zero-shot"))
    comparison = Comparison.of(*answers)
    print(f"zero-shot  {comparison.reference}\nfcl        {comparison.accuracy}")
    print(f"paired: exact McNemar p = {comparison.p_value:.3g}; a few photos show the tool, not its gain")
    print("images:", *images, sep="\n  ")


def sample_photos() -> dict[Path, str]:
    """Return scikit-image's sample photos and what they show, without importing (or downloading) anything."""
    spec = find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise FairContextError('the demo needs the photos of scikit-image: pip install "faircontext[demo]"')
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return {folder / name: truth for name, truth in PHOTOS.items()}
