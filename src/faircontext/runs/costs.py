"""Measure what one prediction costs.

The cost of a prediction (paper, "Computational Cost Analysis") is all that one new image costs once it is decoded:
views, features, adaptation, prediction. The text features of the label set are computed once for all images.
"""

import gc
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from faircontext.episode import Episode
from faircontext.errors import ArgumentError, check_minimum, check_type
from faircontext.labels import LabelSpace
from faircontext.methods import Method, ZeroShot
from faircontext.system import forget_peak, peak_mb, resident_mb
from faircontext.types import Image
from faircontext.views import ViewRecipe


@dataclass(frozen=True)
class Efficiency:
    """What one prediction costs; memory is in MB of 2^20 bytes.

    Attributes:
        seconds: of each trial.
        images: how many different images the trials went through.
        peak_device_mb: the most that tensors took on a CUDA device during the trials, weights included; None elsewhere.
        peak_resident_mb: by how much the process grew at its peak, above the loaded model with its label set; None
            where the system does not tell (it does on Linux).
    """

    seconds: tuple[float, ...]
    images: int
    peak_device_mb: float | None
    peak_resident_mb: float | None

    @property
    def seconds_mean(self) -> float:
        """Mean over the trials."""
        return statistics.fmean(self.seconds)

    @property
    def seconds_spread(self) -> float:
        """Standard error of that mean: the standard deviation of the trials over the root of their number."""
        return statistics.stdev(self.seconds) / math.sqrt(len(self.seconds))

    def as_record(self) -> dict[str, float | int | None]:
        """Return the numbers as `costs.json` holds them; memory is the device's where there is one."""
        return {
            "seconds_mean": self.seconds_mean,
            "seconds_standard_error": self.seconds_spread,
            "trials": len(self.seconds),
            "images": self.images,
            "peak_memory_mb": self.peak_resident_mb if self.peak_device_mb is None else self.peak_device_mb,
        }

    def __str__(self) -> str:
        text = f"{self.seconds_mean:.3f} s (standard error {self.seconds_spread:.3f}, {len(self.seconds)} trials)"
        if self.peak_device_mb is not None:
            text += f", peak of the device {self.peak_device_mb:.0f} MB"
        return text + ("" if self.peak_resident_mb is None else f", process grew by {self.peak_resident_mb:.0f} MB")


def measure(
    method: Method,
    images: Sequence[Image],
    labels: LabelSpace,
    recipe: ViewRecipe | None = None,
    trials: int = 30,
    warmup: int = 2,
    seed: int = 0,
) -> Efficiency:
    """Measure what a method's prediction for one image costs, as the paper does: a mean over 30 trials, peak memory.

    Each trial is a fresh episode, so that views and features are paid for. The device has done all its work whenever
    the clock is read. Memory that a process has freed mostly stays with it: to compare how much a process grows,
    measure each method in a process of its own. What other programs do on the machine counts as well.

    Args:
        method: what is measured.
        images: decoded images, see `load_image`; trials go through them in turn.
        labels: the label space, and with it the backbone and the device.
        recipe: how views are made; None for the paper's.
        trials: how many are timed, at least 2.
        warmup: how many are not timed and come before, at least 1: the first pays for constants of the label set and
            for what the device prepares once.
        seed: of views and masks.

    Raises:
        FairContextError: there is no image, a number is out of range, or the method cannot run on this backbone or on
            these labels.
    """
    check_type("method", method, Method, "create one with create_method")
    check_type("labels", labels, LabelSpace)
    check_minimum("trials", trials, 2)
    check_minimum("warmup", warmup, 1)
    if not images:
        raise ArgumentError("images is empty; give at least one, see load_image")
    method.check(labels.backbone)
    method.check_labels(labels)
    labels.text  # noqa: B018 (encoded once for all images)
    ZeroShot()(Episode(images[0], labels, recipe, seed))  # the image tower has run once before the peak begins
    device = labels.backbone.device
    gc.collect()
    loaded = resident_mb() if forget_peak() else None
    seconds = []
    for trial in range(-warmup, trials):
        if trial == 0 and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        labels.backbone.wait()
        begin = time.perf_counter()
        method(Episode(images[trial % len(images)], labels, recipe, seed))
        labels.backbone.wait()
        seconds.append(time.perf_counter() - begin)
    return Efficiency(
        tuple(seconds[warmup:]),
        min(len(images), trials),
        torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None,
        None if loaded is None else max(0.0, peak_mb() - loaded),
    )
