"""The weights of a checkpoint file: read as tensors by name, with nothing unpickled, and checked.

Training loops put the weights under a key beside other things, and wrap the model, which puts a prefix before each
name. What is plain is taken, and what was chosen is said; averaged weights are taken where they are asked for. A file
with anything but tensors is an error with a command that keeps its tensors.
"""

import json
import math
import pickle
import re
import shlex
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from safetensors.torch import load_file
from torch import Tensor

from faircontext.errors import ArgumentError
from faircontext.imagefiles import ZEROS, known_kind

_KEYS = ("state_dict", "model_state_dict", "model")
"""Where training loops put the weights; the first that is there is taken."""

_AVERAGED = ("ema", "swa", "averaged")
"""Words in the name of weights that were averaged over training, and lie beside the weights themselves."""

_WRAPPERS = re.compile(
    r"^(?:(?:module|model|_orig_mod|_fsdp_wrapped_module)\.)+|(?<=\.)(?:_orig_mod|_fsdp_wrapped_module)\."
)
"""What DistributedDataParallel, torch.compile, Lightning and FSDP put into the names of tensors."""

_SCALE, _IMAGE_ENCODERS = "logit_scale", ("visual.", "vision_model.")
"""Names by which a model is known among tensors, in open_clip and in transformers."""

_ADAPTER = re.compile(r"(?:^|[._])lora_(?:A|B|up|down|embedding)")
"""Names of low-rank changes to weights, as peft and kohya write them."""

_NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "n_averaged")
"""Numbers among the tensors: of OpenAI's archives, and of torch's AveragedModel."""

USELESS = "NaN, infinite or all zero"
"""What features must not be: a softmax over them gives NaN, or the same probability for all classes."""

MINIMUM_VOCABULARY = 0.98
"""Least share of a model's tokens that its tokenizer must make; embeddings may be padded to a round number of rows."""


def read_weights(path: Path, key: str | None = None) -> tuple[dict[str, Tensor], list[str]]:
    """Read the model in a checkpoint, and say what was taken of it where there was a choice.

    Args:
        path: of safetensors, or of a PyTorch file that holds tensors alone, whatever its extension.
        key: which of several weights is taken, as `model_ema`; None for those that were not averaged.

    Returns:
        Tensors by name, and warnings, a line each.

    Raises:
        ArgumentError: it is damaged, or holds more than tensors, no weights (or none under the key), weights twice,
            several models, averaged weights alone, or changes to weights.
    """
    return weights_in(path, read_content(path), key)


def weights_in(
    path: Path, content: Any, key: str | None = None, mark: str = _SCALE, encoders: Sequence[str] = _IMAGE_ENCODERS
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights in what a file holds, see `read_weights`.

    The class of a training loop may hold the model under any name, and so may its file.

    Args:
        path: of the file.
        content: what it holds.
        key: which of several weights is taken.
        mark: name of a tensor by which the weights are known.
        encoders: beginnings of names, of which one must be beside it, if any is given.
    """
    mappings = {keys: _unwrap(path, tensors) for keys, tensors in _mappings(content)}
    if not mappings:
        listed = ", ".join(map(str, [*content][:8])) if isinstance(content, Mapping) else type(content).__name__
        raise ArgumentError(f"{path}: holds {listed or 'nothing'}, and no tensors by name; take another checkpoint")
    parts = [(keys, root) for keys, (names, _) in mappings.items() for root in _roots(names, mark, encoders)]
    parts = parts or [(max(mappings, key=lambda keys: len(mappings[keys][0])), "")]  # of what, whoever reads them says
    keys, root = taken = _choose(path, parts, key)
    weights, lines = mappings[keys]
    label, others = key or _label(taken), [] if key else [part for part in parts if part != taken]
    if key or others or label not in ("", _KEYS[0]):
        lines = [f"the weights under {label} are taken"] * bool(label) + lines
    for part in others:
        kind = " (averaged)" if _is_averaged(part) else ""
        lines = [*lines, f"those under {_label(part)}{kind} are not taken; to take them: {_as_option(_label(part))}"]
    roots = tuple(other for where, other in parts if where == keys)
    if outside := [name for name in weights if not name.startswith(roots)]:
        lines.append(f"tensors outside {root} are not taken: {len(outside)} (first {outside[0]})")
    inside = tuple(other for other in roots if other != root and other.startswith(root))
    names = [name for name in weights if name.startswith(root) and not name.startswith(inside)]
    tensors = {name.removeprefix(root): weights[name] for name in names}
    if any(_ADAPTER.search(name) for name in tensors):
        cure = "give peft's folder of it as adapter= (--adapter) beside the model's own weights"
        raise ArgumentError(f"{path}: holds LoRA, changes to the weights of a model and not the weights; {cure}")
    return tensors, lines


_Part = tuple[tuple[str, ...], str]
"""Weights in a file: the keys that lead to their mapping, and what their names begin with."""


def _mappings(content: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Tensor]]]:
    """Yield the mappings of names to tensors in what a file holds, with the keys that lead to each."""
    items = content.items() if isinstance(content, Mapping) else ()
    named = {key: value for key, value in items if isinstance(key, str)}
    if tensors := {key: value for key, value in named.items() if isinstance(value, Tensor)}:
        yield above, tensors
    for key, value in named.items():
        yield from _mappings(value, (*above, key))


def _unwrap(path: Path, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return tensors by their names without what wrappers of the model put before them, and what that was."""
    names: dict[str, str] = {}
    removed: dict[str, None] = {}
    for name in tensors:
        plain = _WRAPPERS.sub("", name)
        if plain in names and plain not in _NO_WEIGHTS:
            raise ArgumentError(f"{path}: holds {plain} twice, as {names[plain]} and as {name}; keep one of them")
        removed |= dict.fromkeys(match[0] for match in _WRAPPERS.finditer(name))
        names[plain] = name
    removed.pop("module.", None)  # open_clip's own training writes it
    lines = [f"names of tensors are read without {', '.join(removed)}"] if removed else []
    return {plain: tensors[name] for plain, name in names.items() if plain not in _NO_WEIGHTS}, lines


def _roots(names: Iterable[str], mark: str, encoders: Sequence[str]) -> list[str]:
    """Return what the names of tensors begin with, of each model among them."""
    roots = sorted(name.removesuffix(mark) for name in names if f".{name}".endswith(f".{mark}"))
    beside = {root: tuple(root + encoder for encoder in encoders) for root in roots}
    return [root for root in roots if not encoders or any(name.startswith(beside[root]) for name in names)]


def _choose(path: Path, parts: Sequence[_Part], key: str | None) -> _Part:
    """Return which weights are taken: those under a key, or else the first that are no average and not inside others.

    Raises:
        ArgumentError: there are none, or several with the same claim.
    """

    def rank(part: _Part) -> tuple[bool, int]:
        first = next(iter(part[0]), None)
        return bool(part[1]), 0 if first is None else _KEYS.index(first) if first in _KEYS else len(_KEYS)

    def is_meant(part: _Part) -> bool:
        return f".{key}." in f".{'.'.join(part[0])}.{part[1]}" if key else not _is_averaged(part)

    meant = sorted(filter(is_meant, parts), key=rank)
    if key and not meant:
        raise ArgumentError(f"{path}: holds no weights under {key!r}; it has {', '.join(map(_label, parts))}")
    if not meant or (len(meant) > 1 and rank(meant[0]) == rank(meant[1])):
        labels = sorted(map(_label, meant or parts))
        raise ArgumentError(f"{path}: holds weights under {' and '.join(labels)}; name which: {_as_option(labels[0])}")
    return meant[0]


def _label(part: _Part) -> str:
    """Return under which key the weights are asked for."""
    keys, root = part
    while len(keys) > 1 and keys[-1] in ("module", *_KEYS):  # classes of averages have them inside
        keys = keys[:-1]
    return root.removesuffix(".") or ".".join(keys)


def _is_averaged(part: _Part) -> bool:
    return any(word in _AVERAGED for word in re.split(r"[._-]", ".".join([*part[0], part[1]]).lower()))


def _as_option(key: str) -> str:
    return f"weights_key={key!r} (--weights-key {key})"


def _keep_tensors(path: Path, archive: bool = False) -> str:
    """Return advice: a command that writes the tensors of a file into one that is read here."""
    source, target = json.dumps(str(path)), json.dumps(f"{path.stem}-weights.pt")
    keep = (
        "keep = lambda x: x.state_dict() if isinstance(x, torch.nn.Module) else x if torch.is_tensor(x) else "
        "{k: keep(v) for k, v in x.items() if isinstance(v, (dict, torch.Tensor, torch.nn.Module))}; "
    )
    plain = f'{keep}torch.save(keep(torch.load({source}, "cpu", weights_only=False)), {target})'
    script = f'torch.save(torch.jit.load({source}, "cpu").float().state_dict(), {target})'
    command = f"python -c {shlex.quote('import torch; ' + (script if archive else plain))}"
    return f"if you trust it, keep its tensors with: {command}"


def read_content(path: Path) -> Any:
    """Return what a file holds; which form it has is known by its first bytes, as extensions may be wrong."""
    with path.open("rb") as file:
        head = file.read(512)
    size = int.from_bytes(head[:8], "little")
    safetensors = head[8:9] == b"{" and size < 100_000_000  # the library refuses longer headers as well
    if not safetensors and not head.startswith((b"PK\3\4", b"\x80")):
        what = "is empty" if not head else f"holds {ZEROS}" if not any(head) else ""
        what = what or f"holds {known_kind(head) or 'neither safetensors nor what PyTorch writes'}"
        raise ArgumentError(f"{path}: no file of weights: it {what}{'' if head else '; fetch it again'}")
    try:
        if safetensors:
            return load_file(path)
        if head.startswith(b"PK"):
            _refuse_archive(path)
        with path.open("rb") as file:  # of a path the library would look at the extension
            return torch.load(file, map_location="cpu", weights_only=True)
    except (MemoryError, ArgumentError):
        raise
    except pickle.UnpicklingError:
        problem = "not a file of tensors alone, and anything else is not read because it could run code"
        raise ArgumentError(f"{path}: {problem}; {_keep_tensors(path)}") from None
    except Exception as error:  # broken files raise anything
        said = " ".join(str(error).split()) or type(error).__name__
        problem = "damaged or cut short, as by an interrupted download"
        raise ArgumentError(f"{path}: {problem}; fetch it again ({said[:120]})") from None


def _refuse_archive(path: Path) -> None:
    """Refuse a TorchScript archive, as of OpenAI: reading it would run its code."""
    if not zipfile.is_zipfile(path):
        raise EOFError("its end is missing")
    with zipfile.ZipFile(path) as archive:
        if any("/code/" in name for name in archive.namelist()):
            problem = "a TorchScript archive, which is not read because that runs its code"
            raise ArgumentError(f"{path}: {problem}; {_keep_tensors(path, archive=True)}")


def check_floats(source: object, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """Raise `ArgumentError` where tensors that are floating-point numbers in a model are none in its file.

    PyTorch would take integers for floats in silence, without the scale that quantised weights are to be read with.
    """
    if kinds := [name for name in names if name in tensors and not tensors[name].is_floating_point()]:
        kind = str(tensors[kinds[0]].dtype).removeprefix("torch.")
        problem = f"{len(kinds)} tensors are no floating-point numbers (first {kinds[0]}: {kind})"
        raise ArgumentError(f"{source}: {problem}, as in a quantised model; take the weights from before")


def other_positions(
    shapes: Iterable[tuple[str, Sequence[int], Sequence[int]]], patch: int, extra: int
) -> tuple[str, str] | None:
    """Return in words what the positions of a file are of, and those of a model, where they are not as many.

    Args:
        shapes: of each tensor of another shape, its name, its shape, and that of the model's.
        patch: side of a patch of a picture, in pixels.
        extra: how many positions of a picture are of no patch.
    """

    def size(name: str, count: int) -> str:
        if not name.startswith("vis"):
            return f"{count} tokens"
        side = math.isqrt(max(count - extra, 0))
        return f"{side * patch} pixels" if side * side == count - extra else f"{count} positions"

    counts = [(name, theirs[0], ours[0]) for name, theirs, ours in shapes if "position" in name]
    sizes = [(size(name, theirs), size(name, ours)) for name, theirs, ours in counts if theirs != ours]
    theirs, ours = map(" and ".join, zip(*sizes, strict=True)) if sizes else ("", "")
    return (theirs, ours) if sizes else None


def check_fit(
    problem: str,
    shapes: Iterable[tuple[str, Sequence[int], Sequence[int]]],
    missing: Sequence[str],
    unknown: Sequence[str],
    cure: str,
) -> None:
    """Raise `ArgumentError` unless all tensors of a file are a model's, and all of the model's are there.

    Args:
        problem: how the message begins.
        shapes: of each tensor, its name, its shape, and that of the model's; the ones that differ are told.
        missing: names of tensors that the file lacks.
        unknown: names of tensors that the model lacks.
        cure: how the message ends.
    """
    others = [(name, *(" x ".join(map(str, shape)) for shape in both)) for name, *both in shapes if both[0] != both[1]]
    sizes = [f"{name}: {own} and not {taken}" for name, own, taken in others]
    problems = {"of another shape": sizes, "missing": missing, "unknown": unknown}
    if listed := ", ".join(f"{what}: {len(names)} (first {names[0]})" for what, names in problems.items() if names):
        raise ArgumentError(f"{problem}: tensors {listed}; {cure}")


def check_weights(name: str, weights: Mapping[str, Tensor]) -> None:
    """Raise `ArgumentError` naming the model and the first tensor with a value that is NaN or infinite."""
    for tensor_name, tensor in weights.items():
        # Where the sum is finite all values are: a pass that needs no memory. Where it is not, it may have overflowed.
        if not tensor.is_floating_point() or bool(tensor.sum().isfinite()):
            continue
        if count := int((~tensor.isfinite()).sum()):
            raise unusable(name, f"{count:,} of the {tensor.numel():,} values of {tensor_name} are NaN or infinite")


def check_vocabulary(name: str, tokenizer: Any, rows: int) -> None:
    """Raise `ArgumentError` where most of the tokens that a model has embeddings of are beyond its tokenizer.

    Libraries read a vocabulary or a list of merges that is empty or cut short without a word, and spell words out.

    Args:
        name: the model's, for the message.
        tokenizer: of transformers, or open_clip's own.
        rows: of the embedding.
    """
    count = len(tokenizer) if hasattr(tokenizer, "__len__") else int(tokenizer.vocab_size)
    known = int(count * _share_of_merges(getattr(tokenizer, "backend_tokenizer", None)))
    if known < MINIMUM_VOCABULARY * rows:
        problem = f"its tokenizer makes about {known:,} of the {rows:,} tokens that the weights have embeddings of"
        cure = "copy its files again (tokenizer.json, vocab.json, merges.txt, vocab.txt): one is cut short or another's"
        raise ArgumentError(f"{name}: {problem}; {cure}")


def _share_of_merges(tokenizer: Any) -> float:
    """Return of how many tokens of byte pair encoding, of a sample, the merges make the token."""
    model: Any = getattr(tokenizer, "model", None)
    if type(model).__name__ != "BPE":
        return 1.0
    end = model.end_of_word_suffix or ""
    words = [token.removesuffix(end) for token in sorted(tokenizer.get_vocab(False)) if token.endswith(end)]
    words = [word for word in words if len(word) > 1 and not re.fullmatch("<.*>", word)]  # neither special nor a byte
    sample = words[:: 1 + len(words) // 1000]
    return sum(len(model.tokenize(word)) == 1 for word in sample) / len(sample) if sample else 1.0


def useless_rows(features: Float[Tensor, "rows dim"]) -> Bool[Tensor, " rows"]:
    """Return which rows of features, as they are after division by their length, are no unit vectors."""
    useful: Tensor = features.norm(dim=-1) > 0.5  # a comparison with NaN is false
    return ~useful


def refuse_features(name: str, what: str, weights: Mapping[str, Tensor], problem: str = USELESS) -> ArgumentError:
    """Return the error for a model whose features of something are useless, naming a weight that is all zero."""
    zero = next((key for key, tensor in weights.items() if tensor.ndim > 1 and not torch.any(tensor)), None)
    blame = f" (all values of {zero} are zero)" if zero else ""
    return unusable(name, f"the features of {what} are {problem}{blame}")


def unusable(name: str, problem: str) -> ArgumentError:
    """Return the error for weights that no model can answer with."""
    return ArgumentError(f"{name}: the weights cannot be used: {problem}; take another checkpoint")
