"""An image tower in OpenVINO: how it is converted, and how it runs batches."""

import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from faircontext.errors import ArgumentError

__all__ = ["ENGINE_ROWS", "OpenVinoTower", "convert", "obstacle", "openvino_version", "said"]

ENGINE_ROWS = 4
"""Rows of a batch in OpenVINO: they fit a processor's caches, and little is spent on padding."""

_PRECISIONS = {"fp32": "f32", "bf16": "bf16"}
"""What OpenVINO calls the precisions that it has on processors."""

_STREAMS = 4
"""Most batches that are run at the same time; with more threads than that, a batch has several."""

_BEGUN = 3
"""Batches that are begun for each that is run, so that the engine does not wait for Python."""


class OpenVinoTower:
    """An image tower in OpenVINO; of normalised pixels, in float32, it gives what the tower returns.

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
        self._requests: list[Any] = []
        self._shape: tuple[int, ...] = ()

    def run(self, batches: Iterable[Float[Tensor, "rows 3 height width"]]) -> Float[Tensor, "batches rows dim"]:
        """Run batches of `rows` rows, several at the same time, and return what the tower returns for each.

        Each is run by one thread, which takes less of the processor's time than several that share a batch. A batch is
        asked for while those before it are run, so that it is made meanwhile, by one thread: a second team of threads
        would be in the engine's way. Threads of Python's that first use PyTorch meanwhile have one thread, too.

        Raises:
            ArgumentError: pictures have another size than the model's.
        """
        threads = torch.get_num_threads()
        if self._threads != threads:
            self._compile(threads)
        results, free, begun = _Results(self._shape), [*self._requests], deque[Any]()
        torch.set_num_threads(1)
        try:
            for batch in batches:
                if not free:
                    results.append(self._result(begun, free))
                # Copied, so that the batch's memory is free again before the next one is made.
                pixels = torch.from_numpy(free[-1].get_input_tensor().data)
                if batch.shape != pixels.shape:
                    sizes = (" x ".join(map(str, one.shape[1:])) for one in (batch, pixels))
                    raise ArgumentError("invalid pixels: pictures of {}; use {}".format(*sizes))
                pixels.copy_(batch)
                begun.append(free.pop())
                begun[-1].start_async()
            while begun:
                results.append(self._result(begun, free))
            return results.all
        finally:
            torch.set_num_threads(threads)
            for request in begun:
                with suppress(Exception):  # of the engine; another one has been raised
                    request.wait()

    def _result(self, begun: deque[Any], free: list[Any]) -> Float[Tensor, "rows dim"]:
        """Wait for the batch that was begun first, and return its result, until its request begins another."""
        begun[0].wait()
        free.append(begun.popleft())
        return torch.from_numpy(free[-1].get_output_tensor(0).data)

    def _compile(self, threads: int) -> None:
        streams = min(threads, _STREAMS)
        hints = {"INFERENCE_PRECISION_HINT": self._precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": streams}
        hints["ENABLE_CPU_PINNING"] = False  # the models of several processes would be bound to the same processors
        compiled = self._core.compile_model(self._model, "CPU", hints)
        self._requests = [compiled.create_infer_request() for _ in range(_BEGUN * streams)]
        self._shape = tuple(compiled.output(0).shape)
        self._threads = threads


class _Results:
    """Results of batches, in one piece of memory: between the larger blocks of batches, they would break it up."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._room, self._count = torch.empty(64, *shape), 0

    def append(self, result: Tensor) -> None:
        """Keep a copy of a result."""
        if self._count == len(self._room):
            self._room = torch.cat([self._room, torch.empty_like(self._room)])
        self._room[self._count] = result
        self._count += 1

    @property
    def all(self) -> Float[Tensor, "batches ..."]:
        """What has been kept."""
        return self._room[: self._count]


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
        return f"OpenVINO cannot be used ({said(error)})"
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


def said(error: Exception) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:100]
