"""The baselines' losses and weights from their formulas: NumPy in float64, view by view and class by class.

Slopes are central differences and AdamW is written by hand; only the text encoder, in float64, is the package's.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from faircontext import Backbone

Array = np.ndarray


def softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def log_softmax(scores: Array) -> Array:
    top = scores.max()
    return scores - top - math.log(np.exp(scores - top).sum())


def entropy(probabilities: Array) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities.tolist() if p > 0)


def entropies_of(logits: Array) -> list[float]:
    return [entropy(softmax(row)) for row in logits]


def surest_first(logits: Array) -> list[int]:
    """The views by entropy, rounded to float32: those equally sure on paper stay in order, however classes are."""
    entropies = np.float32(entropies_of(logits))
    return sorted(range(len(logits)), key=lambda view: (entropies[view], view))


def kept_views(logits: Array, rho: float) -> list[int]:
    """The views of lowest entropy, lowest first."""
    return surest_first(logits)[: max(1, math.floor(rho * len(logits) + 1e-9))]


def unit(rows: Array) -> Array:
    return rows / np.sqrt((rows**2).sum(-1, keepdims=True))


def marginal_entropy(logits: Array) -> float:
    """TPT: the entropy of the mean posterior."""
    return entropy(sum(softmax(row) for row in logits) / len(logits))


def mean_entropy(logits: Array) -> float:
    """R-TPT: the mean of the posteriors' entropies."""
    return sum(entropies_of(logits)) / len(logits)


def divergence(logits: Array) -> float:
    """The generalised Jensen-Shannon divergence: the mean of `KL(p_i || mean p)`."""
    posteriors = [softmax(row) for row in logits]
    middle = sum(posteriors) / len(posteriors)
    return sum(float((p * np.log(p / middle)).sum()) for p in posteriors) / len(posteriors)


def text_dispersion(text: Array) -> float:
    """C-TPT: the mean distance of text features to their mean."""
    centre = sum(text) / len(text)
    return sum(math.dist(row, centre) for row in text) / len(text)


def sampled(logits: Array, rewards: Array, k: int) -> list[tuple[int, int, float]]:
    """RLCF: view, class and advantage of the most probable classes; one class alone keeps its reward."""
    found = []
    for view, row in enumerate(logits):
        classes = sorted(range(len(row)), key=lambda c: (-row[c], c))[:k]
        baseline = sum(rewards[view, c] for c in classes) / len(classes) if len(classes) > 1 else 0.0
        found += [(view, c, float(rewards[view, c] - baseline)) for c in classes]
    return found


def feedback(logits: Array, rewards: Array, k: int) -> float:
    """RLCF: the mean of advantage times cross-entropy."""
    terms = [advantage * -log_softmax(logits[view])[c] for view, c, advantage in sampled(logits, rewards, k)]
    return float(sum(terms) / len(terms))


def linear_feedback(logits: Array, rewards: Array, k: int) -> float:
    """RLCF: the same loss where advantages sum to zero, linear in the logits."""
    terms = [-advantage * logits[view, c] for view, c, advantage in sampled(logits, rewards, k)]
    return float(sum(terms) / len(terms))


def weighted_entropy(logits: Array, threshold: float) -> float:
    """TTL: the mean over views of `exp(E_0 - H) H`."""
    return sum(math.exp(threshold - h) * h for h in entropies_of(logits)) / len(logits)


def shifted(prototypes: Array, shift: Array) -> Array:
    """TPS: prototypes that are shifted, and of unit norm before and after."""
    return unit(unit(prototypes) + shift)


def shift_loss(views: Array, prototypes: Array, shift: Array, scale: float) -> float:
    """TPS: the entropy of the mean posterior of some views, as a function of the shift."""
    return marginal_entropy(scale * views @ shifted(prototypes, shift).T)


def reliability(views: Array, neighbours: int, temperature: float) -> Array:
    """R-TPT: softmax over views of the mean cosine to the nearest other views."""
    qualities = []
    for p, view in enumerate(views):
        others = sorted((float(view @ other) for q, other in enumerate(views) if q != p), reverse=True)[:neighbours]
        qualities.append(sum(others) / len(others))
    return softmax(np.array(qualities) / temperature)


def weighted_logits(weights: Array, views: Array, text: Array, scale: float) -> Array:
    """R-TPT: the weighted mean over all views of their logits."""
    return sum(weight * scale * (text @ view) for weight, view in zip(weights, views, strict=True))


def slope(function: Callable[[Array], float], point: Array, step: float = 1e-5) -> Array:
    """Central differences of a function in every coordinate."""
    found = np.empty_like(point)
    for place in np.ndindex(point.shape):
        offset = np.zeros_like(point)
        offset[place] = step
        found[place] = (function(point + offset) - function(point - offset)) / (2.0 * step)
    return found


class AdamW:
    """AdamW with the usual betas, on one array."""

    def __init__(self, lr: float, weight_decay: float) -> None:
        self.lr, self.weight_decay = lr, weight_decay
        self.first: Array | float = 0.0
        self.second: Array | float = 0.0
        self.steps = 0

    def step(self, value: Array, gradient: Array) -> Array:
        self.steps += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        first, second = self.first / (1 - 0.9**self.steps), self.second / (1 - 0.999**self.steps)
        return value * (1.0 - self.lr * self.weight_decay) - self.lr * first / (np.sqrt(second) + 1e-8)


def tuned_text(
    encoder: Backbone,
    names: Sequence[str],
    template: str,
    loss: Callable[[Array], float],
    *,
    lr: float,
    weight_decay: float,
    steps: int,
) -> Array:
    """Text features after some steps on a loss of them over the template's context; the encoder computes in float64."""
    prompts = encoder.tokenize(names, template)
    context, optimizer = encoder.context(prompts).numpy(), AdamW(lr, weight_decay)
    for _ in range(steps):
        leaf = torch.from_numpy(context).requires_grad_()
        text = encoder.encode_text(prompts, leaf)
        upstream = torch.from_numpy(slope(loss, text.detach().numpy()))
        context = optimizer.step(context, torch.autograd.grad(text, leaf, upstream)[0].numpy())
    with torch.no_grad():
        return encoder.encode_text(prompts, torch.from_numpy(context)).numpy()
