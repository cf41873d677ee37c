"""Exploration `Phi_K`: select confident views, let them vote, take the top K (paper, Sec. "Exploration")."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from faircontext.errors import check_choice

Aggregation = Literal["vote", "mean"]


@dataclass(frozen=True)
class Exploration:
    """What one exploration found; class indices refer to the rows of the text features it was given.

    Attributes:
        ranking: all classes, best first.
        candidates: the first K of `ranking`.
        votes: votes of the selected views, per class.
        posterior: mean over the selected views of the softmax over the given classes, per class.
        selected: indices of the selected views, most confident first.
        choices: the class that each selected view votes for.
        entropies: entropy of every view, in nats.
    """

    ranking: Int[Tensor, " classes"]
    candidates: Int[Tensor, " candidates"]
    votes: Int[Tensor, " classes"]
    posterior: Float[Tensor, " classes"]
    selected: Int[Tensor, " selected"]
    choices: Int[Tensor, " selected"]
    entropies: Float[Tensor, " views"]


def entropy(log_probabilities: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    """Return the entropy in nats of distributions given by their logarithms (paper, Eq. for `H_i`)."""
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


def scores(
    images: Float[Tensor, "*images dim"], text: Float[Tensor, "classes dim"], scale: float = 1.0
) -> Float[Tensor, "*images classes"]:
    """Return `scale <f, tau_c>`, summed in double and rounded once to the images' type.

    Classes with equal features then tie exactly, wherever they stand.

    Args:
        images: unit-norm image embeddings, or one.
        text: unit-norm text embeddings.
        scale: inverse temperature.
    """
    return (scale * images.double() @ text.double().T).to(images.dtype)


def select_confident(entropies: Float[Tensor, " views"], rho: float) -> Int[Tensor, " selected"]:
    """Return the indices of the `max(1, floor(rho N))` views of lowest entropy, lowest first, ties by index.

    A count that is whole but for rounding is whole: 1e-9 is added before it is cut.
    """
    return entropies.sort(stable=True).indices[: max(1, math.floor(rho * len(entropies) + 1e-9))]


def rank_classes(*keys: Shaped[Tensor, " classes"]) -> Int[Tensor, " classes"]:
    """Return the classes by the first key, highest first, ties by the next key and so on, then by index."""
    order = torch.arange(len(keys[0]), device=keys[0].device)
    for key in reversed(keys):
        order = order[key[order].sort(descending=True, stable=True).indices]
    return order


def explore(
    views: Float[Tensor, "views dim"],
    text: Float[Tensor, "classes dim"],
    beta: float,
    k: int,
    rho: float = 0.3,
    aggregation: Aggregation = "vote",
) -> Exploration:
    """Run `Phi_K` on view features against a candidate set's text features.

    The posterior is a softmax over the given classes only, and by its entropy views are selected; every selected view
    casts one vote for its most probable class (ties: lowest index). Votes can tie, and some of the first K classes may
    have none, so classes are ranked by (votes, mean posterior, index), or by (mean posterior, index) with
    `aggregation="mean"` (paper, Tab. "ab_aggregation"). Entropies and posteriors are computed in double and rounded to
    the views' type before anything is compared, so that what is equal ties.

    Args:
        views: unit-norm image embeddings of the views.
        text: unit-norm text embeddings of the candidate set.
        beta: inverse temperature.
        k: how many candidates to return; fewer where there are fewer classes.
        rho: fraction of views that is selected.
        aggregation: what ranks the classes.
    """
    check_choice("aggregation", aggregation, ("vote", "mean"))
    values = scores(views, text, beta)
    log_posterior = values.double().log_softmax(-1)
    entropies = entropy(log_posterior).to(views.dtype)
    selected = select_confident(entropies, rho)
    choices = values[selected].argmax(-1)
    votes = torch.bincount(choices, minlength=len(text))
    posterior = log_posterior[selected].exp().mean(0).to(views.dtype)
    ranking = rank_classes(votes if aggregation == "vote" else posterior, posterior)
    return Exploration(ranking, ranking[:k], votes, posterior, selected, choices, entropies)


def normalised_entropy(vote: Exploration) -> float:
    """Return the selected views' mean entropy over its maximum `ln K`, from 0 (sure) to 1 (open).

    Args:
        vote: `Phi_1` among two or more candidates.
    """
    return float(vote.entropies[vote.selected].mean()) / math.log(len(vote.votes))
