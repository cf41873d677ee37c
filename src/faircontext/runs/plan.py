"""What a run is: which images in which order, which methods on which labels, and the configuration that is recorded."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
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
from faircontext.files import digest_of_json, to_json
from faircontext.imageio import MAX_PIXELS
from faircontext.methods import StreamMethod
from faircontext.names import list_warnings
from faircontext.runs.answer import AnsweredImage
from faircontext.runs.options import EvaluateOptions, RunnerOptions, Say
from faircontext.runs.orders import Arrangement, arrange, choose, run_name
from faircontext.runs.prepare import Item
from faircontext.runs.prompt_options import PromptChoice
from faircontext.runs.records import MultiLabelRecord, Record, ScoredRecord
from faircontext.runs.setup import Model, Setup
from faircontext.runs.shift_options import check_shift, facts_of_shift
from faircontext.runs.streams import Streams
from faircontext.shifts import Shift
from faircontext.types import Prediction

__all__ = [
    "Plan",
    "find_datasets",
    "plan_of",
    "prompts_of",
]


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
        stored: what rows hold besides, of `scores` and `embeddings`; see `ScoredRecord`.
        shift: what is done to the images before any method sees them.
        order: of the images, where a method has a memory; without one, it and the arrangement change nothing.
        arrangement: see `arrange`.
        tuned: methods whose settings their authors chose for this data set.
    """

    dataset: Dataset
    setup: Setup
    seed: int
    limit: int | None
    shard: tuple[int, int] | None
    facts: Mapping[str, Any]
    stored: tuple[str, ...] = ()
    shift: Shift | None = None
    order: int = 0
    arrangement: Arrangement = "shuffled"
    tuned: tuple[str, ...] = ()

    @cached_property
    def stream_methods(self) -> tuple[str, ...]:
        """Methods with a memory, by what they are called in rows."""
        return tuple(label for label, method in self.setup.methods.items() if isinstance(method, StreamMethod))

    @property
    def folder_name(self) -> str:
        """Name of the run's folder."""
        order = self.order if self.stream_methods else None
        return run_name(self.dataset.name, self.shard, self.shift or self.dataset.corruption, order, self.arrangement)

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
        return Streams(self.setup.methods, self.setup.labels, len(self.positions), self.hashes, warn)

    def item(self, position: int) -> Item:
        """Return the image at a position of the data set."""
        sample = self.dataset.samples[position]
        return Item.of(sample, self.setup.label_rule is not None)

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
                **backbone.engine_facts,
            },
            "templates": list(labels.templates),
            **self._options(),
            "views": asdict(self.setup.recipe),
            **self.facts,
            "methods": {name: method.settings() for name, method in self.setup.methods.items()},
            **({"stored": list(self.stored)} if self.stored else {}),  # only then: hashes of other runs stay
            **facts_of_shift(self.shift or dataset.corruption, stored=self.shift is None),
            "versions": {"faircontext": __version__, "torch": torch.__version__},
        }

    def _options(self) -> dict[str, Any]:
        """Return what is recorded of descriptions and rejection, where there are any: hashes of other runs stay."""
        facts: dict[str, Any] = {}
        if (descriptions := self.setup.labels.descriptions) is not None:
            facts["descriptions"] = {"prompts": sum(map(len, descriptions)), "hash": digest_of_json(descriptions)}
        if (rejection := self.setup.rejection) is not None:
            facts["unknown"] = {"score": rejection.score, "thresholds": dict(rejection.thresholds)}
        if (rule := self.setup.label_rule) is not None:
            facts["multi_label"] = rule.facts
        if self.stream_methods:
            facts["stream"] = {
                "methods": list(self.stream_methods),
                "order": self.order,
                "arrangement": self.arrangement,
                "horizon": len(self.positions),
                "streams": 1,
                "tuned": [label for label in self.tuned if label in self.stream_methods],
            }
        return facts

    @cached_property
    def hashes(self) -> dict[str, str]:
        """For each method, a hash of all that its answer for an image depends on, besides the image.

        Where it has a memory, that is the stream as well: its data set, limit and order.
        """
        config = self.config
        apart = ("dataset", "limit", "shard", "methods", "stored", "stream")
        shared = {key: value for key, value in config.items() if key not in apart}
        hashed = {name: [shared, name, settings] for name, settings in config["methods"].items()}
        for name in self.stream_methods:
            stream = {key: config["stream"][key] for key in ("order", "arrangement", "horizon", "streams")}
            hashed[name].append({**stream, "dataset": config["dataset"]["hash"], "limit": self.limit})
        return {name: digest_of_json(parts)[:12] for name, parts in hashed.items()}

    def records(self, answered: AnsweredImage, position: int) -> list[Record]:
        """Return the rows of one image as they are stored."""
        label = answered.label
        common: dict[str, Any] = {"dataset": self.dataset.name, "position": position, "label_index": label}
        common["warnings"] = answered.warnings
        kind: type[Record] = ScoredRecord if self.stored else Record
        if self.setup.label_rule is not None:
            kind, common = MultiLabelRecord, {**common, "targets": answered.labels}
        if answered.reference is None:
            return [kind(**asdict(row), **common, config=self.hashes[row.method]) for row in answered.rows]
        records: list[Record] = []
        for row, prediction in zip(answered.rows, answered.predictions, strict=True):
            top = prediction.ranking[:5]
            exact = prediction.probabilities.double()
            record = kind(
                **asdict(row),
                **common,
                config=self.hashes[row.method],
                zero_shot_index=answered.reference.index,
                index=prediction.index,
                top5=tuple(top.tolist()),
                top5_probabilities=tuple(exact[top].tolist()),
                label_probability=None if label is None else float(exact[label]),
                probability_norm=None if answered.label_logits is not None else float((exact**2).sum()),
                candidates=prediction.candidates,
                diagnostics=to_json(dict(prediction.diagnostics), indent=None, ensure_ascii=True),
                **self._stored(answered, prediction, first=not records),
            )
            records.append(record)
        return records

    def _stored(self, answered: AnsweredImage, prediction: Prediction, first: bool) -> dict[str, Any]:
        """Return what rows hold besides; features once for each image, in its first row."""
        values: dict[str, Any] = {}
        if answered.label_logits is not None:
            values["label_logits"] = answered.label_logits
        if "scores" in self.stored:
            values["probabilities"] = prediction.probabilities.float().numpy()
            values["cosines"] = answered.cosines(self.setup.labels)
        if "embeddings" in self.stored and first:
            values["embedding"] = answered.embedding
        return values

    def describe(self) -> Iterator[str]:
        """Say what is about to run."""
        dataset, labels = self.dataset, self.setup.labels
        n = len(self.positions)
        images = f"{n:,} of {counted(dataset.listed, 'image')}" if n < dataset.listed else counted(n, "image")
        part = "" if self.shard is None else f", shard {self.shard[0]}/{self.shard[1]}"
        shift = self.shift or dataset.corruption
        yield f"{dataset.name} ({dataset.split}{'' if shift is None else f', {shift}'}): {dataset.layout}"
        if self.stream_methods:
            words = "" if self.arrangement == "shuffled" else f", {self.arrangement} by class"
            part += f" in order {self.order}{words}"
        how = f"preset {self.facts['preset']}, seed {self.seed}; {', '.join(self.setup.methods)}"
        model = f"{labels.backbone.name} ({labels.backbone.arithmetic})"
        yield f"  {images}{part}, {counted(len(labels), 'class')}; {model}, {how}"
        if self.setup.label_rule is not None:
            yield f"  {self.setup.label_rule.summary}"

    def warnings(self) -> Iterator[str]:
        """Say what is odd about the images, the classes and the prompts."""
        dataset = self.dataset
        if self.shard is not None and not len(self.positions):
            n = min(len(dataset.samples), self.limit or len(dataset.samples))
            yield f"shard {self.shard[0]}/{self.shard[1]} has no image, since there are only {n:,}"
        yield from (
            *dataset.warnings,
            *list_warnings(dataset.names, self.setup.label_rule is not None),
            *self.setup.warnings(),
        )


def find_datasets(options: EvaluateOptions) -> list[Dataset]:
    """Find all data sets before anything is run on one.

    Raises:
        ArgumentError: one cannot be found or is not complete, two have one name, or output would lie in one.
    """
    words = expand(options.datasets)
    datasets = [load_dataset(word, options.root, options.split, options.multi_label) for word in words]
    folders: dict[str, Path] = {}
    for dataset in datasets:
        name = run_name(dataset.name, shift=dataset.corruption)
        if name in folders:
            raise ArgumentError(
                f"--datasets names {dataset.name} twice: {folders[name]} and {dataset.folder}; measure them "
                "with another --out each"
            )
        folders[name] = dataset.folder
        if dataset.corruption is not None and options.shifts != (None,):
            raise ArgumentError(f"{name}: its images are corrupted as they are; leave --corrupt and --attack out")
        for name, folder in (("out", options.out), ("features", options.features)):
            if folder is not None and dataset.folder.resolve() in (folder.resolve(), *folder.resolve().parents):
                raise ArgumentError(f"--{name} {folder}: lies in the data set {dataset.folder}; name another folder")
        check_present(dataset, options.partial)
    return datasets


def plan_of(options: RunnerOptions, dataset: Dataset, model: Model, shard: tuple[int, int] | None) -> Plan:
    """Return what is to be done on one data set."""
    facts = {
        "pretrained": options.pretrained,
        "preset": options.preset,
        "prompts": options.prompts_name,
        "truncate": options.truncate,
        "exif": options.exif,
        "max_pixels": min(options.max_pixels, MAX_PIXELS),
        **{name: value for name, value in options.facts_of_weights().items() if value},  # so hashes of other runs stay
        **({} if model.context is None else {"context": model.context.digest}),
    }
    setup = model.for_dataset(dataset.name).on(
        dataset.names, prompts_of(options, dataset), dataset.regime, options.truncate
    )
    setup = setup.judged_by(options)
    tuned = tuple(model.tuned(dataset.name))
    how = (options.seed, options.limit, shard, facts, options.stored, options.shift)
    plan = Plan(dataset, setup, *how, tuned=tuned)
    check_shift(plan.shift, model.backbone, (dataset.samples[int(position)] for position in plan.positions))
    return plan


def prompts_of(options: RunnerOptions, dataset: Dataset) -> PromptChoice:
    """Return the prompts for a data set."""
    return options.choose_prompts(dataset.names, dataset.name, dataset.template)
