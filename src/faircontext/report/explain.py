"""One image's adaptation as a page that a person can read, and as files that a program can."""

import json
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from jaxtyping import UInt8

from faircontext import __version__
from faircontext.diagnostics import is_flat
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FeatureError, ImageError
from faircontext.evidence import Proxy
from faircontext.files import to_json, writing
from faircontext.imageio import MAX_PIXELS, DecodedImage
from faircontext.methods import ZeroShot
from faircontext.methods.fcl import FCL, Adaptation
from faircontext.names import name_remarks
from faircontext.report.adaptation import common_pixels, is_reliable, map_pixels
from faircontext.report.render import render
from faircontext.runs.options import ModelOptions

__all__ = ["SCHEMA_VERSION", "Explanation", "explain", "explain_in_words", "prepare_folder", "write_explanation"]

SCHEMA_VERSION = 1
_CONTROLS = {
    "image": "the picture itself",
    "mean": "the picture's mean colour",
    "grey": "a grey picture",
    "black": "a black picture",
}
"""What a pair is made alike on in place of its common evidence, by `FCL.proxy`."""
_PACKAGES = ("torch", "torchvision", "numpy", "pillow", "timm", "transformers", "matplotlib")


@dataclass(frozen=True)
class Explanation:
    """What is explained.

    Attributes:
        source: the image, as it was given.
        episode: the image.
        method: FCL with its settings.
        adaptation: its run on the image.
        zero_shot: the index of zero-shot's answer.
        run: what else determines the answer (backbone, precision, preset), for the manifest.
        notes: remarks about the file.
    """

    source: str
    episode: Episode
    method: FCL
    adaptation: Adaptation
    zero_shot: int
    run: dict[str, Any]
    notes: Sequence[str] = ()


def explain(
    options: ModelOptions,
    source: str,
    image: DecodedImage,
    names: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
    warn: Callable[[str], None],
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

    Raises:
        FairContextError: an option has a value that cannot be used, or the folder cannot be written.
    """
    with writing(folder):
        prepare_folder(folder, Path(source))
    setup = options.create(names, "fcl")
    method, backbone = setup.methods["fcl"], setup.labels.backbone
    assert isinstance(method, FCL)
    for remark in [*name_remarks(names), *setup.labels.warnings()]:
        warn(remark)
    episode = Episode(image.pixels, setup.labels, setup.recipe, options.seed)
    try:
        adaptation, zero_shot = method.adapt(episode), ZeroShot()(episode)
    except FeatureError as error:
        raise ImageError(source, str(error)) from None
    run_facts = {
        "backbone": backbone.name,
        "resize_positions": options.resize_positions,
        "model": dict(backbone.facts),
        "precision": backbone.precision,
        "preset": options.preset,
        "masks": method.masks,
        "seed": options.seed,
        "truncate": options.truncate,
        "exif": options.exif,
        "max_pixels": min(options.max_pixels, MAX_PIXELS),
    }
    explanation = Explanation(
        source.encode(errors="replace").decode(),
        episode,
        method,
        adaptation,
        zero_shot.index,
        run_facts,
        image.notes,
    )
    say(explain_in_words(explanation))  # first: what was computed is not lost with a full disk
    with writing(folder):
        return write_explanation(explanation, folder)


def explain_in_words(explanation: Explanation) -> str:
    """Return two or three sentences, for a person who knows neither the method nor its words."""
    found, names = explanation.adaptation, explanation.episode.labels.names
    answer = names[found.prediction.index]
    kept, views = len(found.exploration.selected), len(found.exploration.entropies)
    votes = found.exploration.votes
    voted = [
        f"{votes[i]} for {names[i]}" for i in votes.sort(descending=True, stable=True).indices.tolist() if votes[i]
    ]
    words = [
        f"The model looked at {views} crops of the picture, and the {kept} it was surest about voted: "
        f"{'all ' if len(voted) == 1 else ''}{', '.join(voted[:4])}{' and others' if len(voted) > 4 else ''}."
    ]
    first = int(found.candidates[found.before.ranking[0]])
    if first != int(found.exploration.ranking[0]):
        words.append(
            f"Asked to choose among the {len(found.candidates)} candidates alone, they voted for {names[first]}."
        )
    if found.not_learnt is not None:
        words.append(f"Nothing was learnt ({found.not_learnt}).")
        if found.prediction.index != first:  # CL-HP's initial tokens are new to the prompt, learnt or not
            words.append(f"The tokens put before the prompt changed the answer from {names[first]} to {answer}.")
    else:
        words.append(_what_changed(found, answer, names, explanation.method.proxy))
    if explanation.zero_shot != found.prediction.index:
        words.append(f"Without any of this, on the plain picture, the answer would be {names[explanation.zero_shot]}.")
    return " ".join(words)


def _what_changed(found: Adaptation, answer: str, names: Sequence[str], proxy: Proxy) -> str:
    """Say what calibration did to the answer, in a sentence."""
    place = int((found.candidates == found.prediction.index).nonzero())
    before, after = float(found.before.posterior[place]), float(found.after.posterior[place])
    explored = names[int(found.candidates[found.before.ranking[0]])]
    rival = names[int(found.candidates[found.after.ranking[1]])]
    both = f"what the picture has of both {answer} and {rival} favours neither"
    control = f"{_CONTROLS.get(proxy)} favours neither {answer} nor {rival}"
    shared = f"The prompt was then adjusted so that {both if proxy == 'evidence' else control}"
    if explored != answer:
        return f"{shared}: this changed the answer from {explored} to {answer}."
    others = ", likewise for every other pair of candidates" if len(found.candidates) > 2 else ""
    return (
        f"{shared}{others}: the share of {answer} among the candidates went from "
        f"{before:.1%} to {after:.1%}, and the answer stayed."
    )


def write_explanation(explanation: Explanation, folder: Path) -> Path:
    """Write the page, its pictures, the arrays and the manifest into a folder, and return the page's path.

    Args:
        explanation: what is explained.
        folder: as `prepare_folder` leaves it; files of an earlier explanation are replaced.

    Raises:
        OSError: the folder or a file cannot be written.
    """
    pieces = folder / "pieces"
    pieces.mkdir(parents=True, exist_ok=True)
    for name in _earlier_files(folder):
        (folder / name).unlink(missing_ok=True)
    pictures = _pictures(explanation)
    for name, pixels in pictures.items():
        PIL.Image.fromarray(pixels).save(pieces / f"{name}.png")
    np.savez_compressed(pieces / "arrays.npz", **_arrays(explanation))
    manifest = _manifest(explanation, sorted(pictures))
    (folder / "manifest.json").write_text(to_json(manifest), encoding="utf-8")
    page = folder / "index.html"
    page.write_text(render("explain.html", **_page(explanation)), encoding="utf-8")
    return page


def prepare_folder(folder: Path, image: Path) -> None:
    """Make the folder for an explanation, or check that an earlier one can be replaced.

    Raises:
        ArgumentError: the folder holds the image, or a page that is of something else.
        OSError: it cannot be made or written.
    """
    if folder.resolve() in image.resolve().parents:
        raise ArgumentError(f"{folder}: holds the image {image}; name another folder")
    page, manifest = folder / "index.html", folder / "manifest.json"
    if (page.exists() or manifest.exists()) and not _earlier_files(folder):
        raise ArgumentError(f"{folder}: holds a page that is no explanation; name another folder")
    (folder / "pieces").mkdir(parents=True, exist_ok=True)
    for place in (folder, folder / "pieces"):
        (place / ".partial").touch()
        (place / ".partial").unlink()


def _earlier_files(folder: Path) -> list[str]:
    """Return the pieces of an earlier explanation, by its manifest: other files are somebody's own."""
    try:
        files = list(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in files if re.fullmatch(r"pieces/\w+\.(png|npz)", str(name))]


def _pictures(explanation: Explanation) -> dict[str, UInt8[np.ndarray, "height width 3"]]:
    """Return the pictures by file name: what the model sees, its evidence, and the views that voted."""
    found, episode = explanation.adaptation, explanation.episode
    image = _channels_last(episode.x.cpu().numpy())
    pictures = {"image": np.rint(255 * image).astype(np.uint8)}
    if found.evidence is not None:
        order = found.after.ranking.tolist()
        for place, pixels in enumerate(map_pixels(episode, found.evidence, order)):
            pictures[f"evidence_{place:02}"] = pixels
        (pictures["contrast"],) = map_pixels(episode, found.evidence.contrast(*order[:2]), [0])
        pictures["common"] = common_pixels(episode, found)
    for place, view in enumerate(found.exploration.selected.tolist()):
        pictures[f"view_{place:02}"] = _channels_last(episode.views[view].numpy())
    return pictures


def _arrays(explanation: Explanation) -> dict[str, Any]:
    """Return the numbers behind the page; candidates are in class order."""
    found = explanation.adaptation
    arrays = {
        "candidates": found.candidates,
        "kept_views": found.exploration.selected,
        "entropies": found.exploration.entropies,
        "votes": found.exploration.votes,
        "posterior_before": found.before.posterior,
        "posterior_after": found.after.posterior,
        "probabilities": found.prediction.probabilities,
        "evidence": None if found.evidence is None else found.evidence.maps,
        "evidence_error": None if found.evidence is None else found.evidence.error(),
        "evidence_reliability": None if found.evidence is None else found.evidence.reliability,
        "pairs": found.pairs,
        "common": found.common,
    }
    return {name: tensor.cpu().numpy() for name, tensor in arrays.items() if tensor is not None}


def _manifest(explanation: Explanation, pictures: Sequence[str]) -> dict[str, Any]:
    episode, prediction = explanation.episode, explanation.adaptation.prediction
    return {
        "schema_version": SCHEMA_VERSION,
        "source": explanation.source,
        "image_id": episode.id,
        "answer": episode.labels.names[prediction.index],
        "zero_shot": episode.labels.names[explanation.zero_shot],
        "in_words": explain_in_words(explanation),
        "notes": list(explanation.notes),
        "run": explanation.run,
        "settings": explanation.method.settings(),
        "diagnostics": dict(prediction.diagnostics),
        "fallback": prediction.fallback,
        "labels": list(episode.labels.names),
        "files": ["index.html", "pieces/arrays.npz", *(f"pieces/{name}.png" for name in pictures)],
        "versions": {
            "faircontext": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
    }


def _page(explanation: Explanation) -> dict[str, Any]:
    """Return what the page's template shows."""
    found, episode = explanation.adaptation, explanation.episode
    names = episode.labels.names
    order = found.after.ranking.tolist()
    candidates = [
        {
            "name": names[int(found.candidates[index])],
            "before": float(found.before.posterior[index]),
            "after": float(found.after.posterior[index]),
            "votes_before": int(found.before.votes[index]),
            "votes_after": int(found.after.votes[index]),
            **_map_of(found, place, index),
        }
        for place, index in enumerate(order)
    ]
    views = [
        {
            "picture": f"pieces/view_{place:02}.png",
            "vote": names[int(found.exploration.choices[place])],
            "entropy": float(found.exploration.entropies[view]),
            "plain": view == 0,
        }
        for place, view in enumerate(found.exploration.selected.tolist())
    ]
    return {
        "source": explanation.source,
        "answer": names[found.prediction.index],
        "zero_shot": names[explanation.zero_shot],
        "confidence": found.prediction.confidence,
        "in_words": explain_in_words(explanation),
        "notes": explanation.notes,
        "candidates": candidates,
        "learnt": found.not_learnt is None,
        "compared": not torch.equal(found.before.posterior, found.after.posterior),
        "common": "pieces/common.png" if found.common is not None else None,
        "contrast": _contrast(found),
        "flat": is_flat(found.prediction.diagnostics),
        "views": views,
        "all_views": len(found.exploration.entropies),
        "classes": len(names),
        "run": explanation.run,
        "version": __version__,
    }


def _map_of(found: Adaptation, place: int, index: int) -> dict[str, Any]:
    """Return a candidate's map and how far it can be trusted."""
    if found.evidence is None:
        return {}
    value = float(found.evidence.reliability[index])
    return {"picture": f"pieces/evidence_{place:02}.png", "reliability": value, "reliable": is_reliable(value)}


def _contrast(found: Adaptation) -> dict[str, Any] | None:
    """Return the map of the answer against the runner-up."""
    if found.evidence is None:
        return None
    value = float(found.evidence.contrast(*found.after.ranking[:2].tolist()).reliability)
    return {"picture": "pieces/contrast.png", "reliability": value, "reliable": is_reliable(value)}


def _channels_last(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(pixels, 0, -1))
