"""What methods share that explore candidates and look where their evidence is: settings, and what they find."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from faircontext.backbones import Backbone
from faircontext.calibrate import Calibration
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, check_interval, check_minimum
from faircontext.estimators import Estimator, Evidence
from faircontext.evidence import effective_area
from faircontext.explore import Aggregation, Exploration, explore
from faircontext.masks import Occluder, one_fraction
from faircontext.methods.base import Method
from faircontext.types import Diagnostic, Prediction

__all__ = ["AUTO_BLOCK", "Adaptation", "EvidenceMethod", "Localised"]

MOST_MASKS = 100_000

AUTO_BLOCK = 32
"""Masks that are added at once where their number follows from the reliability of the maps."""


@dataclass(frozen=True)
class EvidenceMethod(Method):
    """A method that explores candidates and looks where their evidence is (paper, Sec. "Explore with Fair Context").

    Attributes:
        k: K, number of candidates.
        rho: fraction of views that is selected.
        beta: inverse temperature of all scores; None for 0.2 times the backbone's own scale (20 on CLIP).
        aggregation: what ranks classes, `"vote"` or `"mean"` of the posterior.
        masks: N_m, number of masks, or `"auto"`: blocks of `AUTO_BLOCK` masks until the maps of the two classes that
            the plain view favours are as reliable as `reliability`, or `budget` masks have been used.
        grids: grid sizes of the masks.
        gamma: fraction of cells that a mask occludes, or a range from which each mask draws.
        occluder: what occluded pixels become: `"black"`, `"mean"` or `"blur"`; with `"drop"` a vision transformer
            leaves out the patches that a mask covers most, a fraction gamma of them.
        estimator: how class evidence maps come from masks, see `Evidence`: `"paper"`, `"centred"` or `"least-squares"`.
        smoothing: of the maps: standard deviation of a Gaussian kernel as a fraction of the side, 0 for none.
        budget: most masks with `masks="auto"`.
        reliability: what `masks="auto"` aims at, see `Evidence.reliability`.
    """

    k: int = 10
    rho: float = 0.3
    beta: float | None = None
    aggregation: Aggregation = "vote"
    masks: int | Literal["auto"] = 400
    grids: tuple[int, ...] = (7, 9, 11, 13)
    gamma: float | tuple[float, float] = 0.5
    occluder: Occluder = "black"
    estimator: Estimator = "paper"
    smoothing: float = 0.0
    budget: int | None = None
    reliability: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("rho", self.rho, 0.0, 1.0)
        check_interval("gamma", self.gamma, 0.0, 1.0)
        if self.occluder == "drop":
            one_fraction(self.gamma)
        if self.beta is not None:
            check_interval("beta", self.beta, 0.0, 1e6)
        check_minimum("k", self.k, 1)
        self._check_masks()
        if not 0.0 <= self.smoothing <= 1.0:
            raise ArgumentError(f"smoothing={self.smoothing!r} is not possible; it must lie between 0 and 1")
        check_interval("reliability", self.reliability, 0.0, 1.0)
        if not self.grids or min(self.grids) < 2 or max(self.grids) > 512:
            raise ArgumentError(f"grids={self.grids} is not possible; give grid sizes from 2 to 512")

    def _check_masks(self) -> None:
        if self.masks == "auto" and self.budget is None:
            raise ArgumentError('masks="auto" needs a budget, the most masks that an image may use: budget=400')
        for name, value in (("masks", self.masks), ("budget", self.budget)):
            if not isinstance(value, int):
                continue
            check_minimum(name, value, 1)
            if value > MOST_MASKS:
                raise ArgumentError(f"{name}={value} is not possible; give at most {MOST_MASKS:,}")

    def check_backbone(self, backbone: Backbone) -> None:
        """Raise `ArgumentError` where a backbone cannot run the method, or leave patches out where they are to be."""
        super().check_backbone(backbone)
        if self.occluder == "drop":
            backbone.patches  # noqa: B018 (says so where it has none)

    def temperature(self, episode: Episode) -> float:
        """Return beta, which depends on the backbone where it is not given."""
        return self.beta if self.beta is not None else 0.2 * episode.backbone.logit_scale

    def phi(self, episode: Episode, text: Float[Tensor, "classes dim"], k: int) -> Exploration:
        """Run `Phi_k` on the image's views against some classes."""
        return explore(episode.view_features, text, self.temperature(episode), k, self.rho, self.aggregation)

    def evidence_settings(self, episode: Episode) -> tuple[object, ...]:
        """Return all that evidence maps of an image depend on, besides the classes."""
        names = ("masks", "grids", "gamma", "occluder", "estimator", "smoothing", "budget", "reliability")
        return (self.temperature(episode), *(getattr(self, name) for name in names))

    def evidence(self, episode: Episode, text: Float[Tensor, "candidates dim"]) -> Evidence:
        """Return the candidates' class evidence maps `E_c` (paper, "Class Evidence Map Estimation")."""
        if self.masks != "auto":
            return self.evidence_of(episode, text, self.masks)
        assert self.budget is not None
        favoured = (text @ episode.z).sort(descending=True, stable=True).indices[:2]
        for count in range(AUTO_BLOCK, self.budget, AUTO_BLOCK):
            evidence = self.evidence_of(episode, text, count)
            if bool((evidence.reliability[favoured] >= self.reliability).all()):
                return evidence
        return self.evidence_of(episode, text, self.budget)

    def evidence_of(self, episode: Episode, text: Float[Tensor, "candidates dim"], count: int) -> Evidence:
        """Return the evidence maps that the first masks give; see `evidence`."""
        beta = self.temperature(episode)
        importance, masks = episode.importance(text, beta, count, self.grids, self.gamma, self.occluder)
        height, width = episode.x.shape[1:]
        return Evidence(importance, masks, height, width, self.estimator, self.smoothing)


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
