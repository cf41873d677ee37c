"""Sessions: where, with what and when a process works on a run, as `run.json` tells of each."""

import platform
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from faircontext.runs.plan import Plan
from faircontext.system import processor_name, usable_processors

__all__ = ["start_session"]


def start_session(plan: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return where, with what and when a process works on a run."""
    device = plan.setup.labels.backbone.device
    packages = ("numpy", "pillow", "torchvision", "timm", "open-clip-torch", "transformers")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name(),
        "processors": usable_processors(),
        "threads": torch.get_num_threads(),
        **facts,
        "images": 0,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
