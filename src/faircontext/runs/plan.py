"""What a run is: which images in which order, which methods on which labels, and the configuration that is recorded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from faircontext import __version__
from faircontext.datasets.check import check_present
from faircontext.datasets.listing import data_hash
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import Dataset, expand
from faircontext.errors import ArgumentError, counted
from faircontext.files import digest_of_json
from faircontext.imageio import MAX_PIXELS
from faircontext.methods import StreamMethod
from faircontext.names import list_warnings
from faircontext.perturbations import Perturbation
from faircontext.runs.answer import Predictor
from faircontext.runs.build import Model, build
from faircontext.runs.option_parts import Say, check_perturbation, metadata_of_perturbation
from faircontext.runs.options import EvaluateOptions, RunnerOptions
from faircontext.runs.orders import Arrangement, arrange, choose, run_name
from faircontext.runs.streams import Streams
from faircontext.runs.summary import Summary


@dataclass(frozen=True)
class Plan:
    """One data set, answered by some methods.

    Attributes:
        dataset: the images that are there.
        predictor: what answers them.
        seed: of views, masks, and of the order of images.
        limit: how many images at most, None for all.
        shard: `(i, n)` for the i-th of n parts, counted from 0; None for all.
        metadata: what else `run.json` says of the configuration: preset, prompt set, reading.
        perturbation: what is done to the images before any method sees them.
        order: of the images, where a method has a memory; without one, it and the arrangement change nothing.
        arrangement: see `arrange`.
    """

    dataset: Dataset
    predictor: Predictor
    seed: int
    limit: int | None
    shard: tuple[int, int] | None
    metadata: Mapping[str, Any]
    perturbation: Perturbation | None = None
    order: int = 0
    arrangement: Arrangement = "shuffled"

    @cached_property
    def stream_methods(self) -> tuple[str, ...]:
        """Methods with a memory, by what they are called in rows."""
        return tuple(label for label, method in self.predictor.methods.items() if isinstance(method, StreamMethod))

    @property
    def folder_name(self) -> str:
        """Name of the run's folder."""
        order = self.order if self.stream_methods else None
        return run_name(
            self.dataset.name, self.shard, self.perturbation or self.dataset.corruption, order, self.arrangement
        )

    @cached_property
    def positions(self) -> Int[np.ndarray, " images"]:
        """Positions in the data set of the run's images, in the order in which they are answered."""
        chosen = choose(len(self.dataset.samples), self.seed, self.limit, self.shard)
        chosen = np.sort(chosen) if self.dataset.in_order else chosen
        if not self.stream_methods:
            return chosen
        if self.arrangement == "shuffled":
            return arrange(chosen, self.order)
        labels = [self.dataset.samples[position].label for position in chosen.tolist()]
        if missing := labels.count(None):
            raise ArgumentError(
                f"--arrangement {self.arrangement} needs the class of every image; {missing:,} of {self.dataset.name} "
                "have none"
            )
        return arrange(chosen, self.order, self.arrangement, np.array(labels))

    def start_streams(self, warn: Say = lambda _: None) -> Streams | None:
        """Return new states of the methods with a memory, None where there is none."""
        if not self.stream_methods:
            return None
        return Streams(self.predictor.methods, self.predictor.labels, len(self.positions), self.hashes, warn)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that the rows depend on; a run is resumed only with the same."""
        dataset, labels = self.dataset, self.predictor.labels
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
                **backbone.engine_facts,
            },
            "templates": list(labels.templates),
            **self._options(),
            "views": self.predictor.recipe.facts,
            **self.metadata,
            "methods": {name: method.settings() for name, method in self.predictor.methods.items()},
            **self._held(),
            **metadata_of_perturbation(self.perturbation or dataset.corruption, stored=self.perturbation is None),
            "versions": {"faircontext": __version__, "torch": torch.__version__},
        }

    def _held(self) -> dict[str, Any]:
        """Return what is recorded of what rows hold besides, where they do: hashes of other runs stay."""
        stored, top = self.predictor.stored, self.predictor.top
        return {**({"stored": list(stored)} if stored else {}), **({"top": top} if top > 5 else {})}

    def _options(self) -> dict[str, Any]:
        """Return what is recorded of descriptions and decision, where there are any: hashes of other runs stay."""
        metadata: dict[str, Any] = {}
        if (descriptions := self.predictor.labels.descriptions) is not None:
            metadata["descriptions"] = {"prompts": sum(map(len, descriptions)), "hash": digest_of_json(descriptions)}
        metadata |= self.predictor.decision.config
        if self.stream_methods:
            metadata["stream"] = {
                "methods": list(self.stream_methods),
                "order": self.order,
                "arrangement": self.arrangement,
                "horizon": len(self.positions),
                "streams": 1,
                "tuned": [label for label in self.predictor.tuned if label in self.stream_methods],
            }
        return metadata

    @cached_property
    def hashes(self) -> dict[str, str]:
        """For each method, a hash of all that its answer for an image depends on, besides the image.

        Where it has a memory, that is the stream as well: its data set, limit and order.
        """
        config = self.config
        apart = ("dataset", "limit", "shard", "methods", "stored", "top", "stream")
        shared = {key: value for key, value in config.items() if key not in apart}
        hashed = {name: [shared, name, settings] for name, settings in config["methods"].items()}
        for name in self.stream_methods:
            stream = {key: config["stream"][key] for key in ("order", "arrangement", "horizon", "streams")}
            hashed[name].append({**stream, "dataset": config["dataset"]["hash"], "limit": self.limit})
        return {name: digest_of_json(parts)[:12] for name, parts in hashed.items()}

    def count(self, methods: Sequence[str]) -> Summary:
        """Return what counts the answers of some of the methods."""
        return self.predictor.decision.count(methods, len(self.predictor.labels))

    def describe(self) -> Iterator[str]:
        """Say what is about to run."""
        dataset, labels = self.dataset, self.predictor.labels
        n = len(self.positions)
        images = f"{n:,} of {counted(dataset.listed, 'image')}" if n < dataset.listed else counted(n, "image")
        part = "" if self.shard is None else f", shard {self.shard[0]}/{self.shard[1]}"
        perturbation = self.perturbation or dataset.corruption
        yield f"{dataset.name} ({dataset.split}{'' if perturbation is None else f', {perturbation}'}): {dataset.layout}"
        if self.stream_methods:
            words = "" if self.arrangement == "shuffled" else f", {self.arrangement} by class"
            part += f" in order {self.order}{words}"
        settings = f"preset {self.metadata['preset']}, seed {self.seed}{self.predictor.recipe.remark}"
        model = f"{labels.backbone.name} ({labels.backbone.arithmetic})"
        methods = ", ".join(self.predictor.methods)
        yield f"  {images}{part}, {counted(len(labels), 'class')}; {model}, {settings}; {methods}"
        if summary := self.predictor.decision.summary:
            yield f"  {summary}"

    def warnings(self) -> Iterator[str]:
        """Say what is odd about the images, the classes and the prompts."""
        dataset = self.dataset
        if self.shard is not None and not len(self.positions):
            n = min(len(dataset.samples), self.limit or len(dataset.samples))
            yield f"shard {self.shard[0]}/{self.shard[1]} has no image, since there are only {n:,}"
        yield from (
            *dataset.warnings,
            *list_warnings(dataset.names, self.predictor.decision.several),
            *self.predictor.warnings(),
        )


def find_datasets(options: EvaluateOptions) -> list[Dataset]:
    """Find all data sets before anything is run on one.

    Raises:
        ArgumentError: one cannot be found or is not complete, two have one name, or output would lie in one.
    """
    words = expand(options.datasets)
    datasets = [load_dataset(word, options.root, options.split, options.several) for word in words]
    folders: dict[str, Path] = {}
    for dataset in datasets:
        name = run_name(dataset.name, perturbation=dataset.corruption)
        if name in folders:
            raise ArgumentError(
                f"--datasets names {dataset.name} twice: {folders[name]} and {dataset.folder}; measure them "
                "with another --out each"
            )
        folders[name] = dataset.folder
        if dataset.corruption is not None and options.perturbations != (None,):
            raise ArgumentError(f"{name}: its images are corrupted as they are; leave --corrupt and --attack out")
        for name, folder in (("out", options.out), ("features", options.features)):
            if folder is not None and dataset.folder.resolve() in (folder.resolve(), *folder.resolve().parents):
                raise ArgumentError(f"--{name} {folder}: lies in the data set {dataset.folder}; name another folder")
        check_present(dataset, options.partial)
    return datasets


def plan_of(options: RunnerOptions, dataset: Dataset, model: Model) -> Plan:
    """Return what is to be done on one data set."""
    metadata = {
        "pretrained": options.pretrained,
        "preset": options.preset,
        "prompts": options.prompts_name,
        "truncate": options.truncate,
        "exif": options.exif,
        "max_pixels": min(options.max_pixels, MAX_PIXELS),
        **{name: value for name, value in options.facts_of_weights().items() if value},  # so hashes of other runs stay
        **({} if model.context is None else {"context": model.context.digest}),
    }
    predictor = build(options, model, dataset.names, dataset.regime, dataset.name, dataset.template)
    plan = Plan(dataset, predictor, options.seed, options.limit, options.part, metadata, options.perturbation)
    check_perturbation(
        plan.perturbation, model.backbone, (dataset.samples[int(position)] for position in plan.positions)
    )
    return plan
