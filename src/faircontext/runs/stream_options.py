"""Options of methods with a memory, and what such methods cannot be run with."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faircontext.errors import ArgumentError
from faircontext.runs.orders import Arrangement, run_name
from faircontext.runs.records import method_of

if TYPE_CHECKING:
    from faircontext.runs.classify_options import ClassifyOptions
    from faircontext.runs.options import RunnerOptions

__all__ = ["StreamOptions", "check_no_stream", "check_one_process", "check_one_stream", "stream_labels"]

_MOST_ORDERS = 1000


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Options of the order of images; without a method that has a memory, they change nothing."""

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

    def run_names(self, dataset: str, shard: tuple[int, int] | None, shift: object, streams: bool) -> list[str]:
        """Return the names of the folders of the runs on a data set.

        Args:
            dataset: its name.
            shard: see `run_name`.
            shift: see there.
            streams: whether a method has a memory.
        """
        orders = self.each_order(streams) if streams else [None]
        return [run_name(dataset, shard, shift, order, self.arrangement) for order in orders]


def stream_labels(labels: Iterable[str]) -> list[str]:
    """Return which methods have a memory, by what they are called in rows; `all` has none."""
    from faircontext.methods.base import METHODS
    from faircontext.methods.stream import is_stream

    return [label for label in labels if method_of(label) in METHODS and is_stream(method_of(label))]


def check_one_process(options: "RunnerOptions") -> None:
    """Check that methods with a memory are not shared out: a stream is one process, which answers image after image.

    Raises:
        ArgumentError: there is such a method, and other processes would answer too.
    """
    shared = {
        "shard": options.shard is not None,
        "engine ray": options.engine == "ray",
        "workers auto": options.several_models,
    }
    given = [name for name, value in shared.items() if value]
    if given and (labels := stream_labels(options.labels_of_methods)):
        raise ArgumentError(
            f"--{given[0]} is not possible with {labels[0]}, which answers images one after another; leave it out, or "
            f"encode with other methods and --{given[0]} into a folder of --features, then give {labels[0]} that folder"
        )


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


def check_one_stream(options: "ClassifyOptions") -> None:
    """Check that `classify` was asked for a stream if, and only if, a method has a memory.

    Raises:
        ArgumentError: it was not.
    """
    labels = stream_labels(options.labels_of_methods)
    if labels and not options.stream:
        raise ArgumentError(
            f"the answers of {labels[0]} depend on the images before; give --stream to answer the images as one stream"
        )
    if options.stream and not labels:
        raise ArgumentError(
            "--stream is of methods with a memory, such as tda; name one with --method, or leave it out"
        )
