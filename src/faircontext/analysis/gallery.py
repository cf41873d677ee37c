"""What figures and pages show of an image: its picture, its candidates' evidence maps, and posteriors (figure a)."""

from dataclasses import dataclass

import torch

from faircontext.analysis.base import Analysis
from faircontext.analysis.maps import keep_maps
from faircontext.episode import Episode
from faircontext.methods.base import register_method
from faircontext.methods.fcl import FCL
from faircontext.types import Diagnostic, Prediction

__all__ = ["Gallery"]


@register_method("gallery", "picture, evidence maps and posteriors of an image, for figures and pages (figure a)")
@dataclass(frozen=True)
class Gallery(Analysis):
    """What `keep_maps` keeps, and the candidates' posteriors.

    Finds `image` and `maps`, `posterior` of the plain view among the candidates at beta, `before` and `after` (mean
    over the kept views, before and after calibration), and the class indices `explored` and `answer` of exploration
    and of FCL. Calibration is FCL's with its default settings besides those given here.

    Attributes:
        lr: learning rate of the calibration.
    """

    lr: float = 0.002

    def __call__(self, episode: Episode) -> Prediction:
        """Run FCL on one image and keep what is shown."""
        tau, beta = episode.labels.text[0], self.temperature(episode)
        found = FCL(**self.settings()).adapt(episode)
        candidates = found.exploration.candidates  # best first, as the rows of all methods have them
        places = torch.searchsorted(found.candidates, candidates)
        evidence = (
            self.evidence(episode, tau[candidates]).maps if found.evidence is None else found.evidence.maps[places]
        )
        posterior = (beta * tau[candidates].double() @ episode.z.double()).softmax(-1)
        findings: dict[str, Diagnostic] = {
            **keep_maps(episode.plain, evidence),
            "posterior": tuple(posterior.tolist()),
            "before": tuple(found.before.posterior[places].tolist()),
            "after": tuple(found.after.posterior[places].tolist()),
            "explored": int(found.candidates[found.before.ranking[0]]),
            "answer": found.prediction.index,
        }
        return self.conclude(episode, candidates, findings)
