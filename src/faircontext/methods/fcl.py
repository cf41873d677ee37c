"""Fair Context Learning (the paper): explore candidates, then learn a context that is fair on their common evidence."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.backbones.prompts import Placement, Prompts
from faircontext.calibrate import (
    Align,
    Calibration,
    Weigh,
    alignment_loss,
    calibrate_context,
    pair_weights,
    total_loss,
)
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FeatureError, check_minimum
from faircontext.evidence import Estimator, Evidence, Scaling, common_evidence, effective_area
from faircontext.explore import Aggregation, Exploration, explore, normalised_entropy
from faircontext.labels import LabelSpace, Start
from faircontext.methods.base import Limits, Method, register_method
from faircontext.methods.predict import predict_by_vote, vote_over_templates
from faircontext.occlusion import Occluder
from faircontext.types import Diagnostic, Prediction

MOST_MASKS = 100_000

Learnable: TypeAlias = tuple[Tensor, Placement, Tensor | None]
"""What is learnt: the context `delta_0`, where it stands in the prompt, and the text features to align with.

The context has shape (tokens, width), or (candidates, tokens, width) where each class has its own; the features have
shape (candidates, dim), and None stands for those of the first forward pass."""


@dataclass(frozen=True)
class EvidenceMethod(Method):
    """A method that explores candidates and looks where their evidence is (paper, Sec. "Explore with Fair Context").

    Attributes:
        k: K, number of candidates.
        rho: fraction of views that is selected.
        beta: inverse temperature of all scores; None for 0.2 times the backbone's own scale (20 on CLIP).
        aggregation: what ranks classes, `"vote"` or `"mean"` of the posterior.
        masks: N_m, number of masks.
        grids: grid sizes of the masks.
        gamma: fraction of cells that a mask occludes.
        estimator: how class evidence maps come from masks, see `Evidence`: `"paper"`, `"covariance"`
            or `"least-squares"`.
        smoothing: of the maps: standard deviation of a Gaussian kernel as a fraction of the side, 0 for none.
    """

    setting_limits: ClassVar[Limits] = {"rho": (0.0, 1.0), "gamma": (0.0, 1.0), "beta": (0.0, 1e6), "k": 1}

    k: int = 10
    rho: float = 0.3
    beta: float | None = None
    aggregation: Aggregation = "vote"
    masks: int = 400
    grids: tuple[int, ...] = (7, 9, 11, 13)
    gamma: float = 0.5
    estimator: Estimator = "paper"
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_masks()
        if not 0.0 <= self.smoothing <= 1.0:
            raise ArgumentError(f"smoothing={self.smoothing!r} is not possible; it must lie between 0 and 1")
        if not self.grids or min(self.grids) < 2 or max(self.grids) > 512:
            raise ArgumentError(f"grids={self.grids} is not possible; give grid sizes from 2 to 512")

    def _check_masks(self, name: str = "masks") -> None:
        check_minimum(name, getattr(self, name), 1)
        if getattr(self, name) > MOST_MASKS:
            raise ArgumentError(f"{name}={getattr(self, name)} is not possible; give at most {MOST_MASKS:,}")

    def temperature(self, episode: Episode) -> float:
        """Return beta, which depends on the backbone where it is not given."""
        return self.beta if self.beta is not None else 0.2 * episode.backbone.logit_scale

    def phi(self, episode: Episode, text: Float[Tensor, "classes dim"], k: int) -> Exploration:
        """Run `Phi_k` on the features of the image's views, the plain one and random crops, against some classes."""
        return explore(episode.view_features, text, self.temperature(episode), k, self.rho, self.aggregation)

    def evidence(
        self, episode: Episode, text: Float[Tensor, "candidates dim"], count: int = 0, occluder: Occluder = "black"
    ) -> Evidence:
        """Return the candidates' class evidence maps `E_c` (paper, "Class Evidence Map Estimation").

        Each mask M is a random choice of a grid's cells over the plain view x (`sample_masks`). `x (1 - M)` is encoded,
        hidden pixels black before normalisation. `dl_c(M)` is by how much the log-posterior of class c among the
        candidates falls (`importance`), and `E_c` the mean over masks of `dl_c(M) M`, or another estimate (`Evidence`).

        Args:
            episode: the image.
            text: unit-norm text features of the candidates.
            count: how many of the masks are used, the first ones; 0 for all.
            occluder: what becomes of what a mask hides: it turns black before the image is normalised.
        """
        settings = self.temperature(episode), count or self.masks, self.grids, self.gamma, occluder
        key = text.cpu().numpy().tobytes(), settings, self.estimator, self.smoothing

        def find() -> Evidence:
            (importance, masks), (height, width) = episode.importance(text, *settings), episode.x.shape[1:]
            return Evidence(importance, masks, height, width, self.estimator, self.smoothing)

        return episode.remember(key, find)


@dataclass(frozen=True)
class Common:
    """What pairs of candidates are made alike on.

    Attributes:
        features: `z_com_ij` of each pair.
        pairs: positions `i`, `j` of each pair in the candidates.
        maps: common-evidence map of each pair, scaled, and `evidence`, the class evidence behind them; None in a
            control, whose features are not those of common evidence.
    """

    features: Float[Tensor, "pairs dim"]
    pairs: Int[Tensor, "2 pairs"]
    maps: Float[Tensor, "pairs height width"] | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Adaptation:
    """How FCL arrived at an answer, for one template; candidate tensors are in class order.

    Attributes:
        prediction: the answer.
        exploration: `Phi_K` over all classes at the base context.
        candidates: `C_K`, in class order.
        before: `Phi_1` over the candidates at the base context: the exploration-only answer.
        after: `Phi_1` over the candidates at the learnt context (`before` where nothing was learnt).
        evidence: class evidence of the candidates, None without calibration or in a control.
        pairs: positions in `candidates` of each pair that was made alike.
        common: common-evidence map of each pair, scaled, None where `evidence` is.
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
    calibration: Calibration | None = None
    not_learnt: str | None = None

    @property
    def best_common(self) -> Float[Tensor, "height width"] | None:
        """The common evidence of the two best candidates in the end, None where they are none of the pairs."""
        if self.pairs is None or self.common is None:
            return None
        best = (self.pairs == self.after.ranking[:2].sort().values[:, None]).all(0)
        return self.common[best.nonzero()[0, 0]] if best.any() else None


@register_method("fcl", "Fair Context Learning: vote for candidates, then equalise them on their common evidence")
@dataclass(frozen=True)
class FCL(EvidenceMethod):
    """Fair Context Learning; the defaults are the paper's, or the readings of its silent places given in the docs.

    Settings of exploration and evidence are those of `EvidenceMethod`. What studies vary besides is overridden in a
    subclass: `choose_pairs`, `common` and `why_not`, or what they are handed.

    Attributes:
        context: `"cl"` learns the tokens of "a photo of a"; `"cl-hp"` puts learnable tokens before the hard prompt.
        calibrate: False stops after exploration.
        area: effective area of the common-evidence maps, as a fraction of the image: each pair's softmax gets the
            temperature that gives it. None for the paper's softmax, which has none.
        lambda_cal: weight of the calibration loss.
        lambda_align: weight of the alignment loss.
        lr: learning rate of AdamW.
        steps: number of steps.
        safe: whether to calibrate only images whose candidates exploration leaves open, see `normalised_entropy`.
        safe_openness: the least normalised entropy that is calibrated then; chosen on half of the study's images.
    """

    setting_limits: ClassVar[Limits] = {
        **dict.fromkeys(("steps", "lr", "lambda_cal", "lambda_align"), 0),
        **dict.fromkeys(("area", "safe_openness"), (0.0, 1.0)),
    }

    context: Literal["cl", "cl-hp"] = "cl"
    calibrate: bool = True
    area: float | None = None
    lambda_cal: float = 1.0
    lambda_align: float = 1.0
    lr: float = 0.002
    steps: int = 2
    safe: bool = False
    safe_openness: float = 0.8

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image; with several templates, by majority over one run per template."""
        runs = [self.adapt(episode, template).prediction for template in range(len(episode.labels.prompts))]
        return runs[0] if len(runs) == 1 else vote_over_templates(runs)

    def check_labels(self, labels: LabelSpace) -> None:
        """Raise `LabelError` where a template has no context to learn, or a prompt no room for learnable tokens."""
        for template in range(len(labels.prompts)):
            labels.check_start(template, self.context)

    def label_warnings(self, labels: LabelSpace) -> list[str]:
        """Return that CL-HP starts from a context that was learnt in another place, where it does."""
        return labels.start_warnings(self.context)

    @torch.inference_mode(False)  # calibration differentiates, also where the caller has switched that off
    def adapt(self, episode: Episode, template: int = 0) -> Adaptation:
        """Run FCL on one image with one template, and return every intermediate result.

        1. Explore: the confident views vote among all classes at `delta_0`; the K with most votes are candidates
           (`phi`, see `explore`). They vote again among these alone: the answer, where nothing is calibrated.
        2. Find evidence: hide random cells of the plain view, and see which classes lose by it (`evidence`).
        3. Find common evidence: for each pair of candidates weight the plain view's pixels by the softmax of the sum of
           the two maps, and encode it (`common`).
        4. Calibrate: from `delta_0`, take steps of AdamW on the context so that the two classes of a pair score alike
           on their common evidence, and no text moves far (`learn`, see `total_loss`).
        5. Answer: the same features of the views vote among the candidates at the learnt context. The class with most
           votes is the answer. Probabilities are the mean over the selected views of the softmax over all classes at
           the backbone's own scale, with the learnt context for candidates and `delta_0` for the rest.

        Where calibration is not wanted or fails, the answer is that of step 1, and says why.

        Args:
            episode: the image, its views and their features.
            template: position of the prompt template.
        """
        if not 0 <= template < len(episode.labels.prompts):
            raise ArgumentError(f"template={template!r} is not possible; there are {len(episode.labels.prompts)}")
        delta0, placement, tau0 = self.start(episode, template)
        exploration = self.phi(episode, tau0, self.k)
        candidates = exploration.candidates.sort().values
        before = self.phi(episode, text := tau0[candidates], 1)
        delta0 = delta0[candidates] if delta0.ndim == 3 else delta0  # each class has a context of its own, or all one

        def stop(reason: str, failed: bool = True) -> Adaptation:
            explored = predict_by_vote(episode, exploration, candidates, before, tau0)
            prediction = replace(explored, fallback=reason) if failed else explored
            return Adaptation(prediction, exploration, candidates, before, before, not_learnt=reason)

        if (reason := self.why_not(before)) is not None:
            return stop(reason, failed=False)
        if len(candidates) < 2:
            return stop("fewer than two candidates: nothing to calibrate")
        try:
            common = self.common(episode, text, self.choose_pairs(before.ranking))
        except FeatureError as error:  # of a masked image; exploration needs none
            return stop(f"{error}: answered by exploration alone")
        prompts = episode.labels.prompts[template].of_classes(candidates.tolist())
        # CL-HP's reference is the hard prompt; the first forward pass already has learnable tokens before it.
        learnt = self.learn(episode, prompts, (delta0, placement, text if placement == "prepend" else None), common)
        if learnt.failure is not None:
            return stop(f"{learnt.failure}: answered by exploration alone")
        # The features of an untouched context are reused, so that the answer is exploration's to the bit.
        untouched = torch.equal(learnt.context, delta0)
        tau = tau0 if untouched and placement == "replace" else tau0.index_copy(0, candidates, learnt.text)
        after = self.phi(episode, tau[candidates], 1)
        prediction = predict_by_vote(episode, exploration, candidates, after, tau)
        steps = exploration, candidates, before, after, common.evidence, common.pairs, common.maps, learnt
        adaptation = Adaptation(prediction, *steps, self._why_untouched() if untouched else None)
        found = _diagnose(adaptation, learnt.context - delta0, tau[candidates] - text)
        return replace(adaptation, prediction=replace(prediction, diagnostics={**prediction.diagnostics, **found}))

    def why_not(self, before: Exploration) -> str | None:
        """Return why an image is not calibrated, for a person to read, or None: it is.

        Args:
            before: `Phi_1` over the candidates at the base context.
        """
        if not self.calibrate:
            return "calibration is off"
        if not self.safe or len(before.votes) < 2 or (value := normalised_entropy(before)) >= self.safe_openness:
            return None
        return (
            f"the crops are sure among the candidates: their normalised entropy is "
            f"{math.floor(1000 * value) / 1000:.3f}, and safe=true adjusts the prompt from {self.safe_openness} on"
        )

    def choose_pairs(self, ranking: Int[Tensor, " candidates"]) -> Int[Tensor, "2 pairs"]:
        """Return the pairs of candidates `i < j` that are made alike: all K (K - 1) / 2, in order.

        Args:
            ranking: positions of the candidates, best first at the base context.
        """
        return torch.triu_indices(len(ranking), len(ranking), 1, device=ranking.device)

    def common(
        self,
        episode: Episode,
        text: Float[Tensor, "candidates dim"],
        pairs: Int[Tensor, "2 pairs"],
        scale: Scaling = "max",
    ) -> Common:
        """Find the common evidence of pairs and encode it: `z_com_ij` (paper, "Common Evidence Localization").

        `Q_ij` is the softmax of `E_i + E_j` over pixels, divided by its maximum (`common_evidence`), and `z_com_ij` the
        embedding of the plain view with its pixels times `Q_ij`.

        Args:
            episode: the image.
            text: `tau_c(delta_0)` of the candidates.
            pairs: positions `i`, `j` of each pair.
            scale: see `common_evidence`.
        """
        evidence = self.evidence(episode, text)

        def find() -> Common:
            maps = common_evidence(evidence.maps, pairs, scale, self.area)
            return Common(episode.weighted_features(maps), pairs, maps, evidence)

        return episode.remember((evidence, pairs.cpu().numpy().tobytes(), scale, self.area), find)

    def start(self, episode: Episode, template: int) -> Start:
        """Return `delta_0`, where it stands in the prompt, and the text features `tau_c(delta_0)` of all classes.

        CL learns the token embeddings of the words before the class name, in their place. CL-HP learns tokens before
        the whole prompt, which start as a copy of those of "a photo of a"; its features are of the prompt alone.
        """
        return episode.labels.start(template, self.context)

    def learn(
        self,
        episode: Episode,
        prompts: Prompts,
        start: Learnable,
        common: Common,
        weigh: Weigh = pair_weights,
        align: Align = alignment_loss,
    ) -> Calibration:
        """Learn a context that makes the pairs alike (paper, "Fair Context Adaptation").

        AdamW takes `steps` steps from `delta_0` on `lambda_cal L_cal + lambda_align L_align` (`total_loss`); only the
        candidates' prompts go through the text model.

        Args:
            episode: the image.
            prompts: of the candidates.
            start: see `Learnable`.
            common: what pairs are made alike on.
            weigh: gives the pairs' weights.
            align: gives `L_align`.
        """
        delta0, placement, reference = start
        settings = self.temperature(episode), self.lambda_cal, self.lambda_align, weigh, align

        def loss(text: Tensor, reference: Tensor) -> Tensor:
            return total_loss(text, reference, episode.z, common.features, common.pairs, *settings)

        def encode(delta: Tensor) -> Tensor:
            return episode.backbone.encode_text(prompts, delta, placement)

        return calibrate_context(encode, delta0, loss, reference=reference, lr=self.lr, steps=self.steps)

    def _why_untouched(self) -> str:
        """Return why the optimiser left the context as it was."""
        reasons = {
            "steps": "no step was taken",
            "lr": "the steps had no length",
            "lambda_cal": "nothing asked for a change",
        }
        zero = next((name for name in reasons if getattr(self, name) == 0), None)
        return f"{zero}=0: {reasons[zero]}" if zero else "the candidates were balanced already: the loss had no slope"


def _diagnose(adaptation: Adaptation, context: Tensor, text: Tensor) -> dict[str, Diagnostic]:
    """Return the diagnostics of a calibration, given by how much context and text features of candidates changed."""
    candidates, learnt = adaptation.candidates, adaptation.calibration
    found: dict[str, Diagnostic] = {
        "explored": int(candidates[adaptation.before.ranking[0]]),
        "context_shift": float(context.norm()),
        "text_shift": float(text.norm(dim=-1).mean()),
    }
    if adaptation.evidence is not None and adaptation.common is not None:
        best_first = torch.searchsorted(candidates, adaptation.exploration.candidates).tolist()
        relative = adaptation.common / adaptation.common.amax((1, 2), keepdim=True)
        found |= {
            "evidence_masks": len(adaptation.evidence.masks),
            "evidence_reliability": tuple(adaptation.evidence.reliability[best_first].tolist()),
            "common_mean": float(relative.mean()),
            "common_area": float(effective_area(relative).mean()),
        }
    return found | {f"loss_{step}": loss for step, loss in enumerate(learnt.losses if learnt else ())}


def write_context(
    path: Path | None, adaptation: Adaptation, method: FCL, labels: LabelSpace, warn: Callable[[str], None]
) -> None:
    """Write a learnt context in the form of CoOp's prompt learner; see `LabelSpace.save_context`.

    Args:
        path: of the file; one that is there is replaced. None writes nothing.
        adaptation: what was learnt, with the first template.
        method: that has learnt it.
        labels: the classes.
        warn: is told where nothing was learnt, and so nothing is written.

    Raises:
        ArgumentError: the file cannot be written.
    """
    if path is None:
        return
    if adaptation.calibration is None or adaptation.not_learnt is not None:
        warn(f"{path}: not written, as nothing was learnt ({adaptation.not_learnt})")
        return
    placement: Placement = "replace" if method.context == "cl" else "prepend"
    labels.save_context(path, adaptation.calibration.context, adaptation.candidates, placement)
