"""What each table of the paper needs: which methods, with which settings, on which data sets and backbones.

Runs are kept by backbone, prompts and group of methods, so that two tables that need the same runs share them.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from faircontext.bench.plan import Setup
from faircontext.datasets.catalogue import CATALOGUE
from faircontext.episode import Episode
from faircontext.errors import unknown_name

__all__ = ["EXPERIMENTS", "Experiment", "Job", "experiment", "seconds_per_image"]

NATURAL = tuple(name for name, entry in CATALOGUE.items() if entry.regime == "natural")
FINE_GRAINED = tuple(name for name, entry in CATALOGUE.items() if entry.regime == "fine-grained")
METHODS = ("tpt", "ctpt", "rlcf", "mta", "zero", "ttl", "tps", "rtpt", "fcl")
MASKS = (50, 100, 200, 400, 800)
B16, B32 = "ViT-B-16", "ViT-B-32"


@dataclass(frozen=True)
class Job:
    """Runs that differ in the data set alone.

    Attributes:
        group: name of their folder; jobs of one group on one backbone have the same methods and settings.
        backbone: architecture; its weights are OpenAI's unless others are asked for.
        datasets: names.
        methods: what is run, variants by a suffix.
        settings: over the preset `paper`, as for `evaluate --set`.
        prompts: name of the prompt set.
    """

    group: str
    backbone: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    settings: tuple[str, ...] = ()
    prompts: str = "single"

    def folder(self, pretrained: str | None) -> str:
        """Return where its runs are, below the folder of all runs."""
        model = "-".join(filter(None, (self.backbone, pretrained)))
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', model).strip('-')}/{self.prompts}/{self.group}"

    def on(self, backbone: str) -> "Job":
        """Return the same on another backbone."""
        return replace(self, backbone=backbone)


@dataclass(frozen=True)
class Experiment:
    """What a table or figure of the paper needs.

    Attributes:
        title: what it is.
        jobs: runs.
        costs: backbones on which time and memory are measured, see `measure`.
    """

    title: str
    jobs: tuple[Job, ...]
    costs: tuple[str, ...] = ()


def _variants(group: str, datasets: tuple[str, ...], changes: Mapping[str, str], prompts: str = "single") -> Job:
    """Return a job of FCL beside variants of it, each with one setting changed."""
    settings = tuple(f"fcl-{suffix}.{change}" for suffix, change in changes.items())
    return Job(group, B16, datasets, ("fcl", *(f"fcl-{suffix}" for suffix in changes)), settings, prompts)


def _masks(backbone: str) -> Job:
    """Return the job of all numbers of masks: one pass of the largest serves them all."""
    methods = tuple(f"fcl-{number}" for number in MASKS)
    settings = tuple(f"fcl-{number}.masks={number}" for number in MASKS)
    return Job("num-masks", backbone, ("imagenet",), methods, settings)


_NATURAL = Job("natural-shift", B16, NATURAL)
_FINE = Job("fine-grained", B16, FINE_GRAINED)
_IMAGENET = replace(_NATURAL, datasets=("imagenet",))

EXPERIMENTS: Mapping[str, Experiment] = {
    "natural-shift-b16": Experiment("ImageNet and its shifts, ViT-B/16", (_NATURAL,)),
    "natural-shift-b32": Experiment("ImageNet and its shifts, ViT-B/32", (_NATURAL.on(B32),)),
    "fine-grained-b16": Experiment("ten fine-grained data sets, ViT-B/16", (_FINE,)),
    "delta-over-clip": Experiment("gains over CLIP, both backbones", (_NATURAL, _NATURAL.on(B32))),
    "context-hardprompt": Experiment(
        "CL and CL-HP on ImageNet and its shifts",
        (_NATURAL, Job("hard-prompt", B16, NATURAL, ("fcl-hp",), ("fcl-hp.context=cl-hp",))),
    ),
    "prompt-ensemble": Experiment(
        "seven generic templates on ImageNet, CL and CL-HP, and their zero-shot row",
        (_IMAGENET, _variants("ensemble", ("imagenet",), {"hp": "context=cl-hp"}, "generic7")),
    ),
    "ablation-losses": Experiment(
        "without a loss term, fine-grained data sets",
        (_variants("losses", FINE_GRAINED, {"without-cal": "lambda_cal=0", "without-align": "lambda_align=0"}),),
    ),
    "ablation-aggregation": Experiment(
        "mean for vote in exploration, ImageNet",
        (_variants("aggregation", ("imagenet",), {"mean": "aggregation=mean"}),),
    ),
    "ablation-num-masks": Experiment("50 to 800 masks, ImageNet", (_masks(B16),)),
    "calibration-gain": Experiment(
        "exploration alone against all of FCL, fine-grained data sets",
        (_variants("calibration", FINE_GRAINED, {"explore": "calibrate=false"}),),
    ),
    "efficiency": Experiment(
        "seconds, memory and accuracy of TPT and FCL",
        (_IMAGENET, _IMAGENET.on(B32), _masks(B16), _masks(B32)),
        (B16, B32),
    ),
}
"""By name, in the paper's order."""


def experiment(name: str) -> Experiment:
    """Return an experiment by name.

    Raises:
        ArgumentError: there is none of this name.
    """
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def seconds_per_image(setup: Setup, size: tuple[int, int] = (375, 500)) -> float:
    """Return what an image costs with all methods, measured on a made one after one that is not counted.

    Args:
        setup: what answers images.
        size: height and width of the image.
    """
    rng = np.random.default_rng(0)
    for _ in range(2):
        image = rng.integers(0, 256, (*size, 3), np.uint8)
        begin = time.perf_counter()
        episode = Episode(image, setup.labels, setup.recipe)
        _run(setup, episode)
        seconds = time.perf_counter() - begin
    return seconds


def _run(setup: Setup, episode: Episode) -> Sequence[int]:
    return [method(episode).index for method in setup.methods.values()]
