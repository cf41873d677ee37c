"""Analyses: what is measured about zero-shot's answer for an image and its evidence, all at the base context.

An analysis is a method whose answer is zero-shot's and whose findings are its diagnostics, so that it is run, resumed
and stored as methods are (`faircontext analyze`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.errors import LabelError
from faircontext.explore import scores
from faircontext.labels import LabelSpace
from faircontext.methods.fcl import EvidenceMethod
from faircontext.methods.predict import predict_by_scores
from faircontext.types import Diagnostic, Prediction

__all__ = ["Analysis", "Setting"]


@dataclass(frozen=True)
class Setting:
    """What the quantities of an image are computed from.

    Attributes:
        predicted: zero-shot's class.
        candidates: `C_K`, best first as explored, with the predicted class among them.
        text: `tau_c(delta_0)` of the candidates.
        position: of the predicted class in `candidates`.
    """

    predicted: int
    candidates: Int[Tensor, " candidates"]
    text: Float[Tensor, "candidates dim"]
    position: int

    @property
    def rivals(self) -> Int[Tensor, "2 rivals"]:
        """The pairs of the predicted class with each other candidate, by their positions."""
        others = torch.tensor(
            [position for position in range(len(self.candidates)) if position != self.position], dtype=torch.long
        )
        return torch.stack([torch.full_like(others, self.position), others])


@dataclass(frozen=True)
class Analysis(EvidenceMethod):
    """A quantity of an image, in the diagnostics of its answer, which is zero-shot's."""

    analysis: ClassVar[bool] = True
    recommended_as: ClassVar[str | None] = "fcl"

    @classmethod
    def fixed(cls) -> dict[str, object]:
        """Return what an analysis of earlier versions had besides; see `Method.fixed`."""
        return {"occluder": "black", "budget": None, "reliability": 0.8}

    def check_labels(self, labels: LabelSpace) -> None:
        """Raise `LabelError` where there are several templates: evidence is measured with one prompt."""
        if len(labels.prompts) > 1:
            raise LabelError(
                f"{self.name} is measured with one prompt template, not {len(labels.prompts)}; use --prompts single"
            )

    def predicted(self, episode: Episode) -> int:
        """Return zero-shot's class."""
        return int(scores(episode.z, episode.labels.text[0]).argmax())

    def setting(self, episode: Episode) -> Setting:
        """Return zero-shot's class and the candidates; it replaces the last one where it is none of them."""
        tau, predicted = episode.labels.text[0], self.predicted(episode)
        candidates = self.phi(episode, tau, self.k).candidates
        if predicted not in candidates:
            candidates = torch.cat([candidates[:-1], candidates.new_tensor([predicted])])
        position = int((candidates == predicted).nonzero()[0, 0])
        return Setting(predicted, candidates, tau[candidates], position)

    def predict(
        self, episode: Episode, candidates: Int[Tensor, " candidates"], findings: Mapping[str, Diagnostic]
    ) -> Prediction:
        """Return zero-shot's answer with what was found."""
        answer = predict_by_scores(episode, episode.z, episode.labels.text[0])
        return replace(answer, candidates=tuple(candidates.tolist()), diagnostics=dict(findings))
