"""FCL on sample photos of scikit-image, plain and corrupted, and the figure of what it saw before and after."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageFilter
from jaxtyping import Float, Shaped, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from faircontext.backbones import create_backbone
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FairContextError, reason_of
from faircontext.imageio import load_image
from faircontext.labels import LabelSpace
from faircontext.methods import FCL, ZeroShot, create_method
from faircontext.methods.fcl import Adaptation
from faircontext.metrics.scores import Comparison
from faircontext.report.explain import common_pixels, image_pixels, map_pixels
from faircontext.report.explanation import is_reliable
from faircontext.report.pictures import strongest
from faircontext.report.style import BLUE, name_within
from faircontext.system import keep_freed_memory
from faircontext.types import Image

__all__ = ["LABELS", "PHOTOS", "EvidenceRow", "Panel", "evidence_figure", "evidence_row", "run_demo", "sample_photos"]

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

_CAPTION = (
    "Evidence of a class: orange where hiding the image costs the class more than elsewhere, blue where less, on one\n"
    "scale a row; outlined at half of the strongest, pale below two standard errors. Repeats: expected correlation\n"
    "with the map of other masks. Common evidence, where both classes are made alike: its weight, from 0 (dark) to 1."
)


@dataclass(frozen=True)
class Panel:
    """A map over an image, see `overlay`, with a title above and a caption below it."""

    title: str
    pixels: UInt8[np.ndarray, "height width 3"]
    caption: str = ""


@dataclass(frozen=True)
class EvidenceRow:
    """One row of an evidence figure: what FCL saw in one image and what it made of it.

    Attributes:
        title: what the image is.
        image: values in [0, 1].
        names: candidate names, best first.
        before: posterior of the candidates at the base context.
        after: posterior of the candidates at the learnt context.
        votes: votes of the selected views before and after, per candidate.
        panels: the maps.
    """

    title: str
    image: Float[np.ndarray, "height width 3"]
    names: Sequence[str]
    before: Float[np.ndarray, " candidates"]
    after: Float[np.ndarray, " candidates"]
    votes: Sequence[tuple[int, int]]
    panels: Sequence[Panel]


def evidence_figure(title: str, rows: Sequence[EvidenceRow]) -> Figure:
    """Draw one row per image: the image, scores before and after, and its maps."""
    overlays = max(len(row.panels) for row in rows)
    figure = Figure(figsize=(4.6 + 2.6 * (1 + overlays), 2.9 * len(rows) + 0.9), layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
    figure.supxlabel(_CAPTION, fontsize=9, x=0.01, ha="left", color="#444444")
    grid = figure.subplots(len(rows), 2 + overlays, squeeze=False, width_ratios=[1, 1.5] + [1] * overlays)
    for row, axes in zip(rows, grid, strict=True):
        _draw_image(axes[0], row.image)
        axes[0].set_title(row.title, fontsize=10)
        _draw_candidates(axes[1], row)
        for panel, axis in zip(row.panels, axes[2:], strict=False):
            _draw_image(axis, panel.pixels)
            axis.set_title(panel.title, fontsize=10)
            caption = {"fontsize": 8, "color": "#444444", "ha": "center", "va": "top"}
            axis.text(0.5, -0.03, panel.caption, transform=axis.transAxes, **caption)
        for axis in axes[2 + len(row.panels) :]:
            axis.set_axis_off()
    grid[0][1].set_title("mean posterior of the selected views", fontsize=10)
    grid[0][1].legend(loc="lower right", fontsize=8, frameon=False)
    return figure


def _draw_candidates(axis: Axes, row: EvidenceRow) -> None:
    """Draw the candidates' posteriors before and after as bars, best on top, with their votes at the end."""
    shown = min(5, len(row.names))
    rows, before, after = np.arange(shown), row.before[:shown], row.after[:shown]
    axis.barh(rows - 0.2, before, 0.38, color="#9aa0a6", label="before (base context)")
    axis.barh(rows + 0.2, after, 0.38, color=BLUE, label="after (learnt context)")
    for index, (old, new) in enumerate(row.votes[:shown]):
        if old or new:
            text = f"{new} votes" if old == new else f"{old} → {new} votes"
            axis.text(float(max(before[index], after[index])) + 0.015, index, text, va="center", fontsize=8)
    axis.set_yticks(rows, [name_within(name, 22) for name in row.names[:shown]], fontsize=9)
    axis.set_xlim(0, 1.35 * float(max(before.max(), after.max())))
    axis.set_ylim(max(shown, 3) - 0.4, -0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="x", labelsize=8)


def _draw_image(axis: Axes, image: Shaped[np.ndarray, "height width 3"]) -> None:
    axis.imshow(image)
    axis.set_axis_off()


def evidence_row(title: str, episode: Episode, adaptation: Adaptation) -> EvidenceRow:
    """Return a figure's row for one image: scores of the candidates, and the evidence of the two best of them.

    Args:
        title: what the image is.
        episode: the image.
        adaptation: FCL's run on it, see `FCL.adapt`.
    """
    before, after, order = adaptation.before, adaptation.after, adaptation.after.ranking
    names = [episode.labels.names[index] for index in adaptation.candidates[order].tolist()]
    return EvidenceRow(
        title if adaptation.not_learnt is None else f"{title}\n(nothing was learnt)",
        image_pixels(episode),
        names,
        before.posterior[order].cpu().numpy(),
        after.posterior[order].cpu().numpy(),
        list(zip(before.votes[order].tolist(), after.votes[order].tolist(), strict=True)),
        _panels(episode, adaptation, names),
    )


def _panels(episode: Episode, adaptation: Adaptation, names: Sequence[str]) -> list[Panel]:
    """Return the maps of the two best candidates, of one against the other, and of what they share."""
    evidence, best = adaptation.evidence, adaptation.after.ranking[:2].tolist()
    if evidence is None:
        return []
    contrast = evidence.contrast(*best)
    limit = strongest(*evidence.maps[best].cpu().numpy(), contrast.maps[0].cpu().numpy())
    pixels = [*map_pixels(episode, evidence, best, limit), *map_pixels(episode, contrast, [0], limit)]
    repeats = [*evidence.reliability[best].tolist(), float(contrast.reliability)]
    titles = [f"evidence: {names[0]}", f"evidence: {names[1]}", f"{names[0]} rather\nthan {names[1]}"]
    captions = [f"repeats {value:.2f}{'' if is_reliable(value) else ': says little'}" for value in repeats]
    captions[0] += f"; strongest {limit:.2g} nats"
    panels = [Panel(*panel) for panel in zip(titles, pixels, captions, strict=True)]
    return [*panels, Panel("common evidence of both", common_pixels(episode, adaptation))]


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
    cells, correct, pictures = list[list[str]](), list[tuple[bool, bool]](), list[Path]()
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
            correct.append((name == truth, first == truth))
            shown = [f"[{'green' if one == truth else 'red'}]{one}" for one in (first, name)]
            votes = 0 if prediction.votes is None else int(prediction.votes[prediction.index])
            cells.append([truth, variant, *shown, f"{votes}", f"{prediction.confidence:.2f}", seconds])
            drawn.append(evidence_row(f"{variant}: {name}", episode, adaptation))
        pictures.append(out / f"{path.stem}.png")
        figure = evidence_figure(f"{truth.capitalize()}: what FCL answered, and on what evidence", drawn)
        figure.savefig(pictures[-1], dpi=110)
    _print_results(cells, correct, pictures)


def sample_photos() -> dict[Path, str]:
    """Return scikit-image's sample photos and what they show, without importing (or downloading) anything."""
    spec = find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise FairContextError('the demo needs the photos of scikit-image: pip install "faircontext[demo]"')
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return {folder / name: truth for name, truth in PHOTOS.items()}


def _print_results(
    cells: Sequence[Sequence[str]], correct: Sequence[tuple[bool, bool]], pictures: Sequence[Path]
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("photo", "variant", "zero-shot", "FCL", "votes", "prob.", "seconds")
    for row in cells:
        table.add_row(*row)
    Console().print(table)
    comparison = Comparison.of(*(np.array(side) for side in zip(*correct, strict=True)))
    print(f"zero-shot  {comparison.reference}\nfcl        {comparison.accuracy}")
    print(f"paired: exact McNemar p = {comparison.p_value:.3g}; a few photos show the tool, not its gain")
    print("pictures:", *pictures, sep="\n  ")
