"""Analyses: what is measured about zero-shot's answer for an image and its evidence, all at the base context.

An analysis is a method whose answer is zero-shot's and whose quantities are its diagnostics, so that it is run, resumed
and stored as methods are (`faircontext analyze`).
"""

from abc import abstractmethod
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


@dataclass(frozen=True)
class Setting:
    """What the quantities of an image are computed from.

    Attributes:
        predicted: zero-shot's class.
        candidates: best first.
        text: `tau_c(delta_0)` of the candidates.
    """

    predicted: int
    candidates: Int[Tensor, " candidates"]
    text: Float[Tensor, "candidates dim"]

    @property
    def position(self) -> int:
        """Position of the predicted class in `candidates`."""
        return int((self.candidates == self.predicted).nonzero()[0, 0])

    @property
    def rivals(self) -> Int[Tensor, "2 rivals"]:
        """The pairs of the predicted class with each other candidate, by their positions."""
        positions, predicted = torch.arange(len(self.candidates)), self.position
        others = positions[positions != predicted]
        return torch.stack([torch.full_like(others, predicted), others])


@dataclass(frozen=True)
class Analysis(EvidenceMethod):
    """A quantity of an image, in the diagnostics of its answer, which is zero-shot's."""

    analysis: ClassVar[bool] = True
    recommended_as: ClassVar[str | None] = "fcl"
    least: ClassVar[int] = 2
    """How many candidates it needs; with fewer there is nothing to measure."""
    with_predicted: ClassVar[bool] = True
    """Whether zero-shot's class is always among the candidates."""

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

    def choose(self, episode: Episode) -> Int[Tensor, " candidates"]:
        """Return `C_K`, best first as explored; zero-shot's class replaces the last one where it must be among them."""
        predicted, candidates = self.predicted(episode), self.phi(episode, episode.labels.text[0], self.k).candidates
        if predicted in candidates or not self.with_predicted:
            return candidates
        return torch.cat([candidates[:-1], candidates.new_tensor([predicted])])

    def setting(self, episode: Episode) -> Setting:
        """Return zero-shot's class and the candidates."""
        candidates = self.choose(episode)
        return Setting(self.predicted(episode), candidates, episode.labels.text[0][candidates])

    @abstractmethod
    def measure(self, episode: Episode, setting: Setting) -> Mapping[str, Diagnostic]:
        """Return the quantities of one image, by name."""

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image as zero-shot does, with its quantities as diagnostics."""
        setting = self.setting(episode)
        measured = self.measure(episode, setting) if len(setting.candidates) >= self.least else {}
        answer = predict_by_scores(episode, episode.z, episode.labels.text[0])
        return replace(answer, candidates=tuple(setting.candidates.tolist()), diagnostics=dict(measured))
