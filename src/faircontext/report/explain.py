"""One image's adaptation explained: in words, as maps of its evidence, a page, and files that a program reads."""

import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from faircontext import __version__
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FeatureError, ImageError
from faircontext.evidence import Evidence
from faircontext.files import check_folder, check_outputs, to_json, writing
from faircontext.imageio import MAX_PIXELS, DecodedImage
from faircontext.methods import ZeroShot
from faircontext.methods.fcl import FCL, Adaptation, write_context
from faircontext.names import name_warnings
from faircontext.report.evidence_figures import EvidenceRow, Panel
from faircontext.report.images import overlay, overlay_weights, strongest
from faircontext.report.render import render
from faircontext.runs.answer import Predictor
from faircontext.runs.build import build, load
from faircontext.runs.options import ModelOptions
from faircontext.types import headline, is_flat


def is_reliable(reliability: float) -> bool:
    """Tell whether a map says something: at least half of what it shows would come out again with other masks."""
    return reliability >= 0.5


@dataclass(frozen=True)
class Explanation:
    """What is explained.

    Attributes:
        source: the image, as it was given.
        episode: the image.
        method: FCL with its settings.
        adaptation: its run on the image.
        zero_shot: the index of zero-shot's prediction.
        run: what else determines the prediction (backbone, precision, preset), for the manifest.
        warnings: about the file.
    """

    source: str
    episode: Episode
    method: FCL
    adaptation: Adaptation
    zero_shot: int
    run: dict[str, Any]
    warnings: Sequence[str] = ()


def explain(options: ModelOptions, setup: Predictor, source: str, image: DecodedImage) -> Explanation:
    """Run FCL on one image with all that it does in between, and zero-shot beside it.

    Args:
        options: of the model, the method and the image.
        setup: made from them, with the method `fcl`.
        source: the image, as it was given.
        image: what it holds.

    Raises:
        ImageError: the model has no features of the image.
    """
    method, backbone = setup.methods["fcl"], setup.labels.backbone
    assert isinstance(method, FCL)
    episode = Episode(image.pixels, setup.labels, setup.recipe, options.seed)
    try:
        adaptation, zero_shot = method.adapt(episode), ZeroShot()(episode)
    except FeatureError as error:
        raise ImageError(source, str(error)) from None
    run = {
        "backbone": backbone.name,
        **options.facts_of_weights(),
        "model": dict(backbone.facts),
        "precision": backbone.precision,
        **backbone.engine_facts,
        "preset": options.preset,
        "masks": method.masks,
        "seed": options.seed,
        "truncate": options.truncate,
        "exif": options.exif,
        "max_pixels": min(options.max_pixels, MAX_PIXELS),
        **({} if setup.recipe.plain == "own" else {"plain": setup.recipe.plain}),
    }
    shown = source.encode(errors="replace").decode()
    return Explanation(shown, episode, method, adaptation, zero_shot.index, run, image.warnings)


def explain_in_words(explanation: Explanation) -> str:
    """Return two or three sentences, for a person who knows neither the method nor its words."""
    adaptation, names = explanation.adaptation, explanation.episode.labels.names
    exploration, before, after = adaptation.exploration, adaptation.before, adaptation.after
    order = exploration.votes.sort(descending=True, stable=True).indices.tolist()
    ranked = [names[int(adaptation.candidates[index])] for index in after.ranking]
    answer = int((adaptation.candidates == adaptation.prediction.index).nonzero())
    return render(
        "words.txt",
        crops=len(exploration.entropies),
        voters=len(exploration.selected),
        votes=[f"{exploration.votes[index]} for {names[index]}" for index in order if exploration.votes[index]],
        favourite=names[int(exploration.ranking[0])],
        first=names[int(adaptation.candidates[before.ranking[0]])],
        answer=names[adaptation.prediction.index],
        rival=ranked[1] if len(ranked) > 1 else "",
        candidates=len(ranked),
        before=f"{float(before.posterior[answer]):.1%}",
        after=f"{float(after.posterior[answer]):.1%}",
        not_learnt=adaptation.not_learnt,
        zero_shot=names[explanation.zero_shot],
    )


SCHEMA_VERSION = 2
_PACKAGES = ("torch", "torchvision", "numpy", "pillow", "timm", "transformers", "matplotlib")

Pixels = UInt8[np.ndarray, "height width 3"]


def image_pixels(episode: Episode) -> Float[np.ndarray, "height width 3"]:
    """Return the image as the model sees it, values in [0, 1]."""
    pixels: np.ndarray = episode.x.permute(1, 2, 0).cpu().numpy()
    return pixels


def map_pixels(
    episode: Episode, evidence: Evidence, positions: Sequence[int], limit: float | None = None
) -> list[Pixels]:
    """Return the maps of some classes over the image, on one scale: up to a limit, or their strongest."""
    image = image_pixels(episode)
    maps, errors = (values[positions].cpu().numpy() for values in (evidence.maps, evidence.error(evidence.height)))
    limit = strongest(*maps) if limit is None else limit
    return [overlay(image, class_map, limit, error) for class_map, error in zip(maps, errors, strict=True)]


def common_pixels(episode: Episode, adaptation: Adaptation) -> Pixels:
    """Return the common evidence of the two best candidates over the image, as weights from 0 to 1."""
    assert adaptation.best_common is not None
    common = adaptation.best_common.cpu().numpy()
    return overlay_weights(image_pixels(episode), common / common.max())


def explain_image(
    options: ModelOptions,
    source: str,
    image: DecodedImage,
    names: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
    warn: Callable[[str], None],
    save_context: Path | None = None,
) -> Path:
    """Explain FCL's prediction for one image, and return the path of the page.

    Args:
        options: of the model, the method and the image.
        source: the image file, as it was given.
        image: what it holds.
        names: class names.
        folder: for the page; it is made.
        say: takes the explanation in words.
        warn: takes warnings.
        save_context: file for the context that was learnt, in the form of CoOp's prompt learner.

    Raises:
        FairContextError: an option has a value that cannot be used, or the folder cannot be written.
    """
    with writing(folder):
        _check_folder(folder, Path(source))
    if save_context is not None:
        check_outputs([save_context], [Path(source), *options.files_read()])
    setup = build(options, load(options), names, options.regime)
    for line in [*name_warnings(names), *setup.warnings()]:
        warn(line)
    explanation = explain(options, setup, source, image)
    say(explain_in_words(explanation))  # first: what was computed is not lost with a full disk
    try:
        with writing(folder):
            return write_explanation(explanation, folder)
    finally:  # a full disk for one is none for the other
        write_context(save_context, explanation.adaptation, explanation.method, setup.labels, warn)


def write_explanation(explanation: Explanation, folder: Path) -> Path:
    """Write the page, its pictures, the arrays and the manifest into a folder, and return the page's path.

    The folder is made, and files of an earlier explanation are replaced.

    Raises:
        OSError: the folder or a file cannot be written.
    """
    pieces = folder / "pieces"
    pieces.mkdir(parents=True, exist_ok=True)
    for name in _earlier_files(folder):
        (folder / name).unlink(missing_ok=True)
    images = draw_explanation(explanation)
    for name, pixels in images.items():
        PIL.Image.fromarray(pixels).save(pieces / f"{name}.png")
    np.savez_compressed(pieces / "arrays.npz", **_arrays(explanation))
    files = ["index.html", "pieces/arrays.npz", *(f"pieces/{name}.png" for name in sorted(images))]
    manifest = _manifest(explanation, {"files": files})
    (folder / "manifest.json").write_text(to_json(manifest), encoding="utf-8")
    page = folder / "index.html"
    page.write_text(write_page(explanation, {name: f"pieces/{name}.png" for name in images}), encoding="utf-8")
    return page


def write_page(explanation: Explanation, addresses: Mapping[str, str], beside: bool = True) -> str:
    """Return the page as HTML.

    Args:
        explanation: what it shows.
        addresses: of the pictures that `draw_explanation` returns, by name.
        beside: whether the arrays and the manifest lie beside it.
    """
    shown = {**describe_explanation(explanation), "addresses": addresses, "beside": beside}
    return render("explain.html", **shown)


def _check_folder(folder: Path, image: Path) -> None:
    """Refuse a folder that holds the image or a page of something else, or that cannot be written."""
    if folder.resolve() in image.resolve().parents:
        raise ArgumentError(f"{folder}: holds the image {image}; name another folder")
    page, manifest = folder / "index.html", folder / "manifest.json"
    if (page.exists() or manifest.exists()) and not _earlier_files(folder):
        raise ArgumentError(f"{folder}: holds a page that is no explanation; name another folder")
    for inner in (folder, folder / "pieces"):
        check_folder(inner)


def _earlier_files(folder: Path) -> list[str]:
    """Return the pieces of an earlier explanation, by its manifest: other files are somebody's own."""
    try:
        files = list(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in files if re.fullmatch(r"pieces/\w+\.(png|npz)", str(name))]


def draw_explanation(explanation: Explanation) -> dict[str, Pixels]:
    """Return the pictures by name: what the model sees, its evidence, and the views that voted."""
    adaptation, episode = explanation.adaptation, explanation.episode
    images = {"image": np.rint(255 * image_pixels(episode)).astype(np.uint8)}
    if adaptation.evidence is not None:
        order = adaptation.after.ranking.tolist()
        for rank, pixels in enumerate(map_pixels(episode, adaptation.evidence, order)):
            images[f"evidence_{rank:02}"] = pixels
        (images["contrast"],) = map_pixels(episode, adaptation.evidence.contrast(*order[:2]), [0])
        images["common"] = common_pixels(episode, adaptation)
    for rank, view in enumerate(adaptation.exploration.selected.tolist()):
        images[f"view_{rank:02}"] = episode.views[view].permute(1, 2, 0).numpy()
    return images


def _arrays(explanation: Explanation) -> dict[str, Any]:
    """Return the numbers behind the page; candidates are in class order."""
    adaptation = explanation.adaptation
    exploration, evidence = adaptation.exploration, adaptation.evidence
    arrays = {
        "candidates": adaptation.candidates,
        "selected_views": exploration.selected,
        "entropies": exploration.entropies,
        "votes": exploration.votes,
        "posterior_before": adaptation.before.posterior,
        "posterior_after": adaptation.after.posterior,
        "probabilities": adaptation.prediction.probabilities,
        "evidence": None if evidence is None else evidence.maps,
        "evidence_error": None if evidence is None else evidence.error(),
        "evidence_reliability": None if evidence is None else evidence.reliability,
        "pairs": adaptation.pairs,
        "common": adaptation.common,
    }
    return {name: tensor.cpu().numpy() for name, tensor in arrays.items() if tensor is not None}


def _manifest(explanation: Explanation, files: Mapping[str, Any]) -> dict[str, Any]:
    episode, prediction = explanation.episode, explanation.adaptation.prediction
    return {
        "schema_version": SCHEMA_VERSION,
        "source": explanation.source,
        "image_id": episode.id,
        "answer": episode.labels.names[prediction.index],
        "zero_shot": episode.labels.names[explanation.zero_shot],
        "in_words": explain_in_words(explanation),
        "warnings": list(explanation.warnings),
        "run": explanation.run,
        "settings": explanation.method.settings(),
        "diagnostics": dict(prediction.diagnostics),
        "fallback": prediction.fallback,
        "labels": list(episode.labels.names),
        **files,
        "versions": {
            "faircontext": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
    }


def describe_explanation(explanation: Explanation) -> dict[str, Any]:
    """Return all that is said of an explanation, as the page shows it; pictures by their names."""
    adaptation, names = explanation.adaptation, explanation.episode.labels.names
    before, after, exploration = adaptation.before, adaptation.after, adaptation.exploration
    evidence, order, prediction = adaptation.evidence, after.ranking.tolist(), adaptation.prediction
    best = [(names[index], float(prediction.probabilities[index])) for index in prediction.ranking[:2].tolist()]
    candidates = [
        {
            "name": names[int(adaptation.candidates[index])],
            "before": float(before.posterior[index]),
            "after": float(after.posterior[index]),
            "votes_before": int(before.votes[index]),
            "votes_after": int(after.votes[index]),
            **({} if evidence is None else describe_map(f"evidence_{rank:02}", evidence.reliability[index])),
        }
        for rank, index in enumerate(order)
    ]
    views = [
        {
            "picture": f"view_{rank:02}",
            "vote": names[int(exploration.choices[rank])],
            "entropy": float(exploration.entropies[view]),
            "plain": view == 0,
        }
        for rank, view in enumerate(exploration.selected.tolist())
    ]
    return {
        **_manifest(explanation, {}),
        "headline": headline(best),
        "confidence": prediction.confidence,
        "candidates": candidates,
        "learnt": adaptation.not_learnt is None,
        "compared": not torch.equal(before.posterior, after.posterior),
        "common": "common" if adaptation.common is not None else None,
        "contrast": None if evidence is None else describe_map("contrast", evidence.contrast(*order[:2]).reliability),
        "flat": is_flat(prediction.diagnostics),
        "views": views,
        "all_views": len(exploration.entropies),
        "seen": explanation.episode.geometry.seen,
        "classes": len(names),
        "version": __version__,
    }


def describe_map(name: str, reliability: Tensor) -> dict[str, Any]:
    """Return which picture shows a map, and how far it can be trusted."""
    value = float(reliability)
    return {"picture": name, "reliability": value, "reliable": is_reliable(value)}


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
