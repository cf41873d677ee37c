"""From an adaptation to what is drawn of it."""

import numpy as np

from faircontext.episode import Episode
from faircontext.methods.fcl import Adaptation
from faircontext.report.figures import EvidenceRow

__all__ = ["evidence_row"]


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
    maps: list[tuple[str, np.ndarray]] = []
    if adaptation.evidence is not None and adaptation.common is not None and adaptation.pairs is not None:
        first, second = sorted(order[:2].tolist())
        pair = int(((adaptation.pairs[0] == first) & (adaptation.pairs[1] == second)).nonzero()[0, 0])
        maps = [
            (f"evidence: {names[0]}", adaptation.evidence.maps[order[0]].cpu().numpy()),
            (f"evidence: {names[1]}", adaptation.evidence.maps[order[1]].cpu().numpy()),
            ("common evidence of both", adaptation.common[pair].cpu().numpy()),
        ]
    return EvidenceRow(
        title if adaptation.not_learnt is None else f"{title}\n(nothing was learnt)",
        episode.x.permute(1, 2, 0).cpu().numpy(),
        names,
        adaptation.before.posterior[order].cpu().numpy(),
        adaptation.after.posterior[order].cpu().numpy(),
        list(votes),
        maps,
    )
