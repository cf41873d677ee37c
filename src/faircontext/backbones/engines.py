"""Engines: what runs the image tower. PyTorch, or a copy of the tower in OpenVINO, which is faster on many processors.

The copy is made once from the tower in float32, and kept in the cache by the weights, the versions, the precision and
the processor, with the tower's float32 features of a test picture. Whenever the copy is loaded, its own features of
that picture are compared with them. It runs batches of `ENGINE_ROWS` rows, always: a row's features then do not depend
on the rows beside it, nor on how many there are.
"""

import statistics
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, UInt8
from safetensors import safe_open
from torch import Tensor, nn

from faircontext import __version__
from faircontext.backbones.towers import (
    cache_folder,
    disagreement,
    hash_of,
    pad_rows,
    probe_picture,
    tensor_bytes,
    write_tensors,
)
from faircontext.errors import ArgumentError, FairContextWarning
from faircontext.files import digest, digest_of_json
from faircontext.system import processor_name

if TYPE_CHECKING:
    from faircontext.backbones.image_encoder import ImageEncoder

__all__ = ["ENGINES", "ENGINE_ROWS", "Choice", "Converted", "OpenVinoTower", "convert", "entry_path", "obstacle"]

ENGINES = ("auto", "torch", "openvino")
"""Engines of the image tower; `auto` takes the faster of the two on this processor."""

ENGINE_ROWS = 4
"""Rows of a batch in OpenVINO: they fit a processor's caches, and little is spent on padding."""

_PRECISIONS = {"fp32": "f32", "bf16": "bf16"}
"""What OpenVINO calls the precisions that it has on processors."""

_TIMED = 16, 3  # rows, and how often they are encoded, when two engines are compared


class OpenVinoTower:
    """An image tower in OpenVINO; called with normalised pixels, in float32, it returns what the tower returns.

    Args:
        graph: the model's graph, as OpenVINO writes it.
        weights: its weights.
        precision: fp32 or bf16.

    Attributes:
        rows: of a batch.
    """

    rows = ENGINE_ROWS

    def __init__(self, graph: bytes, weights: UInt8[Tensor, " bytes"], precision: str) -> None:
        openvino = import_openvino()
        self._core = openvino.Core()
        self._model = self._core.read_model(graph, openvino.Tensor(weights.numpy(), shared_memory=True))
        self._weights = weights  # the model reads them where they are
        self._precision = _PRECISIONS[precision]
        self._threads = 0

    def __call__(self, pixels: Float[Tensor, "rows 3 height width"]) -> Float[Tensor, "rows dim"]:
        """Run a batch of `rows` rows."""
        if self._threads != torch.get_num_threads():
            self._compile(torch.get_num_threads())
        result = self._request.infer([pixels.contiguous().numpy()], share_inputs=True, share_outputs=True)
        return torch.from_numpy(result[0].copy())  # the engine writes the next batch over this one

    def _compile(self, threads: int) -> None:
        hints = {
            "INFERENCE_PRECISION_HINT": self._precision,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # the models of several processes would all be bound to the first processors
        }
        self._request = self._core.compile_model(self._model, "CPU", hints).create_infer_request()
        self._threads = threads


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


def import_openvino() -> Any:
    """Import OpenVINO, which otherwise reports its use over the network, without asking."""
    absent = "openvino_telemetry" not in sys.modules
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as if it were not installed
    try:
        import openvino
    finally:
        if absent:
            del sys.modules["openvino_telemetry"]
    return openvino


def openvino_version() -> str | None:
    """Return the installed version of OpenVINO, without importing it; None where there is none."""
    try:
        return version("openvino")
    except PackageNotFoundError:
        return None


def obstacle(device: torch.device, precision: str) -> str | None:
    """Return why OpenVINO cannot run a tower, or None where nothing is in the way."""
    if device.type != "cpu":
        return f"OpenVINO runs on the CPU here, and the device is {device}"
    if precision not in _PRECISIONS:
        return f"OpenVINO has no {precision} on processors"
    if openvino_version() is None:
        return "OpenVINO is not installed (pip install 'faircontext[fast]')"
    try:
        openvino = import_openvino()
        abilities = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    except Exception as error:  # of a broken installation, any
        return f"OpenVINO cannot be used ({_said(error)})"
    if precision == "bf16" and "BF16" not in abilities:
        return "OpenVINO does not compute in bf16 on this processor"
    return None


def convert(tower: nn.Module, image_size: int) -> tuple[bytes, UInt8[Tensor, " bytes"]]:
    """Convert a tower in float32 to OpenVINO; return graph and weights as it writes them, or raise what it raises."""
    openvino = import_openvino()
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    example = torch.zeros(ENGINE_ROWS, 3, image_size, image_size)
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of tracing, which is about models that change with their input
        # What `openvino.convert_model` does, without its reports.
        frontend = FrontEndManager().load_by_framework("pytorch")
        decoder = TorchScriptPythonDecoder(_FirstOutput(tower).eval(), example_input=(example,))
        model: Any = frontend.convert(frontend.load(decoder))
        model.reshape([*example.shape])
        graph, weights = Path(folder, "tower.xml"), Path(folder, "tower.bin")
        openvino.serialize(model, graph, weights)
        return graph.read_bytes(), torch.frombuffer(bytearray(weights.read_bytes()), dtype=torch.uint8)


class _FirstOutput(nn.Module):
    """A tower that returns pooled features alone; some return tokens beside them."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, pixels: Tensor) -> Tensor:
        """Run the tower."""
        output = self.tower(pixels)
        pooled: Tensor = output[0] if isinstance(output, tuple) else output
        return pooled


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
            _warn(f"{self._path}: is damaged ({_said(error)}); the image tower is converted anew")
            return None

    def _take(self, converted: Converted) -> None:
        """Take a copy, unless its features of the test picture are not the tower's."""
        backbone = self._backbone
        try:
            copy = OpenVinoTower(converted.graph, converted.weights, backbone.precision)
            probe = pad_rows(probe_picture(backbone.image_size), copy.rows)
            with torch.inference_mode():
                features = backbone._image_features(probe, copy)[:1].float()
            problem = disagreement(converted.exact, features)
        except Exception as error:  # of the engine, any
            problem = f"cannot be computed ({_said(error)})"
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
            _warn(f"{backbone.name}: OpenVINO cannot convert the image tower ({_said(error)}); PyTorch runs it")
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
                    for batch in pixels.split(copy.rows) if copied else [pixels.to(backbone.dtype)]:
                        backbone._image_features(batch, copy if copied else None)
                    if run:  # the first warms up
                        taken.append(time.perf_counter() - begin)
        return statistics.median(seconds[False]) / statistics.median(seconds[True])


def is_convolutional(tower: nn.Module) -> bool:
    """Return whether most of a tower's weights are convolutions: only there OpenVINO was measured to be faster."""
    inside = sum(module.weight.numel() for module in tower.modules() if isinstance(module, nn.Conv2d))
    return 2 * inside > sum(parameter.numel() for parameter in tower.parameters())


def _said(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:100]


def _warn(line: str) -> None:
    warnings.warn(line, FairContextWarning, stacklevel=2)
