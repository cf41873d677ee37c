"""ZERO: a vote of the confident views at temperature zero."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from faircontext.episode import Episode
from faircontext.explore import rank_classes, scores, select_confident
from faircontext.methods.base import Limits, Method, register_method
from faircontext.methods.tuning import view_entropies
from faircontext.types import Diagnostic, Prediction

_HALF_EPSILON = 2.0**-10
"""Machine epsilon of half precision: the temperature of the repository's run."""


def break_tie(
    votes: Shaped[Tensor, " classes"], choices: Int[Tensor, " discarded"], scores: Float[Tensor, " classes"]
) -> int:
    """Return the class with most votes; of several, the first that a discarded view chooses.

    Args:
        votes: of the selected views, whole or shared; classes tie where they are equal to the bit.
        choices: classes that the discarded views choose, most confident first.
        scores: of the most confident view, which decide where no discarded view chooses a tied class.
    """
    tied = (votes == votes.max()).nonzero()[:, 0]
    chosen = choices[torch.isin(choices, tied)]
    if len(tied) > 1 and len(chosen):
        return int(chosen[0])
    return int(tied[scores[tied].argmax()])


@register_method("zero", "a vote of the confident views at temperature zero; nothing is trained")
@dataclass(frozen=True)
class ZERO(Method):
    """ZERO (Farina et al., NeurIPS 2024).

    Probabilities are the method's own output: shares of the votes, or the mean of the sharpened posteriors.

    Attributes:
        rho: fraction of the views, those of lowest entropy, that vote.
        temperature: `"hard"`: a vote each (the paper); `"eps_fp16"`: a softmax of the cosines at 2^-10, which the
            repository's half precision makes of it (preset `official`).
    """

    official: ClassVar[Mapping[str, object]] = {"temperature": "eps_fp16"}
    setting_limits: ClassVar[Limits] = {"rho": (0.0, 1.0)}

    rho: float = 0.3
    temperature: Literal["hard", "eps_fp16"] = "hard"

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image by the vote of its confident views."""
        views, text = episode.view_features, episode.labels.zero_shot_text
        cosines = scores(views, text)
        entropies = view_entropies(views, text, episode.backbone.logit_scale)
        order = entropies.sort(stable=True).indices
        selected = select_confident(entropies, self.rho)
        diagnostics: dict[str, Diagnostic] = {
            "views": tuple(map(float, selected.tolist())),
            "views_selected": len(selected),
        }
        votes = None
        if self.temperature == "hard":
            votes = torch.bincount(cosines[selected].argmax(-1), minlength=len(text))
            shares = votes / len(selected)
        else:
            # In double and rounded once: shares that are equal then tie, in whatever order their views are summed.
            shares = (cosines[selected].double() / _HALF_EPSILON).softmax(-1).mean(0).float()
        index = break_tie(shares, cosines[order[len(selected) :]].argmax(-1), cosines[selected[0]])
        first = torch.zeros_like(shares)
        first[index] = 1.0  # before classes with an equal share
        keys = (shares, first) if votes is None else (shares, first, cosines[selected].mean(0))
        ranking = rank_classes(*keys).cpu()
        votes = None if votes is None else votes.cpu()
        return Prediction(index, ranking, shares.cpu(), votes, diagnostics=diagnostics)
