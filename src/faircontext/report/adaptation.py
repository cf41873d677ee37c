"""From an adaptation to pictures of its evidence."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

from faircontext.episode import Episode
from faircontext.estimators import Evidence
from faircontext.methods.fcl import Adaptation
from faircontext.report.picture_figures import EvidenceRow, Panel
from faircontext.report.pictures import overlay, overlay_weights, strongest

__all__ = ["LEAST_RELIABILITY", "common_pixels", "evidence_row", "is_reliable", "map_pixels"]

LEAST_RELIABILITY = 0.5
"""A map below this says little: less than half of what it shows would come out again with other masks."""


def is_reliable(reliability: float) -> bool:
    """Tell whether a map says something."""
    return reliability >= LEAST_RELIABILITY


def map_pixels(
    episode: Episode, evidence: Evidence, positions: Sequence[int], limit: float | None = None
) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Return evidence maps over the image, on one scale, pale below two standard errors.

    Args:
        episode: the image.
        evidence: of the classes.
        positions: which of them.
        limit: see `overlay`; None for the strongest of these maps.
    """
    image, maps = _image(episode), evidence.maps.cpu().numpy()
    errors = evidence.error(evidence.height).cpu().numpy()
    limit = strongest(*(maps[position] for position in positions)) if limit is None else limit
    return [overlay(image, maps[position], limit, errors[position]) for position in positions]


def common_pixels(episode: Episode, adaptation: Adaptation) -> UInt8[np.ndarray, "height width 3"]:
    """Return the common evidence of the two best candidates over the image, as weights from 0 to 1.

    Args:
        episode: the image.
        adaptation: with evidence.
    """
    assert adaptation.common is not None
    assert adaptation.pairs is not None
    first, second = sorted(adaptation.after.ranking[:2].tolist())
    pair = int(((adaptation.pairs[0] == first) & (adaptation.pairs[1] == second)).nonzero()[0, 0])
    common = adaptation.common[pair].cpu().numpy()
    return overlay_weights(_image(episode), common / common.max())


def evidence_row(title: str, episode: Episode, adaptation: Adaptation) -> EvidenceRow:
    """Return a figure's row for one image: scores of the candidates, and the evidence of the two best of them.

    Args:
        title: what the image is.
        episode: the image.
        adaptation: FCL's run on it, see `FCL.adapt`.
    """
    order = adaptation.after.ranking
    names = [episode.labels.names[index] for index in adaptation.candidates[order].tolist()]
    votes = zip(adaptation.before.votes[order].tolist(), adaptation.after.votes[order].tolist(), strict=True)
    return EvidenceRow(
        title if adaptation.not_learnt is None else f"{title}\n(nothing was learnt)",
        _image(episode),
        names,
        adaptation.before.posterior[order].cpu().numpy(),
        adaptation.after.posterior[order].cpu().numpy(),
        list(votes),
        _panels(episode, adaptation, names),
    )


def _panels(episode: Episode, adaptation: Adaptation, names: Sequence[str]) -> list[Panel]:
    """Return the maps of the two best candidates, of one against the other, and of what they share."""
    evidence, best = adaptation.evidence, adaptation.after.ranking[:2].tolist()
    if evidence is None:
        return []
    contrast = evidence.contrast(*best)
    maps = [*(evidence.maps[position] for position in best), contrast.maps[0]]
    limit = strongest(*(values.cpu().numpy() for values in maps))
    pixels = [*map_pixels(episode, evidence, best, limit), *map_pixels(episode, contrast, [0], limit)]
    repeats = [*evidence.reliability[best].tolist(), float(contrast.reliability)]
    titles = [f"evidence: {names[0]}", f"evidence: {names[1]}", f"{names[0]} rather\nthan {names[1]}"]
    notes = [_describe(value) for value in repeats]
    notes[0] += f"; strongest {limit:.2g} nats"
    panels = [Panel(*panel) for panel in zip(titles, pixels, notes, strict=True)]
    return [*panels, Panel("common evidence of both", common_pixels(episode, adaptation))]


def _describe(reliability: float) -> str:
    return f"repeats {reliability:.2f}{'' if is_reliable(reliability) else ': says little'}"


def _image(episode: Episode) -> Float[np.ndarray, "height width 3"]:
    pixels: np.ndarray = episode.x.permute(1, 2, 0).cpu().numpy()
    return pixels
