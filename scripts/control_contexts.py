"""Contexts with a known misalignment for scripts/study_control.py, and whether FCL goes the way back from them.

A planting walks from the words "a photo of a" in steps of one length, down the gradient of an objective that has
nothing to do with FCL's, and stops at the first point whose zero-shot has lost so many points on the choosing half.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from faircontext import FCL, Episode, LabelSpace, create_backbone
from faircontext.backbones.contexts import read_context
from faircontext.cache import cached_features
from faircontext.calibrate import alignment_loss, total_loss
from faircontext.datasets import Dataset, load_dataset
from faircontext.datasets.listing import data_hash
from faircontext.files import to_json, write_whole
from faircontext.imageio import load_image
from faircontext.methods import FCLVariants
from faircontext.runs.orders import choose
from faircontext.views import ViewRecipe, Views

SETS = ("caltech101_coop_test", "clothing10_test", "grocery81_test", "tiny_imagenet_val")
"""The sets that the model knows: the names of their classes are among those that it was trained on."""

KINDS = ("prior", "shared", "overfit", "noise")
STEP = 0.001
"""Length of a step, as the root mean square over the tokens' coordinates; those of words have about 0.03."""

MOST_STEPS = 250
BANK = 6, 16
"""Images of each set whose masked copies stand for evidence without an object of another set, and copies of each."""

SHARED = 32
"""Masked copies that speak most for both classes of a pair."""


@dataclass(frozen=True)
class Planting:
    """A context: of which set, with which misalignment, how strong in points of zero-shot, from which seed."""

    dataset: str
    kind: str = "none"
    strength: int = 0
    seed: int = 0

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{self.dataset}-{self.kind}-{self.strength}-{self.seed}"


class Garden:
    """The model with the images of the choosing half, encoded once.

    Args:
        root: folder of the data sets.
        model: folder of the open_clip model.
        out: folder for features and contexts.
    """

    def __init__(self, root: Path, model: Path, out: Path) -> None:
        self.root, self.out = root, out
        self.backbone = create_backbone(f"local-dir:{model}")
        self.sets = sorted(path.parent.name for path in root.glob("*/labels.csv"))

    def file(self, planting: Planting) -> Path:
        """Return where a context is, or would be."""
        return self.out / "contexts" / f"{planting.name}.pth"

    def _encoded(self, dataset: Dataset, kind: str, compute: Callable[[], Tensor]) -> Tensor:
        backbone = self.backbone
        key = {"kind": f"study_control {kind}", "data": data_hash(dataset), "weights": backbone.weights_hash}
        facts = {"precision": backbone.precision, **backbone.engine_facts}
        return cached_features(self.out / "features", {**key, **facts}, backbone.device, compute, asked=True)

    def plain(self, dataset: Dataset) -> Tensor:
        """Return the features of the plain views of all images, (images, dim)."""

        def pixels(start: int) -> Tensor:
            batch = (load_image(one.path) for one in dataset.samples[start : start + 16])
            return torch.stack([Views(image, self.backbone.geometry, ViewRecipe(), 0).plain for image in batch]) / 255.0

        def compute() -> Tensor:
            return self.backbone.encode_parts(pixels(start) for start in range(0, len(dataset.samples), 16))

        return self._encoded(dataset, "plain", compute)

    def masked(self, dataset: Dataset) -> Tensor:
        """Return the features of masked copies of some images, (images x copies, dim)."""
        images, copies = BANK

        def compute() -> Tensor:
            blank = LabelSpace(("thing",), self.backbone)
            chosen = (dataset.samples[position] for position in choose(len(dataset.samples), 0, images).tolist())
            episodes = (Episode(load_image(one.path), blank) for one in chosen)
            return torch.cat([episode.masked_features(copies, (3, 4, 5, 6, 7), 0.5)[1] for episode in episodes])

        return self._encoded(dataset, f"masked {BANK}", compute)

    def others(self, name: str, features: Callable[[Dataset], Tensor]) -> Tensor:
        """Return features of all sets but one."""
        return torch.cat([features(load_dataset(other, self.root)) for other in self.sets if other != name])

    def plant(self, name: str, kind: str, seed: int, strengths: Sequence[int]) -> None:
        """Write a context for each strength, with a JSON file beside it; what is there is not made again."""
        plantings = {strength: Planting(name, kind, strength, seed) for strength in strengths}
        if all(self.file(one).with_suffix(".json").exists() for one in plantings.values()):
            return
        bed = Bed(self, load_dataset(name, self.root))
        missing, facts, last = dict(plantings), {}, bed.start
        for step, delta, lost, facts in bed.walk(kind, seed):
            last = delta
            for strength in [strength for strength in missing if lost >= strength / 100]:
                self._write(bed, missing.pop(strength), delta, {**facts, "step": step, "lost": lost})
            if not missing:
                break
        for planting in missing.values():  # too far: no context, but a word that it was tried
            self._write(bed, planting, last, {**facts, "step": MOST_STEPS, "lost": None})

    def plant_none(self, name: str) -> None:
        """Write the context that nothing was done to: the words."""
        if not self.file(Planting(name)).with_suffix(".json").exists():
            bed = Bed(self, load_dataset(name, self.root))
            self._write(bed, Planting(name), bed.start, {"step": 0, "lost": 0.0})

    def _write(self, bed: "Bed", planting: Planting, delta: Tensor, facts: dict[str, Any]) -> None:
        path, moved = self.file(planting), delta - bed.start
        path.parent.mkdir(parents=True, exist_ok=True)
        if facts["lost"] is not None:
            bed.labels.save_context(path, delta)
        found = {**vars(planting), "zero_shot": bed.clean, "n": len(bed.truth), **facts}
        length = {"distance": float(moved.norm()), "tokens": float(bed.start.norm())}
        write_whole(path.with_suffix(".json"), to_json({**found, **length}))  # last: it says that all is there


class Bed:
    """A set in which contexts are planted."""

    def __init__(self, garden: Garden, dataset: Dataset) -> None:
        self.garden, self.dataset, self.backbone = garden, dataset, garden.backbone
        self.labels = LabelSpace(dataset.names, self.backbone)
        self.start = self.labels.start(0, "cl")[0]
        self.features = garden.plain(dataset)
        self.truth = torch.tensor([one.label for one in dataset.samples])

    @cached_property
    def clean(self) -> float:
        """Accuracy of the words."""
        return self.accuracy(self.labels.text[0])

    def accuracy(self, text: Tensor) -> float:
        """Return the accuracy of zero-shot with some text features."""
        return float(((self.features @ text.T).argmax(1) == self.truth).double().mean())

    def walk(self, kind: str, seed: int) -> Iterator[tuple[int, Tensor, float, dict[str, Any]]]:
        """Yield step, tokens, what zero-shot has lost there, and what was done."""
        rng = np.random.default_rng([seed, KINDS.index(kind), SETS.index(self.dataset.name)])
        noise = torch.from_numpy(rng.normal(size=tuple(self.start.shape))).to(self.start)
        loss, facts = (None, {}) if kind == "noise" else getattr(self, f"_{kind}")(rng)
        delta, before = self.start, None
        for step in range(MOST_STEPS + 1):
            delta = delta.detach().requires_grad_(loss is not None)
            text = self.backbone.encode_text(self.labels.prompts[0], delta)
            value = None if loss is None else loss(text)
            before = before if value is None or before is not None else float(value.detach())
            known = {**facts, "objective": None if value is None else [before, float(value.detach())]}
            yield step, delta.detach(), self.clean - self.accuracy(text.detach()), known
            direction = noise if value is None else -torch.autograd.grad(value, delta)[0]
            delta = delta + STEP * direction.numel() ** 0.5 * direction / direction.norm()

    def _prior(self, rng: np.random.Generator) -> tuple[Callable[[Tensor], Tensor], dict[str, Any]]:
        """Half of the classes gain on the mean embedding of other sets' images, and the others lose."""
        order = torch.from_numpy(rng.permutation(len(self.labels)))
        gaining, losing = order.tensor_split(2)
        free = F.normalize(self.garden.others(self.dataset.name, self.garden.plain).mean(0), dim=-1)
        scale = self.backbone.logit_scale

        def loss(text: Tensor) -> Tensor:
            scores = scale * text @ free
            return scores[losing].mean() - scores[gaining].mean()

        return loss, {"gaining": sorted(gaining.tolist())}

    def _shared(self, rng: np.random.Generator) -> tuple[Callable[[Tensor], Tensor], dict[str, Any]]:
        """One of two classes that are often confused is preferred on what speaks for both: masked other images."""
        text, scale = self.labels.text[0], self.backbone.logit_scale
        posterior = (scale * self.features @ text.T).softmax(-1)
        confused = (posterior.T @ posterior).triu(1).flatten()
        chosen = confused.topk(max(5, len(text) // 2)).indices
        pairs = torch.stack([chosen // len(text), chosen % len(text)])
        pairs = torch.where(torch.from_numpy(rng.random(len(chosen)) < 0.5), pairs, pairs.flip(0))  # which is preferred
        bank = self.garden.others(self.dataset.name, self.garden.masked)
        seen = bank @ text.T
        seen = (seen - seen.mean(0)) / seen.std(0)
        both = torch.minimum(seen[:, pairs[0]], seen[:, pairs[1]]).topk(SHARED, 0).indices  # (copies, pairs)
        common = bank[both].mean(0)

        def loss(text: Tensor) -> Tensor:
            return -scale * (common * (text[pairs[0]] - text[pairs[1]])).sum(-1).mean()

        return loss, {"pairs": pairs.T.tolist()}

    def _overfit(self, rng: np.random.Generator) -> tuple[Callable[[Tensor], Tensor], dict[str, Any]]:
        """CoOp's cross-entropy on an image of each of half of the classes, answered over all classes afterwards."""
        seen = torch.from_numpy(np.sort(rng.permutation(len(self.labels))[: len(self.labels) // 2]))
        rows = rng.permutation(len(self.truth))
        first = {int(self.truth[row]): row for row in rows[::-1]}  # the first of each class in that order
        known = [(place, first[label]) for place, label in enumerate(seen.tolist()) if label in first]
        places, images = (torch.tensor(part) for part in zip(*known, strict=True))
        scale = self.backbone.logit_scale

        def loss(text: Tensor) -> Tensor:
            return F.cross_entropy(scale * self.features[images] @ text[seen].T, places)

        return loss, {"seen": seen.tolist(), "images": len(known)}


def cosine(first: Tensor, second: Tensor) -> float:
    return float(F.cosine_similarity(first.flatten(), second.flatten(), dim=0))


def directions(
    garden: Garden, planting: Planting, root: Path, methods: dict[str, FCLVariants], images: int
) -> list[dict[str, Any]]:
    """Return, for some images, the cosine of FCL's step with the way back to the clean tokens, and its loss.

    `tokens` is `cos(delta* - delta, delta_clean - delta)` with delta the planted tokens, `text` the same of the
    candidates' features, `gap` how much of the way is left: `|delta* - delta_clean| / |delta - delta_clean|`.
    """
    dataset = load_dataset(planting.dataset, root)
    clean = LabelSpace(dataset.names, garden.backbone)
    planted = LabelSpace(dataset.names, garden.backbone, context=read_context(garden.file(planting)))
    (goal, _, tau0), (start, _, tau) = clean.start(0, "cl"), planted.start(0, "cl")
    rows = []
    for position in choose(len(dataset.samples), 0, images).tolist():
        views = Views(load_image(dataset.samples[position].path), garden.backbone.geometry, ViewRecipe(), 0)
        episode = Episode.of(views, planted, garden.out / "features")
        for label, method in methods.items():
            found = method.adapt(episode)
            if found.calibration is None:
                continue
            own, text = found.candidates, found.calibration.text
            rows.append(
                {
                    "image": dataset.samples[position].key,
                    "method": label,
                    "tokens": cosine(found.calibration.context - start, goal - start),
                    "text": cosine(text - tau[own], tau0[own] - tau[own]),
                    "gap": float((found.calibration.context - goal).norm() / (start - goal).norm()),
                    "loss_before": found.calibration.losses[0],
                    "loss_after": loss_of(method, episode, tau[own], text, found.pairs),
                }
            )
    return rows


def loss_of(method: FCL, episode: Episode, reference: Tensor, text: Tensor, pairs: Tensor) -> float:
    """Return FCL's loss at learnt text features; for a comparison, the alignment term is always the paper's."""
    common = method.common(episode, reference, pairs)
    weights = method.temperature(episode), method.lambda_cal, method.lambda_align
    return float(total_loss(text, reference, episode.z, common.features, pairs, *weights, align=alignment_loss))


def read_planted(folder: Path) -> list[dict[str, Any]]:
    """Return what is said of all contexts."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
