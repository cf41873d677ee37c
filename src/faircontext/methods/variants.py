"""Hidden variants for studies: FCL with controls and what the paper leaves open, memories that FCL's vote files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.backbones import Backbone
from faircontext.backbones.base import DROPPABLE_PATCHES, require
from faircontext.backbones.prompts import Prompts
from faircontext.calibrate import Align, Calibration, Weigh, alignment_loss, pair_weights
from faircontext.episode import Episode
from faircontext.errors import ArgumentError, check_choice
from faircontext.evidence import Evidence, Scaling, unique_evidence
from faircontext.explore import rank_classes
from faircontext.labels import Start
from faircontext.methods.base import Limits, Method, register_method
from faircontext.methods.cache import CacheMethod, Summary
from faircontext.methods.dmn import DMN
from faircontext.methods.fcl import FCL, Adaptation, Common, Learnable
from faircontext.methods.predict import predict_by_logits
from faircontext.methods.stream import on_cpu
from faircontext.methods.tda import TDA
from faircontext.methods.tuning import marginal_entropy
from faircontext.occlusion import Occluder, one_gamma
from faircontext.types import Diagnostic, Prediction

AUTO_BLOCK = 32
"""Masks that are added at once where their number follows from the reliability of the maps."""

TOP = 3
"""Top candidates, of which every pair has one with `pairs="top3"`."""

Proxy = Literal["evidence", "image", "mean", "grey", "black"]

PAIR_WEIGHTS: Mapping[str, Weigh] = {
    "paper": pair_weights,
    "inverse": lambda posterior, pairs: (posterior[pairs[0]] - posterior[pairs[1]]).detach().abs(),
    "uniform": lambda posterior, pairs: torch.ones_like(pair_weights(posterior, pairs)),
}
"""What `w_ij` may be: the paper's formula, what its text says, or 1."""


@register_method("fcl_variants", "FCL with what studies vary: controls, pairs, their weights, occluders, CL-HP's start")
@dataclass(frozen=True)
class FCLVariants(FCL):
    """FCL with further settings, whose defaults are FCL.

    Attributes:
        masks: N_m, or `"auto"`: blocks of `AUTO_BLOCK` masks until the maps of the two classes that the plain view
            favours are as reliable as `reliability`, or `budget` masks have been used.
        gamma: fraction of cells that a mask occludes, or a range from which each mask draws.
        occluder: what occluded pixels become: `"black"`, `"mean"` or `"blur"`; with `"drop"` a vision transformer
            leaves out the patches that a mask covers most, a fraction gamma of them.
        budget: most masks with `masks="auto"`.
        reliability: what `masks="auto"` aims at, see `Evidence.reliability`.
        evidence_scaling: of the common-evidence maps: `"max"`, `"minmax"` or `"none"`.
        proxy: what a pair is made alike on: the image weighted by its common evidence (`"evidence"`, the paper), or a
            control that is the same for all pairs: the `"image"` itself, its `"mean"` colour, `"grey"` or `"black"`.
        pair_weight: `"paper"`, `"inverse"` or `"uniform"`.
        pairs: of candidates that are made alike: `"all"` (the paper), or `"top3"`, those with one of the three that
            exploration puts first, 24 of 45 with ten candidates.
        anchor: what `L_align` holds: `"cosine"`, the text features (the paper), or `"unique"`, each pair's score on its
            unique evidence, see `unique_anchor`.
        hp_base: CL-HP's base prompt: `"hard"` (without learnable tokens) or `"init"` (with the initial ones).
        hp_init: CL-HP's initial tokens: `"copy"` of "a photo of a", or `"normal"` noise of standard deviation 0.02.
    """

    hidden: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"anchor"})
    setting_limits: ClassVar[Limits] = {"reliability": (0.0, 1.0), "budget": (0, 100_000)}

    masks: int | Literal["auto"] = 400  # type: ignore[assignment]
    gamma: float | tuple[float, float] = 0.5  # type: ignore[assignment]
    occluder: Occluder = "black"
    budget: int | None = None
    reliability: float = 0.8
    evidence_scaling: Scaling = "max"
    proxy: Proxy = "evidence"
    pair_weight: Literal["paper", "inverse", "uniform"] = "paper"
    pairs: Literal["all", "top3"] = "all"
    anchor: Literal["cosine", "unique"] = "cosine"
    hp_base: Literal["hard", "init"] = "hard"
    hp_init: Literal["copy", "normal"] = "copy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masks == "auto" and self.budget is None:
            raise ArgumentError('masks="auto" needs a budget, the most masks that an image may use: budget=400')
        if self.occluder == "drop":
            one_gamma(self.gamma)
        if self.anchor == "unique" and self.proxy != "evidence":
            raise ArgumentError(f'anchor="unique" needs evidence, and proxy={self.proxy!r} has none; leave one out')

    def check_backbone(self, backbone: Backbone) -> None:
        """Raise `ArgumentError` where a backbone cannot run the method, or leave patches out where they are to be."""
        super().check_backbone(backbone)
        if self.occluder == "drop":
            require(backbone, DROPPABLE_PATCHES)

    def adapt(self, episode: Episode, template: int = 0) -> Adaptation:
        """Adapt as `FCL.adapt` does; diagnostics say besides how the vote changed for its old and its new winner."""
        adaptation = super().adapt(episode, template)
        if adaptation.calibration is None:
            return adaptation
        before, after, votes = adaptation.before, adaptation.after, len(adaptation.after.selected)
        old, new = before.ranking[0], after.ranking[0]
        moved: dict[str, Diagnostic] = {
            "votes_old_before": int(before.votes[old]) / votes,
            "votes_old_after": int(after.votes[old]) / votes,
            "votes_new_before": int(before.votes[new]) / votes,
            "posterior_old_before": float(before.posterior[old]),
            "posterior_new_before": float(before.posterior[new]),
            "entropy_before": float(before.entropies[before.selected].mean()),
        }
        prediction = replace(adaptation.prediction, diagnostics={**adaptation.prediction.diagnostics, **moved})
        return replace(adaptation, prediction=prediction)

    def start(self, episode: Episode, template: int) -> Start:
        """Return FCL's start, or that of CL-HP with other initial tokens, or with features of the prompt after them."""
        tokens, placement, text = super().start(episode, template)
        labels = episode.labels
        if placement == "replace":
            return tokens, placement, text
        if self.hp_init == "normal":
            noise = episode.stream("context").normal(0.0, 0.02, tuple(tokens.shape))
            tokens = torch.from_numpy(noise).to(tokens)
        if self.hp_base == "init" and self.hp_init == "copy":
            text = labels.remember(("prepended", template), lambda: labels.prepend(template, tokens))
        elif self.hp_base == "init":
            text = labels.prepend(template, tokens)
        return tokens, placement, text

    def evidence(
        self, episode: Episode, text: Float[Tensor, "candidates dim"], count: int = 0, occluder: Occluder = "black"
    ) -> Evidence:
        """Return the candidates' class evidence maps, see `FCL.evidence`, from as many masks as the settings ask."""
        find = partial(super().evidence, episode, text, occluder=self.occluder if occluder == "black" else occluder)
        if count or self.masks != "auto":
            return find(count)
        assert self.budget is not None
        favoured = (text @ episode.z).sort(descending=True, stable=True).indices[:2]
        for block in range(AUTO_BLOCK, self.budget, AUTO_BLOCK):
            evidence = find(block)
            if bool((evidence.reliability[favoured] >= self.reliability).all()):
                return evidence
        return find(self.budget)

    def choose_pairs(self, ranking: Int[Tensor, " candidates"]) -> Int[Tensor, "2 pairs"]:
        """Return all pairs, or those with a top candidate: with L of them (K - L) (K - L - 1) / 2 fewer."""
        pairs = super().choose_pairs(ranking)
        return pairs if self.pairs == "all" else pairs[:, torch.isin(pairs, ranking[:TOP]).any(0)]

    def common(
        self,
        episode: Episode,
        text: Float[Tensor, "candidates dim"],
        pairs: Int[Tensor, "2 pairs"],
        scaling: Scaling = "max",
    ) -> Common:
        """Return what pairs are made alike on: their common evidence, scaled by the setting, or a control."""
        if self.proxy == "evidence":
            return super().common(episode, text, pairs, self.evidence_scaling if scaling == "max" else scaling)
        return Common(control_features(episode, self.proxy).expand(pairs.shape[1], -1), pairs)

    def learn(
        self,
        episode: Episode,
        prompts: Prompts,
        start: Learnable,
        common: Common,
        weigh: Weigh = pair_weights,
        align: Align = alignment_loss,
    ) -> Calibration:
        """Learn a context with the weights and the anchor of the settings, and the reference of the start."""
        context, placement, reference = start
        weigh = PAIR_WEIGHTS[self.pair_weight] if weigh is pair_weights else weigh
        if self.anchor == "unique" and common.evidence is not None:
            both = torch.cat([common.pairs, common.pairs.flip(0)], 1)
            unique = episode.weighted_features(unique_evidence(common.evidence.maps, both))
            align = unique_anchor(unique, both, self.temperature(episode))
        reference = reference if self.hp_base == "hard" else None
        return super().learn(episode, prompts, (context, placement, reference), common, weigh, align)


def unique_anchor(unique: Float[Tensor, "pairs dim"], pairs: Int[Tensor, "2 pairs"], beta: float) -> Align:
    """Return an alignment term that holds scores where one class alone has evidence, and leaves all else free.

    It is the mean over ordered pairs of `(beta <z_uniq_ij, tau_i - tau_j> - its value at delta_0)^2`, with `z_uniq_ij`
    the embedding of the evidence of i that j does not share (`unique_evidence`). It is not in the paper, whose cosine
    holds features as a whole, and with them the score on common evidence that is to change.

    Args:
        unique: `z_uniq_ij`.
        pairs: positions `i`, `j` of each ordered pair of candidates.
        beta: inverse temperature.
    """

    def align(text: Tensor, reference: Tensor) -> Tensor:
        moved = text - reference
        return (beta * (unique * (moved[pairs[0]] - moved[pairs[1]])).sum(-1)).square().mean()

    return align


@register_method("fcl_margins", "FCL's common evidence without a gradient: pairs vote by margin less that on it")
@dataclass(frozen=True)
class MarginVote(FCLVariants):
    """What FCL aims at in closed form; not in the paper.

    FCL's steps make the margin of a pair on its common evidence small. Here it is taken off the pair's margin on the
    image, `<z - lambda_com z_com_ij, tau_i - tau_j>`, whose sign is the pair's vote; an even pair votes for its first
    class. The candidate with most votes is the answer, of equal ones that with the larger sum of its margins.
    Probabilities are those of the views, as FCL's. With `lambda_com=0` the answer is the best of the candidates on the
    plain view.

    Attributes:
        lambda_com: share of the margin on common evidence that is taken off.
        steps: 0, so that text features are those of the base context; with more, pairs vote at the learnt one.
    """

    later: ClassVar[frozenset[str]] = frozenset({"lambda_com"})
    setting_limits: ClassVar[Limits] = {"lambda_com": 0}

    steps: int = 0
    lambda_com: float = 1.0

    def adapt(self, episode: Episode, template: int = 0) -> Adaptation:
        """Explore and find common evidence as FCL does, then let pairs vote; where FCL falls back, so does this."""
        adaptation = super().adapt(episode, template)
        if adaptation.calibration is None or adaptation.pairs is None:
            return adaptation
        common = self.common(episode, self.start(episode, template)[2][adaptation.candidates], adaptation.pairs)
        text, (first, second) = adaptation.calibration.text, adaptation.pairs
        seen = episode.z.double() - self.lambda_com * common.features.double()
        margins = (seen * (text[first] - text[second]).double()).sum(-1)
        sums = margins.new_zeros(len(text)).index_add(0, first, margins).index_add(0, second, -margins)
        votes = torch.bincount(torch.where(margins >= 0.0, first, second), minlength=len(text))
        order, rest = adaptation.candidates[rank_classes(votes, sums)], adaptation.exploration.ranking[len(text) :]
        ranking = torch.cat([order, rest]).cpu()
        everywhere = torch.zeros(len(ranking), dtype=votes.dtype, device=votes.device)
        everywhere[adaptation.candidates] = votes
        prediction = replace(adaptation.prediction, index=int(ranking[0]), ranking=ranking, votes=everywhere.cpu())
        return replace(adaptation, prediction=prediction)


def control_image(image: Float[Tensor, "3 height width"], proxy: Proxy) -> Float[Tensor, "3 height width"]:
    """Return an image that takes the place of common evidence, to tell what localisation contributes.

    Args:
        image: values in [0, 1].
        proxy: `"image"` (all of it), `"mean"` (its mean colour everywhere), `"grey"` (one half) or `"black"`.
    """
    check_choice("proxy", proxy, ("image", "mean", "grey", "black"))
    if proxy == "image":
        return image
    if proxy == "mean":
        return image.mean((1, 2), keepdim=True).expand_as(image)
    return torch.full_like(image, 0.5 if proxy == "grey" else 0.0)


def control_features(episode: Episode, proxy: Proxy) -> Float[Tensor, "1 dim"]:
    """Return the features of `control_image`, encoded once for all methods."""

    def encode() -> Tensor:
        return episode.backbone.encode_image(control_image(episode.x, proxy)[None])

    return episode.remember(("control", proxy), encode)


@register_method("contextual", "zero-shot with the posterior on a content-free image divided out")
@dataclass(frozen=True)
class ContextualCalibration(Method):
    """Contextual calibration (Zhao et al., "Calibrate Before Use", ICML 2021), of images in place of text.

    A posterior on what has no content is the model's prior: `p(c | x) / p(c | x_free)`, normalised, is the answer. It
    is the softmax of `scale <z - z_free, tau_c>`, so that scores which classes have anywhere are taken off.

    Attributes:
        content_free: the image without content: `"grey"`, `"black"`, or the `"mean"` colour of the image.
    """

    hidden: ClassVar[bool] = True
    uses_views: ClassVar[bool] = False

    content_free: Literal["grey", "black", "mean"] = "grey"

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image from its plain view."""
        text = episode.labels.zero_shot_text.double()
        free = control_features(episode, self.content_free)[0]
        return predict_by_logits(episode.backbone.logit_scale * text @ (episode.z.double() - free.double()))


def summarise_vote(episode: Episode, text: Float[Tensor, "classes dim"]) -> Summary:
    """Summarise an image by FCL's exploration among all classes, with FCL's own settings of the paper.

    The confident views are a fraction of 0.3 of them, those of lowest entropy at 0.2 times the backbone's scale; each
    votes for its most probable class, and the class with most votes is the label, of equal ones that of the larger
    mean posterior. The feature and the logits are means over the views that voted for it. The probabilities are means
    over all confident views, at the backbone's own scale, so that their entropy tells where the views disagree.

    Args:
        episode: the image.
        text: text features of all classes, in float64.
    """
    vote = FCL().phi(episode, episode.labels.zero_shot_text, 1)
    label, selected = int(vote.ranking[0]), vote.selected.cpu()
    exact = on_cpu(episode.view_features).double()
    logits = episode.backbone.logit_scale * exact @ text.T
    log_posteriors = logits[selected].log_softmax(-1)
    voters = selected[vote.choices.cpu() == label]
    return Summary(
        exact[voters].mean(0),
        logits[voters].mean(0),
        log_posteriors.exp().mean(0),
        label,
        marginal_entropy(log_posteriors).float(),
        selected,
    )


@dataclass(frozen=True)
class VoteLabels(CacheMethod):
    """A method with a memory whose images are filed as it does, or by the vote of FCL's exploration.

    Attributes:
        label: `"zero-shot"` files an image as the method itself does; `"fcl-vote"` under the winner of FCL's
            exploration, with the mean of the views that voted for it, see `summarise_vote`.
    """

    hidden: ClassVar[bool] = True

    label: Literal["zero-shot", "fcl-vote"] = "zero-shot"

    @property
    def sees_views(self) -> bool:
        """Whether it is set to look at more than the plain view."""
        return super().sees_views or self.label == "fcl-vote"

    def remembered(self, episode: Episode, text: Float[Tensor, "classes dim"], seen: Summary) -> Summary:
        """Return what the memory keeps of an image."""
        return summarise_vote(episode, text) if self.label == "fcl-vote" else super().remembered(episode, text, seen)


@register_method("tda_variants", "TDA whose memory is filed by FCL's vote")
@dataclass(frozen=True)
class TDAVariants(VoteLabels, TDA):
    """TDA with a further setting, whose default is TDA."""


@register_method("dmn_variants", "DMN-ZS whose memory is filed by FCL's vote")
@dataclass(frozen=True)
class DMNVariants(VoteLabels, DMN):
    """DMN-ZS with a further setting, whose default is DMN-ZS."""
