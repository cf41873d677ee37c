"""FCL's exploration as what a memory keeps of an image: its vote for the class, and the views that voted so."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from faircontext.episode import Episode
from faircontext.errors import FeatureError
from faircontext.methods.cache import Summary
from faircontext.methods.fcl import FCL
from faircontext.methods.stream import on_cpu
from faircontext.methods.tuning import marginal_entropy

__all__ = ["LabelRule", "check_summary", "summarise_vote"]

LabelRule = Literal["zero-shot", "fcl-vote"]
"""What files an image in a memory: zero-shot's classification of its views, or the vote of FCL's exploration."""


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


def check_summary(summary: Summary) -> None:
    """Raise `FeatureError` where a view that counted is NaN or infinite: it must not enter a memory."""
    if not summary.entropy.isfinite():
        raise FeatureError("the features of a view are NaN or infinite")
