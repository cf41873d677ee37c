"""Parts of commands' options: model, prompts, methods, reading, perturbations, execution. They are data.

A command that has a part has all its options; `group` is the heading under which help shows them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import tyro

from faircontext.datasets.spec import Regime, Sample
from faircontext.errors import ArgumentError, LabelError, check_minimum, counted, reason_of
from faircontext.files import digest
from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image
from faircontext.names import class_names
from faircontext.perturbations import Attack, Corruption, Perturbation, parse_attack, parse_corruptions
from faircontext.prompt_files import Descriptions, as_template, read_descriptions, read_templates
from faircontext.runs.orders import Arrangement, parse_shard, run_name
from faircontext.runs.ray import check_address
from faircontext.runs.records import method_of
from faircontext.sources import Source
from faircontext.system import usable_processors

if TYPE_CHECKING:
    from faircontext.backbones import Backbone

Say = Callable[[str], None]
"""Takes a line."""


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Option of the device."""

    group: ClassVar[str] = "model"

    device: str = "cpu"
    """Torch device of the backbone."""


@dataclass(frozen=True, kw_only=True)
class BackboneOptions(DeviceOptions):
    """Options of the backbone."""

    group: ClassVar[str] = "model"
    files: ClassVar[tuple[str, ...]] = ("adapter", "pretrained")

    backbone: str = "lite0"
    """Model (see: faircontext list backbones), or hf-hub:ORG/NAME, local-dir:FOLDER or transformers:FOLDER."""
    pretrained: str | None = None
    """Weights of the architecture: a tag (see: faircontext list pretrained) or a checkpoint file."""
    resize_positions: bool = False
    """Resize position embeddings of weights for another image size or prompt length, instead of refusing them."""
    weights_key: str | None = None
    """Weights to use from a checkpoint with several, for example model_ema; default: those not averaged."""
    adapter: Path | None = None
    """Folder of a peft adapter, such as LoRA, to merge into the weights (pip install 'faircontext[checkpoints]')."""
    preprocess: str | None = None
    """Preprocessing for weights from a file: a tag, clip, or a JSON file like open_clip_config.json."""
    precision: str = "auto"
    """Precision of the image encoder: auto (bf16 if the processor supports it), fp32, bf16 or fp16."""
    engine_image: Literal["auto", "torch", "openvino"] = "auto"
    """Engine of the image encoder: torch, openvino (pip install 'faircontext[fast]'), or auto, the faster one on this
    machine."""
    batch_size: int = 16
    """Batch size of the image encoder, a multiple of 16; on a CPU always 16."""

    def facts_of_weights(self) -> dict[str, Any]:
        """Return what records say of the choice of weights."""
        values = {"weights_key": self.weights_key, "adapter": self.adapter, "preprocess": self.preprocess}
        chosen = {name: str(value) for name, value in values.items() if value is not None}
        return {"resize_positions": self.resize_positions, **chosen}


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Options of the methods and the views."""

    group: ClassVar[str] = "method"

    preset: str = "recommended"
    """Default settings: paper, recommended (for the backbone) or official."""
    set: tuple[str, ...] = ()
    """Settings that override the preset: --set masks=50 steps=1; with several methods, --set fcl.masks=50
    tpt.steps=2."""
    augmix: Literal["off", "on", "auto"] = "off"
    """AugMix on the views: off, on, or auto (as in the methods' repositories, by the kind of data)."""
    views: tuple[str, ...] = ()
    """Settings of the views that override the preset: --views count=32 scale=0.5,1; plain=pad or plain=squash shows the
    model the whole of a long photo in the plain view, instead of the central square (plain=crop)."""
    seed: int = 0
    """Seed of views and masks."""

    @property
    def labels_of_methods(self) -> list[str]:
        """What the methods are called; or `all` alone."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options of reading images."""

    group: ClassVar[str] = "reading"

    exif: bool = True
    """Apply the EXIF orientation of photos (published numbers are often measured without)."""
    max_pixels: int = MAX_PIXELS
    """Maximum number of pixels; larger images are unreadable."""

    def reader(self) -> Callable[[Source | str], DecodedImage]:
        """Return what reads an image file."""
        check_minimum("max_pixels", self.max_pixels, 1)
        return partial(read_image, max_pixels=self.max_pixels, exif=self.exif)


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Options of class names."""

    group: ClassVar[str] = "images and labels"
    files: ClassVar[tuple[str, ...]] = ("labels_file",)

    labels: str | None = None
    """Class names, separated by commas."""
    labels_file: Path | None = None
    """File with one class name per line."""
    regime: Regime = "natural"
    """Kind of data, for --augmix auto: natural or fine-grained."""

    def names(self) -> tuple[str, ...]:
        """Return the class names that the options give."""
        return class_names(self.labels, self.labels_file)


@dataclass(frozen=True, kw_only=True)
class ProcessOptions(DeviceOptions):
    """Options of where images are answered."""

    group: ClassVar[str] = "execution"

    workers: int | Literal["auto"] | None = None
    """Processes that load images ahead (default: none on a CPU); with --engine ray, processes with a model; auto: on a
    CPU, as many processes with a model as processors and memory allow."""
    threads: int | None = None
    """Threads per model on a CPU, at most the number of processors; default: PyTorch's, with --workers auto one."""
    engine: Literal["local", "ray"] = "local"
    """Where images are processed: local, or ray, a Ray cluster at RAY_ADDRESS or on this machine."""

    @property
    def count_of_workers(self) -> int | None:
        """How many workers are asked for; None where that is left to the command."""
        return None if self.workers == "auto" else self.workers

    @property
    def several_models(self) -> bool:
        """Whether several processes of this machine answer, each with a model."""
        return self.workers == "auto" and self.engine == "local" and self.device.partition(":")[0] == "cpu"

    def check_processes(self) -> None:
        """Raise `FairContextError` where a number cannot be used here, or a Ray cluster cannot be reached."""
        usable = usable_processors()
        for name, count, least in (("threads", self.threads, 1), ("workers", self.count_of_workers, 0)):
            if count is None:
                continue
            check_minimum(name, count, least)
            # A cluster has room for more workers; its actors have the threads of this process.
            if count > usable and (name == "threads" or self.engine == "local"):
                allowed = counted(usable, "processor")
                raise ArgumentError(f"{name}={count} is not possible; this process may use {allowed}")
        if self.engine == "ray":
            check_address()


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Options of which images a run answers, and what is kept of them."""

    group: ClassVar[str] = "run"

    limit: int | None = None
    """Maximum number of images (of each data set), drawn by the seed."""
    shard: str | None = None
    """i/n: process only the i-th of n parts, counted from 0; faircontext merge joins them."""
    features: Path | None = None
    """Folder to cache image features in: later runs on the same images encode only what is not cached."""
    resume: bool = False
    """Continue interrupted runs, and skip complete ones."""

    @property
    def part(self) -> tuple[int, int] | None:
        """The shard as `(i, n)`; raise `ArgumentError` where it is none."""
        return None if self.shard is None else parse_shard(self.shard)


_MOST_ORDERS = 1000


@dataclass(frozen=True, kw_only=True)
class StreamOptions(StoreOptions, MethodOptions):
    """Options of the order of images; without a method that has a memory, they change nothing."""

    group: ClassVar[str] = "online methods"

    orders: tuple[int, ...] = (0,)
    """For methods with a memory: orders of the images, with a run for each; 0 is the order of other runs."""
    arrangement: Arrangement = "shuffled"
    """For methods with a memory: shuffled, or as stress tests sorted by class or correlated (classes in clusters)."""
    keep_state: bool = False
    """For methods with a memory: keep the final states of a complete run."""

    def check_orders(self) -> None:
        """Check what can be checked before anything is read; raise `ArgumentError` where a value cannot be used."""
        if not self.orders:
            raise ArgumentError("--orders needs at least one number, for example --orders 0 1 2")
        if min(self.orders) < 0 or max(self.orders) >= _MOST_ORDERS:
            raise ArgumentError(
                f"--orders {' '.join(map(str, self.orders))} is not possible; give whole numbers from 0 to "
                f"{_MOST_ORDERS - 1}"
            )

    @property
    def each_order(self) -> list[int]:
        """The orders to run, each once; a single one where no method has a memory."""
        return [*dict.fromkeys(self.orders)] if stream_labels(self.labels_of_methods) else [0]

    def run_names(self, dataset: str, perturbation: object) -> list[str]:
        """Return the names of the folders of the runs on a data set, see `run_name`."""
        orders = self.each_order if stream_labels(self.labels_of_methods) else [None]
        return [run_name(dataset, self.part, perturbation, order, self.arrangement) for order in orders]


def stream_labels(labels: Iterable[str]) -> list[str]:
    """Return which methods have a memory, by what they are called in rows; `all` has none."""
    from faircontext.methods.base import METHODS
    from faircontext.methods.stream import is_stream

    return [label for label in labels if method_of(label) in METHODS and is_stream(method_of(label))]


def check_no_stream(labels: Iterable[str]) -> None:
    """Check that no method has a memory, where images are answered each by itself, as of requests to a service.

    Raises:
        ArgumentError: one has.
    """
    if named := stream_labels(labels):
        raise ArgumentError(
            f"invalid method {named[0]!r}: its answers depend on the images before, and each request is answered by "
            "itself; use faircontext classify --stream, or evaluate"
        )


@dataclass(frozen=True)
class PromptChoice:
    """The prompts of a label set; see `LabelSpace`.

    Attributes:
        templates: with `{}` for the class name.
        descriptions: prompts of each class, None where there are none.
        source: the file that gives them, if one does.
    """

    templates: tuple[str, ...]
    descriptions: tuple[tuple[str, ...], ...] | None = None
    source: Path | None = None


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """Options of prompts. What is given is used together; where nothing is, "a photo of a {}."."""

    group: ClassVar[str] = "prompts"
    files: ClassVar[tuple[str, ...]] = ("templates", "descriptions", "context")

    prompts: str | None = None
    """Prompt set: single ("a photo of a {}."), generic7, imagenet80 (FCL votes over the templates), or, for a data set,
    dataset (the template of the data set)."""
    template: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A prompt template with {} for the class name, in any language; may be given several times."""
    templates: Path | None = None
    """File of prompt templates, one per line, or a JSON list, or CLIP_benchmark's JSON of data sets and lists."""
    descriptions: Path | None = None
    """JSON file of prompts for each class, in the format of CuPL, or by data set in that of CLIP_benchmark; the text
    feature of a class is the mean over all its prompts."""
    truncate: bool = False
    """Truncate prompts that are too long for the text model, instead of refusing them."""
    context: Path | None = None
    """Learnt context to start from, a checkpoint of CoOp's prompt learner; zero-shot then uses it as well."""

    @property
    def given_prompts(self) -> bool:
        """Whether any prompts are given."""
        return any((self.prompts is not None, self.template, self.templates, self.descriptions))

    @property
    def prompts_name(self) -> str:
        """What runs call the prompts; other prompts, and those of a learnt context, have another name.

        Raises:
            LabelError: a file cannot be read.
        """
        names = [] if self.prompts is None else [self.prompts]
        if self.template:
            alone = len(self.template) == 1
            names.append(self.template[0] if alone else f"templates-{digest(chr(10).join(self.template))[:8]}")
        files = {"templates": self.templates, "descriptions": self.descriptions}
        names += [f"{kind}-{digest_of_file(path)[:8]}" for kind, path in files.items() if path is not None]
        context = "" if self.context is None else f"+context-{digest_of_file(self.context)[:8]}"
        return ("+".join(names) or "single") + context

    def choose_prompts(
        self,
        names: Sequence[str],
        dataset: str | None = None,
        template: str | None = None,
        described: Descriptions | None = None,
    ) -> PromptChoice:
        """Return the prompts of some classes.

        Args:
            names: class names.
            dataset: name of the data set, None for images that are of none.
            template: the data set's own template.
            described: descriptions that have been read, in place of those of the file.

        Raises:
            FairContextError: there is no such prompt set, a file cannot be read, a template has no place for the class
                name, or a class lacks descriptions.
        """
        templates = [as_template(text) for text in self.template]
        if self.templates is not None:
            templates += read_templates(self.templates, dataset)
        source = self.descriptions if described is None else None
        if source is not None:
            described = read_descriptions(source, names, dataset)
        if self.prompts is not None or (not templates and described is None):
            templates = [*self._named(template), *templates]
        return PromptChoice(tuple(dict.fromkeys(templates)), described, source)

    def _named(self, template: str | None) -> tuple[str, ...]:
        if self.prompts == "dataset" and template is not None:
            return (template,)
        from faircontext.backbones.prompts import prompt_set  # takes a second to import

        return prompt_set(self.prompts or "single", () if template is None else ("dataset",))


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file; raise `LabelError` where it cannot be read."""
    try:
        return digest(path.read_bytes())
    except OSError as error:
        raise LabelError(f"{path}: cannot be read: {reason_of(error)}") from None


_OPTION = {Corruption: "corrupt", Attack: "attack", type(None): "corrupt"}


@dataclass(frozen=True, kw_only=True)
class PerturbationOptions:
    """Options of perturbations; each is a run of its own."""

    group: ClassVar[str] = "perturbation"

    corrupt: tuple[str, ...] = ()
    """Corruptions of ImageNet-C, NAME:SEVERITY as in fog:3; NAME for severities 1 to 5, a kind (noise, blur, weather,
    digital, extra) or all in place of NAME, none for clean images."""
    attack: tuple[str, ...] = ()
    """Attack on zero-shot, pgd:EPS with EPS in 1/255, as in pgd:4, or none for clean images; needs labels, and the
    image encoder in PyTorch in fp32."""

    @property
    def perturbations(self) -> tuple[Perturbation | None, ...]:
        """What is asked for, a run each; None is the images as they are, where nothing is asked for it alone.

        Raises:
            ArgumentError: there is no such corruption, severity or attack.
        """
        requested: list[Perturbation | None] = [*parse_corruptions(self.corrupt), *map(parse_attack, self.attack)]
        return tuple(dict.fromkeys(requested)) or (None,)

    def check_perturbations(self) -> None:
        """Check what is asked for, and that what makes it is installed; raise `ArgumentError` where it is not."""
        if any(isinstance(perturbation, Corruption) for perturbation in self.perturbations):
            from faircontext.corruptions import check_library

            check_library()

    def check_attack(self, backbone: BackboneOptions, several: bool) -> None:
        """Raise `ArgumentError` where it is known before a model is loaded that an attack cannot be made.

        Args:
            backbone: options of the model.
            several: whether an image may have several labels.
        """
        attack = next((perturbation for perturbation in self.perturbations if isinstance(perturbation, Attack)), None)
        if attack is None:
            return
        if several:
            raise ArgumentError(
                f"--attack {attack} moves an image away from its one true class, and here it may have several; leave "
                "one of the two out"
            )
        from faircontext.backbones.engines import resolve_precision, usable_device

        precision = resolve_precision(backbone.precision, usable_device(backbone.device))
        if precision != "fp32" or backbone.engine_image == "openvino":
            runs = "openvino" if backbone.engine_image == "openvino" else precision
            raise ArgumentError(
                f"--attack {attack} needs the exact gradient of the image tower, which {runs} does not give; add "
                "--engine-image torch --precision fp32"
            )

    def each_perturbation(self) -> Iterator[Self]:
        """Yield the options of each run."""
        for perturbation in self.perturbations:
            words = () if perturbation is None else (str(perturbation),)
            yield replace(self, **{"corrupt": (), "attack": ()} | {_OPTION[type(perturbation)]: words})

    @property
    def perturbation(self) -> Perturbation | None:
        """The one that is asked for; raise `ArgumentError` where there are several."""
        if len(self.perturbations) > 1:
            requested = " and ".join(
                "none" if perturbation is None else str(perturbation) for perturbation in self.perturbations[:2]
            )
            raise ArgumentError(f"one corruption or attack is possible here, not {requested}; evaluate takes several")
        return self.perturbations[0]


def check_perturbation(perturbation: Perturbation | None, backbone: "Backbone", samples: Iterable[Sample]) -> None:
    """Raise `ArgumentError` where a model or some images do not allow what is asked for to be done to the images."""
    if isinstance(perturbation, Corruption):
        from faircontext.corruptions import check_size

        check_size(backbone.image_size)
    if isinstance(perturbation, Attack):
        from faircontext.attacks import check_attackable

        check_attackable(backbone)
        if (unknown := next((sample.key for sample in samples if sample.label is None), None)) is not None:
            raise ArgumentError(
                f"--attack {perturbation} needs the true class of every image, and {unknown} has no label; give it "
                "one, by the name of its folder or in a table, or leave it out"
            )


def metadata_of_perturbation(perturbation: Perturbation | None, stored: bool = False) -> dict[str, Any]:
    """Return what a run's configuration says of a perturbation; nothing of none, so that hashes of other runs stay.

    Args:
        perturbation: what is done to the images.
        stored: whether the images lie corrupted on disk.
    """
    if perturbation is None:
        return {}
    if not isinstance(perturbation, Corruption):
        return {"shift": perturbation.facts}
    if stored:
        return {"shift": {**perturbation.facts, "stored": True}}
    from faircontext.corruptions import library_versions

    return {"shift": {**perturbation.facts, "versions": library_versions()}}
