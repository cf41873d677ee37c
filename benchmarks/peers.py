"""The official TPT procedure beside this package's TPT and FCL: time and peak memory of one image.

Usage: python benchmarks/peers.py [--backbone ViT-B-16] [--precision auto] [--classes 200] [--masks 400] [--runs 5]

The official procedure is written here from its formula, in the pattern of calls of its repository: for each image the
context starts afresh; all 64 views go through the image encoder in one batch, all class prompts, at their full length
and with nothing shared or stored, through the text encoder, with a graph; the loss is the entropy of the mean posterior
of the tenth of the views that has the least entropy; AdamW takes one step; and the plain view and all class prompts go
through both encoders once more. Both encoders compute in the precision in which the package runs them: the image
encoder in `--precision`, the text encoder in float32. Views are made by the same code for all.

All run in one process, in turn; each has answered once, with few classes and masks, before. Seconds are the process's
own, so that other jobs of the machine count little. Memory is the peak above what was resident before, with what was
freed given back to the system in between. Ratios are of one turn, to the official procedure. With `--turns FILE` the
turns are stored as they end, and a later call goes on after them.

`--count` times nothing: it counts floating-point operations of both encoders, which depend on no machine.
"""

import argparse
import ctypes
import gc
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from common import add_model_options, make_backbone
from timm.data import ImageNetInfo
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from faircontext import Backbone, Episode, LabelSpace, ViewRecipe, create_method
from faircontext.backbones.open_clip import OpenClip
from faircontext.system import forget_peak, peak_mb, resident_mb

SHARE = 0.1
"""Of the views, those of least entropy, that the loss is of."""

FEWER: dict[str, object] = {"masks": 32, "pairs": "top3"}
"""Of the variants studied as a preset fast: what an image that is open encodes less; one that is sure stops before."""

__all__ = ["OfficialTPT"]


class OfficialTPT:
    """Test-time prompt tuning as its authors run it (Shu et al., NeurIPS 2022).

    Args:
        backbone: an open_clip model whose text encoder is causal.
        names: class names.
        template: of the prompts, with words to learn before the name.
    """

    def __init__(self, backbone: OpenClip, names: list[str], template: str = "a photo of a {}.") -> None:
        prompts = backbone.tokenize(names, template)
        encoder = backbone.text_encoder
        padding = encoder.context_length - prompts.ids.shape[1]
        ids = F.pad(prompts.ids, (0, padding), value=encoder.pad)
        embedded = backbone.token_embeddings(ids)
        learnt = prompts.start + prompts.length
        self._start, self._rest = embedded[:, : prompts.start], embedded[:, learnt:]
        self._initial = backbone.context(prompts)
        self._mask = F.pad(prompts.mask, (0, padding))
        self._backbone = backbone

    def _text(self, context: Tensor) -> Tensor:
        """Encode all class prompts at their full length."""
        prompts = torch.cat([self._start, context.expand(len(self._rest), -1, -1), self._rest], 1)
        return F.normalize(self._backbone.text_encoder(prompts, self._mask), dim=-1)

    def _logits(self, pixels: Tensor, context: Tensor) -> Tensor:
        """Return scores of images; the image encoder has no graph."""
        backbone = self._backbone
        with torch.no_grad():
            images = backbone._image_features(backbone._normalise(pixels).to(backbone.dtype)).float()
        return backbone.logit_scale * F.normalize(images, dim=-1) @ self._text(context).T

    def __call__(self, views: Tensor) -> Tensor:
        """Return the probabilities of the classes.

        Args:
            views: with values in [0, 1], the plain one first.
        """
        context = self._initial.clone().requires_grad_()
        optimizer = torch.optim.AdamW([context], lr=0.005, weight_decay=0.01, foreach=False)
        log_posteriors = self._logits(views, context).log_softmax(-1)
        entropies = -(log_posteriors.exp() * log_posteriors).sum(-1)
        confident = log_posteriors[entropies.argsort(stable=True)[: int(len(views) * SHARE)]]
        mean = confident.exp().mean(0)
        loss = -(mean * mean.clamp_min(torch.finfo(mean.dtype).tiny).log()).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            return self._logits(views[:1], context).softmax(-1)[0]


def runners(
    backbone: Backbone, labels: LabelSpace, names: list[str], masks: int
) -> dict[str, Callable[[np.ndarray, int], object]]:
    """Return what answers an image with a seed, by title."""
    assert isinstance(backbone, OpenClip)
    official, recipe = OfficialTPT(backbone, names), ViewRecipe()

    def run_official(image: np.ndarray, seed: int) -> object:
        return official(Episode(image, labels, recipe, seed).views.to(backbone.device) / 255.0)

    def run(name: str, **settings: object) -> Callable[[np.ndarray, int], object]:
        method = create_method(name, backbone=backbone, **settings)
        return lambda image, seed: method(Episode(image, labels, recipe, seed))

    return {
        "official TPT": run_official,
        "tpt": run("tpt"),
        f"fcl, {masks} masks": run("fcl", masks=masks),
        f"fcl, {masks} masks, drop": run("fcl_variants", masks=masks, occluder="drop"),
        "fcl, fewer, open": run("fcl_variants", **FEWER),
        "fcl, fewer, open, drop": run("fcl_variants", **FEWER, occluder="drop"),
        "fcl, fewer, sure": run("fcl", calibrate=False),
    }


def operations(name: str, classes: int, masks: int) -> dict[str, float]:
    """Return how many operations, in 10^12, the encoders of a vision transformer's model need, by title.

    A multiplication and an addition are two. FCL's thirty short prompts, less than a hundredth, are left out.
    """
    model = open_clip.create_model(name, device="meta").eval().requires_grad_(False)
    encoder, length = model.visual, model.context_length

    def count(run: Callable[[], object]) -> float:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            run()
        return counter.get_total_flops() / 1e12

    def prompt(graph: bool) -> None:
        tokens = torch.empty(1, length, model.ln_final.normalized_shape[0], device="meta", requires_grad=graph)
        hidden = model.transformer(tokens + model.positional_embedding, attn_mask=model.attn_mask)
        feature = model.ln_final(hidden)[:, -1] @ model.text_projection
        if graph:
            feature.sum().backward()  # type: ignore[no-untyped-call]

    side = encoder.image_size[0]
    seen = 1 + encoder.grid_size[0] ** 2 - int(encoder.grid_size[0] ** 2 / 2 + 0.5)
    tokens = torch.empty(1, seen, encoder.ln_pre.normalized_shape[0], device="meta")
    image = count(lambda: encoder(torch.empty(1, 3, side, side, device="meta")))
    half = count(lambda: encoder._pool(encoder.transformer(tokens))[0] @ encoder.proj)
    return {
        "official TPT": 65 * image + classes * (count(lambda: prompt(True)) + count(lambda: prompt(False))),
        f"fcl, {masks} masks": (64 + masks + 45) * image,
        f"fcl, {masks} masks, drop": (64 + 45) * image + masks * half,
        "fcl, fewer, open": (64 + 32 + 24) * image,
        "fcl, fewer, open, drop": (64 + 24) * image + 32 * half,
        "fcl, fewer, sure": 64 * image,
    }


def measured(call: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds and the megabytes that a call takes."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    before = resident_mb()
    forget_peak()
    begin = time.process_time()
    call()
    return time.process_time() - begin, peak_mb() - before


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_options(parser)
    parser.set_defaults(backbone="ViT-B-16")
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--masks", type=int, default=400)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--turns", type=Path)
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    if options.count:
        counts = operations(options.backbone, options.classes, options.masks)
        for title, own in counts.items():
            print(f"| {title:24} | {own:.2f} | {own / counts['official TPT']:.2f} |")
        return

    backbone = make_backbone(options)
    names = [text.partition(",")[0] for text in ImageNetInfo().label_descriptions()[: options.classes]]
    labels = LabelSpace(names, backbone)
    labels.text  # noqa: B018 (as in any run over several images; the official procedure stores no text)
    image = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    for call in runners(backbone, LabelSpace(names[:4], backbone), names[:4], 1).values():
        call(image, 0)
    calls = runners(backbone, labels, names, options.masks)
    turns: list[dict[str, tuple[float, float]]] = []
    if options.turns is not None and options.turns.exists():
        turns = json.loads(options.turns.read_text(encoding="utf-8"))
    for turn in range(len(turns), options.runs):
        turns.append({title: measured(partial(call, image, turn)) for title, call in calls.items()})
        if options.turns is not None:
            options.turns.write_text(json.dumps(turns, indent=1), encoding="utf-8")
    print(
        f"\n{backbone.name} {backbone.precision}, {torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"{len(names)} classes, median of {options.runs}"
    )
    print(f"| {'':24} | seconds | of official TPT's (min to max) | peak MB | of official TPT's |")
    print("|---|---|---|---|---|")
    for title in calls:
        seconds, peaks = zip(*(turn[title] for turn in turns), strict=True)
        pairs = [(*turn[title], *turn["official TPT"]) for turn in turns]
        ratios, rises = [own / first for own, _, first, _ in pairs], [own / first for _, own, _, first in pairs]
        print(
            f"| {title:24} | {statistics.median(seconds):.1f} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f}) | {statistics.median(peaks):,.0f} | {statistics.median(rises):.3f} |"
        )


if __name__ == "__main__":
    main()
