"""What the benchmarks share: backbones (with random weights where none are given) and memory readings."""

import argparse
import logging
import re
import resource
from contextlib import suppress
from pathlib import Path

import open_clip
import torch

from faircontext import Backbone, create_backbone
from faircontext.backbones.open_clip import OpenClip


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `make_backbone` reads."""
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--pretrained", help="tag or file; without it an open_clip architecture has random weights")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--preset", help="recommended for lite backbones, else paper")


def make_backbone(options: argparse.Namespace) -> Backbone:
    """Create the backbone; time and memory of an open_clip architecture do not depend on its weights."""
    options.preset = options.preset or ("recommended" if options.backbone.startswith("lite") else "paper")
    scheme = ":" in options.backbone
    if options.pretrained is not None or scheme or options.backbone not in open_clip.list_models():
        return create_backbone(options.backbone, options.pretrained, precision=options.precision)
    logging.disable(logging.WARNING)  # that the weights are random is what is wanted
    torch.manual_seed(0)
    model = open_clip.create_model(options.backbone)
    tokenizer = open_clip.get_tokenizer(options.backbone)
    return OpenClip(options.backbone, model, tokenizer, precision=options.precision)


def resident_mb() -> float:
    """Return the resident size of this process now, in MB (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def forget_peak() -> None:
    """Let the peak begin anew: loading a model has one of its own."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """Return the largest resident size since `forget_peak`, in MB (Linux)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
