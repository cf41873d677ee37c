"""Fair Context Learning (the paper): explore candidates, then learn a context that is fair on their common evidence."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.backbones.prompts import Placement
from faircontext.calibrate import Calibration, PairWeight, calibrate_context, total_loss
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FeatureError, LabelError, check_interval, check_minimum
from faircontext.evidence import EvidenceScaling, Proxy, candidate_pairs, common_evidence, control_picture
from faircontext.explore import openness, why_sure
from faircontext.labels import LabelSpace
from faircontext.methods.base import register_method
from faircontext.methods.evidence import Adaptation, EvidenceMethod, Localised
from faircontext.methods.predict import predict_by_vote, vote_over_templates
from faircontext.types import Diagnostic, Prediction

__all__ = ["FCL", "Adaptation", "StudySwitches"]

LEADERS = 3
"""Candidates that every pair has one of, with `pairs="top3"`."""


@dataclass(frozen=True)
class StudySwitches:
    """Settings of FCL that exist for studies: what the paper leaves open, and controls.

    Attributes:
        proxy: what a pair is made alike on: the image weighted by its common evidence (`"evidence"`, the paper), or a
            control that is the same for all pairs: the `"image"` itself, its `"mean"` colour, `"grey"` or `"black"`.
        pair_weight: `"paper"`, `"inverse"` or `"uniform"`.
        hp_base: CL-HP's base prompt: `"hard"` (without learnable tokens) or `"init"` (with the initial ones).
        hp_init: CL-HP's initial tokens: `"copy"` of "a photo of a", or `"normal"` noise of standard deviation 0.02.
    """

    proxy: Proxy = "evidence"
    pair_weight: PairWeight = "paper"
    hp_base: Literal["hard", "init"] = "hard"
    hp_init: Literal["copy", "normal"] = "copy"


@register_method("fcl", "Fair Context Learning: vote for candidates, then equalise them on their common evidence")
@dataclass(frozen=True)
class FCL(StudySwitches, EvidenceMethod):
    """Fair Context Learning; the defaults are the paper's, or the readings of its silent places given in the docs.

    Settings of exploration and evidence are those of `EvidenceMethod`, further ones those of `StudySwitches`.

    Attributes:
        context: `"cl"` learns the tokens of "a photo of a"; `"cl-hp"` puts learnable tokens before the hard prompt.
        calibrate: False stops after exploration.
        evidence_scaling: of the common-evidence maps: `"max"`, `"minmax"` or `"none"`.
        area: effective area of the common-evidence maps, as a fraction of the image: each pair's softmax gets the
            temperature that gives it. None for the paper's softmax, which has none.
        lambda_cal: weight of the calibration loss.
        lambda_align: weight of the alignment loss.
        lr: learning rate of AdamW.
        steps: number of steps.
        safe: whether to calibrate only images whose candidates exploration leaves open, see `openness`.
        safe_openness: the least openness that is calibrated then; chosen on half of the study's images.
        pairs: of candidates that are made alike: `"all"` (the paper), or `"top3"`, those with one of the three that
            exploration puts first, 24 of 45 with ten candidates.
    """

    context: Literal["cl", "cl-hp"] = "cl"
    calibrate: bool = True
    evidence_scaling: EvidenceScaling = "max"
    area: float | None = None
    lambda_cal: float = 1.0
    lambda_align: float = 1.0
    lr: float = 0.002
    steps: int = 2
    safe: bool = False
    safe_openness: float = 0.8
    pairs: Literal["all", "top3"] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "lr", "lambda_cal", "lambda_align"):
            check_minimum(name, getattr(self, name), 0)
        if self.area is not None:
            check_interval("area", self.area, 0.0, 1.0)
        check_interval("safe_openness", self.safe_openness, 0.0, 1.0)

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image; with several templates, by majority over one run per template."""
        runs = [self.adapt(episode, template).prediction for template in range(len(episode.labels.prompts))]
        return runs[0] if len(runs) == 1 else vote_over_templates(runs)

    def check_labels(self, labels: LabelSpace) -> None:
        """Raise `LabelError` where a template has no context to learn, or a prompt no room for learnable tokens."""
        for template in range(len(labels.prompts)):
            self._check_template(labels, template)

    def _check_template(self, labels: LabelSpace, template: int) -> None:
        if self.context == "cl-hp":
            labels.check_prepended(template)
        elif reason := labels.missing_context(template, "context='cl'"):
            raise LabelError(f"{reason}; use context='cl-hp'")

    def label_warnings(self, labels: LabelSpace) -> list[str]:
        """Return that CL-HP starts from a context that was learnt in another place, where it does."""
        if self.context == "cl" or labels.context is None or labels.context.prepended:
            return []
        return [
            f"{labels.context.source}: learnt in place of the words before the class name; context='cl-hp' starts from "
            "it before the whole prompt, and zero-shot has it in place of the words"
        ]

    @torch.inference_mode(False)  # calibration differentiates, also where the caller has switched that off
    def adapt(self, episode: Episode, template: int = 0) -> Adaptation:
        """Run exploration and calibration on one image with one template, and return every intermediate result."""
        if not 0 <= template < len(episode.labels.prompts):
            raise ArgumentError(f"template={template!r} is not possible; there are {len(episode.labels.prompts)}")
        delta0, placement = self._initial_context(episode, template)
        tau0 = self._base_text(episode, template, delta0)
        exploration = self.phi(episode, tau0, self.k)
        candidates = exploration.candidates.sort().values
        before = self.phi(episode, tau0[candidates], 1)
        prediction = predict_by_vote(episode, exploration, candidates, before, tau0)
        explored = Adaptation(prediction, exploration, candidates, before, before)
        if (settled := self._settled(explored)) is not None:
            return settled
        try:
            localised = self._localise(episode, tau0[candidates], before.ranking)
        except FeatureError as error:  # of a masked image; exploration needs none
            return explored.fall_back(f"{error}: answered by exploration alone")
        delta0 = delta0[candidates] if delta0.ndim == 3 else delta0  # each class has a context of its own, or all one
        calibration = self._learn(episode, template, (delta0, placement), localised, candidates, tau0[candidates])
        if calibration.failure is not None:
            return explored.fall_back(f"{calibration.failure}: answered by exploration alone")
        # The features of an untouched context are reused, so that the answer is exploration's to the bit.
        untouched = torch.equal(calibration.context, delta0)
        tau = tau0 if untouched and placement == "replace" else tau0.index_copy(0, candidates, calibration.text)
        after = self.phi(episode, tau[candidates], 1)
        adaptation = replace(
            explored,
            prediction=predict_by_vote(episode, exploration, candidates, after, tau),
            after=after,
            evidence=localised.evidence,
            pairs=localised.pairs,
            common=localised.common,
            best_common=self._best_common(localised, after.ranking),
            calibration=calibration,
            not_learnt=self._why_untouched() if untouched else None,
        )
        shifts = calibration.context - delta0, tau[candidates] - tau0[candidates]
        return adaptation.with_diagnostics(self._diagnose(episode, adaptation, localised, tau0, shifts))

    def _learn(
        self,
        episode: Episode,
        template: int,
        start: tuple[Float[Tensor, "*classes tokens width"], Placement],
        localised: Localised,
        candidates: Int[Tensor, " candidates"],
        text: Float[Tensor, "candidates dim"],
    ) -> Calibration:
        """Learn a context from `start`, at which the candidates have the features `text`."""
        delta0, placement = start
        prompts = episode.labels.prompts[template].of_classes(candidates.tolist())
        return calibrate_context(
            lambda delta: episode.backbone.encode_text(prompts, delta, placement),
            delta0,
            self._loss(episode, localised.features, localised.pairs),
            # CL-HP's reference is the hard prompt; the first forward pass already has learnable tokens before it.
            reference=text if self.context == "cl-hp" and self.hp_base == "hard" else None,
            lr=self.lr,
            steps=self.steps,
        )

    def _settled(self, explored: Adaptation) -> Adaptation | None:
        """Return what exploration alone gives where nothing is to be calibrated, else None."""
        if not self.calibrate:
            return replace(explored, not_learnt="calibration is off")
        if len(explored.candidates) < 2:
            return explored.fall_back("fewer than two candidates: nothing to calibrate")
        if self.safe and (value := openness(explored.before)) < self.safe_openness:
            sure = replace(explored, not_learnt=why_sure(value, self.safe_openness))
            return sure.with_diagnostics({"openness": value})
        return None

    def _diagnose(
        self,
        episode: Episode,
        adaptation: Adaptation,
        localised: Localised,
        tau0: Float[Tensor, "classes dim"],
        shifts: tuple[Tensor, Tensor],
    ) -> dict[str, Diagnostic]:
        """Return the diagnostics of a calibrated answer; `shifts` are of the context and of the candidates' text."""
        best_first = torch.searchsorted(adaptation.candidates, adaptation.exploration.candidates)
        return {
            "explored": int(adaptation.candidates[adaptation.before.ranking[0]]),
            "context_shift": float(shifts[0].norm()),
            "text_shift": float(shifts[1].norm(dim=-1).mean()),
            **localised.findings(episode.z, best_first.tolist()),
            **self._comparison(episode, adaptation, tau0),
        }

    def _why_untouched(self) -> str:
        """Return why the optimiser left the context as it was."""
        if self.steps == 0:
            return "steps=0: no step was taken"
        if self.lr == 0.0:
            return "lr=0: the steps had no length"
        if self.lambda_cal == 0.0:
            return "lambda_cal=0: nothing asked for a change"
        return "the candidates were balanced already: the loss had no slope"

    def _initial_context(
        self, episode: Episode, template: int
    ) -> tuple[Float[Tensor, "*classes tokens width"], Placement]:
        """Return `delta_0` and whether it replaces tokens of the prompt or precedes them."""
        # All classes, not the candidates alone: what is too long is found whatever the image shows.
        check = partial(self._check_template, episode.labels, template)
        episode.labels.check_once((self.context, template), check)
        if self.context == "cl":
            context = episode.labels.initial_context(template)
            assert context is not None  # as the check has found
            return context, "replace"
        tokens = episode.labels.initial_tokens
        if self.hp_init == "normal":
            noise = episode.stream("context").normal(0.0, 0.02, tuple(tokens.shape))
            tokens = torch.from_numpy(noise).to(tokens)
        return tokens, "prepend"

    def _base_text(
        self, episode: Episode, template: int, delta0: Float[Tensor, "*classes tokens width"]
    ) -> Float[Tensor, "classes dim"]:
        """Return `tau(delta_0)` of all classes."""
        if self.context == "cl":
            return episode.labels.text[template]
        if self.hp_base == "hard":
            return episode.labels.hard_text[template]
        if self.hp_init == "copy":
            return episode.labels.prepended_text[template]
        return episode.labels.prepend(template, delta0)

    def _localise(
        self, episode: Episode, text: Float[Tensor, "candidates dim"], ranking: Int[Tensor, " candidates"]
    ) -> Localised:
        """Find the candidates' common evidence and encode it; methods with the same settings share it."""
        pairs = candidate_pairs(ranking, LEADERS if self.pairs == "top3" else None)
        if self.proxy != "evidence":
            picture = control_picture(episode.x, self.proxy)
            features = episode.remember(self.proxy, lambda: episode.backbone.encode_image(picture[None]))
            return Localised(features.expand(pairs.shape[1], -1), pairs)

        def find() -> Localised:
            evidence = self.evidence(episode, text)
            common = self._common(evidence.maps, pairs)
            return Localised(episode.weighted_features(common), pairs, evidence, common)

        settings = (self.evidence_settings(episode), self.evidence_scaling, self.area)
        key = text.cpu().numpy().tobytes(), pairs.cpu().numpy().tobytes(), settings
        return episode.remember(key, find)

    def _common(
        self, maps: Float[Tensor, "candidates height width"], pairs: Int[Tensor, "2 pairs"]
    ) -> Float[Tensor, "pairs height width"]:
        return common_evidence(maps, pairs, self.evidence_scaling, self.area)

    def _best_common(
        self, localised: Localised, ranking: Int[Tensor, " candidates"]
    ) -> Float[Tensor, "height width"] | None:
        """Return the common evidence of the two best candidates, also where they are none of the pairs."""
        if localised.evidence is None or localised.common is None:
            return None
        best = ranking[:2].sort().values[:, None]
        place = (localised.pairs == best).all(0).nonzero().flatten().tolist()
        return localised.common[place[0]] if place else self._common(localised.evidence.maps, best)[0]

    def _loss(
        self, episode: Episode, common: Float[Tensor, "pairs dim"], pairs: Int[Tensor, "2 pairs"]
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the loss on the features of the common evidence."""
        return partial(
            total_loss,
            image=episode.z,
            common=common,
            pairs=pairs,
            beta=self.temperature(episode),
            lambda_cal=self.lambda_cal,
            lambda_align=self.lambda_align,
            pair_weight=self.pair_weight,
        )

    def _comparison(
        self, episode: Episode, adaptation: Adaptation, text: Float[Tensor, "classes dim"]
    ) -> dict[str, Diagnostic]:
        """Return how the final vote differs from the one before calibration, for its old and its new winner.

        Votes are shares of the selected views: of `Phi_K` (`first`), and of `Phi_1` before and after calibration.

        Args:
            episode: the image.
            adaptation: the intermediate results.
            text: `tau(delta_0)`.
        """
        before, after, candidates = adaptation.before, adaptation.after, adaptation.candidates
        old, new, selected = before.ranking[0], after.ranking[0], len(after.selected)
        first = adaptation.exploration.votes[candidates]
        plain = (self.temperature(episode) * text[candidates] @ episode.z).softmax(-1)
        losses = adaptation.calibration.losses if adaptation.calibration is not None else ()
        return {
            **{f"loss_{step}": loss for step, loss in enumerate(losses)},
            "votes_old_first": int(first[old]) / selected,
            "votes_new_first": int(first[new]) / selected,
            "plain_old": float(plain[old]),
            "plain_new": float(plain[new]),
            "votes_old_before": int(before.votes[old]) / selected,
            "votes_old_after": int(after.votes[old]) / selected,
            "votes_new_before": int(before.votes[new]) / selected,
            "posterior_old_before": float(before.posterior[old]),
            "posterior_old_after": float(after.posterior[old]),
            "posterior_new_before": float(before.posterior[new]),
            "posterior_new_after": float(after.posterior[new]),
            "entropy_before": float(before.entropies[before.selected].mean()),
        }
