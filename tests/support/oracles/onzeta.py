"""OnZeta from its formulas, in plain NumPy: `exp(rho)` is multiplied, not added to logits."""

import math

import numpy as np

from oracles.losses_of_baselines import softmax
from oracles.streams import Array, logits


class OnZeta:
    """Vision proxies and dual variables of one stream."""

    def __init__(
        self,
        text: Array,
        scale: float,
        horizon: int,
        beta: float = 0.8,
        alpha: float = 1.0,
        cw: float = 0.5,
        cr: float = 20.0,
    ) -> None:
        self.text, self.horizon, self.beta, self.alpha, self.cw, self.cr = text, horizon, beta, alpha, cw, cr
        self.tau_t, self.tau_i = 1 / scale, 4 / scale
        self.proxies, self.rho, self.t = text.copy(), np.zeros(len(text), np.float32), 0

    def answer(self, z: Array) -> Array:
        self.t += 1
        z, rho = np.float64(z), np.float64(self.rho)
        q = softmax(logits(z, self.text, 1 / self.tau_t)) * np.exp(rho)
        q = q / q.sum()
        v = softmax(logits(z, self.proxies, 1 / self.tau_i))
        share = self.beta * math.sqrt(self.t / self.horizon)
        answer = share * v + (1 - share) * q
        for c in range(len(self.text)):
            self.rho[c] = max(0.0, rho[c] - self.cr / math.sqrt(self.t) * (q[c] - self.alpha / len(self.text)))
            moved = np.float64(self.proxies[c]) - self.cw / math.sqrt(self.t) / self.tau_i * (v[c] - q[c]) * z
            self.proxies[c] = moved / math.sqrt(float(moved @ moved))
        return answer
