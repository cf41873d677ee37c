"""Options of where images are answered: processes, threads, and the engine that shares them out."""

from dataclasses import dataclass
from typing import Literal

from faircontext.errors import ArgumentError, check_minimum, counted
from faircontext.runs.backbone_options import DeviceOptions
from faircontext.runs.ray_address import check_address
from faircontext.system import usable_processors

__all__ = ["ProcessOptions"]


@dataclass(frozen=True, kw_only=True)
class ProcessOptions(DeviceOptions):
    """Options of where images are answered."""

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

    def set_threads(self) -> None:
        """Give the model of this process its threads.

        Where several models answer, each has one: two threads of a model wait for each other, two models do not
        (`benchmarks/processes.py`).
        """
        import torch

        threads = 1 if self.threads is None and self.several_models else self.threads
        if threads is not None:
            torch.set_num_threads(threads)
