"""Parts of commands' options: model, method, reading, where images are answered. They are data; `build` makes things.

A command that has a part has all its options; `group` is the heading under which help shows them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from faircontext.datasets.spec import Regime
from faircontext.errors import ArgumentError, check_minimum, counted
from faircontext.imageio import MAX_PIXELS, DecodedImage, read_image
from faircontext.names import class_names
from faircontext.runs.orders import Arrangement, run_name
from faircontext.runs.ray_address import check_address
from faircontext.runs.records import method_of
from faircontext.sources import Source
from faircontext.system import usable_processors

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
    """See: faircontext list backbones; or hf-hub:ORG/NAME, local-dir:FOLDER or transformers:FOLDER."""
    pretrained: str | None = None
    """Tag or checkpoint file of an architecture's weights; see: faircontext list pretrained."""
    resize_positions: bool = False
    """Resize positions of weights for pictures or prompts of another size, instead of refusing them."""
    weights_key: str | None = None
    """Which weights of a checkpoint with several are taken, for example model_ema; else those not averaged."""
    adapter: Path | None = None
    """Folder of a LoRA that peft wrote, which is merged into the weights (pip install 'faircontext[checkpoints]')."""
    preprocess: str | None = None
    """How pictures are prepared for weights from a file: a tag, clip, or a file as open_clip_config.json."""
    precision: str = "auto"
    """Of the image tower: auto (bf16 where the processor computes in it), fp32, bf16 or fp16."""
    engine_image: Literal["auto", "torch", "openvino"] = "auto"
    """What runs the image tower: torch, openvino (pip install 'faircontext[fast]'), or auto, the faster one here."""
    batch_size: int = 16
    """Rows of an image encoder batch, a multiple of 16; on a CPU always 16."""

    def facts_of_weights(self) -> dict[str, Any]:
        """Return what records say of the choice of weights."""
        given = {"weights_key": self.weights_key, "adapter": self.adapter, "preprocess": self.preprocess}
        chosen = {name: str(value) for name, value in given.items() if value is not None}
        return {"resize_positions": self.resize_positions, **chosen}


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Options of the methods and the views."""

    group: ClassVar[str] = "method"

    preset: str = "recommended"
    """Settings to start from: paper, recommended (for the backbone) or official."""
    set: tuple[str, ...] = ()
    """Settings over the preset's: --set masks=50 steps=1; with several methods, --set fcl.masks=50 tpt.steps=2."""
    augmix: Literal["off", "on", "auto"] = "off"
    """AugMix on the views: off, on, or auto (where the methods' repositories have it, by the kind of data)."""
    views: tuple[str, ...] = ()
    """Of the views, over the preset's: --views count=32 scale=0.5,1."""
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
    """Larger images are unreadable."""

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
    """Class names with commas between."""
    labels_file: Path | None = None
    """File with a class name a line."""
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
    """Processes that read images ahead (default: none on a CPU); with --engine ray, models that answer; auto: on a CPU,
    as many models that answer as there is room for."""
    threads: int | None = None
    """Of a model, on a CPU, at most as many as processors; default: PyTorch's own, with --workers auto one."""
    engine: Literal["local", "ray"] = "local"
    """local, or ray: models on a Ray cluster, the one that RAY_ADDRESS names or this machine."""

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
    """At most this many images (of each data set), drawn by the seed."""
    shard: str | None = None
    """i/n: only the i-th of n parts, counted from 0; faircontext merge joins them."""
    features: Path | None = None
    """Folder to keep image features in: runs with other settings on the same images then encode only what is new."""
    resume: bool = False
    """Go on with runs that are there; those that are complete are left alone."""


_MOST_ORDERS = 1000


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Options of the order of images; without a method that has a memory, they change nothing."""

    group: ClassVar[str] = "online methods"

    orders: tuple[int, ...] = (0,)
    """Of methods with a memory: orders of the same images, a run for each; 0 is the order of other runs."""
    arrangement: Arrangement = "shuffled"
    """Of methods with a memory: shuffled, or, to stress them, sorted by class or correlated (classes in clusters)."""
    keep_state: bool = False
    """Of methods with a memory: keep the last states when the run is complete."""

    def check_orders(self) -> None:
        """Check what can be checked before anything is read; raise `ArgumentError` where a value cannot be used."""
        if not self.orders:
            raise ArgumentError("--orders needs at least one number, for example --orders 0 1 2")
        if min(self.orders) < 0 or max(self.orders) >= _MOST_ORDERS:
            raise ArgumentError(
                f"--orders {' '.join(map(str, self.orders))} is not possible; give whole numbers from 0 to "
                f"{_MOST_ORDERS - 1}"
            )

    def each_order(self, streams: bool) -> list[int]:
        """Return the orders to run, each once; a single one where no method has a memory (`streams`)."""
        return [*dict.fromkeys(self.orders)] if streams else [0]

    def run_names(self, dataset: str, shard: tuple[int, int] | None, perturbation: object, streams: bool) -> list[str]:
        """Return the names of the folders of the runs on a data set.

        Args:
            dataset: its name.
            shard: see `run_name`.
            perturbation: see there.
            streams: whether a method has a memory.
        """
        orders = self.each_order(streams) if streams else [None]
        return [run_name(dataset, shard, perturbation, order, self.arrangement) for order in orders]


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
