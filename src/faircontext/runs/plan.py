"""What a run is: which images in which order, which methods on which labels, and the configuration that is recorded."""

import os
import platform
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from faircontext import __version__
from faircontext.backbones import Backbone
from faircontext.backbones.prompts import prompt_set
from faircontext.datasets.load import check_present, load_dataset
from faircontext.datasets.spec import Dataset
from faircontext.errors import ArgumentError
from faircontext.files import digest_of_json, to_json
from faircontext.imageio import MAX_PIXELS
from faircontext.labels import LabelSpace
from faircontext.methods import Method
from faircontext.names import list_warnings
from faircontext.runs.answer import AnsweredImage, Item
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.records import Record
from faircontext.system import usable_processors
from faircontext.views import ViewRecipe

__all__ = [
    "Model",
    "Plan",
    "Setup",
    "choose",
    "data_hash",
    "find_datasets",
    "parse_shard",
    "plan_of",
    "run_name",
    "start_session",
    "templates_of",
]


@dataclass(frozen=True)
class Setup:
    """What answers images; methods are known by what they are called in rows."""

    labels: LabelSpace
    methods: Mapping[str, Method]
    recipe: ViewRecipe


@dataclass(frozen=True)
class Model:
    """A backbone and the methods that are to run on it."""

    backbone: Backbone
    methods: Mapping[str, Method]
    recipe: ViewRecipe

    def on(
        self,
        names: Sequence[str],
        templates: Sequence[str],
        regime: Literal["natural", "fine-grained"],
        truncate: bool = False,
    ) -> Setup:
        """Return what answers images of some classes.

        Raises:
            LabelError: a class name, a template or a method on them cannot be used.
        """
        return self.answering(LabelSpace(names, self.backbone, templates, truncate=truncate), regime)

    def answering(self, labels: LabelSpace, regime: Literal["natural", "fine-grained"]) -> Setup:
        """Return what answers images of a label space on this backbone; see `on`."""
        for method in self.methods.values():
            method.check_labels(labels)
        return Setup(labels, self.methods, replace(self.recipe, regime=regime))


@dataclass(frozen=True)
class Plan:
    """One data set, answered by some methods.

    Attributes:
        dataset: the images that are there.
        setup: what answers them.
        seed: of views, masks, and of the order of images.
        limit: how many images at most, None for all.
        shard: `(i, n)` for the i-th of n parts, counted from 0; None for all.
        facts: what else `run.json` says of the configuration: preset, prompt set, reading.
    """

    dataset: Dataset
    setup: Setup
    seed: int
    limit: int | None
    shard: tuple[int, int] | None
    facts: Mapping[str, Any]

    @property
    def folder_name(self) -> str:
        """Name of the run's folder."""
        return run_name(self.dataset.name, self.shard)

    @cached_property
    def positions(self) -> list[int]:
        """Positions in the data set of the run's images, in the order in which they are answered."""
        return choose(len(self.dataset.samples), self.seed, self.limit, self.shard)

    def item(self, position: int) -> Item:
        """Return the image at a position of the data set."""
        sample = self.dataset.samples[position]
        return Item(sample.key, sample.path, sample.label)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that the rows depend on; a run is resumed only with the same."""
        dataset, labels = self.dataset, self.setup.labels
        backbone = labels.backbone
        return {
            "dataset": {
                "name": dataset.name,
                "split": dataset.split,
                "classes": len(dataset.names),
                "images": len(dataset.samples),
                "listed": dataset.listed,
                "hash": data_hash(dataset),
            },
            "names": list(dataset.names),
            "limit": self.limit,
            "shard": self.shard,
            "seed": self.seed,
            "backbone": {
                "name": backbone.name,
                "precision": backbone.precision,
                "device": backbone.device.type,
                "batch_size": backbone.batch_size,
                "logit_scale": backbone.logit_scale,
                "weights": backbone.weights_hash,
            },
            "templates": list(labels.templates),
            "views": asdict(self.setup.recipe),
            **self.facts,
            "methods": {name: method.settings() for name, method in self.setup.methods.items()},
            "versions": {"faircontext": __version__, "torch": torch.__version__},
        }

    @cached_property
    def hashes(self) -> dict[str, str]:
        """For each method, a hash of all that its answer for an image depends on, besides the image."""
        shared = {
            key: value for key, value in self.config.items() if key not in ("dataset", "limit", "shard", "methods")
        }
        methods = self.config["methods"].items()
        return {name: digest_of_json([shared, name, settings])[:12] for name, settings in methods}

    def records(self, answered: AnsweredImage, position: int) -> list[Record]:
        """Return the rows of one image as they are stored."""
        label = self.dataset.samples[position].label
        common: dict[str, Any] = {"dataset": self.dataset.name, "position": position, "label_index": label}
        common["warnings"] = answered.warnings
        if answered.reference is None:
            return [Record(**asdict(row), **common, config=self.hashes[row.method]) for row in answered.rows]
        records = []
        for row, prediction in zip(answered.rows, answered.predictions, strict=True):
            top = prediction.ranking[:5]
            exact = prediction.probabilities.double()
            record = Record(
                **asdict(row),
                **common,
                config=self.hashes[row.method],
                zero_shot_index=answered.reference.index,
                index=prediction.index,
                top5=tuple(top.tolist()),
                top5_probabilities=tuple(exact[top].tolist()),
                label_probability=float(exact[label]),
                probability_norm=float((exact**2).sum()),
                candidates=prediction.candidates,
                diagnostics=to_json(dict(prediction.diagnostics), indent=None, ensure_ascii=True),
            )
            records.append(record)
        return records

    def describe(self) -> Iterator[str]:
        """Say what is about to run."""
        dataset, labels = self.dataset, self.setup.labels
        n = len(self.positions)
        of = f" of {dataset.listed:,}" if n < dataset.listed else ""
        part = "" if self.shard is None else f", shard {self.shard[0]}/{self.shard[1]}"
        yield f"{dataset.name} ({dataset.split}): {dataset.layout}"
        yield (
            f"  {n:,}{of} images{part}, {len(labels)} classes; {labels.backbone.name} ({labels.backbone.precision}), "
            f"preset {self.facts['preset']}, seed {self.seed}; {', '.join(self.setup.methods)}"
        )

    def warnings(self) -> Iterator[str]:
        """Say what is odd about the images, the classes and the prompts."""
        dataset = self.dataset
        if self.shard is not None and not self.positions:
            n = min(len(dataset.samples), self.limit or len(dataset.samples))
            yield f"shard {self.shard[0]}/{self.shard[1]} has no image, since there are only {n:,}"
        yield from (*dataset.warnings, *list_warnings(dataset.names), *self.setup.labels.warnings())


def run_name(dataset: str, shard: tuple[int, int] | None) -> str:
    """Return the name of the folder of a run on a data set, or on a part of it."""
    return dataset if shard is None else f"{dataset}-shard-{shard[0]}-of-{shard[1]}"


def choose(n: int, seed: int, limit: int | None = None, shard: tuple[int, int] | None = None) -> list[int]:
    """Return which of some images a run answers, in its order: a permutation by the seed, its head, every n-th of it.

    A run with a smaller limit answers a part of what one with a larger limit answers. The order is mixed because data
    sets are sorted by class: what has been answered at any time is a sample of the whole.

    Args:
        n: how many images there are.
        seed: of the run.
        limit: how many of them.
        shard: `(i, n)` for the i-th of n parts.
    """
    order: list[int] = np.random.default_rng([seed, n]).permutation(n)[:limit].tolist()
    return order if shard is None else order[shard[0] :: shard[1]]


def parse_shard(text: str) -> tuple[int, int]:
    """Read `i/n`.

    Raises:
        ArgumentError: it is not the i-th of n parts, counted from 0.
    """
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise ArgumentError(f"--shard {text} is not possible; write i/n with i from 0 to n - 1, for example 0/4")
    return int(part), int(parts)


def data_hash(dataset: Dataset) -> str:
    """Return the SHA-256, in hexadecimal, over the sorted (key, size in bytes, label) of the images."""
    facts = sorted((sample.key, _size(sample.path), sample.label) for sample in dataset.samples)
    return digest_of_json(facts)


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 (three times as fast as through Path, for 50,000 files)
    except OSError:  # it will be a row with an error
        return -1


def find_datasets(options: EvaluateOptions) -> list[Dataset]:
    """Find all data sets before anything is run on one.

    Raises:
        ArgumentError: one cannot be found or is not complete, two have one name, or output would lie in one.
    """
    datasets = [load_dataset(name, options.root, options.split) for name in dict.fromkeys(options.datasets)]
    folders: dict[str, Path] = {}
    for dataset in datasets:
        if dataset.name in folders:
            raise ArgumentError(
                f"--datasets names {dataset.name} twice: {folders[dataset.name]} and {dataset.folder}; measure them "
                "with another --out each"
            )
        folders[dataset.name] = dataset.folder
        for name, folder in (("out", options.out), ("features", options.features)):
            if folder is not None and dataset.folder.resolve() in (folder.resolve(), *folder.resolve().parents):
                raise ArgumentError(f"--{name} {folder}: lies in the data set {dataset.folder}; name another folder")
        check_present(dataset, options.partial)
    return datasets


def plan_of(options: EvaluateOptions, dataset: Dataset, model: Model, shard: tuple[int, int] | None) -> Plan:
    """Return what is to be done on one data set."""
    facts = {
        "pretrained": options.pretrained,
        "preset": options.preset,
        "prompts": options.prompts,
        "truncate": options.truncate,
        "exif": options.exif,
        "max_pixels": min(options.max_pixels, MAX_PIXELS),
        **({"resize_positions": True} if options.resize_positions else {}),  # only then: hashes of other runs stay
    }
    setup = model.on(dataset.names, templates_of(options, dataset), dataset.regime, options.truncate)
    return Plan(dataset, setup, options.seed, options.limit, shard, facts)


def templates_of(options: EvaluateOptions, dataset: Dataset) -> tuple[str, ...]:
    """Return the prompt templates for a data set."""
    return (dataset.template,) if options.prompts == "dataset" else prompt_set(options.prompts, ("dataset",))


def start_session(plan: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return where, with what and when a process works on a run."""
    device = plan.setup.labels.backbone.device
    packages = ("numpy", "pillow", "torchvision", "timm", "open-clip-torch", "transformers")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "processors": usable_processors(),
        "threads": torch.get_num_threads(),
        **facts,
        "images": 0,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
