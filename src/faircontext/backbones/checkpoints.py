"""Where the weights of open_clip models lie: names, tags, files and folders, found without a network where possible.

A download is only tried where its host answers within seconds; everything that is missing is named in one line, with
the place that was looked in and what to do.
"""

import json
import os
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faircontext.backbones.weights import TRANSFORMERS, keep_archive
from faircontext.errors import ArgumentError, FairContextError, unknown_name

__all__ = ["Source", "find_source"]

_SECONDS = 5.0
"""How long a host may take to answer before it counts as out of reach."""

_CONFIG = "open_clip_config.json"
_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
_PREFERRED = (
    *_WEIGHTS,
    "open_clip_pytorch_model.pth",
    "model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.pth",
    "model.pth",
)
"""Names of weights in a folder, the first that is there is taken: open_clip's own order."""

_TRANSFORMERS_CONFIG = "config.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "spiece.model", "vocab.txt")
_HUB = "https://huggingface.co"


@dataclass(frozen=True)
class Source:
    """An open_clip model that is on this machine.

    Attributes:
        model: what open_clip creates it from: an architecture, or `local-dir:` and a folder.
        checkpoint: file of the weights.
        quick_gelu: whether the weights were trained with the QuickGELU activation.
        preprocess: mean, std, interpolation and resize mode of a tag.
        remarks: what a person should know about the choice of weights, a line each.
        config: file of the configuration, where the library does not know the model by its name.
    """

    model: str
    checkpoint: Path
    quick_gelu: bool = False
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    config: Path | None = None


def find_source(name: str, pretrained: str | None) -> Source:
    """Find the weights of a model.

    Args:
        name: architecture (`ViT-B-16` or `ViT-B/16`), `hf-hub:org/name`, or `local-dir:FOLDER`.
        pretrained: tag or file of an architecture's weights.

    Raises:
        ArgumentError: there is no such model, tag, folder or file, or weights are missing and cannot be fetched.
    """
    scheme, colon, place = name.partition(":")
    if colon and pretrained is not None:
        raise ArgumentError(f"{name} has its own weights; leave pretrained={pretrained!r} out")
    if colon and scheme == "hf-hub" and not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
        raise ArgumentError(f"{name!r} names no repository; write hf-hub:ORG/NAME")
    if colon and not place:
        raise ArgumentError(f"{name!r} names no folder; write local-dir:FOLDER")
    if colon and scheme == "hf-hub":
        return _check_folder(_hub_folder(place))
    if colon and scheme == "local-dir":
        return _check_folder(Path(place).expanduser())
    if colon:
        raise ArgumentError(f"unknown scheme {scheme + ':'!r} of {name}; use hf-hub:ORG/NAME or local-dir:FOLDER")
    return _architecture(name.replace("/", "-"), pretrained)


def _architecture(name: str, pretrained: str | None) -> Source:
    import open_clip

    config = open_clip.get_model_config(name)
    if config is None:
        from faircontext.backbones import list_backbones

        raise unknown_name("backbone", name, list_backbones())
    _check_text_tower(name, config)
    tags = open_clip.list_pretrained_tags_by_model(name)
    known = f"tags: {', '.join(tags)}" if tags else "it has no tags"
    if pretrained is None:
        raise ArgumentError(f"{name} needs weights; give pretrained= a tag or a checkpoint file ({known})")
    tag = open_clip.get_pretrained_cfg(name, pretrained)
    if tag:
        _check_tokenizer(name, config)
        preprocess = {key: tag[key] for key in ("mean", "std", "interpolation", "resize_mode") if key in tag}
        gelu = bool(tag.get("quick_gelu", config.get("quick_gelu", False)))
        return Source(name, _tag_file(name, pretrained, tag), gelu, preprocess)
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
    quick = bool(config.get("quick_gelu", False))
    return Source(name, path, quick, remarks=(*_doubt_activation(name, path, quick),))


def _doubt_activation(name: str, path: Path, quick: bool) -> Iterator[str]:
    """Yield a line where a file's name is that of a tag's weights which have another activation.

    Weights do not show with which activation they were trained, and with the other one they answer, only worse.
    """
    import open_clip

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
    matching = [word for word in said if _letters(word) in stem]
    word = max(matching, key=len, default=None)
    if word is None or said[word] == quick:
        return
    used, other = ("QuickGELU", "GELU") if quick else ("GELU", "QuickGELU")
    better = plain if quick else f"{plain}-quickgelu"
    advice = (
        f"name the architecture {better}"
        if open_clip.get_model_config(better)
        else 'use local-dir: with "quick_gelu" in the model_cfg'
    )
    yield f"{path}: {used} is used, but the name suggests weights that were trained with {other}; if so, {advice}"


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _check_folder(folder: Path) -> Source:
    """Check that a folder has a configuration that can be used, weights, and the tokenizer that it asks for."""
    if not folder.is_dir():
        raise ArgumentError(f"local-dir:{folder}: no such folder")
    path = folder / _CONFIG
    if not path.exists() and _is_transformers(folder / _TRANSFORMERS_CONFIG):
        raise ArgumentError(f"{folder}: {TRANSFORMERS}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))["model_cfg"]
        config["text_cfg"], config["vision_cfg"]
    except FileNotFoundError:
        raise ArgumentError(f"{path}: no such file; open_clip writes it, with model_cfg and preprocess_cfg") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{path}: not a configuration of an open_clip model: {error!r}") from None
    _check_text_tower(str(folder), config)
    files = sorted(place for suffix in (".safetensors", ".bin", ".pth") for place in folder.glob(f"*{suffix}"))
    if not files:
        raise ArgumentError(f"{folder}: no weights in it; looked for *.safetensors, *.bin and *.pth")
    if config["text_cfg"].get("hf_tokenizer_name") and not any((folder / name).exists() for name in _TOKENIZER_FILES):
        raise ArgumentError(f"{folder}: no tokenizer in it; looked for {', '.join(_TOKENIZER_FILES)}")
    named = [place for name in _PREFERRED for place in files if place.name == name]
    first = (named or sorted(files, key=lambda place: place.suffix != ".safetensors"))[0]
    if re.search(r"-\d+-of-(?!0*1$)\d+$", first.stem):
        raise ArgumentError(f"{first}: is one of several parts of the weights; join them into one file")
    _check_archive(first)
    others = ", ".join(place.name for place in files if place != first)
    remarks = () if named or not others else (f"{folder}: the weights of {first.name} are taken, not of {others}",)
    return Source(f"local-dir:{folder}", first, remarks=remarks, config=path)


def _is_transformers(path: Path) -> bool:
    """Return whether a file is the configuration of a model of transformers."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "model_type" in config


def _check_text_tower(name: str, config: Mapping[str, Any]) -> None:
    text = config["text_cfg"].get("hf_model_name")
    if text:
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
    import open_clip

    repository, _, file = str(config.get("hf_hub", "")).rpartition("/")
    url = str(config.get("url", ""))
    downloaded = Path("~/.cache/clip").expanduser() / url.rpartition("/")[2]
    looked = []
    if repository:
        for candidate in (file,) if file else _WEIGHTS:
            if cached := _cached(repository, candidate):
                return cached
        looked.append(f"{file or _WEIGHTS[0]} of {repository} in {_hub_cache()}")
    if url and downloaded.is_file():
        _check_archive(downloaded)
        return downloaded
    if url:
        looked.append(str(downloaded))
    if _reach(_HUB if repository else url):
        with _in_one_line(f"the weights {tag!r} of {name} could not be fetched"):
            return Path(open_clip.download_pretrained(dict(config)))
    gelu = f" and name the architecture {name.removesuffix('-quickgelu')}-quickgelu" if config.get("quick_gelu") else ""
    raise ArgumentError(
        f"the weights {tag!r} of {name} are not on this machine (looked for {' and '.join(looked)}) and the network is "
        f"out of reach; give pretrained= the path of a copy{gelu}"
    )


def _hub_folder(repository: str) -> Path:
    """Return the folder of a repository's model on this machine, downloaded where that is possible."""
    from huggingface_hub import snapshot_download

    patterns = [
        _CONFIG,
        _TRANSFORMERS_CONFIG,
        *_WEIGHTS,
        "*tokenizer*",
        "spiece.model",
        "vocab*",
        "merges.txt",
        "special_tokens_map.json",
    ]
    config = _cached(repository, _CONFIG)
    if config and any((config.parent / name).exists() for name in _WEIGHTS):
        return config.parent
    other = _cached(repository, _TRANSFORMERS_CONFIG)
    if config is None and other and _is_transformers(other):
        return other.parent  # it is named as what it is
    if not _reach(_HUB):
        raise ArgumentError(
            f"hf-hub:{repository} is not on this machine (looked for {_CONFIG} and {_WEIGHTS[0]} of {repository} in "
            f"{_hub_cache()}) and the network is out of reach; copy the files here and use local-dir:FOLDER"
        )
    with _in_one_line(f"hf-hub:{repository} could not be fetched"):
        return Path(snapshot_download(repository, allow_patterns=patterns))


def _check_tokenizer(name: str, config: Mapping[str, Any]) -> None:
    """Refuse a model whose tokenizer is neither open_clip's own nor on this machine nor within reach."""
    repository = config["text_cfg"].get("hf_tokenizer_name", "")
    if not repository or any(_cached(repository, file) for file in _TOKENIZER_FILES) or _reach(_HUB):
        return
    raise ArgumentError(
        f"the tokenizer of {name} is not on this machine (looked for {repository} in {_hub_cache()}) and the network "
        f"is out of reach; put its files, the weights and {_CONFIG} into a folder and use local-dir:FOLDER"
    )


def _cached(repository: str, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, file)
    return Path(found) if isinstance(found, str) else None


def _hub_cache() -> str:
    from huggingface_hub.constants import HF_HUB_CACHE

    return str(HF_HUB_CACHE)


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


@contextmanager
def _in_one_line(what: str) -> Iterator[None]:
    try:
        yield
    except FairContextError:
        raise
    except Exception as error:  # whatever a library of downloads raises
        raise ArgumentError(f"{what}: {' '.join(str(error).split())[:300]}") from None
