"""From scores and votes to predictions; zero-shot classification, the reference of every comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.explore import Exploration, rank_classes, scores
from faircontext.methods.base import Method, register_method
from faircontext.types import Diagnostic, Prediction


def predict_by_scores(
    episode: Episode,
    embedding: Float[Tensor, " dim"],
    text: Float[Tensor, "classes dim"],
    diagnostics: Mapping[str, Diagnostic] | None = None,
) -> Prediction:
    """Answer with the class whose text embedding is closest to an image embedding.

    Probabilities are the softmax over all classes at the backbone's own scale.

    Args:
        episode: the image.
        embedding: unit norm.
        text: unit-norm text features of all classes.
        diagnostics: what came about on the way.
    """
    cosines = scores(embedding, text)
    return replace(predict_by_logits(episode.backbone.logit_scale * cosines, diagnostics), cosines=cosines.cpu())


def fall_back(episode: Episode, text: Float[Tensor, "classes dim"], reason: str) -> Prediction:
    """Answer from the plain view with text features as they were before, and say why."""
    return replace(predict_by_scores(episode, episode.z, text), fallback=reason)


def predict_by_logits(
    logits: Float[Tensor, " classes"], diagnostics: Mapping[str, Diagnostic] | None = None
) -> Prediction:
    """Answer with the class of the largest logit, rounded to float32; probabilities are the softmax."""
    ranking = rank_classes(logits.float().cpu())
    return Prediction(int(ranking[0]), ranking, logits.softmax(-1).float().cpu(), diagnostics=diagnostics or {})


def predict_by_probabilities(
    probabilities: Float[Tensor, " classes"],
    diagnostics: Mapping[str, Diagnostic] | None = None,
    *ties: Float[Tensor, " classes"],
) -> Prediction:
    """Answer with the most probable class.

    Args:
        probabilities: summing to one; they are rounded to float32 before classes are ranked.
        diagnostics: what came about on the way.
        ties: what ranks classes of equal probability, before their index does.
    """
    rounded = probabilities.float().cpu()
    ranking = rank_classes(rounded, *ties)
    return Prediction(int(ranking[0]), ranking, rounded, diagnostics=diagnostics or {})


def predict_by_vote(
    episode: Episode,
    exploration: Exploration,
    candidates: Int[Tensor, " candidates"],
    final: Exploration,
    text: Float[Tensor, "classes dim"],
) -> Prediction:
    """Turn a final vote among the candidates into a prediction over all classes.

    Probabilities are the mean over the selected views of the softmax over all classes at the backbone's own scale;
    classes that are no candidates rank behind, as they were explored.

    Args:
        episode: the image.
        exploration: of all classes.
        candidates: which classes the final vote was among.
        final: the final vote; its class indices are positions in `candidates`.
        text: text features of all classes, learnt ones for the candidates and base ones for the rest.
    """
    selected = episode.view_features[final.selected]
    probabilities = (episode.backbone.logit_scale * selected @ text.T).softmax(-1).mean(0)
    votes = torch.zeros(len(text), dtype=torch.long, device=text.device)
    votes[candidates] = final.votes
    ranking = torch.cat([candidates[final.ranking], exploration.ranking[len(candidates) :]])
    return Prediction(
        int(ranking[0]),
        ranking.cpu(),
        probabilities.cpu(),
        votes.cpu(),
        tuple(exploration.candidates.tolist()),
        diagnostics={
            "views_selected": len(final.selected),
            "vote_share": float(final.votes.max()) / len(final.selected),
            "entropy_selected": float(final.entropies[final.selected].mean()),
        },
        cosines=scores(episode.z, text).cpu(),
    )


def vote_over_templates(runs: list[Prediction]) -> Prediction:
    """Answer by majority over the templates' answers (paper, "Prompt Ensemble with Generic Templates").

    Ties go to the higher summed vote share; classes without a vote rank behind, candidates first, by probability.
    Probabilities are means over templates.

    Args:
        runs: predictions with votes, one per template.
    """
    classes = len(runs[0].probabilities)
    votes = torch.bincount(torch.tensor([run.index for run in runs]), minlength=classes)
    shares = torch.stack([run.votes / run.votes.sum() for run in runs if run.votes is not None]).sum(0)
    probabilities = torch.stack([run.probabilities for run in runs]).mean(0)
    candidates = tuple(dict.fromkeys(candidate for run in runs for candidate in run.candidates))
    is_candidate = torch.zeros(classes, dtype=torch.long)
    is_candidate[list(candidates)] = 1
    ranking = rank_classes(votes, shares, is_candidate, probabilities)
    reasons = dict.fromkeys(run.fallback for run in runs if run.fallback is not None)
    cosines = [run.cosines for run in runs if run.cosines is not None]
    return Prediction(
        int(ranking[0]),
        ranking,
        probabilities,
        votes,
        candidates,
        "; ".join(reasons) or None,
        {"templates": len(runs), "template_share": float(votes.max()) / len(runs)},
        torch.stack(cosines).mean(0) if len(cosines) == len(runs) else None,
    )


@register_method("zero_shot", "softmax over all classes on the plain view; no adaptation")
@dataclass(frozen=True)
class ZeroShot(Method):
    """`argmax_c <z, tau_c>` with probabilities at the backbone's own scale (paper, Sec. "Preliminaries")."""

    uses_views: ClassVar[bool] = False

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image from its plain view."""
        labels = episode.labels
        text = labels.remember("zero_shot", lambda: labels.zero_shot_text.double())  # scores are summed in double
        return predict_by_scores(episode, episode.z, text)
