"""Options of the backbone: which model, with which weights, on which device."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from faircontext.backbones import Backbone

__all__ = ["BackboneOptions", "DeviceOptions"]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Option of the device."""

    device: str = "cpu"
    """Torch device of the backbone."""


@dataclass(frozen=True, kw_only=True)
class BackboneOptions(DeviceOptions):
    """Options of the backbone."""

    backbone: str = "lite0"
    """See: faircontext list backbones; or hf-hub:ORG/NAME, local-dir:FOLDER or transformers:FOLDER."""
    pretrained: str | None = None
    """Tag or checkpoint file of an architecture's weights; see: faircontext list pretrained."""
    resize_positions: bool = False
    """Resize positions of weights for pictures or prompts of another size, instead of refusing them."""
    weights_key: str | None = None
    """Which weights of a checkpoint with several are taken, for example model_ema; else those not averaged."""
    adapter: Path | None = None
    """Folder of a LoRA that peft wrote, which is merged into the weights (pip install 'faircontext[checkpoints]')."""
    preprocess: str | None = None
    """How pictures are prepared for weights from a file: a tag, clip, or a file as open_clip_config.json."""
    precision: str = "auto"
    """Of the image tower: auto (bf16 where the processor computes in it), fp32, bf16 or fp16."""
    engine_image: Literal["auto", "torch", "openvino"] = "auto"
    """What runs the image tower: torch, openvino (pip install 'faircontext[fast]'), or auto, the faster one here."""
    batch_size: int = 16
    """Rows of an image encoder batch, a multiple of 16; on a CPU always 16."""

    def create_backbone(self) -> "Backbone":
        """Load the backbone; see `faircontext.create_backbone`."""
        from faircontext.backbones import create_backbone

        return create_backbone(
            self.backbone,
            self.pretrained,
            device=self.device,
            precision=self.precision,
            engine=self.engine_image,
            batch_size=self.batch_size,
            resize_positions=self.resize_positions,
            weights_key=self.weights_key,
            preprocess=self.preprocess,
            adapter=None if self.adapter is None else str(self.adapter),
        )

    def facts_of_weights(self) -> dict[str, Any]:
        """Return what records say of the choice of weights."""
        given = {"weights_key": self.weights_key, "adapter": self.adapter, "preprocess": self.preprocess}
        chosen = {name: str(value) for name, value in given.items() if value is not None}
        return {"resize_positions": self.resize_positions, **chosen}
