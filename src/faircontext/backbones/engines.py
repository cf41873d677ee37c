"""What runs an image encoder: device, precision and engine, which is PyTorch or a copy of the encoder in OpenVINO.

The copy is faster on many processors. It is made once from the encoder in float32, and kept in the cache by the
weights, the versions, the precision and the processor, with the encoder's float32 features of a test picture. Whenever
the copy is loaded, its own features of that picture are compared with them. It runs batches of `ENGINE_ROWS` rows,
always: a row's features then do not depend on the rows beside it, nor on how many there are or how many batches are run
at the same time.
"""

import math
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from faircontext import __version__
from faircontext.cache import cache_folder, read_entry, tensor_bytes, write_entry
from faircontext.errors import ArgumentError, FairContextWarning, check_choice, first_reason
from faircontext.files import digest_of_json
from faircontext.system import processor_name

Name = Literal["torch", "openvino"]
ENGINES = ("auto", *get_args(Name))
"""Engines of the image encoder; `auto` takes the faster of the two on this processor."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions of the image encoder."""

ROW_MULTIPLE = 16
"""Encoder batches are padded to a multiple of this: a row's features then do not depend on the rows beside it."""

MINIMUM_COSINE = 0.99
"""Least agreement of a lower precision, or of another engine, with float32 in PyTorch, on a test picture."""

ENGINE_ROWS = 4
"""Rows of a batch in OpenVINO: they fit a processor's caches, and little is spent on padding."""

_PRECISIONS = {"fp32": "f32", "bf16": "bf16"}
"""What OpenVINO calls the precisions that it has on processors."""

_STREAMS = 4
"""Most batches that are run at the same time; with more threads than that, a batch has several."""

_BEGUN = 3
"""Batches that are begun for each that is run, so that the engine does not wait for Python."""

_TIMED = 16, 3  # rows, and how often they are encoded, when two engines are compared


def usable_device(device: str) -> torch.device:
    """Return the torch device of a name.

    Raises:
        ArgumentError: there is none here that holds numbers.
    """
    try:
        usable = torch.empty(0, device=device).device
        if usable.type == "meta":
            raise RuntimeError("it holds no numbers")
        return usable
    except (RuntimeError, AssertionError, ImportError) as error:  # what torch raises depends on how it was built
        said = re.split(r"[.;]\s|\n", str(error), maxsplit=1)[0].rstrip(".")
        about_torch = isinstance(error, NotImplementedError | ImportError) or "INTERNAL ASSERT" in said
        reason = "PyTorch finds no such device here" if about_torch or len(said) > 100 else said
        raise ArgumentError(f"device={device!r} is not possible: {reason}; use for example cpu") from None


def resolve_precision(precision: str, device: torch.device) -> str:
    """Return fp32, bf16 or fp16 for a requested precision; `"auto"` takes bf16 where the processor computes in it.

    Raises:
        ArgumentError: the precision is not one of auto, fp32, bf16, fp16.
    """
    check_choice("precision", precision, ("auto", *DTYPES))
    if precision != "auto":
        return precision
    # Private, but the only question torch answers about bf16 arithmetic (avx512_bf16, AMX) on a CPU.
    bf16 = device.type == "cpu" and getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return "bf16" if bf16 else "fp32"


def disagreement(exact: Float[Tensor, "1 dim"], features: Float[Tensor, "1 dim"]) -> str | None:
    """Return, in words that follow "features", why a test picture's are not what float32 gives; None where they are."""
    cosine = float(F.cosine_similarity(exact, features)[0])
    if cosine >= MINIMUM_COSINE:
        return None
    if math.isnan(cosine):
        return "are NaN or infinite"
    return f"agree with float32 to a cosine of {cosine:.3f}, less than {MINIMUM_COSINE}"


def probe_picture(size: int) -> Float[Tensor, "1 3 size size"]:
    """Return a fixed picture with structure at every scale, as photos have, in normalised pixels."""
    rng = torch.Generator().manual_seed(0)
    layers = [torch.rand(1, 3, cells, cells, generator=rng) for cells in (1, 2, 4, 8, 16, 32)]
    scaled = [F.interpolate(layer, size=(size, size), mode="bicubic", align_corners=False) for layer in layers]
    mixed = torch.stack(scaled).mean(0)
    return (mixed - mixed.mean()) / mixed.std()


def pooled_of(output: Any) -> Tensor:
    """Return what an encoder returned without the tokens that may come beside it."""
    pooled: Tensor = output[0] if isinstance(output, tuple) else output
    return pooled


def pad_rows(rows: Tensor, multiple: int = ROW_MULTIPLE) -> Tensor:
    """Return a batch with rows of zeros up to a multiple of some number."""
    padding = -len(rows) % multiple
    return torch.cat([rows, rows.new_zeros(padding, *rows.shape[1:])]) if padding else rows


@runtime_checkable
class Model(Protocol):
    """What engines need of a backbone, see `Backbone`; its encoder need not be loaded."""

    name: str
    image_size: int
    device: torch.device
    precision: str
    dtype: torch.dtype
    batch_size: int
    requested_engine: str

    def _image_features(self, pixels: Tensor) -> Tensor: ...

    def _head(self, output: Any) -> Tensor: ...


@runtime_checkable
class Engine(Protocol):
    """What runs a backbone's image encoder.

    Attributes:
        name: torch or openvino.
        version: of its library; None for PyTorch, whose version records have anyway.
        rows: most rows of a batch; batches are padded to it, or to a multiple of `ROW_MULTIPLE`.
        encoder_hash: of PyTorch's encoder in its precision, see `hash_of`; None for PyTorch, which has the encoder to
            ask.
    """

    name: Name
    version: str | None
    rows: int
    encoder_hash: str | None

    def features(self, model: Model, batches: Iterable[Tensor]) -> Iterable[Tensor]:
        """Return features in float32, not of unit length, of padded batches of normalised pixels."""


class TorchEngine:
    """PyTorch: the encoder itself.

    Args:
        rows: most rows of a batch.
    """

    name: Name = "torch"
    version: str | None = None
    encoder_hash: str | None = None

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def features(self, model: Model, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """See `Engine.features`; a batch is asked for when those before it are done."""
        for batch in batches:
            with torch.inference_mode():  # not while a batch is made, which may be of use where gradients are
                rows = model._image_features(batch.to(model.dtype))
            yield rows.float()


_NOTHING = torch.empty(0, dtype=torch.uint8)

Tensors = dict[str, Tensor]
"""An encoder's copy as the cache holds it.

`graph` and `weights` are the model's, as OpenVINO writes them, and `exact` float32 features of the test picture, not of
unit length. The graph is empty where PyTorch is faster and the copy was not asked for. Facts beside it are the hash of
PyTorch's `tower` in the precision, and the `gain`: images per second of this engine over PyTorch's, in one sitting, and
0 where it was not measured.
"""


class OpenVinoEngine:
    """An image encoder in OpenVINO.

    Args:
        copy: the encoder's.
        encoder_hash: see `Engine`.
        precision: fp32 or bf16.
    """

    name: Name = "openvino"
    rows = ENGINE_ROWS
    encoder_hash: str | None

    def __init__(self, copy: Tensors, encoder_hash: str, precision: str) -> None:
        openvino = import_openvino()
        self.version, self.encoder_hash = openvino_version(), encoder_hash
        self._core, self._copy = openvino.Core(), copy  # the model reads the weights where they are
        weights = openvino.Tensor(copy["weights"].numpy(), shared_memory=True)
        self._model = self._core.read_model(bytes(tensor_bytes(copy["graph"])), weights)
        self._precision = _PRECISIONS[precision]
        self._threads = 0
        self._requests: list[Any] = []
        self._shape: tuple[int, ...] = ()

    def features(self, model: Model, batches: Iterable[Tensor]) -> list[Tensor]:
        """See `Engine.features`; a batch is made while those before it are run."""
        outputs = self.run(batches)
        with torch.inference_mode():
            return [model._head(output).float() for output in outputs]

    def run(self, batches: Iterable[Float[Tensor, "rows 3 height width"]]) -> Float[Tensor, "batches rows dim"]:
        """Run batches of `rows` rows, several at the same time, and return what the encoder returns for each.

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


def choose_engine(model: Model, source: str, settle: Callable[[], tuple[nn.Module, Tensor, str]]) -> Engine:
    """Return what runs a backbone's image encoder, by what is asked for, installed, stored, or measured now.

    Args:
        model: whose encoder it is.
        source: a hash of all that the encoder is made from; empty where nothing but PyTorch is to run it.
        settle: loads the encoder where a copy is to be made of it; returns it in float32, its features of the test
            picture, and `Engine.encoder_hash`.

    Warns:
        FairContextWarning: the encoder was converted, or a copy was damaged; or why PyTorch runs it although the other
            engine was asked for.
    """
    requested, torch_engine = model.requested_engine, TorchEngine(model.batch_size)
    if not source:
        return torch_engine
    if reason := obstacle(model.device, model.precision):
        if requested != "auto":
            _warn(f"{reason}; PyTorch runs the image tower of {model.name}")
        return torch_engine
    path = _entry_path(model, source)
    if path is None and requested == "auto":  # to convert at each start costs more than it saves
        return torch_engine
    copy, facts = _read(path)
    if not copy or (not len(copy["graph"]) and requested != "auto"):
        return _convert_for(model, source, *settle())
    return _checked(model, copy, facts["tower"]) if requested != "auto" or float(facts["gain"]) > 1 else torch_engine


def _convert_for(model: Model, source: str, encoder: nn.Module, exact: Tensor, encoder_hash: str) -> Engine:
    """Make a copy of an image encoder, store it, and return what runs the encoder."""
    begin, torch_engine, path = time.perf_counter(), TorchEngine(model.batch_size), _entry_path(model, source)
    try:
        copy = {**convert(encoder, model.image_size), "exact": exact}
    except Exception as error:  # of the engine, any
        reason = first_reason(error)[:100]
        _warn(f"{model.name}: OpenVINO cannot convert the image tower ({reason}); PyTorch runs it")
        return torch_engine
    engine = _checked(model, copy, encoder_hash)
    timed = engine.name == "openvino" and model.requested_engine == "auto"
    gain = _measure(model, engine, torch_engine) if timed else 0.0
    words = f"image tower of {model.name} converted for OpenVINO {openvino_version()}"
    line = f"{words} in {time.perf_counter() - begin:.0f} s" + ("" if path is None else ", once")
    if gain:
        line += f"; it encodes {gain:.2f} times as fast as PyTorch here"
        if gain <= 1:
            engine, copy = torch_engine, {**copy, "graph": _NOTHING, "weights": _NOTHING}
            line += ", which goes on"
    with suppress(OSError, ArgumentError):  # a cache that cannot be written is no reason to stop
        if path is not None:
            write_entry(path, copy, {"tower": encoder_hash, "gain": repr(gain)})
    _warn(line)
    return engine


def _entry_path(model: Model, source: str) -> Path | None:
    """Return the file of the cache for an encoder's copy, or None where nothing is to be stored."""
    folder = cache_folder()
    key = {"backbone": model.name, "weights": source, "precision": model.precision, "rows": ENGINE_ROWS}
    key |= {"entry": 2, "processor": processor_name()}
    key |= {"versions": [__version__, torch.__version__, openvino_version()]}
    return None if folder is None else folder / "engines" / f"{digest_of_json(key)}.safetensors"


def _read(path: Path | None) -> tuple[Tensors, dict[str, str]]:
    """Return a copy from the cache and what is said of it; nothing where there is none, or it is damaged."""
    try:
        return ({}, {}) if path is None else read_entry(path)
    except FileNotFoundError:
        return {}, {}
    except Exception as error:  # damaged files raise anything
        _warn(f"{path}: is damaged ({first_reason(error)[:100]}); the image tower is converted anew")
        return {}, {}


def _checked(model: Model, copy: Tensors, encoder_hash: str) -> Engine:
    """Return a copy as an engine, or PyTorch where its features of the test picture are not the encoder's."""
    try:
        engine = OpenVinoEngine(copy, encoder_hash, model.precision)
        (features,) = engine.features(model, [pad_rows(probe_picture(model.image_size), engine.rows)])
        problem = disagreement(copy["exact"], features[:1])
    except Exception as error:  # of the engine, any
        problem = f"cannot be computed ({first_reason(error)[:100]})"
    if not problem:
        return engine
    what = f"{model.name}: features of a test picture in OpenVINO ({model.precision})"
    _warn(f"{what} {problem}; PyTorch runs the image tower")
    return TorchEngine(model.batch_size)


def _measure(model: Model, copy: Engine, torch_engine: Engine) -> float:
    """Return how many times as fast as the encoder its copy encodes, by medians in turn."""
    rows, runs = _TIMED
    pixels = probe_picture(model.image_size).expand(rows, -1, -1, -1).contiguous()
    seconds: dict[Engine, list[float]] = {torch_engine: [], copy: []}
    for run in range(1 + runs):
        for engine, taken in seconds.items():
            begin = time.perf_counter()
            [*engine.features(model, pixels.split(min(engine.rows, rows)))]
            if run:  # the first warms up
                taken.append(time.perf_counter() - begin)
    return statistics.median(seconds[torch_engine]) / statistics.median(seconds[copy])


def is_convolutional(encoder: nn.Module) -> bool:
    """Return whether most of an encoder's weights are convolutions: only there OpenVINO was measured to be faster."""
    inside = sum(module.weight.numel() for module in encoder.modules() if isinstance(module, nn.Conv2d))
    return 2 * inside > sum(parameter.numel() for parameter in encoder.parameters())


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
    """Return why OpenVINO cannot run an encoder, or None where nothing is in the way."""
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
        return f"OpenVINO cannot be used ({first_reason(error)[:100]})"
    if precision == "bf16" and "BF16" not in abilities:
        return "OpenVINO does not compute in bf16 on this processor"
    return None


def convert(encoder: nn.Module, image_size: int) -> Tensors:
    """Return an encoder in float32 as OpenVINO writes it, `graph` and `weights`; any error is raised."""
    openvino = import_openvino()
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    example = torch.zeros(ENGINE_ROWS, 3, image_size, image_size)
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of tracing, which is about models that change with their input
        # What `openvino.convert_model` does, without its reports.
        frontend = FrontEndManager().load_by_framework("pytorch")
        decoder = TorchScriptPythonDecoder(_FirstOutput(encoder).eval(), example_input=(example,))
        model: Any = frontend.convert(frontend.load(decoder))
        model.reshape([*example.shape])
        files = {"graph": Path(folder, "tower.xml"), "weights": Path(folder, "tower.bin")}
        openvino.serialize(model, *files.values())
        contents = {name: bytearray(file.read_bytes()) for name, file in files.items()}
        return {name: torch.frombuffer(content, dtype=torch.uint8) for name, content in contents.items()}


class _FirstOutput(nn.Module):
    """An encoder that returns pooled features alone; some return tokens beside them."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.image_encoder = encoder

    def forward(self, pixels: Tensor) -> Tensor:
        """Run the encoder."""
        return pooled_of(self.image_encoder(pixels))


def _warn(line: str) -> None:
    warnings.warn(line, FairContextWarning, stacklevel=2)
