"""Fair Context Learning from its formulas: masks and maps pixel by pixel, losses from probabilities, AdamW by hand.

Only the two encoders are the package's; what lies between them is written again, in float64.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from faircontext import FCL, Backbone, Episode
from faircontext.evidence import sample_masks
from oracles.exploration import explore


class Answer(NamedTuple):
    """What is compared with a prediction."""

    index: int
    ranking: list[int]
    candidates: list[int]
    votes: list[int]
    probabilities: np.ndarray


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def decide(
    views: np.ndarray,
    base: np.ndarray,
    tau: np.ndarray,
    beta: float,
    scale: float,
    k: int,
    rho: float,
    ranked_by: str,
) -> Answer:
    """Run `Phi_K` at the base context, then `Phi_1` over its candidates at the learnt one."""
    explored = explore((beta * views @ base.T).tolist(), k, rho, ranked_by)
    candidates = sorted(explored.candidates)
    mixed = base.copy()
    mixed[candidates] = tau[candidates]
    final = explore((beta * views @ mixed[candidates].T).tolist(), 1, rho, ranked_by)
    votes = [0] * len(base)
    for position, candidate in enumerate(candidates):
        votes[candidate] = final.votes[position]
    ranking = [candidates[position] for position in final.ranking] + explored.ranking[len(candidates) :]
    probabilities = softmax(scale * views[final.kept] @ mixed.T).mean(0)
    return Answer(ranking[0], ranking, list(explored.candidates), votes, probabilities)


def exploration_only(episode: Episode, beta: float, k: int, rho: float, aggregation: str) -> Answer:
    """Run `Phi_K`, then `Phi_1`, both at the base context."""
    views, text = episode.view_features.double().numpy(), episode.labels.text[0].double().numpy()
    return decide(views, text, text, beta, episode.backbone.logit_scale, k, rho, aggregation)


def fcl(episode: Episode, method: FCL, encoder: Backbone) -> Answer:
    """Answer one image; `method` is read for its settings only, and `tower` encodes text in float64."""
    beta = 0.2 * episode.backbone.logit_scale if method.beta is None else method.beta
    prompts = encoder.tokenize(episode.labels.names, episode.labels.templates[0])
    placement = "replace" if method.context == "cl" else "prepend"
    delta0 = initial_context(episode, method, encoder, prompts)
    hard = method.context == "cl" or method.hp_base == "hard"
    with torch.no_grad():
        base = encoder.encode_text(prompts, None if hard else delta0, placement).numpy()

    views = episode.view_features.double().numpy()
    explored = explore((beta * views @ base.T).tolist(), method.k, method.rho, method.aggregation)
    candidates = sorted(explored.candidates)
    z = encode(episode, episode.x.numpy()[None])[0]
    evidence = class_evidence(episode, method, base[candidates], z, beta)
    common = common_embeddings(episode, method, evidence)
    unique = unique_embeddings(episode, evidence) if method.anchor == "unique" else {}

    delta, first, second = delta0.clone(), torch.zeros_like(delta0), torch.zeros_like(delta0)
    for step in range(1, method.steps + 1):
        delta.requires_grad_()
        text = encoder.encode_text(prompts, delta, placement)[candidates]
        loss = total_loss(text, torch.from_numpy(base[candidates]), z, common, unique, method, beta)
        (gradient,) = torch.autograd.grad(loss, delta)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        move = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        delta = (delta - method.lr * move).detach()
    with torch.no_grad():
        tau = encoder.encode_text(prompts, delta, placement).numpy()
    scale = episode.backbone.logit_scale
    return decide(views, base, tau, beta, scale, method.k, method.rho, method.aggregation)


def initial_context(episode: Episode, method: FCL, encoder: Backbone, prompts) -> Tensor:
    if method.context == "cl":
        return encoder.context(prompts)
    tokens = encoder.context_of("a photo of a")
    if method.hp_init == "copy":
        return tokens
    return torch.from_numpy(episode.stream("context").normal(0.0, 0.02, tuple(tokens.shape)))


def encode(episode: Episode, pixels: np.ndarray) -> np.ndarray:
    return episode.backbone.encode_image(torch.from_numpy(pixels.astype(np.float32))).double().numpy()


def class_evidence(episode: Episode, method: FCL, text: np.ndarray, z: np.ndarray, beta: float) -> list[np.ndarray]:
    """Return `E_c` of every candidate."""
    x = episode.x.double().numpy()
    height, width = x.shape[1:]
    filling = {"black": 0.0, "mean": x.mean((1, 2), keepdims=True)}[method.occluder]
    masks = []
    for cells in sample_masks(method.masks, episode.stream("masks"), method.grids, method.gamma).cells:
        grid = len(cells)
        rows, columns = np.arange(height) * grid // height, np.arange(width) * grid // width
        masks.append(cells.numpy()[np.ix_(rows, columns)].astype(float))
    masked = encode(episode, np.stack([x * (1 - mask) + filling * mask for mask in masks]))

    importance = np.log(softmax(beta * text @ z)) - np.log(softmax(beta * masked @ text.T))
    return [
        sum(dl[c] * mask for dl, mask in zip(importance, masks, strict=True)) / len(masks) for c in range(len(text))
    ]


def over_pixels(evidence: list[np.ndarray]) -> list[np.ndarray]:
    return [softmax(maps.reshape(-1)).reshape(maps.shape) for maps in evidence]


def stretch(values: np.ndarray) -> np.ndarray:
    return (values - values.min()) / (values.max() - values.min())


def common_embeddings(episode: Episode, method: FCL, evidence: list[np.ndarray]) -> dict[tuple[int, int], np.ndarray]:
    """Return `z_com_ij` of every pair of candidates."""
    x, spread, maps = episode.x.double().numpy(), over_pixels(evidence), {}
    for i in range(len(evidence)):
        for j in range(i + 1, len(evidence)):
            q = spread[i] * spread[j] / (spread[i] * spread[j]).sum()
            if method.evidence_scaling == "max":
                q = q / q.max()
            elif method.evidence_scaling == "minmax":
                q = stretch(q)
            maps[i, j] = x * q
    return dict(zip(maps, encode(episode, np.stack(list(maps.values()))), strict=True))


def unique_embeddings(episode: Episode, evidence: list[np.ndarray]) -> dict[tuple[int, int], np.ndarray]:
    """Return `z_uniq_ij` of every ordered pair of candidates."""
    x, spread, maps = episode.x.double().numpy(), over_pixels(evidence), {}
    for i in range(len(evidence)):
        for j in set(range(len(evidence))) - {i}:
            maps[i, j] = x * stretch(spread[i]) * (1 - stretch(spread[i] * spread[j]))
    return dict(zip(maps, encode(episode, np.stack(list(maps.values()))), strict=True))


def total_loss(
    text: Tensor,
    reference: Tensor,
    z: np.ndarray,
    common: dict[tuple[int, int], np.ndarray],
    unique: dict[tuple[int, int], np.ndarray],
    method: FCL,
    beta: float,
) -> Tensor:
    """Return the loss as it is printed: KL divergences of probabilities, and one minus the mean cosine."""
    posterior = softmax(beta * text.detach().numpy() @ z)
    calibration = text.new_zeros(())
    for (i, j), z_common in common.items():
        gap = abs(posterior[i] - posterior[j])
        weight = {"paper": 1 - gap, "inverse": gap, "uniform": 1.0}[method.pair_weight]
        p = (beta * text[[i, j]] @ torch.from_numpy(z_common)).softmax(0)
        middle = (p + 0.5) / 2
        js = (p * (p / middle).log()).sum() / 2 + (0.5 * (0.5 / middle).log()).sum() / 2
        calibration = calibration + weight * js / len(common)
    alignment = 1 - torch.cosine_similarity(text, reference, dim=-1).mean()
    if method.anchor == "unique":
        changes = [
            beta * torch.from_numpy(own) @ ((text[i] - text[j]) - (reference[i] - reference[j]))
            for (i, j), own in unique.items()
        ]
        alignment = sum(change**2 for change in changes) / len(changes)
    return method.lambda_cal * calibration + method.lambda_align * alignment
