"""One image's adaptation, and what it says in words: what pages and services show of an explanation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from faircontext.episode import Episode
from faircontext.errors import FeatureError, ImageError
from faircontext.imageio import MAX_PIXELS, DecodedImage
from faircontext.methods import ZeroShot
from faircontext.methods.fcl import FCL, Adaptation
from faircontext.runs.options import ModelOptions
from faircontext.runs.setup import Setup

__all__ = ["Explanation", "explain", "explain_in_words", "is_reliable"]


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


def explain(options: ModelOptions, setup: Setup, source: str, image: DecodedImage) -> Explanation:
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
    }
    shown = source.encode(errors="replace").decode()
    return Explanation(shown, episode, method, adaptation, zero_shot.index, run, image.warnings)


def explain_in_words(explanation: Explanation) -> str:
    """Return two or three sentences, for a person who knows neither the method nor its words."""
    adaptation, names = explanation.adaptation, explanation.episode.labels.names
    exploration, prediction = adaptation.exploration, names[adaptation.prediction.index]
    order = exploration.votes.sort(descending=True, stable=True).indices.tolist()
    voted = [f"{exploration.votes[i]} for {names[i]}" for i in order if exploration.votes[i]]
    shown = f"{'all ' if len(voted) == 1 else ''}{', '.join(voted[:4])}{' and others' if len(voted) > 4 else ''}"
    sentences = [
        f"The model looked at {len(exploration.entropies)} crops of the picture, and the {len(exploration.selected)} "
        f"it was surest about voted: {shown}."
    ]
    first = int(adaptation.candidates[adaptation.before.ranking[0]])
    if first != int(exploration.ranking[0]):
        count = len(adaptation.candidates)
        sentences.append(f"Asked to choose among the {count} candidates alone, they voted for {names[first]}.")
    if adaptation.not_learnt is None:
        sentences.append(_what_changed(adaptation, names))
    else:
        sentences.append(f"Nothing was learnt ({adaptation.not_learnt}).")
        if adaptation.prediction.index != first:  # CL-HP's initial tokens are new to the prompt, learnt or not
            sentences.append(
                f"The tokens put before the prompt changed the answer from {names[first]} to {prediction}."
            )
    if explanation.zero_shot != adaptation.prediction.index:
        plain = names[explanation.zero_shot]
        sentences.append(f"Without any of this, on the plain picture, the answer would be {plain}.")
    return " ".join(sentences)


def _what_changed(adaptation: Adaptation, names: Sequence[str]) -> str:
    """Say what calibration did to the prediction, in a sentence."""
    index, ranking = adaptation.prediction.index, adaptation.after.ranking
    position = int((adaptation.candidates == index).nonzero())
    before, after = float(adaptation.before.posterior[position]), float(adaptation.after.posterior[position])
    explored, rival = (names[int(adaptation.candidates[i])] for i in (adaptation.before.ranking[0], ranking[1]))
    alike = f"what the picture has of both {names[index]} and {rival} favours neither"
    shared = f"The prompt was then adjusted so that {alike}"
    if explored != names[index]:
        return f"{shared}: this changed the answer from {explored} to {names[index]}."
    others = ", likewise for every other pair of candidates" if len(adaptation.candidates) > 2 else ""
    return (
        f"{shared}{others}: the share of {names[index]} among the candidates went from "
        f"{before:.1%} to {after:.1%}, and the answer stayed."
    )
