"""Build the derived head of the lite backbone: the embeddings `E` of the 1,000 ImageNet class names, and their mean.

Usage: python scripts/build_lite_head.py [OUT.safetensors]

Needs open-clip-torch, for its curated class names; the package itself does not need it for this backbone.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES
from safetensors.torch import save_file
from torch import Tensor

from faircontext.backbones import lite

HEAD = Path(lite.__file__).with_name("lite_head.safetensors")


def build_head() -> dict[str, Tensor]:
    """Return `E`, (1000, 384), unit rows `unit(e_k - mu)`, and `mu`, (384,), the mean of the embeddings `e_k`."""
    tower, tokenizer = lite.MiniLM(), lite.minilm_tokenizer()
    embeddings = []
    for name in IMAGENET_CLASSNAMES:
        ids = torch.tensor([tokenizer.encode(f"a photo of a {name}.").ids])
        embeddings.append(tower(tower.embedding(ids), torch.ones_like(ids, dtype=torch.bool)))
    stacked = torch.cat(embeddings)
    mu = stacked.mean(0)
    return {"E": F.normalize(stacked - mu, dim=-1), "mu": mu}


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else HEAD
    save_file(build_head(), out)
    print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")
