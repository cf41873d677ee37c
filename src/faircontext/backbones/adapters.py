"""Adapters (LoRA and its relatives) in the folders that peft writes, merged into the weights of a model by peft."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faircontext.backbones.towers import check_weights
from faircontext.backbones.weights import read_content
from faircontext.errors import ArgumentError, in_one_line, silence

__all__ = ["merge_adapter"]

_CONFIG = "adapter_config.json"
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
    kind, tensors = _read(folder)
    try:
        from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
    except ImportError:
        raise ArgumentError(f"adapter={str(folder)!r} needs peft: pip install 'faircontext[checkpoints]'") from None
    check_weights(f"adapter {folder}", tensors)
    with in_one_line(f"{folder}: cannot be read as an adapter of {name}"), silence(), torch.random.fork_rng(devices=[]):
        config = PeftConfig.from_pretrained(str(folder))
        if config.is_prompt_learning:
            raise ArgumentError(
                f"{folder}: {kind} learns tokens and no weights, so that nothing can be merged; give a folder of LoRA"
            )
        config.task_type, config.inference_mode = None, True
        adapted = get_peft_model(model, config)
        loaded: Any = set_peft_model_state_dict(adapted, dict(tensors))
        missing = [key for key in loaded.missing_keys if "default" in key.split(".")]
        _check_fit(folder, name, missing, loaded.unexpected_keys)
        adapted.merge_and_unload()
    lines = [f"{folder}: the adapter ({kind}) is merged into the weights of {name}"]
    zero = [key for key, tensor in tensors.items() if ".lora_B." in key and not tensor.any()]
    if zero and len(zero) == sum(".lora_B." in key for key in tensors):
        lines.append(f"{folder}: the adapter changes nothing, as before its training: all values of {zero[0]} are zero")
    return lines


def _read(folder: Path) -> tuple[str, Mapping[str, Tensor]]:
    """Return what kind of adapter a folder holds, and its tensors by name."""
    if not folder.is_dir():
        raise ArgumentError(f"adapter={str(folder)!r}: no such folder; peft's save_pretrained writes it")
    try:
        facts: Any = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        kind = str(facts["peft_type"])
    except FileNotFoundError:
        raise ArgumentError(f"{folder / _CONFIG}: no such file; peft writes it beside an adapter's tensors") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{folder / _CONFIG}: not a configuration of an adapter: {error!r}") from None
    file = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise ArgumentError(f"{folder}: no adapter's tensors in it; looked for {' and '.join(_WEIGHTS)}")
    content = read_content(file)
    if not isinstance(content, Mapping) or not content or not all(isinstance(one, Tensor) for one in content.values()):
        raise ArgumentError(f"{file}: holds no tensors by name alone, as those of an adapter")
    return kind, content


def _check_fit(folder: Path, name: str, missing: list[str], unknown: list[str]) -> None:
    """Refuse an adapter whose tensors are not those that the model takes; peft leaves out what does not fit."""
    problems = [
        f"{what}: {len(keys)} (first {keys[0]})" for what, keys in (("missing", missing), ("unknown", unknown)) if keys
    ]
    if problems:
        raise ArgumentError(
            f"{folder}: an adapter of another model than {name}: tensors {', '.join(problems)}; give the model that it "
            "was trained on"
        )
