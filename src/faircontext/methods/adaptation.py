"""What FCL finds on one image, stage by stage: common evidence of pairs, and the way to an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from faircontext.calibrate import Calibration
from faircontext.estimators import Evidence
from faircontext.evidence import effective_area
from faircontext.explore import Exploration
from faircontext.types import Diagnostic, Prediction

__all__ = ["Adaptation", "Localised"]


@dataclass(frozen=True)
class Adaptation:
    """How FCL arrived at an answer, for one template; candidate tensors are in class order.

    Attributes:
        prediction: the answer.
        exploration: `Phi_K` over all classes at the base context.
        candidates: `C_K`, in class order.
        before: `Phi_1` over the candidates at the base context: the exploration-only answer.
        after: `Phi_1` over the candidates at the learnt context (`before` where nothing was learnt).
        evidence: class evidence of the candidates, None without calibration or with a control (`proxy`).
        pairs: positions in `candidates` of each pair that was made alike.
        common: common-evidence map of each pair, scaled, None where `evidence` is.
        best_common: that of the two best candidates in the end, which need not be a pair with `pairs="top3"`.
        calibration: the learnt context and its losses, None without calibration.
        not_learnt: None, or why the context is `delta_0` still, for a person to read.
    """

    prediction: Prediction
    exploration: Exploration
    candidates: Int[Tensor, " candidates"]
    before: Exploration
    after: Exploration
    evidence: Evidence | None = None
    pairs: Int[Tensor, "2 pairs"] | None = None
    common: Float[Tensor, "pairs height width"] | None = None
    best_common: Float[Tensor, "height width"] | None = None
    calibration: Calibration | None = None
    not_learnt: str | None = None

    def with_diagnostics(self, findings: Mapping[str, Diagnostic]) -> "Adaptation":
        """Return this adaptation with more diagnostics of its answer."""
        prediction = self.prediction
        return replace(self, prediction=replace(prediction, diagnostics={**prediction.diagnostics, **findings}))

    def fall_back(self, reason: str) -> "Adaptation":
        """Return this adaptation that ends here, with the reason."""
        return replace(self, prediction=replace(self.prediction, fallback=reason), not_learnt=reason)


@dataclass(frozen=True)
class Localised:
    """Common evidence of all pairs: its features, and the maps behind them where it is the image's own."""

    features: Float[Tensor, "pairs dim"]
    pairs: Int[Tensor, "2 pairs"]
    evidence: Evidence | None = None
    common: Float[Tensor, "pairs height width"] | None = None

    def findings(self, image: Float[Tensor, " dim"], ranking: Sequence[int]) -> dict[str, Diagnostic]:
        """Return how far the maps can be trusted, and how far common evidence is from the whole image.

        Args:
            image: `z`, the embedding of the image.
            ranking: positions of the candidates, best first.
        """
        if self.evidence is None or self.common is None:
            return {}
        relative = self.common / self.common.amax((1, 2), keepdim=True)
        return {
            "evidence_masks": len(self.evidence.masks),
            "evidence_reliability": tuple(self.evidence.reliability[list(ranking)].tolist()),
            "common_mean": float(relative.mean()),
            "common_min": float(relative.amin((1, 2)).mean()),
            "common_area": float(effective_area(relative).mean()),
            "common_cosine": float((self.features @ image).mean()),
        }
