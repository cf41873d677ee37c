"""Adapters (LoRA and its relatives) in the folders that peft writes, merged into the weights of a model by peft."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faircontext.backbones.towers import check_weights
from faircontext.backbones.weights import read_content
from faircontext.errors import ArgumentError, and_more, in_one_line, silence
from faircontext.files import read_json

__all__ = ["merge_adapter"]

_CONFIG = "adapter_config.json"
_LAYERS = (torch.nn.Linear, torch.nn.Embedding, torch.nn.Conv2d, torch.nn.MultiheadAttention)
"""Whose weights an adapter changes."""

_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def merge_adapter(model: torch.nn.Module, folder: Path, name: str) -> list[str]:
    """Merge an adapter into a model's weights, in place.

    Args:
        model: in float32.
        folder: with `adapter_config.json` and the adapter's tensors.
        name: of the model, for messages.

    Returns:
        What was done, and what is odd about the adapter, a line each.

    Raises:
        ArgumentError: peft is not installed; the folder holds no adapter, or one of another model, or one that is not a
            change of weights; or its values are not finite.
    """
    facts, tensors = _read(folder)
    kind = str(facts["peft_type"])
    try:
        from peft import PeftConfig, PeftType
    except ImportError:
        raise ArgumentError(f"adapter={str(folder)!r} needs peft: pip install 'faircontext[checkpoints]'") from None
    if kind not in PeftType.__members__:
        raise ArgumentError(
            f"{folder / _CONFIG}: invalid peft_type {kind!r}: must be LORA, or another kind that the installed peft has"
        )
    check_weights(f"adapter {folder}", tensors)
    with in_one_line(f"{folder}: cannot be read as an adapter of {name}"), silence(), torch.random.fork_rng(devices=[]):
        config = PeftConfig.from_pretrained(str(folder))
        if config.is_prompt_learning:
            raise ArgumentError(
                f"{folder}: {kind} learns tokens and no weights, so that nothing can be merged; give a folder of LoRA"
            )
        config.task_type, config.inference_mode = None, True
        _adapt(model, config, tensors, folder, _origin(facts, name, model)).merge_and_unload()
    lines = [f"{folder}: the adapter ({kind}) is merged into the weights of {name}"]
    zero = [key for key, tensor in tensors.items() if ".lora_B." in key and not tensor.any()]
    if zero and len(zero) == sum(".lora_B." in key for key in tensors):
        lines.append(f"{folder}: the adapter changes nothing, as before its training: all values of {zero[0]} are zero")
    return lines


def _read(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Tensor]]:
    """Return what a folder says of its adapter, and the adapter's tensors by name."""
    if not folder.is_dir():
        raise ArgumentError(f"adapter={str(folder)!r}: no such folder; peft's save_pretrained writes it")
    try:
        facts: Any = read_json(folder / _CONFIG)
        facts["peft_type"]  # each has one
    except FileNotFoundError:
        raise ArgumentError(f"{folder / _CONFIG}: no such file; peft writes it beside an adapter's tensors") from None
    except (OSError, KeyError, TypeError) as error:
        raise ArgumentError(f"{folder / _CONFIG}: not a configuration of an adapter: {error!r}") from None
    file = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise ArgumentError(f"{folder}: no adapter's tensors in it; looked for {' and '.join(_WEIGHTS)}")
    content = read_content(file)
    if not isinstance(content, Mapping) or not content or not all(isinstance(one, Tensor) for one in content.values()):
        raise ArgumentError(f"{file}: holds no tensors by name alone, as those of an adapter")
    return facts, content


def _adapt(model: torch.nn.Module, config: Any, tensors: Mapping[str, Tensor], folder: Path, origin: str) -> Any:
    """Return peft's model with an adapter; refuse one whose tensors are not those that the model takes.

    peft itself leaves out what does not fit.
    """
    from peft import get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

    another = f"{folder}: an adapter of another model"
    try:
        adapted = get_peft_model(model, config)
    except ValueError as error:
        if "not found in the base model" not in str(error):
            raise
        raise ArgumentError(f"{another}: no layer that it changes is there; {origin}") from None
    shapes = _other_shapes(tensors, get_peft_model_state_dict(adapted, save_embedding_layers=False))
    problems = {"of another shape": shapes}
    if not shapes:
        loaded: Any = set_peft_model_state_dict(adapted, dict(tensors))
        missing = [key for key in loaded.missing_keys if "default" in key.split(".")]
        problems = {"missing": missing, "unknown": loaded.unexpected_keys}
    if listed := ", ".join(f"{what}: {len(keys)} (first {keys[0]})" for what, keys in problems.items() if keys):
        raise ArgumentError(f"{another}: tensors {listed}; {origin}")
    return adapted


def _other_shapes(tensors: Mapping[str, Tensor], taken: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that have another shape than the model takes, with both."""
    shapes = {
        name: [" x ".join(map(str, one[name].shape)) for one in (tensors, taken)] for name in tensors if name in taken
    }
    return [f"{name}: {own} and not {wanted}" for name, (own, wanted) in shapes.items() if own != wanted]


def _origin(facts: Mapping[str, Any], name: str, model: torch.nn.Module) -> str:
    """Return which model an adapter was made for, as it says itself, and which layers this one has."""
    source, task, targets = (facts.get(key) for key in ("base_model_name_or_path", "task_type", "target_modules"))
    listed = and_more(sorted(map(str, targets)), 6) if isinstance(targets, list) else targets
    details = ", ".join([f"task {task}"] * bool(task) + [f"target_modules {listed}"] * bool(listed))
    made = f"it was made for {source or 'a model that it does not name'}{details and f' ({details})'}"
    layers = {path.rpartition(".")[2] for path, layer in model.named_modules() if path and isinstance(layer, _LAYERS)}
    return f"{made}, and layers of {name} are {and_more(sorted(layers), 8)}; give the model that it was trained on"
