"""Models of open_clip by name: where their weights lie, found without a network where possible, and their loading.

A download is only tried where its host answers within seconds; everything that is missing is named in one line, with
where it was looked for and what to do. The library makes a model, and `weights` fits a checkpoint to it.
"""

import json
import os
import re
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import open_clip
from huggingface_hub import constants, snapshot_download, try_to_load_from_cache
from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

from faircontext.backbones.adapters import merge_adapter
from faircontext.backbones.fit import NUMPY, load_weights
from faircontext.backbones.open_clip import OpenClip
from faircontext.backbones.weights import keep_archive, read_weights
from faircontext.errors import ArgumentError, FairContextWarning, in_one_line, reason_of, silence, unknown_name
from faircontext.files import Rules, check_values, read_json

__all__ = ["Source", "find_source", "load_open_clip"]

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

_CHANNELS = (lambda value: isinstance(value, list) and all(type(one) in (int, float) for one in value), "three numbers")
_PREPARATION: Rules = {
    "mean": _CHANNELS,
    "std": _CHANNELS,
    "interpolation": (lambda value: isinstance(value, str), "bicubic, bilinear or nearest"),
    "resize_mode": (lambda value: isinstance(value, str), "shortest or squash"),
}
"""What is read of `preprocess_cfg`: whether a value can be used, and which can."""

_PREFERRED = (
    *_WEIGHTS,
    *"open_clip_pytorch_model.pth model.safetensors pytorch_model.bin pytorch_model.pth model.pth".split(),
)
"""Names of weights in a folder, the first that is there is taken: open_clip's own order."""


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
    device: str = "cpu",
    precision: str = "auto",
    batch_size: int = 16,
    engine: str = "auto",
    resize_positions: bool = False,
    weights_key: str | None = None,
    adapter: str | None = None,
    preprocess: str | None = None,
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
        model = open_clip.create_model(
            source.model,
            load_weights=False,
            force_quick_gelu=source.quick_gelu,
            force_preprocess_cfg=dict(source.preprocess),
            pretrained_text=False,
        )
    with in_one_line(f"{path}: cannot be read as weights of {name}"), silence():
        lines += load_weights(model, path, weights, source.model, resize_positions)
        weights = None  # as large as the model
        tokenizer = open_clip.get_tokenizer(source.model)
    if adapter is not None:
        lines += merge_adapter(model, Path(adapter).expanduser(), name)
    for line in lines:
        warnings.warn(line, FairContextWarning, stacklevel=3)
    title = name if pretrained is None else f"{name}:{pretrained}"
    options: dict[str, Any] = {"device": device, "precision": precision, "batch_size": batch_size, "engine": engine}
    backbone = OpenClip(title, model, tokenizer, **options)
    chosen = {"preprocess": dict(source.preprocess)} if source.chosen else {}
    backbone.facts = {**backbone.facts, **chosen, **({"warnings": lines} if lines else {})}
    return backbone


def find_source(name: str, pretrained: str | None, preprocess: str | None = None) -> Source:
    """Find the weights of a model, by the names of `create_backbone`.

    Args:
        name: see there.
        pretrained: see there.
        preprocess: see there.

    Raises:
        ArgumentError: there is no such model, tag, folder or file, or weights are missing and cannot be fetched.
    """
    scheme, colon, path = name.partition(":")
    if not colon:
        return _architecture(name.replace("/", "-"), pretrained, preprocess)
    if preprocess is not None:
        raise ArgumentError(f"{name}: its configuration says how pictures are prepared; leave preprocess out")
    if pretrained is not None:
        raise ArgumentError(f"{name} has its own weights; leave pretrained={pretrained!r} out")
    if scheme == "hf-hub":
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", path):
            raise ArgumentError(f"{name!r} names no repository; write hf-hub:ORG/NAME")
        return _check_folder(_hub_folder(path))
    if not path:
        raise ArgumentError(f"{name!r} names no folder; write local-dir:FOLDER")
    if scheme == "local-dir":
        return _check_folder(Path(path).expanduser())
    raise ArgumentError(
        f"unknown scheme {scheme + ':'!r} of {name}; use hf-hub:ORG/NAME, local-dir:FOLDER or transformers:FOLDER"
    )


def _architecture(name: str, pretrained: str | None, asked: str | None) -> Source:
    config = open_clip.get_model_config(name)
    if config is None:
        from faircontext.backbones import list_backbones

        raise unknown_name("backbone", name, list_backbones())
    _check_text_tower(name, config)
    quick = bool(config.get("quick_gelu", False))
    tags = open_clip.list_pretrained_tags_by_model(name)
    known = f"tags: {', '.join(tags)}" if tags else "it has no tags"
    if pretrained is None:
        raise ArgumentError(f"{name} needs weights; give pretrained= a tag or a checkpoint file ({known})")
    tag = open_clip.get_pretrained_cfg(name, pretrained)
    if tag:
        if asked is not None:
            raise ArgumentError(
                f"the tag {pretrained!r} says how pictures are prepared; leave preprocess={asked!r} out"
            )
        _check_tokenizer(name, config)
        file = _tag_file(name, pretrained, tag)
        return Source(name, file, bool(tag.get("quick_gelu", quick)), _preparation(tag))
    plain = name.removesuffix("-quickgelu")
    if open_clip.get_pretrained_cfg(plain, pretrained):
        raise ArgumentError(f"{name} has no weights {pretrained!r}: they are of {plain}, without QuickGELU")
    path = Path(pretrained).expanduser()
    if path.is_dir():
        raise ArgumentError(f"pretrained={pretrained!r} is a folder; name the file in it, or use local-dir:{path}")
    if not path.is_file():
        raise ArgumentError(f"pretrained={pretrained!r} is neither a file nor a tag of {name} ({known})")
    _check_archive(path)
    _check_tokenizer(name, config)
    preprocess, said = _preparation_of_file(name, path, asked)
    lines = (*_doubt_activation(name, path, quick), *said)
    return Source(name, path, quick, preprocess, lines, chosen=bool(preprocess))


def _preparation(config: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: config[key] for key in _PREPARATION if config.get(key) is not None}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}


def _preparation_of_file(name: str, path: Path, asked: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return how pictures are prepared for weights from a file, and a note on it.

    What is asked for comes first, then a configuration beside the file, then what all tags of the architecture say, or
    the one after which the file is called. Nothing is returned where it is CLIP's, unless that is asked for.
    """
    tags = {tag: open_clip.get_pretrained_cfg(name, tag) for tag in open_clip.list_pretrained_tags_by_model(name)}
    ways = {"clip": _CLIP, **{tag: _preparation(config) for tag, config in tags.items()}}
    if asked is not None:
        return ways[asked] if asked in ways else _preparation_in(Path(asked).expanduser(), ways), ()
    found, whence = _CLIP, ""
    beside = path.with_name(_CONFIG)
    own = [ways[tag] for tag in tags]
    if beside.is_file():
        found, whence = _preparation_in(beside), f"{beside.name} beside it says"
    elif own and own.count(own[0]) == len(own):
        found, whence = own[0], f"the tags of {name} say"
    elif called := [tag for tag in sorted(tags, key=len) if _letters(tag) in _letters(path.stem)]:
        found, whence = ways[called[-1]], f"the tag {called[-1]} says, after which it is called"
    elif others := [tag for tag in tags if ways[tag] != _CLIP]:
        named = "; ".join(f"--preprocess {tag}" for tag in others)
        return {}, (f"{path}: pictures are prepared as for CLIP, and tags of {name} disagree; for their way: {named}",)
    if found == _CLIP:
        return {}, ()
    shown = ", ".join(f"{key} {value}" for key, value in found.items())
    return found, (f"{path}: pictures are prepared as {whence}: {shown}; for another way: --preprocess",)


def _preparation_in(path: Path, words: Iterable[str] = ()) -> dict[str, Any]:
    """Return what a file of JSON says of the preparation of pictures, as `open_clip_config.json` or a part of it.

    Args:
        path: of the file.
        words: that could have been meant in place of a file.
    """
    try:
        said = _preparation(_checked_preparation(path, read_json(path)))
    except OSError as error:
        known = f"; preprocess is {', '.join(words)}, or such a file" if words else ""
        raise ArgumentError(f"{path}: cannot be read: {reason_of(error)}{known}") from None
    if words and not said:
        raise ArgumentError(f"{path}: says none of {', '.join(_PREPARATION)}; write them as open_clip_config.json does")
    return {**_CLIP, **said}


def _checked_preparation(path: Path, document: Any) -> Mapping[str, Any]:
    """Return the part of a configuration on pictures, whose values have the types that they must have."""
    if isinstance(document, dict) and {"model_cfg", "preprocess_cfg"} & {*document}:
        document = document.get("preprocess_cfg") or {}
    return check_values(path, document, _PREPARATION)


def _doubt_activation(name: str, path: Path, quick: bool) -> tuple[str, ...]:
    """Return a warning where a file's name is that of a tag's weights which have another activation.

    Weights do not show with which activation they were trained, and with the other one they answer, only worse.
    """
    plain = name.removesuffix("-quickgelu")
    stem = _letters(path.stem.removesuffix("-weights"))  # what `keep_tensors` adds
    said: dict[str, bool] = {"quickgelu": True}
    for architecture in (plain, f"{plain}-quickgelu"):
        for tag in open_clip.list_pretrained_tags_by_model(architecture):
            config = open_clip.get_pretrained_cfg(architecture, tag)
            kind = bool(config.get("quick_gelu", False))
            said.setdefault(tag, kind)
            if _letters(Path(config.get("url", "")).stem) == stem:
                said[stem] = kind
    word = max((word for word in said if _letters(word) in stem), key=len, default=None)
    if word is None or said[word] == quick:
        return ()
    used, other, better = ("QuickGELU", "GELU", plain) if quick else ("GELU", "QuickGELU", f"{plain}-quickgelu")
    known = open_clip.get_model_config(better)
    advice = f"name the architecture {better}" if known else 'use local-dir: with "quick_gelu" in the model_cfg'
    return (f"{path}: {used} is used, but the name suggests weights that were trained with {other}; if so, {advice}",)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _check_folder(folder: Path) -> Source:
    """Check that a folder has a configuration that can be used, weights, and the tokenizer that it asks for."""
    if not folder.is_dir():
        raise ArgumentError(f"local-dir:{folder}: no such folder")
    path = folder / _CONFIG
    if not path.exists() and _is_transformers(folder / _TRANSFORMERS_CONFIG):
        raise ArgumentError(f"{folder}: a model of transformers; name it transformers:{folder}")
    try:
        document = read_json(path)
        config = document["model_cfg"]
        {**config["text_cfg"]}, {**config["vision_cfg"]}
    except FileNotFoundError:
        raise ArgumentError(f"{path}: no such file; open_clip writes it, with model_cfg and preprocess_cfg") from None
    except (OSError, KeyError, TypeError) as error:
        raise ArgumentError(f"{path}: not a configuration of an open_clip model: {error!r}") from None
    _checked_preparation(path, document)
    _check_text_tower(str(folder), config)
    files = sorted(file for suffix in (".safetensors", ".bin", ".pth") for file in folder.glob(f"*{suffix}"))
    if not files:
        raise ArgumentError(f"{folder}: no weights in it; looked for *.safetensors, *.bin and *.pth")
    if config["text_cfg"].get("hf_tokenizer_name") and not any((folder / name).exists() for name in _TOKENIZER_FILES):
        raise ArgumentError(f"{folder}: no tokenizer in it; looked for {', '.join(_TOKENIZER_FILES)}")
    named = [file for name in _PREFERRED for file in files if file.name == name]
    first = (named or sorted(files, key=lambda file: file.suffix != ".safetensors"))[0]
    if re.search(r"-\d+-of-(?!0*1$)\d+$", first.stem):
        raise ArgumentError(f"{first}: is one of several parts of the weights; join them into one file")
    _check_archive(first)
    others = ", ".join(file.name for file in files if file != first)
    taken = () if named or not others else (f"{folder}: the weights of {first.name} are taken, not of {others}",)
    return Source(f"local-dir:{folder}", first, warnings=taken, config=path)


def _refuse_transformers(path: Path, weights: Mapping[str, Any]) -> None:
    if any(name.startswith(("text_model.", "vision_model.")) for name in weights):
        raise ArgumentError(
            f"{path}: tensors of a model of transformers, which have other names than open_clip's; give the file with "
            "the model's folder: --backbone transformers:FOLDER"
        )


def _is_transformers(path: Path) -> bool:
    """Return whether a file is the configuration of a model of transformers."""
    with suppress(OSError, ValueError):
        config = json.loads(path.read_text(encoding="utf-8"))
        return isinstance(config, dict) and "model_type" in config
    return False


def _check_text_tower(name: str, config: Mapping[str, Any]) -> None:
    if text := config["text_cfg"].get("hf_model_name"):
        raise ArgumentError(
            f"{name}: its text tower is {text} of transformers, whose context cannot be learnt here; use a model with "
            "a text tower of open_clip's own"
        )


def _check_archive(path: Path) -> None:
    """Refuse a TorchScript archive, as of OpenAI: reading it would run its code."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if any("/code/" in name for name in names):
        raise ArgumentError(
            f"{path}: a TorchScript archive, which is not read because that runs its code; if you trust it, keep its "
            f"tensors with: {keep_archive(path)}"
        )


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
        _check_archive(downloaded)
        return downloaded
    if url:
        looked.append(str(downloaded))
    if _reach(_HUB if repository else url):
        with in_one_line(f"the weights {tag!r} of {name} could not be fetched", fetching=True):
            return Path(open_clip.download_pretrained(dict(config)))
    gelu = f" and name the architecture {name.removesuffix('-quickgelu')}-quickgelu" if config.get("quick_gelu") else ""
    raise ArgumentError(
        f"the weights {tag!r} of {name} are not on this machine (looked for {' and '.join(looked)}) and the network is "
        f"out of reach; give pretrained= the path of a copy{gelu}"
    )


def _hub_folder(repository: str) -> Path:
    """Return the folder of a repository's model on this machine, downloaded where that is possible."""
    config = _cached(repository, _CONFIG)
    if config and any((config.parent / name).exists() for name in _WEIGHTS):
        return config.parent
    if not config and (other := _cached(repository, _TRANSFORMERS_CONFIG)) and _is_transformers(other):
        return other.parent  # it is named as what it is
    if not _reach(_HUB):
        raise ArgumentError(
            f"hf-hub:{repository} is not on this machine (looked for {_CONFIG} and {_WEIGHTS[0]} of {repository} in "
            f"{constants.HF_HUB_CACHE}) and the network is out of reach; copy the files here and use local-dir:FOLDER"
        )
    with in_one_line(f"hf-hub:{repository} could not be fetched", fetching=True):
        patterns = [_CONFIG, _TRANSFORMERS_CONFIG, *_WEIGHTS, *_OF_TOKENIZERS]
        return Path(snapshot_download(repository, allow_patterns=patterns))


def _check_tokenizer(name: str, config: Mapping[str, Any]) -> None:
    """Refuse a model whose tokenizer is neither open_clip's own nor on this machine nor within reach."""
    repository = config["text_cfg"].get("hf_tokenizer_name", "")
    if not repository or _cached(repository, *_TOKENIZER_FILES) or _reach(_HUB):
        return
    raise ArgumentError(
        f"the tokenizer of {name} is not on this machine (looked for {repository} in {constants.HF_HUB_CACHE}) and the "
        f"network is out of reach; put its files, the weights and {_CONFIG} into a folder and use local-dir:FOLDER"
    )


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
