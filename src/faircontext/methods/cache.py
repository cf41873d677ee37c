"""What TDA and its descendants share: the summary of an image's views, and a cache of a few images for each class."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.episode import Episode
from faircontext.errors import FeatureError
from faircontext.explore import entropy, rank_classes, select_confident
from faircontext.methods.stream import StreamMethod
from faircontext.methods.tuning import marginal_entropy
from faircontext.types import Diagnostic

Rows = Mapping[str, Tensor]
"""The entries of one class: tensors of the same number of rows, `h` (entropies) and what is kept besides."""

PendingUpdate = Mapping[int, Rows]
"""Classes whose entries are others than those in the state, for as long as an image is answered."""

Eviction = Callable[[Rows, Rows, int], Rows | None]
"""From entries, a new one and a capacity to the entries then, or None where the new one is not kept."""

_CHUNK = 256
"""Rows that are converted to float64 at a time, so that they stay in the processor's cache."""


@dataclass(frozen=True)
class Summary:
    """An image by its confident views; numbers are in float64, except those that are compared.

    Attributes:
        feature: mean of the features (`xbar`), not normalised again.
        logits: mean of the logits, at the backbone's own scale.
        probabilities: mean of the softmaxes.
        label: the class of the largest logit, rounded to float32; of equal ones the first.
        entropy: of `probabilities`, in nats, in float32.
        selected: indices of the views, most confident first.

    Raises:
        FeatureError: a view that counted is NaN or infinite.
    """

    feature: Float[Tensor, " dim"]
    logits: Float[Tensor, " classes"]
    probabilities: Float[Tensor, " classes"]
    label: int
    entropy: Float[Tensor, ""]
    selected: Int[Tensor, " selected"]

    def __post_init__(self) -> None:
        if not self.entropy.isfinite():  # it must not enter a memory
            raise FeatureError("the features of a view are NaN or infinite")


def summarise(
    views: Float[Tensor, "views dim"], text: Float[Tensor, "classes dim"], scale: float, rho: float
) -> Summary:
    """Summarise an image by the `max(1, floor(rho N))` views of lowest entropy.

    Args:
        views: unit-norm features in float32; the plain view's alone is an image without views.
        text: unit-norm text features in float64.
        scale: the backbone's own.
        rho: fraction of the views that is selected.
    """
    exact = views.double()
    logits = scale * exact @ text.T
    log_posteriors = logits.log_softmax(-1)
    selected = select_confident(entropy(log_posteriors).float(), rho)  # rounded: equal views tie exactly
    mean = logits[selected].mean(0)
    return Summary(
        exact[selected].mean(0),
        mean,
        log_posteriors[selected].exp().mean(0),
        int(rank_classes(mean.float())[0]),
        marginal_entropy(log_posteriors[selected]).float(),
        selected,
    )


def normalised_entropy(nats: float, classes: int) -> float:
    """Return an entropy divided by `log2 C`, as TDA's repository does: it lies in [0, ln 2], not in [0, 1]."""
    return nats / math.log2(classes)


def describe_memory(memory: int, entropy: float, label: int) -> dict[str, Diagnostic]:
    """Return the diagnostics of an image that is filed under a label in a memory of so many entries."""
    return {"memory": memory, "entropy": entropy, "pseudo_label": label}


def affinity(cosines: Float[Tensor, "*any"], alpha: float, beta: float) -> Float[Tensor, "*any"]:
    """Return Tip-Adapter's `alpha exp(-beta (1 - x))`."""
    return alpha * torch.exp(-beta * (1.0 - cosines))


def keep_lowest(rows: Rows, entry: Rows, capacity: int) -> Rows | None:
    """Keep entries of lowest entropy, lowest first: among equal ones the older stays and comes first.

    Args:
        rows: sorted by `h`.
        entry: of one row.
        capacity: how many entries there are at most.
    """
    index = int(torch.searchsorted(rows["h"], entry["h"], right=True))
    return None if index >= capacity else _insert(rows, entry, index, 0, capacity)


def keep_newest(rows: Rows, entry: Rows, capacity: int) -> Rows | None:
    """Keep the newest entries, oldest first, whatever their entropy."""
    n = len(rows["h"])
    return _insert(rows, entry, n, max(0, n + 1 - capacity), n + 1)


def _insert(rows: Rows, entry: Rows, index: int, start: int, stop: int) -> Rows:
    parts = {name: (values[:index], entry[name], values[index:]) for name, values in rows.items()}
    return {name: torch.cat(pieces)[start:stop] for name, pieces in parts.items()}


@dataclass(frozen=True)
class CacheMethod(StreamMethod):
    """A method whose memory is entries of each class, under the label that an image is taken for."""

    def remembered(self, episode: Episode, text: Float[Tensor, "classes dim"], seen: Summary) -> Summary:  # noqa: ARG002
        """Return what the memory keeps of an image.

        Args:
            episode: the image.
            text: text features of all classes, in float64.
            seen: the image by the views that the method looks at.
        """
        return seen


@dataclass(frozen=True)
class ClassCache:
    """A layout of tensors of a state: up to `capacity` entries of each class, and which of them are kept.

    The tensors are called by `name`: `NAME_count` (classes,) and, for each thing that is kept, `NAME_thing`
    (classes, capacity, ...), `NAME_h` among them. Only the first `count` entries of a class mean anything.

    Attributes:
        name: prefix of the tensors.
        capacity: entries of a class, 0 for no cache at all.
        evict: which entry goes where there is no room; see `keep_lowest`.
    """

    name: str
    capacity: int
    evict: Eviction = keep_lowest

    def empty(self, classes: int, **things: Tensor) -> dict[str, Tensor]:
        """Return the tensors of an empty cache.

        Args:
            classes: how many.
            things: for each thing that is kept besides `h` a tensor of the shape and type of one, such as `x`.
        """
        shape = (classes, self.capacity)
        tensors = {f"{self.name}_count": torch.zeros(classes, dtype=torch.long), f"{self.name}_h": torch.zeros(shape)}
        return tensors | {
            f"{self.name}_{thing}": one.new_zeros((*shape, *one.shape), device="cpu") for thing, one in things.items()
        }

    def _things(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        prefix, count = f"{self.name}_", f"{self.name}_count"
        found = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix) and name != count}
        return {name.removeprefix(prefix): tensor for name, tensor in found.items()}

    def rows(self, tensors: Mapping[str, Tensor], label: int) -> Rows:
        """Return the entries of a class, to be read only."""
        n = int(tensors[f"{self.name}_count"][label])
        return {thing: tensor[label, :n] for thing, tensor in self._things(tensors).items()}

    def insert(self, tensors: Mapping[str, Tensor], label: int, **entry: Tensor) -> PendingUpdate:
        """Return what inserting an entry makes of a class; nothing where it is not kept. The state stays as it is.

        Args:
            tensors: of the state.
            label: the class.
            entry: for each thing one, without a dimension of rows.
        """
        rows = self.rows(tensors, label)
        one = {thing: value[None].to(rows[thing].dtype) for thing, value in entry.items()}
        kept = self.evict(rows, one, self.capacity) if self.capacity else None
        return {} if kept is None else {label: kept}

    def store(self, tensors: Mapping[str, Tensor], update: PendingUpdate) -> None:
        """Write entries of classes into the state."""
        things = self._things(tensors)
        for label, rows in update.items():
            n = len(rows["h"])
            for thing, values in rows.items():
                things[thing][label, :n] = values
            tensors[f"{self.name}_count"][label] = n

    def read(self, tensors: Mapping[str, Tensor], update: PendingUpdate) -> "Entries":
        """Return all entries, those of a pending update's classes in place of the state's."""
        counts = tensors[f"{self.name}_count"].clone()
        counts[list(update)] = 0
        labels, slots = (torch.arange(self.capacity) < counts[:, None]).nonzero(as_tuple=True)
        inserted = [torch.full((len(rows["h"]),), label) for label, rows in update.items()]
        return Entries(
            torch.cat([labels, *inserted]), labels * self.capacity + slots, self._things(tensors), [*update.values()]
        )


@dataclass(frozen=True)
class Entries:
    """All entries of a cache; what is kept of them is taken together when it is asked for.

    Attributes:
        labels: the class of each.
    """

    labels: Int[Tensor, " entries"]
    _index: Int[Tensor, " stored"]
    _things: Mapping[str, Tensor]
    _inserted: list[Rows]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, thing: str) -> Tensor:
        stored = self._things[thing].flatten(0, 1)[self._index]
        return torch.cat([stored, *(rows[thing] for rows in self._inserted)])

    def similarities(self, query: Float[Tensor, " dim"]) -> Float[Tensor, " entries"]:
        """Return the products of a vector in float64 with what is kept as `x`."""
        # Unused slots as well: to take the used ones out takes longer than to multiply all.
        stored = similarities(self._things["x"].flatten(0, 1), query)[self._index]
        return torch.cat([stored, *(rows["x"].double() @ query for rows in self._inserted)])


def similarities(rows: Float[Tensor, "rows dim"], query: Float[Tensor, " dim"]) -> Float[Tensor, " rows"]:
    """Return the products of rows in float32 with a vector in float64, summed in float64."""
    return torch.cat([part.double() @ query for part in rows.split(_CHUNK)])
