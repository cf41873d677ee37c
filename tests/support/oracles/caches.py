"""DMN, BoostAdapter and DPE from their formulas: lists for what they remember, NumPy in float64 for the rest.

DPE's slopes are complex-step derivatives of its loss, exact to rounding: no derivation is shared with the package.
"""

import math
from typing import NamedTuple

import numpy as np

from oracles.losses_of_baselines import entropy, kept_views, softmax, unit
from oracles.streams import Array, affinity, first_of_largest, logits, summarise, summarise_vote


class Entry(NamedTuple):
    """What is remembered of an image, rounded as it is stored; the mask is that of BoostAdapter's negative cache."""

    feature: Array
    entropy: float
    mask: Array | None = None


def stored(feature: Array, value: float, mask: Array | None = None) -> Entry:
    return Entry(np.float64(np.float32(feature)), float(np.float32(value)), mask)


def insert_if_surer(entries: list[Entry], entry: Entry, capacity: int) -> None:
    """Append while there is room; else replace the least sure, the youngest of equal ones, by a surer one."""
    if len(entries) < capacity:
        entries.append(entry)
    else:
        worst = max(range(capacity), key=lambda j: (entries[j].entropy, j))
        if entry.entropy < entries[worst].entropy:
            del entries[worst]
            entries.append(entry)
    entries.sort(key=lambda e: e.entropy)  # stable: the older of equal ones stays before


class DMN:
    """Dynamic memory of DMN-ZS: the plain view of an image, under the pseudo-label of its views.

    Where FCL votes, the mean of the views that voted for the winner, under the winner.
    """

    def __init__(
        self,
        text: Array,
        scale: float,
        beta: float = 5.5,
        slots: int = 50,
        rho: float = 0.1,
        mix: float = 1.0,
        label: str = "zero-shot",
    ) -> None:
        self.text, self.scale, self.beta, self.slots = np.float64(text), scale, beta, slots
        self.rho, self.mix, self.label = rho, mix, label
        self.memory: list[list[Entry]] = [[] for _ in text]

    def answer(self, views: Array) -> Array:
        rows = np.array([logits(view, self.text, self.scale) for view in views])
        kept = kept_views(rows, self.rho)
        q = sum(softmax(rows[k]) for k in kept) / len(kept)
        z = np.float64(views[0])
        label, entry = first_of_largest(q), stored(z, entropy(q))
        if self.label == "fcl-vote":
            image = summarise_vote(views, self.text, self.scale)
            label, entry = image.label, stored(image.feature, image.entropy)
        insert_if_surer(self.memory[label], entry, self.slots)
        cosines = []
        for c, tau in enumerate(self.text):
            slots = [*(entry.feature for entry in self.memory[c]), tau]
            weights = [math.exp(-self.beta * (1 - float(z @ f))) for f in slots]
            mean = sum(w * f for w, f in zip(weights, slots, strict=True))
            cosines.append(float(z @ mean) / math.sqrt(float(mean @ mean)))
        dynamic = softmax(self.scale * np.array(cosines))
        return (softmax(rows[0]) + self.mix * dynamic) / (1 + self.mix)


class BoostAdapter:
    """A cache of sure images, lent an image's own sure views, and a first-in-first-out cache of unsure ones."""

    def __init__(
        self,
        text: Array,
        scale: float,
        a: float = 2.0,
        b: float = 5.0,
        delta: int = 3,
        views_in_summary: bool = False,
        rho: float = 0.1,
    ) -> None:
        self.text, self.scale, self.a, self.b, self.delta = text, scale, a, b, delta
        self.summary_rho, self.rho = rho if views_in_summary else None, rho
        self.positive: list[list[Entry]] = [[] for _ in text]
        self.negative: list[list[Entry]] = [[] for _ in text]

    def answer(self, views: Array) -> Array:
        image = summarise(views, self.text, self.scale, self.summary_rho)
        insert_if_surer(self.positive[image.label], stored(image.feature, image.entropy), 3)
        lent = [list(entries) for entries in self.positive]
        rows = np.array([logits(view, self.text, self.scale) for view in views])
        for k in kept_views(rows, self.rho):
            entry = stored(views[k], entropy(softmax(rows[k])))
            insert_if_surer(lent[first_of_largest(rows[k])], entry, 3 + self.delta)
        if 0.2 < image.entropy / math.log2(len(self.text)) < 0.5:
            mask = (np.float32(image.posterior) > np.float32(0.03)) & (np.float32(image.posterior) < 1)
            queue = self.negative[image.label]
            queue.append(stored(image.feature, image.entropy, mask))
            del queue[:-2]
        scores = image.scores.copy()
        for c, entries in enumerate(lent):
            for entry in entries:
                scores[c] += affinity(float(image.feature @ entry.feature), self.a, self.b)
        for entries in self.negative:
            for entry in entries:
                scores -= affinity(float(image.feature @ entry.feature), 0.117, 1.0) * entry.mask
        return softmax(scores)


class DPE:
    """Text prototypes that move over the stream, a cache for visual ones, and residuals for one image."""

    def __init__(
        self,
        text: Array,
        scale: float,
        paper: bool = True,
        a: float = 6.0,
        b: float = 5.0,
        lr: float = 5e-4,
        lam: float = 0.5,
        rho: float = 0.1,
        views_in_answer: bool = False,
    ) -> None:
        self.scale, self.paper, self.a, self.b, self.lr, self.lam, self.rho = scale, paper, a, b, lr, lam, rho
        self.views_in_answer = views_in_answer
        self.mean, self.count = np.float64(text), 0
        self.cache: list[list[Entry]] = [[] for _ in text]

    def answer(self, views: Array) -> Array:
        text = unit(self.mean)
        image = summarise(views, text, self.scale, self.rho)
        insert_if_surer(self.cache[image.label], stored(image.feature, image.entropy), 3)
        cached = [c for c, entries in enumerate(self.cache) if entries]
        visual = np.array([np.mean([entry.feature for entry in self.cache[c]], axis=0) for c in cached])
        rows = np.array([logits(view, text, self.scale) for view in views])
        seen = np.float64(views[kept_views(rows, self.rho)]) if self.paper else image.feature[None]
        text, visual = self.adapted(visual, cached, seen)
        x = np.float64(views[0])
        if self.views_in_answer:
            rows = np.array([logits(view, text, self.scale) for view in views])
            x = np.float64(views[kept_views(rows, self.rho)]).mean(0)
        scores = logits(x, text, self.scale)
        for c, prototype in zip(cached, visual, strict=True):
            scores[c] += affinity(float(x @ prototype), self.a, self.b)
        posterior = softmax(scores)
        if entropy(posterior) / math.log2(len(text)) < 0.1:
            self.count += 1
            self.mean = (self.mean * self.count + text) / (self.count + 1)
            self.mean = np.float64(np.float32(unit(self.mean) if self.paper else self.mean))
        return posterior

    def adapted(self, visual: Array, cached: list[int], seen: Array) -> tuple[Array, Array]:
        """Add residuals to prototypes as they are, of any length; the sums are brought to unit length."""
        starts = self.mean, visual
        slopes = self.slopes(*starts, cached, seen)
        text, visual = (unit(p - self.lr * g / (np.abs(g) + 1e-3)) for p, g in zip(starts, slopes, strict=True))
        return text, visual

    def slopes(self, text: Array, visual: Array, cached: list[int], seen: Array) -> tuple[Array, Array]:
        """Derive the loss by both residuals, at zero, one component at a time in the imaginary direction."""
        step = 1e-30
        lengths = text.size, visual.size
        moves = 1j * step * np.eye(sum(lengths))
        texts = text + moves[:, : lengths[0]].reshape(-1, *text.shape)
        visuals = visual + moves[:, lengths[0] :].reshape(-1, *visual.shape)
        slope = self.loss(texts, visuals, cached, seen).imag / step
        return slope[: lengths[0]].reshape(text.shape), slope[lengths[0] :].reshape(visual.shape)

    def loss(self, text: Array, visual: Array, cached: list[int], seen: Array) -> Array:
        """One value for each pair of prototypes: text is [pairs, classes, dim], visual [pairs, cached, dim]."""
        text = text / np.sqrt((text**2).sum(-1, keepdims=True))
        visual = visual / np.sqrt((visual**2).sum(-1, keepdims=True))
        mean = 0
        for x in seen:
            scores = self.scale * (text @ x)
            scores[:, cached] += self.a * np.exp(-self.b * (1 - visual @ x))
            powers = np.exp(scores - scores.real.max(-1, keepdims=True))
            mean = mean + powers / powers.sum(-1, keepdims=True) / len(seen)
        loss = -(mean * np.log(mean)).sum(-1)
        between = visual @ text[:, cached].transpose(0, 2, 1)
        both = (between, between.transpose(0, 2, 1)) if self.paper else (between / 0.01,)
        for similarities in both:
            top = similarities.real.max(-1, keepdims=True)
            own = np.diagonal(similarities - top, axis1=1, axis2=2)
            loss = loss + self.lam * (np.log(np.exp(similarities - top).sum(-1)) - own).mean(-1)
        return loss
