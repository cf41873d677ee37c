"""Models of open_clip by name: where their weights lie, found without a network where possible, and their loading.

A download is only tried where its host answers within seconds; everything that is missing is named in one line, with
where it was looked for and what to do. The library makes a model, and `weights` fits a checkpoint to it.
"""

import math
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import open_clip
import torch
from huggingface_hub import constants, snapshot_download, try_to_load_from_cache
from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed, resize_text_pos_embed
from torch import Tensor

from faircontext.backbones.loaded import PIXELS, Loaded, finish
from faircontext.backbones.open_clip import OpenClip
from faircontext.backbones.weights import check_fit, check_floats, other_positions, read_weights
from faircontext.errors import ArgumentError, in_one_line, silence
from faircontext.files import Rules, check_values, find_file, read_json

_SECONDS = 5.0
"""How long a host may take to answer before it counts as out of reach."""

_HUB = "https://huggingface.co"
_CONFIG = "open_clip_config.json"
_TRANSFORMERS_CONFIG = "config.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "spiece.model", "vocab.txt")
_OF_TOKENIZERS = "*tokenizer* spiece.model vocab* merges.txt special_tokens_map.json".split()
_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
_CLIP = {"mean": OPENAI_DATASET_MEAN, "std": OPENAI_DATASET_STD, "interpolation": "bicubic", "resize_mode": "shortest"}
"""How pictures are prepared for CLIP, and for weights of which nothing else is known."""

_PREPARATION = {key: PIXELS[key] for key in _CLIP}
"""What is read of `preprocess_cfg`: whether a value can be used, and which can."""


def _has_encoders(value: Any) -> bool:
    return isinstance(value, dict) and all(type(value.get(key)) is dict for key in ("text_cfg", "vision_cfg"))


_MODEL: Rules = {"model_cfg": (_has_encoders, "an object with text_cfg and vision_cfg, as open_clip writes it")}
_NO_TRANSFORMERS = "the context of a text tower of transformers cannot be learnt here; use a model of open_clip's own"
_TEXT: Rules = {"hf_model_name": (lambda value: not value, f"left out: {_NO_TRANSFORMERS}")}
"""What is read of a configuration of open_clip."""

_SUFFIXES = (".safetensors", ".bin", ".pth")
_OTHER_WEIGHTS = "open_clip_pytorch_model.pth model.safetensors pytorch_model.bin pytorch_model.pth model.pth".split()
_PREFERRED = (*_WEIGHTS, *_OTHER_WEIGHTS)
"""Names of weights in a folder, the first that is there is taken: open_clip's own order."""

_IMAGE_POSITIONS = "visual.positional_embedding"
_TEXT_POSITIONS = ("positional_embedding", "text.positional_embedding")

NUMPY = (".npz", ".npy")
"""Files of big_vision's arrays, which open_clip has a reader for."""


@dataclass(frozen=True)
class Source:
    """An open_clip model that is on this machine.

    Attributes:
        model: what open_clip creates it from: an architecture, or `local-dir:` and a folder.
        checkpoint: file of the weights.
        quick_gelu: whether the weights were trained with the QuickGELU activation.
        preprocess: mean, std, interpolation and resize mode of a tag, or those chosen for a file; empty for CLIP's.
        warnings: what a person should know about the choice of weights, a line each.
        config: file of the configuration, where the library does not know the model by its name.
        chosen: whether `preprocess` was chosen for weights that do not say it.
    """

    model: str
    checkpoint: Path
    quick_gelu: bool = False
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    config: Path | None = None
    chosen: bool = False


def load_open_clip(
    name: str,
    pretrained: str | None = None,
    *,
    resize_positions: bool = False,
    weights_key: str | None = None,
    adapter: str | None = None,
    preprocess: str | None = None,
    **options: Any,
) -> OpenClip:
    """Load an open_clip model with its weights, its tokenizer and its own preprocessing.

    Arguments, warnings and errors are those of `create_backbone`.
    """
    source = find_source(name, pretrained, preprocess)
    path, weights, lines = source.checkpoint, None, [*source.warnings]
    with in_one_line(f"{path}: cannot be read as weights of {name}"), silence():
        if path.suffix not in NUMPY:  # before the model is made, which takes seconds
            weights, warned = read_weights(path, weights_key)
            _refuse_transformers(path, weights)
            lines += [f"{path}: {line}" for line in warned]
    with in_one_line(f"{source.config or name}: open_clip cannot make a model of it"), silence():
        forced = {"force_quick_gelu": source.quick_gelu, "force_preprocess_cfg": dict(source.preprocess)}
        model = open_clip.create_model(source.model, load_weights=False, pretrained_text=False, **forced)
    with in_one_line(f"{path}: cannot be read as weights of {name}"), silence():
        lines += _load_weights(model, path, weights, source.model, resize_positions)
        weights = None  # as large as the model
        tokenizer = open_clip.get_tokenizer(source.model)
    chosen = {"preprocess": dict(source.preprocess)} if source.chosen else {}
    loaded = Loaded(model, tokenizer, open_clip.get_model_preprocess_cfg(model), lines, chosen)
    return finish(lambda title, _: OpenClip(title, model, tokenizer, **options), loaded, name, pretrained, adapter)


def find_source(name: str, pretrained: str | None, preprocess: str | None = None) -> Source:
    """Find the weights of a model, by the names of `create_backbone`.

    Args:
        name: see there; one that is no architecture has a scheme.
        pretrained: see there.
        preprocess: see there.

    Raises:
        ArgumentError: there is no such tag, folder or file, or weights are missing and cannot be fetched.
    """
    scheme, colon, path = name.partition(":")
    if not colon:
        return _architecture(name.replace("/", "-"), pretrained, preprocess)
    forms = {"hf-hub": (r"[\w.-]+/[\w.-]+", "ORG/NAME"), "local-dir": (".+", "FOLDER")}
    if scheme not in forms:
        known = "hf-hub:ORG/NAME, local-dir:FOLDER or transformers:FOLDER"
        raise ArgumentError(f"unknown scheme {scheme + ':'!r} of {name}; use {known}")
    if not re.fullmatch(forms[scheme][0], path):
        raise ArgumentError(f"{name!r} names no model; write {scheme}:{forms[scheme][1]}")
    return _check_folder(_hub_folder(path) if scheme == "hf-hub" else Path(path).expanduser())


def _architecture(name: str, pretrained: str | None, requested: str | None) -> Source:
    config: Any = open_clip.get_model_config(name)
    check_values(name, config["text_cfg"], _TEXT)
    quick = bool(config.get("quick_gelu", False))
    tags = _tags(name)
    known = f"tags: {', '.join(tags)}" if tags else "it has no tags"
    if pretrained is None:
        raise ArgumentError(f"{name} needs weights; give pretrained= a tag or a checkpoint file ({known})")
    tag = open_clip.get_pretrained_cfg(name, pretrained)
    if tag:
        if requested is not None:
            raise ArgumentError(f"the tag {pretrained!r} says how pictures are prepared; leave preprocess out")
        _check_tokenizer(name, config)
        file = _tag_file(name, pretrained, tag)
        return Source(name, file, bool(tag.get("quick_gelu", quick)), _preparation(pretrained, tag))
    plain = name.removesuffix("-quickgelu")
    if open_clip.get_pretrained_cfg(plain, pretrained):
        raise ArgumentError(f"{name} has no weights {pretrained!r}: they are of {plain}, without QuickGELU")
    path = Path(pretrained).expanduser()
    if path.is_dir():
        raise ArgumentError(f"pretrained={pretrained!r} is a folder; name the file in it, or use local-dir:{path}")
    if not path.is_file():
        raise ArgumentError(f"pretrained={pretrained!r} is neither a file nor a tag of {name} ({known})")
    _check_tokenizer(name, config)
    preprocess, said = _preparation_of_file(name, path, requested)
    lines = (*_doubt_activation(name, path, quick), *said)
    return Source(name, path, quick, preprocess, lines, chosen=bool(preprocess))


def _tags(architecture: str) -> dict[str, Mapping[str, Any]]:
    """Return what the library knows of an architecture's weights, by tag."""
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    return {tag: open_clip.get_pretrained_cfg(architecture, tag) for tag in tags}


def _preparation(source: object, document: Any) -> dict[str, Any]:
    """Return what a configuration of open_clip, or a part of it, says of the preparation of pictures."""
    if isinstance(document, dict) and {"model_cfg", "preprocess_cfg"} & {*document}:
        document = document.get("preprocess_cfg") or {}
    said = check_values(source, document, _PREPARATION)
    return {key: tuple(said[key]) if isinstance(said[key], list) else said[key] for key in _PREPARATION if key in said}


def _preparation_of_file(name: str, path: Path, requested: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return how pictures are prepared for weights from a file, and a note on it.

    What is asked for comes first, then a configuration beside the file, then what all tags of the architecture say, or
    the one after which the file is called. Nothing is returned where it is CLIP's, unless that is asked for.
    """
    tags = _tags(name)
    ways = {"clip": _CLIP, **{tag: _preparation(tag, config) for tag, config in tags.items()}}
    if requested is not None:
        return ways[requested] if requested in ways else _preparation_in(Path(requested).expanduser(), ways), ()
    preparation, whence, first = _CLIP, "", next(iter(tags), "clip")
    beside, called = path.with_name(_CONFIG), _called_after(path, tags)
    if beside.is_file():
        preparation, whence = _preparation_in(beside), f"{beside.name} beside it says"
    elif all(ways[tag] == ways[first] for tag in tags):
        preparation, whence = ways[first], f"the tags of {name} say"
    elif called:
        preparation, whence = ways[called], f"the tag {called} says, after which it is called"
    else:
        named = "; ".join(f"--preprocess {tag}" for tag in tags if ways[tag] != _CLIP)
        return {}, (f"{path}: pictures are prepared as for CLIP, and tags of {name} disagree; for their way: {named}",)
    if preparation == _CLIP:
        return {}, ()
    shown = ", ".join(f"{key} {value}" for key, value in preparation.items())
    return preparation, (f"{path}: pictures are prepared as {whence}: {shown}; for another way: --preprocess",)


def _called_after(path: Path, tags: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the longest tag that a file has in its name, or whose own file has this name."""

    def letters(name: str) -> str:
        return re.sub(r"[^a-z0-9]", "", name.lower())

    stem = letters(path.stem.removesuffix("-weights"))  # what our own command adds that keeps tensors
    same = [tag for tag, config in tags.items() if letters(Path(config.get("url", "")).stem) == stem]
    return max([*(tag for tag in tags if letters(tag) in stem), *same], key=len, default=None)


def _preparation_in(path: Path, words: Iterable[str] = ()) -> dict[str, Any]:
    """Return how pictures are prepared by a file of JSON; `words` could have been meant in place of a file."""
    known = f"preprocess is {', '.join(words)}, or such a file" if words else "write another"
    said = _preparation(path, read_json(path, known))
    if words and not said:
        raise ArgumentError(f"{path}: says none of {', '.join(_PREPARATION)}; write them as open_clip_config.json does")
    return {**_CLIP, **said}


def _doubt_activation(name: str, path: Path, quick: bool) -> tuple[str, ...]:
    """Return a warning where a file's name is that of a tag's weights which have another activation.

    Weights do not show with which activation they were trained, and with the other one they answer, only worse.
    """
    plain = name.removesuffix("-quickgelu")
    tags = {"quickgelu": {"quick_gelu": True}, **_tags(f"{plain}-quickgelu"), **_tags(plain)}
    called = _called_after(path, tags)
    if called is None or bool(tags[called].get("quick_gelu", False)) == quick:
        return ()
    used, other, better = ("QuickGELU", "GELU", plain) if quick else ("GELU", "QuickGELU", f"{plain}-quickgelu")
    known = open_clip.get_model_config(better)
    advice = f"name the architecture {better}" if known else 'use local-dir: with "quick_gelu" in the model_cfg'
    return (f"{path}: {used} is used, but the name suggests weights that were trained with {other}; if so, {advice}",)


def _check_folder(folder: Path) -> Source:
    """Check that a folder has a configuration that can be used, weights, and the tokenizer that it asks for."""
    if not (folder / _CONFIG).exists() and (folder / _TRANSFORMERS_CONFIG).is_file():
        raise ArgumentError(f"{folder}: a model of transformers; name it transformers:{folder}")
    path = find_file(folder, "configuration, as open_clip writes it,", _CONFIG)
    document = read_json(path)
    config = check_values(path, document, _MODEL, ["model_cfg"])["model_cfg"]
    _preparation(path, document)
    check_values(path, config["text_cfg"], _TEXT)
    if config["text_cfg"].get("hf_tokenizer_name"):
        find_file(folder, "tokenizer", *_TOKENIZER_FILES)
    first = find_file(folder, "weights", *_PREFERRED, *(f"*{suffix}" for suffix in _SUFFIXES))
    if re.search(r"-\d+-of-(?!0*1$)\d+$", first.stem):
        raise ArgumentError(f"{first}: is one of several parts of the weights; join them into one file")
    others = [file.name for suffix in _SUFFIXES for file in sorted(folder.glob(f"*{suffix}")) if file != first]
    chosen = others and first.name not in _PREFERRED
    taken = (f"{folder}: the weights of {first.name} are taken, not of {', '.join(others)}",) if chosen else ()
    return Source(f"local-dir:{folder}", first, warnings=taken, config=path)


def _refuse_transformers(path: Path, weights: Mapping[str, Any]) -> None:
    if any(name.startswith(("text_model.", "vision_model.")) for name in weights):
        cure = "give the file with the model's folder: --backbone transformers:FOLDER"
        raise ArgumentError(f"{path}: tensors of a model of transformers, with other names than open_clip's; {cure}")


def _load_weights(
    model: Any, path: Path, weights: dict[str, Tensor] | None, name: str, resize_positions: bool
) -> list[str]:
    """Load weights into a model of open_clip.

    Args:
        model: made by the library.
        path: of their file.
        weights: what `read_weights` gives for it; None for a file of `NUMPY`.
        name: of the model's architecture, or `local-dir:` and its folder.
        resize_positions: whether positions are resized where the model has others.

    Returns:
        Warnings, a line each.

    Raises:
        ArgumentError: the tensors do not fit the model.
    """
    if weights is None:
        if not hasattr(model.visual, "trunk"):
            problem = f"NumPy arrays are read as weights of big_vision, which {name} is no architecture of"
            raise ArgumentError(f"{path}: {problem}; give safetensors, or a PyTorch file")
        open_clip.load_checkpoint(model, str(path))
        return []
    warnings = []
    # These steps are those of `open_clip.load_checkpoint`, which takes no tensors, only a file.
    weights = convert_state_dict(model, weights)
    state = model.state_dict()
    if "positional_embedding" in weights and not hasattr(model, "positional_embedding"):
        weights = convert_to_custom_text_state_dict(weights)
    for key in ("logit_scale", "logit_bias"):
        if key in state and key in weights:
            weights[key] = weights[key].reshape(state[key].shape)  # a number in some files, a vector of one in others
    if "logit_bias" in state and "logit_scale" in weights:
        weights.setdefault("logit_bias", torch.zeros_like(weights["logit_scale"]))
    # With other tensors of another shape it is another architecture, whose patches may be of another size as well.
    shapes = [(key, weights[key].shape, state[key].shape) for key in state if key in weights]
    others = [entry for entry in sorted(shapes, reverse=True) if entry[1] != entry[2]]
    resizable = {key for key, *_ in others} <= {_IMAGE_POSITIONS, *_TEXT_POSITIONS}
    if sizes := other_positions(others, _patch(model.visual), 1) if resizable else None:
        if not resize_positions:
            cure = "or have them resized with resize_positions=True (--resize-positions)"
            problem = f"has positions of {sizes[0]}, and {name} reads {sizes[1]}"
            raise ArgumentError(f"{path}: {problem}; {_other_architecture(name, model, weights)}, {cure}")
        resize_pos_embed(weights, model)
        resize_text_pos_embed(weights, model)
        warnings.append(f"{path}: positions of {sizes[0]} are resized to the {sizes[1]} that {name} reads")
    check_floats(path, weights, [key for key in state if state[key].is_floating_point()])
    missing, unknown = ([key for key in one if key not in other] for one, other in ((state, weights), (weights, state)))
    problem, cure = f"{path}: cannot be read as weights of {name}", "name the architecture that they were trained with"
    shapes = [(key, weights[key].shape, state[key].shape) for key in state if key in weights]
    check_fit(problem, shapes, missing, unknown, cure)
    model.load_state_dict(weights)
    return warnings


def _patch(visual: Any) -> int:
    """Return the side of a patch, in pixels; 0 for an image encoder without patches."""
    return int(getattr(visual, "patch_size", (0,))[0])


def _other_architecture(name: str, model: Any, weights: Mapping[str, Tensor]) -> str:
    """Return advice to name an architecture that differs from the one that was named in the sizes alone."""
    config = open_clip.get_model_config(name)
    if config is None or name.startswith("local-dir:"):
        return "correct image_size and context_length in open_clip_config.json"
    if _IMAGE_POSITIONS in weights:
        config["vision_cfg"]["image_size"] = math.isqrt(len(weights[_IMAGE_POSITIONS]) - 1) * _patch(model.visual)
    for key in _TEXT_POSITIONS:
        if key in weights:
            config["text_cfg"]["context_length"] = len(weights[key])
    fitting = [other for other in open_clip.list_models() if open_clip.get_model_config(other) == config]
    return f"name the architecture {fitting[0]}" if fitting else "name an architecture that reads the same"


def _tag_file(name: str, tag: str, config: Mapping[str, Any]) -> Path:
    """Return the file of a tag's weights: from the caches that open_clip uses, or downloaded."""
    repository, _, file = str(config.get("hf_hub", "")).rpartition("/")
    url = str(config.get("url", ""))
    downloaded = Path("~/.cache/clip").expanduser() / url.rpartition("/")[2]
    looked = []
    if repository:
        if cached := _cached(repository, *((file,) if file else _WEIGHTS)):
            return cached
        looked.append(f"{file or _WEIGHTS[0]} of {repository} in {constants.HF_HUB_CACHE}")
    if url and downloaded.is_file():
        return downloaded
    if url:
        looked.append(str(downloaded))
    gelu = f" and name the architecture {name.removesuffix('-quickgelu')}-quickgelu" if config.get("quick_gelu") else ""
    fix = f"give pretrained= the path of a copy{gelu}"
    what, host = f"the weights {tag!r} of {name}", _HUB if repository else url
    return Path(_fetch(what, " and ".join(looked), fix, host, lambda: open_clip.download_pretrained(dict(config))))


def _fetch(what: str, looked: str, fix: str, host: str, download: Callable[[], str]) -> str:
    """Return what a download returns, where its host answers.

    Raises:
        ArgumentError: it does not, or the download fails.
    """
    if not _reach(host):
        raise ArgumentError(f"{what}: not on this machine (looked for {looked}) and the network is out of reach; {fix}")
    with in_one_line(f"{what}: could not be fetched", fetching=True):
        return download()


def _hub_folder(repository: str) -> Path:
    """Return the folder of a repository's model on this machine, downloaded where that is possible."""
    config = _cached(repository, _CONFIG)
    if config and any((config.parent / name).exists() for name in _WEIGHTS):
        return config.parent
    if not config and (other := _cached(repository, _TRANSFORMERS_CONFIG)):
        return other.parent  # it is named as what it is
    looked = f"{_CONFIG} and {_WEIGHTS[0]} of {repository} in {constants.HF_HUB_CACHE}"
    patterns = [_CONFIG, _TRANSFORMERS_CONFIG, *_WEIGHTS, *_OF_TOKENIZERS]
    download = partial(snapshot_download, repository, allow_patterns=patterns)
    return Path(_fetch(f"hf-hub:{repository}", looked, "copy the files here and use local-dir:FOLDER", _HUB, download))


def _check_tokenizer(name: str, config: Mapping[str, Any]) -> None:
    """Refuse a model whose tokenizer is neither open_clip's own nor on this machine nor within reach."""
    repository = config["text_cfg"].get("hf_tokenizer_name", "")
    if repository and not _cached(repository, *_TOKENIZER_FILES):
        fix = f"put its files, the weights and {_CONFIG} into a folder and use local-dir:FOLDER"
        _fetch(f"the tokenizer of {name}", f"{repository} in {constants.HF_HUB_CACHE}", fix, _HUB, lambda: "")


def _cached(repository: str, *files: str) -> Path | None:
    """Return the first of some files of a repository that is in the cache of the hub's client."""
    paths = (try_to_load_from_cache(repository, file) for file in files)
    return next((Path(path) for path in paths if isinstance(path, str)), None)


def _reach(url: str) -> bool:
    """Return whether a host answers, without the retries of a download."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_SECONDS).close()
    except urllib.error.HTTPError:  # an answer as well
        return True
    except (OSError, ValueError):
        return False
    return True
