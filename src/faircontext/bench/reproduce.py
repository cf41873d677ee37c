"""What each table of the paper needs: which methods, with which settings, on which data sets and backbones.

A method with its settings belongs to one group, and runs are kept by backbone, prompts and group: a table that needs a
run finds it, whichever table it was made for, and `faircontext tables` reads all of them together.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import faircontext.analysis  # noqa: F401 (files the analyses)
from faircontext.datasets.spec import CATALOGUE
from faircontext.episode import Episode
from faircontext.errors import unknown_name
from faircontext.methods import create_method, parse_settings
from faircontext.runs.plan import Setup
from faircontext.runs.records import is_analysis

__all__ = [
    "BASELINES",
    "EXPERIMENTS",
    "FINE_GRAINED",
    "MASKS",
    "NATURAL",
    "Experiment",
    "Job",
    "between",
    "experiment",
    "seconds_per_image",
    "settings_of",
]

NATURAL = tuple(name for name, entry in CATALOGUE.items() if entry.regime == "natural")
FINE_GRAINED = tuple(name for name, entry in CATALOGUE.items() if entry.regime == "fine-grained")
BASELINES = ("tpt", "ctpt", "rlcf", "mta", "zero", "ttl", "tps", "rtpt")
MASKS = (50, 100, 200, 400, 800)
B16, B32 = "ViT-B-16", "ViT-B-32"


@dataclass(frozen=True)
class Job:
    """Runs that differ in the data set alone.

    Attributes:
        group: name of their folder; jobs of one group have the same methods and settings.
        backbone: architecture; its weights are OpenAI's unless others are asked for.
        datasets: names.
        methods: what is run, variants by a suffix.
        settings: over the preset `paper`, as for `evaluate --set`.
        prompts: name of the prompt set.
        limit: images of each data set, where the paper takes a sample, or where all would cost days.
    """

    group: str
    backbone: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    settings: tuple[str, ...] = ()
    prompts: str = "single"
    limit: int | None = None

    @property
    def analysis(self) -> bool:
        """Whether evidence is analysed, in place of answering."""
        return all(map(is_analysis, self.methods))

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
        counted: data sets whose classes and images are counted.
        figures: what is drawn in the end, see `faircontext figures`.
    """

    title: str
    jobs: tuple[Job, ...] = ()
    costs: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


_GROUPS: Mapping[str, Mapping[str, str]] = {
    "tpt": {"tpt": ""},
    "baselines": {name: "" for name in BASELINES if name != "tpt"},
    "fcl": {"fcl": ""},
    "hard-prompt": {"fcl-hp": "context=cl-hp"},
    "calibration": {"fcl-explore": "calibrate=false"},
    "losses": {"fcl-without-cal": "lambda_cal=0", "fcl-without-align": "lambda_align=0"},
    "aggregation": {"fcl-mean": "aggregation=mean"},
    # Most masks first: then the others find theirs encoded. 400 are FCL itself.
    "masks-many": {f"fcl-{number}": f"masks={number}" for number in (800, 200)},
    "masks-few": {f"fcl-{number}": f"masks={number}" for number in (100, 50)},
}
"""What is run together: methods, and the setting that each changes."""


def _jobs(
    datasets: tuple[str, ...], *groups: str, backbones: tuple[str, ...] = (B16,), prompts: str = "single"
) -> tuple[Job, ...]:
    """Return the jobs of some groups on each backbone."""
    found = []
    for backbone in backbones:
        for group in groups:
            changes = _GROUPS[group]
            settings = tuple(f"{method}.{change}" for method, change in changes.items() if change)
            found.append(Job(group, backbone, datasets, tuple(changes), settings, prompts))
    return tuple(found)


def _analyses(datasets: tuple[str, ...], limit: int, *names: str) -> tuple[Job, ...]:
    """Return the jobs of analyses, on a sample of each data set."""
    return tuple(Job(f"analysis-{name}", B16, datasets, (name,), limit=limit) for name in names)


_ALL = ("tpt", "baselines", "fcl")
_IMAGENET = ("imagenet",)

EXPERIMENTS: Mapping[str, Experiment] = {
    "natural-shift-b16": Experiment("ImageNet and its shifts, ViT-B/16", _jobs(NATURAL, *_ALL)),
    "natural-shift-b32": Experiment("ImageNet and its shifts, ViT-B/32", _jobs(NATURAL, *_ALL, backbones=(B32,))),
    "fine-grained-b16": Experiment("ten fine-grained data sets, ViT-B/16", _jobs(FINE_GRAINED, *_ALL)),
    "delta-over-clip": Experiment("gains over CLIP, both backbones", _jobs(NATURAL, *_ALL, backbones=(B16, B32))),
    "context-hardprompt": Experiment(
        "all methods and CL-HP on ImageNet and its shifts", _jobs(NATURAL, *_ALL, "hard-prompt")
    ),
    "prompt-ensemble": Experiment(
        "seven generic templates on ImageNet, CL and CL-HP, and their zero-shot row",
        _jobs(_IMAGENET, "fcl") + _jobs(_IMAGENET, "fcl", "hard-prompt", prompts="generic7"),
    ),
    "ablation-losses": Experiment("without a loss term, fine-grained data sets", _jobs(FINE_GRAINED, "fcl", "losses")),
    "ablation-aggregation": Experiment(
        "mean for vote in exploration, ImageNet", _jobs(_IMAGENET, "fcl", "aggregation")
    ),
    "ablation-num-masks": Experiment(
        "50 to 800 masks, ImageNet", _jobs(_IMAGENET, "fcl", "masks-many", "masks-few"), figures=("masks",)
    ),
    "calibration-gain": Experiment(
        "exploration alone against all of FCL, fine-grained data sets",
        _jobs(FINE_GRAINED, "fcl", "calibration"),
        figures=("calibration-gain",),
    ),
    "observations": Experiment(
        "scores and evidence, ECEC of right and wrong answers, unique evidence against entropy (figures a, b and c)",
        _analyses(("imagenet_a",), 100, "gallery")
        + _analyses(NATURAL, 1000, "evidence")
        + _analyses(_IMAGENET, 100, "entropy"),
        figures=("scores", "ecec", "entropy"),
    ),
    "decomposition": Experiment(
        "an image as the sum of its evidence, 1,000 images of ImageNet",
        _analyses(_IMAGENET, 1000, "decomposition"),
        figures=("decomposition",),
    ),
    "evidence-gallery": Experiment(
        "evidence maps of images of ImageNet-A", _analyses(("imagenet_a",), 100, "gallery"), figures=("gallery",)
    ),
    "dataset-statistics": Experiment(
        "numbers of classes and images, found and the paper's", counted=NATURAL + FINE_GRAINED
    ),
    "efficiency": Experiment(
        "seconds, memory and accuracy of TPT and FCL",
        _jobs(_IMAGENET, "tpt", "fcl", "masks-many", backbones=(B16, B32)),
        (B16, B32),
        figures=("pareto",),
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


def settings_of(methods: tuple[str, ...], changes: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return all settings of some methods, by what they are called, with the preset `paper`.

    Args:
        methods: as in `Job.methods`.
        changes: as in `Job.settings`.
    """
    found = {}
    for label in methods:
        words = tuple(word.removeprefix(f"{label}.") for word in changes if word.startswith(f"{label}."))
        name = label.partition("-")[0]
        changed: dict[str, Any] = parse_settings(name, words)
        found[label] = create_method(name, **changed).settings()
    return found


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
        for method in setup.methods.values():
            method(episode)
        seconds = time.perf_counter() - begin
    return seconds


def between(costs: Mapping[int, float], classes: int) -> float:
    """Return the cost at a number of classes, on the line through the costs at the least and the greatest number.

    A method's cost grows with the classes by the prompts that it encodes, so the line is what it follows.
    """
    few, many = min(costs), max(costs)
    return costs[few] if few == many else costs[few] + (costs[many] - costs[few]) * (classes - few) / (many - few)
