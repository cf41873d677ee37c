"""Masks and evidence maps pixel by pixel: loops in float64, written from the method's formulas."""

import math

import numpy as np


def occluded(cells: np.ndarray, height: int, width: int) -> np.ndarray:
    """Spread a grid of cells over pixels: (u, v) is occluded if cell (floor(u g / H), floor(v g / W)) was chosen."""
    grid = len(cells)
    pixels = np.zeros((height, width), dtype=bool)
    for u in range(height):
        for v in range(width):
            pixels[u, v] = cells[math.floor(u * grid / height), math.floor(v * grid / width)]
    return pixels


def evidence_maps(importance: np.ndarray, masks: list[np.ndarray]) -> np.ndarray:
    """Return `E_c = (1 / N_m) sum_n dl_c(M_n) M_n` from pixel masks."""
    maps = np.zeros((importance.shape[1], *masks[0].shape))
    for c in range(importance.shape[1]):
        for n, mask in enumerate(masks):
            maps[c] += importance[n, c] * mask
    return maps / len(masks)


def softmax_over_pixels(evidence: np.ndarray) -> np.ndarray:
    exponentials = np.exp(evidence - evidence.max())
    return exponentials / exponentials.sum()


def common_evidence(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return `Q = S_i S_j / sum(S_i S_j)`, with two softmaxes and their product as printed."""
    product = softmax_over_pixels(first) * softmax_over_pixels(second)
    return product / product.sum()
