"""What the benchmarks share: backbones, with random weights where none are given."""

import argparse
import logging

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


def run_bare(backbone: Backbone, images: int) -> None:
    """Run the image tower alone, in the backbone's engine and its batches, on at least so many normalised pictures."""
    engine = backbone._engine
    batch = torch.full((engine.rows, 3, backbone.image_size, backbone.image_size), 0.5, device=backbone.device)
    for _ in engine.features(backbone, (batch for _ in range(0, images, engine.rows))):
        pass
