"""Fair Context Learning (the paper): explore candidates, then learn a context that is fair on their common evidence.

Of an image (`Episode`) it takes `x`, the plain view: resized and cut to the size of the backbone's input, values in
[0, 1]; `view_features`, unit-norm embeddings of N views (64 unless the run says otherwise), which are the plain view,
first, and random crops; and `z`, that of the plain view. Every image is normalised by mean and deviation when it is
encoded, after it has been masked or weighted. Crops and masks are drawn from streams that depend on the run's seed, the
image's pixels and the purpose alone. Of the classes (`LabelSpace`) it takes prompts, and unit-norm text features at a
context; the text encoder is frozen, in float32. The backbone's own scale is what it multiplies cosines by, 100 in CLIP.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.backbones.prompts import Placement, Prompts
from faircontext.calibrate import Align, Calibration, Weigh, alignment_loss, calibrate_context, pair_weights, total_loss
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FeatureError
from faircontext.evidence import Estimator, Evidence, Scaling, common_evidence, effective_area
from faircontext.explore import Aggregation, Exploration, explore, normalised_entropy
from faircontext.labels import LabelSpace, Start
from faircontext.methods.base import Limits, Method, register_method
from faircontext.methods.predict import predict_by_vote, vote_over_templates
from faircontext.occlusion import Occluder
from faircontext.types import Diagnostic, Prediction

_SHARE = 0.0, 1.0
"""A fraction of something lies above 0 and at most at 1."""

Learnable: TypeAlias = tuple[Tensor, Placement, Tensor | None]
"""What is learnt: the context `delta_0`, where it stands in the prompt, and the text features to align with.

The context has shape (tokens, width), or (candidates, tokens, width) where each class has its own; the features have
shape (candidates, dim), and None stands for those of the first forward pass, that is `tau_c(delta_0)`."""


@dataclass(frozen=True)
class EvidenceMethod(Method):
    """A method that explores candidates and looks where their evidence is (paper, Sec. "Explore with Fair Context").

    Attributes:
        k: K, number of candidates.
        rho: fraction of views that is selected.
        beta: inverse temperature of exploration, evidence and calibration; None for 0.2 times the backbone's own scale
            (20 on CLIP).
        aggregation: what ranks classes in every exploration, `"vote"` or `"mean"` of the posterior.
        masks: N_m, number of masks.
        grids: grid sizes of the masks.
        gamma: fraction of cells that a mask occludes.
        estimator: how class evidence maps come from masks, see `Evidence`: `"paper"`, `"covariance"`
            or `"least-squares"`.
        smoothing: of the maps: standard deviation of a Gaussian kernel as a fraction of the side, 0 for none.
    """

    # Above the first number and at most the second; a single number is the least value. A subclass adds its own.
    setting_limits: ClassVar[Limits] = {"rho": _SHARE, "gamma": _SHARE, "beta": (0.0, 1e6), "k": 1, "masks": (0, 10**5)}

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
        if not 0.0 <= self.smoothing <= 1.0:
            raise ArgumentError(f"smoothing={self.smoothing!r} is not possible; it must lie between 0 and 1")
        if not self.grids or min(self.grids) < 2 or max(self.grids) > 512:
            raise ArgumentError(f"grids={self.grids} is not possible; give grid sizes from 2 to 512")

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
            occluder: what replaces hidden pixels; `"black"` sets them to 0 before normalisation.
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
        maps: common-evidence map of each pair, scaled; None in a control, whose features are of something else.
        evidence: class evidence that the maps were made from; None where they are.
    """

    features: Float[Tensor, "pairs dim"]
    pairs: Int[Tensor, "2 pairs"]
    maps: Float[Tensor, "pairs height width"] | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Adaptation:
    """How FCL arrived at an answer, for one template; candidate tensors are in class order.

    Where calibration stops, for whatever reason, `after` is `before`, and what follows it is None but `not_learnt`.

    Attributes:
        prediction: the answer.
        exploration: `Phi_K` over all classes, with the text features of `FCL.start`.
        candidates: `C_K`, in class order.
        before: `Phi_1` over the candidates with the same text features: the exploration-only answer.
        after: `Phi_1` over the candidates with those at the learnt context. With CL-HP they differ from `before`'s even
            where the context is `delta_0` still, as its tokens now stand before the prompt.
        evidence: class evidence of the candidates, None in a control.
        pairs: positions in `candidates` of each pair that was made alike.
        common: common-evidence map of each pair, scaled, None in a control.
        calibration: the learnt context and its losses.
        not_learnt: why the context is `delta_0` still, for a person to read; None if something was learnt.
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

    Settings of exploration and evidence are those of `EvidenceMethod`. Studies override `choose_pairs`, `common` and
    `why_not` in a subclass (`FCLVariants`), or hand other arguments to `evidence`, `common` and `learn`. Which defaults
    are readings is listed in docs/silent.md.

    Attributes:
        context: what is learnt: `"cl"`, the words before the class name ("a photo of a"); `"cl-hp"`, tokens before the
            whole hard prompt.
        calibrate: False stops after exploration.
        area: effective area of the common-evidence maps, as a fraction of the image: each pair's softmax gets the
            temperature at which its effective area is this. None for the paper's softmax, which has no temperature.
        lambda_cal: weight of the calibration loss.
        lambda_align: weight of the alignment loss.
        lr: learning rate of AdamW.
        steps: number of steps.
        safe: whether images on which the views are sure among the candidates are left as explored.
        safe_openness: with `safe`, images whose `normalised_entropy` is below this are not calibrated; the default was
            chosen on half of the images of docs/results/study.md.
    """

    setting_limits: ClassVar[Limits] = {
        **dict.fromkeys(("steps", "lr", "lambda_cal", "lambda_align"), 0),
        **dict.fromkeys(("area", "safe_openness"), _SHARE),
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
        """Answer one image; with several templates, by majority over one run per template.

        Ties go to the class with the larger sum of vote shares; probabilities are means over templates.
        """
        runs = [self.adapt(episode, template).prediction for template in range(len(episode.labels.prompts))]
        return runs[0] if len(runs) == 1 else vote_over_templates(runs)

    def check_labels(self, labels: LabelSpace) -> None:
        """Raise `LabelError` where a template has no context to learn, or a prompt no room for learnable tokens."""
        for template in range(len(labels.prompts)):
            labels.check_start(template, self.context)

    def label_warnings(self, labels: LabelSpace) -> list[str]:
        """Return a warning where CL-HP starts from a context that was learnt in place of the words."""
        return labels.start_warnings(self.context)

    @torch.inference_mode(False)  # calibration differentiates, also where the caller has switched that off
    def adapt(self, episode: Episode, template: int = 0) -> Adaptation:
        """Run FCL on one image with one template, and return every intermediate result.

        `tau_0` are the text features of `start`, without learnable tokens in CL-HP. Each vote is a `phi` of its own on
        the same embeddings of views: it selects views by their entropy among the classes that it is about.

        1. Explore: the confident views vote among all classes (`tau_0`); the K that rank first are the candidates. The
           views that are confident among these then vote among them: the answer, where nothing is calibrated.
        2. Find evidence: hide random cells of the plain view, and see which candidates lose by it (`evidence`).
        3. Find common evidence: for each pair of candidates weight the plain view's pixels by the softmax of the sum of
           the two maps, and encode it (`common`).
        4. Calibrate: from `delta_0`, take steps of AdamW on the context so that the two classes of a pair score alike
           on their common evidence, and no text moves far (`learn`, see `total_loss`).
        5. Answer: vote among the candidates once more, with their text features at the learnt context. The class that
           ranks first is the answer: that with most votes, or of highest posterior with `aggregation="mean"`; for ties
           see `explore`. Probabilities are the mean over the views selected by this last vote of the softmax over all
           classes at the backbone's own scale, with the learnt features for candidates and `tau_0` for the rest.

        Where nothing is calibrated, `Adaptation.not_learnt` says why. Where that is a failure, or there is a single
        candidate, `Prediction.fallback` says so as well.

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
        except FeatureError as error:  # of a masked or weighted image; `learn` reports what is not finite itself
            return stop(f"{error}: answered by exploration alone")
        prompts = episode.labels.prompts[template].of_classes(candidates.tolist())
        # The first forward pass of CL-HP has learnable tokens before the prompt, so its reference is `tau_0` instead.
        learnt = self.learn(episode, prompts, (delta0, placement, text if placement == "prepend" else None), common)
        if learnt.failure is not None:
            return stop(f"{learnt.failure}: answered by exploration alone")
        # CL's features of an untouched context are reused, so that the answer is exploration's to the bit.
        untouched = torch.equal(learnt.context, delta0)
        tau = tau0 if untouched and placement == "replace" else tau0.index_copy(0, candidates, learnt.text)
        after = self.phi(episode, tau[candidates], 1)
        prediction = predict_by_vote(episode, exploration, candidates, after, tau)
        stages = exploration, candidates, before, after, common.evidence, common.pairs, common.maps, learnt
        adaptation = Adaptation(prediction, *stages, self._why_untouched() if untouched else None)
        changes = _diagnose(adaptation, float((learnt.context - delta0).norm()), tau[candidates] - text)
        return replace(adaptation, prediction=replace(prediction, diagnostics={**prediction.diagnostics, **changes}))

    def why_not(self, before: Exploration) -> str | None:
        """Return why an image is not calibrated, for a person to read, or None: it is.

        Args:
            before: `Phi_1` over the candidates with the text features of `start`.
        """
        if not self.calibrate:
            return "calibration is off"
        if not self.safe or len(before.votes) < 2 or (value := normalised_entropy(before)) >= self.safe_openness:
            return None
        cut = math.floor(1000 * value) / 1000  # not rounded up to the threshold
        sure = f"the crops are sure among the candidates: their normalised entropy is {cut:.3f}"
        return f"{sure}, and safe=true adjusts the prompt from {self.safe_openness} on"

    def choose_pairs(self, ranking: Int[Tensor, " candidates"]) -> Int[Tensor, "2 pairs"]:
        """Return the pairs of candidates `i < j` that are made alike: all K (K - 1) / 2, in order.

        Args:
            ranking: positions of the candidates, best first before calibration.
        """
        return torch.triu_indices(len(ranking), len(ranking), 1, device=ranking.device)

    def common(
        self,
        episode: Episode,
        text: Float[Tensor, "candidates dim"],
        pairs: Int[Tensor, "2 pairs"],
        scaling: Scaling = "max",
    ) -> Common:
        """Find the common evidence of pairs and encode it: `z_com_ij` (paper, "Common Evidence Localization").

        `Q_ij` is the softmax of `E_i + E_j` over pixels, divided by its maximum (`common_evidence`), and `z_com_ij` the
        embedding of the plain view with its pixels in [0, 1] times `Q_ij`, normalised after.

        Args:
            episode: the image.
            text: `tau_0` of the candidates, see `start`.
            pairs: positions `i`, `j` of each pair.
            scaling: see `common_evidence`.
        """
        evidence = self.evidence(episode, text)

        def find() -> Common:
            maps = common_evidence(evidence.maps, pairs, scaling, self.area)
            return Common(episode.weighted_features(maps), pairs, maps, evidence)

        return episode.remember((evidence, pairs.cpu().numpy().tobytes(), scaling, self.area), find)

    def start(self, episode: Episode, template: int) -> Start:
        """Return `delta_0`, where it stands in the prompt, and the text features `tau_0` of all classes.

        CL learns the token embeddings of the words before the class name, as many as the template has, in their place:
        `tau_0` is `tau(delta_0)`. CL-HP learns tokens before the whole prompt, which start as a copy of those of "a
        photo of a"; `tau_0` are features of the prompt alone. Where a context was learnt before and is given with the
        classes, either starts from it.
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
            start: see `Learnable`; the context is copied.
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
        zero = next((name for name in ("steps", "lr", "lambda_cal") if getattr(self, name) == 0), None)
        if zero is None:
            return "the loss had no slope, as where the candidates are balanced already"
        reasons = {"steps": "no step was taken", "lr": "the steps had no length"}
        return f"{zero}=0: {reasons.get(zero, 'nothing asked for a change')}"


def _diagnose(adaptation: Adaptation, context_shift: float, text_changes: Tensor) -> dict[str, Diagnostic]:
    """Return the diagnostics of a calibration that changed context and candidates' text features by so much."""
    candidates, learnt = adaptation.candidates, adaptation.calibration
    diagnostics: dict[str, Diagnostic] = {
        "explored": int(candidates[adaptation.before.ranking[0]]),
        "context_shift": context_shift,
        "text_shift": float(text_changes.norm(dim=-1).mean()),
    }
    if adaptation.evidence is not None and adaptation.common is not None:
        best_first = torch.searchsorted(candidates, adaptation.exploration.candidates).tolist()
        relative = adaptation.common / adaptation.common.amax((1, 2), keepdim=True)
        diagnostics |= {
            "evidence_masks": len(adaptation.evidence.masks),
            "evidence_reliability": tuple(adaptation.evidence.reliability[best_first].tolist()),
            "common_mean": float(relative.mean()),
            "common_area": float(effective_area(relative).mean()),
        }
    return diagnostics | {f"loss_{step}": loss for step, loss in enumerate(learnt.losses if learnt else ())}


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
