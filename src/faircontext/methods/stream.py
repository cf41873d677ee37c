"""Methods with a memory: each image is answered with what was kept of those before it, one strictly after another.

The memory is a value, `StreamState`, that is handed in and given back: a method has none of its own. It is computed on
the CPU and rounded to float32 at the end of each step, so that a state that is saved and read again goes on to the bit.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from faircontext.episode import Episode
from faircontext.errors import ArgumentError, FeatureError, check_minimum, check_type
from faircontext.files import digest, digest_of_json
from faircontext.labels import LabelSpace
from faircontext.methods.base import METHODS, Method
from faircontext.methods.predict import fall_back
from faircontext.types import Prediction

StateUpdate = Callable[[], None]
"""Writes what an image changes into the tensors of a state; all that can fail has been computed before."""


@dataclass(eq=False)
class StreamState:
    """What a method has kept of the images before.

    Attributes:
        origin: what the state is of: method, settings, classes, prompts, weights, precision, and the length of the
            stream where the method needs it.
        tensors: float32, int64 or bool, on the CPU, contiguous, no two sharing memory.
        seen: how many images it has learnt from (`t`).
        chain: digest of the origin and of all these images in their order; it names the whole prefix.
        open: whether it is being changed, or has been left half changed; then it is of no use any more.
    """

    origin: Mapping[str, Any]
    tensors: dict[str, Tensor]
    seen: int = 0
    chain: str = ""
    open: bool = False

    def __post_init__(self) -> None:
        self.chain = self.chain or digest_of_json(self.origin)

    @property
    def megabytes(self) -> float:
        """Size of the tensors, in 10^6 bytes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values()) / 1e6


@dataclass(frozen=True)
class StreamMethod(Method):
    """A method whose answer depends on the images before: `step` maps an image and a state to an answer and a state.

    Called as any method, on an episode alone, it answers the first image of a stream. A subclass defines `begin` and
    `respond`.
    """

    needs_horizon: ClassVar[bool] = False
    """Whether it must know beforehand how many images the stream has."""
    backward_passes: ClassVar[int] = 0
    """How often it goes back through an encoder for an image; gradients in closed form need none."""

    @abstractmethod
    def begin(self, labels: LabelSpace, horizon: int | None) -> dict[str, Tensor]:
        """Return the tensors of the state before the first image, see `StreamState`."""

    @abstractmethod
    def respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, StateUpdate]:
        """Return the prediction for an image, and what then changes the state.

        The state is only read here. It may be asked for several images whose changes are never made.

        Args:
            episode: two classes or more; its plain view's features are finite.
            state: before the image.

        Raises:
            FeatureError: a number is NaN or infinite; the image is answered by zero-shot and leaves no trace.
        """

    def origin(self, labels: LabelSpace, horizon: int | None = None) -> dict[str, Any]:
        """Return what a state of this method on these classes is of."""
        length = horizon if self.needs_horizon else None
        shown = next(kind for kind in type(self).__mro__ if issubclass(kind, Method) and not kind.hidden)
        return {"method": shown.name, "settings": self.settings(), **labels.facts, "horizon": length}

    def start(self, labels: LabelSpace, horizon: int | None = None) -> StreamState:
        """Return the state before the first image.

        Args:
            labels: the classes.
            horizon: how many images the stream has; it may be left out where the method does not need it.

        Raises:
            ArgumentError: `horizon` is missing or not possible.
            LabelError: the method cannot run on these classes.
        """
        check_type("labels", labels, LabelSpace)
        if horizon is not None:
            check_type("horizon", horizon, int)
            check_minimum("horizon", horizon, 1)
        elif self.needs_horizon:
            raise ArgumentError(f"{self.name} needs the number of images of its stream; give horizon=")
        labels.remember(("check", self), lambda: self.check_labels(labels))
        with torch.inference_mode(False), torch.no_grad():
            return StreamState(self.origin(labels, horizon), self.begin(labels, horizon))

    def step(self, episode: Episode, state: StreamState) -> tuple[Prediction, StreamState]:
        """Answer the next image of a stream.

        Where there is a single class, or the features are NaN or infinite, the image is answered by zero-shot and
        leaves no trace. Else its diagnostics have `t`, how many images the state has then learnt from.

        Args:
            episode: the image.
            state: after the images before it; it is used up, and may be changed in place.

        Raises:
            ArgumentError: the state is of something else, or was left half changed.
            FeatureError: zero-shot has no prediction either.
        """
        check_type("state", state, StreamState, "make one with start")
        labels, horizon = episode.labels, state.origin.get("horizon")
        check_origin(state.origin, labels.remember(("origin", self, horizon), lambda: self.origin(labels, horizon)))
        if state.open:
            raise ArgumentError(f"invalid state of {self.name}: it was left half changed; start the stream anew")
        with torch.inference_mode(False), torch.no_grad():
            try:
                prediction, update = self._respond(self.view_set(episode), state)
            except FeatureError as error:
                reason = f"{error}: answered by zero-shot"
                return fall_back(episode, episode.labels.zero_shot_text, reason), state
            link = digest(state.chain, episode.id, str(episode.seed), repr(episode.recipe))
            state.open = True
            update()
            state.seen, state.chain = state.seen + 1, link
            state.open = False
        return replace(prediction, diagnostics={"t": state.seen, **prediction.diagnostics}), state

    def _respond(self, episode: Episode, state: StreamState) -> tuple[Prediction, StateUpdate]:
        if len(episode.labels) == 1:  # entropies relative to log C, and variances over classes, are undefined
            raise FeatureError("there is a single class")
        if not episode.z.isfinite().all():
            raise FeatureError("the features are NaN or infinite")
        return self.respond(episode, state)

    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image as the first, and only, one of a stream."""
        prediction, _ = self.step(episode, self.start(episode.labels, 1))
        return prediction


def is_stream(name: str) -> bool:
    """Return whether the method of a name has a memory."""
    return issubclass(METHODS[name], StreamMethod)


def check_origin(was: Mapping[str, Any], now: Mapping[str, Any], cure: str = "start a stream anew") -> None:
    """Raise `ArgumentError` naming what differs, and the cure, unless a state is of what it is to be used for."""
    if was == now:
        return
    key = next(key for key in (*now, *was) if was.get(key) != now.get(key))
    old, new = was.get(key), now.get(key)
    if isinstance(old, Mapping) and isinstance(new, Mapping):  # settings: those that are the same would hide the others
        names = [name for name in dict.fromkeys((*new, *old)) if old.get(name) != new.get(name)]
        old, new = ({name: one.get(name) for name in names} for one in (old, new))
    raise ArgumentError(f"invalid state: it is of {key} {_short(old)}, and is used with {key} {_short(new)}; {cure}")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def on_cpu(features: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
    """Return features as states hold them: float32, on the CPU, without a gradient."""
    return features.detach().float().cpu()


def text_on_cpu(labels: LabelSpace) -> Float[Tensor, "classes dim"]:
    """Return zero-shot's text features in float64 on the CPU: scores are summed in double."""
    return labels.remember("stream", lambda: labels.zero_shot_text.double().cpu())
