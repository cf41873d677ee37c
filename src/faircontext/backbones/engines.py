"""Engines: what runs the image tower. PyTorch, or a copy of the tower in OpenVINO, which is faster on many processors.

The copy is made once from the tower in float32, and kept in the cache by the weights, the versions, the precision and
the processor, with the tower's float32 features of a test picture. Whenever the copy is loaded, its own features of
that picture are compared with them. It runs batches of `ENGINE_ROWS` rows, always: a row's features then do not depend
on the rows beside it, nor on how many there are or how many batches are run at the same time.
"""

import statistics
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, UInt8
from safetensors import safe_open
from torch import Tensor, nn

from faircontext import __version__
from faircontext.backbones.openvino_tower import (
    ENGINE_ROWS,
    OpenVinoTower,
    convert,
    obstacle,
    openvino_version,
    said,
)
from faircontext.backbones.towers import (
    cache_folder,
    disagreement,
    hash_of,
    probe_picture,
    tensor_bytes,
    write_tensors,
)
from faircontext.errors import ArgumentError, FairContextWarning
from faircontext.files import digest, digest_of_json
from faircontext.system import processor_name

if TYPE_CHECKING:
    from faircontext.backbones.image_encoder import ImageEncoder

__all__ = ["ENGINES", "Choice", "Converted", "entry_path", "is_convolutional"]

ENGINES = ("auto", "torch", "openvino")
"""Engines of the image tower; `auto` takes the faster of the two on this processor."""

_TIMED = 16, 3  # rows, and how often they are encoded, when two engines are compared


@dataclass(frozen=True)
class Converted:
    """A tower's copy as the cache holds it.

    Attributes:
        graph: see `OpenVinoTower`; empty where PyTorch is faster and the copy was not asked for.
        weights: see there.
        exact: float32 features of the test picture, not of unit length.
        tower_hash: of PyTorch's tower in the precision, which it need not be loaded for; see `hash_of`.
        gain: images per second of this engine over PyTorch's, in one sitting; 0 where it was not measured.
    """

    graph: bytes
    weights: UInt8[Tensor, " bytes"]
    exact: Float[Tensor, "1 dim"]
    tower_hash: str
    gain: float

    def write(self, path: Path) -> None:
        """Write the copy to the cache, where that is possible."""
        graph = torch.frombuffer(bytearray(self.graph), dtype=torch.uint8) if self.graph else _NOTHING
        tensors = {"graph": graph, "weights": self.weights, "exact": self.exact}
        facts = {"tower": self.tower_hash, "gain": repr(self.gain)}
        with suppress(OSError, ArgumentError):  # a cache that cannot be written is no reason to stop
            write_tensors(path, tensors, {**facts, "sha256": _checksum(tensors, facts)})

    @classmethod
    def read(cls, path: Path) -> "Converted":
        """Read a copy from the cache; where it is damaged, any error is raised."""
        with safe_open(path, "pt") as file:  # mapped into memory, and not copied
            tensors = {name: file.get_tensor(name) for name in ("graph", "weights", "exact")}
            metadata = dict(file.metadata())
        facts = {name: metadata[name] for name in ("tower", "gain")}
        if metadata["sha256"] != _checksum(tensors, facts):
            raise ValueError("its checksum is another")
        graph = bytes(tensor_bytes(tensors["graph"]))
        return cls(graph, tensors["weights"], tensors["exact"], facts["tower"], float(facts["gain"]))


_NOTHING = torch.empty(0, dtype=torch.uint8)


def _checksum(tensors: dict[str, Tensor], facts: dict[str, str]) -> str:
    return digest(*map(tensor_bytes, tensors.values()), digest_of_json(facts))


def entry_path(name: str, weights: str, precision: str) -> Path | None:
    """Return the file of the cache for a tower's copy, or None where nothing is to be stored.

    Args:
        name: of the backbone.
        weights: a hash of all that the tower is made from.
        precision: fp32 or bf16.
    """
    folder = cache_folder()
    key = {
        "backbone": name,
        "weights": weights,
        "precision": precision,
        "rows": ENGINE_ROWS,
        "versions": [__version__, torch.__version__, openvino_version()],
        "processor": processor_name(),
    }
    return None if folder is None else folder / "engines" / f"{digest_of_json(key)}.safetensors"


class Choice:
    """Which engine runs a backbone's image tower, by what is asked for, installed and stored.

    Args:
        backbone: its name, device and precision are known; its tower need not be loaded.
        asked: one of `ENGINES`.
        source: a hash of all that the tower is made from.

    Attributes:
        copy: the tower's copy from the cache, checked; None where PyTorch runs the tower, or a copy is to be made.
        tower_hash: see `Converted`.
        undecided: whether a copy is to be made; see `make`.

    Warns:
        FairContextWarning: why PyTorch runs the tower although the other engine was asked for, or a copy was damaged.
    """

    def __init__(self, backbone: "ImageEncoder", asked: str, source: str) -> None:
        self.copy: OpenVinoTower | None = None
        self.tower_hash = ""
        self.undecided = False
        self._backbone, self._asked = backbone, asked
        if asked == "torch":
            return
        if reason := obstacle(backbone.device, backbone.precision):
            if asked != "auto":
                _warn(f"{reason}; PyTorch runs the image tower of {backbone.name}")
            return
        self._path = entry_path(backbone.name, source, backbone.precision)
        if self._path is None and asked == "auto":  # to convert at each start costs more than it saves
            return
        stored = self._stored()
        if stored is None or (not stored.graph and asked != "auto"):
            self.undecided = True
        elif asked != "auto" or stored.gain > 1:
            self._take(stored)

    def _stored(self) -> Converted | None:
        if self._path is None:
            return None
        try:
            return Converted.read(self._path)
        except FileNotFoundError:
            return None
        except Exception as error:  # damaged files raise anything
            _warn(f"{self._path}: is damaged ({said(error)}); the image tower is converted anew")
            return None

    def _take(self, converted: Converted) -> None:
        """Take a copy, unless its features of the test picture are not the tower's."""
        backbone = self._backbone
        try:
            copy = OpenVinoTower(converted.graph, converted.weights, backbone.precision)
            (features,) = backbone._features_in(copy, [probe_picture(backbone.image_size)])
            problem = disagreement(converted.exact, features)
        except Exception as error:  # of the engine, any
            problem = f"cannot be computed ({said(error)})"
        if problem:
            what = f"{backbone.name}: features of a test picture in OpenVINO ({backbone.precision})"
            _warn(f"{what} {problem}; PyTorch runs the image tower")
            return
        self.copy, self.tower_hash = copy, converted.tower_hash

    def make(self, tower: nn.Module, exact: Tensor) -> None:
        """Make a copy of the tower, decide whether it is taken, and store both.

        Args:
            tower: in float32; the backbone has it in its own precision already.
            exact: the tower's features of the test picture.
        """
        backbone, begin = self._backbone, time.perf_counter()
        self.undecided = False
        try:
            graph, weights = convert(tower, backbone.image_size)
        except Exception as error:  # of the engine, any
            _warn(f"{backbone.name}: OpenVINO cannot convert the image tower ({said(error)}); PyTorch runs it")
            return
        converted = Converted(graph, weights, exact, hash_of(backbone.tower), 0.0)
        self._take(converted)
        if self.copy is not None and self._asked == "auto":
            converted = replace(converted, gain=self._measure(self.copy))
        words = f"image tower of {backbone.name} converted for OpenVINO {openvino_version()}"
        line = f"{words} in {time.perf_counter() - begin:.0f} s" + ("" if self._path is None else ", once")
        if converted.gain:
            line += f"; it encodes {converted.gain:.2f} times as fast as PyTorch here"
            if converted.gain <= 1:
                self.copy, converted = None, replace(converted, graph=b"", weights=_NOTHING)
                line += ", which goes on"
        if self._path is not None:
            converted.write(self._path)
        _warn(line)

    def _measure(self, copy: OpenVinoTower) -> float:
        """Return how many times as fast as the tower its copy encodes, by medians in turn."""
        backbone, (rows, runs) = self._backbone, _TIMED
        pixels = probe_picture(backbone.image_size).expand(rows, -1, -1, -1).contiguous()
        seconds: dict[bool, list[float]] = {False: [], True: []}
        with torch.inference_mode():
            for run in range(1 + runs):
                for copied, taken in seconds.items():
                    begin = time.perf_counter()
                    if copied:
                        backbone._features_in(copy, pixels.split(copy.rows))
                    else:
                        backbone._image_features(pixels.to(backbone.dtype))
                    if run:  # the first warms up
                        taken.append(time.perf_counter() - begin)
        return statistics.median(seconds[False]) / statistics.median(seconds[True])


def is_convolutional(tower: nn.Module) -> bool:
    """Return whether most of a tower's weights are convolutions: only there OpenVINO was measured to be faster."""
    inside = sum(module.weight.numel() for module in tower.modules() if isinstance(module, nn.Conv2d))
    return 2 * inside > sum(parameter.numel() for parameter in tower.parameters())


def _warn(line: str) -> None:
    warnings.warn(line, FairContextWarning, stacklevel=2)
