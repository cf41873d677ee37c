"""TPS: class prototypes shifted in the embedding space, without the text encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from faircontext.backbones.prompts import prompt_set
from faircontext.episode import Episode
from faircontext.errors import ArgumentError
from faircontext.labels import LabelSpace
from faircontext.methods.base import register_method
from faircontext.methods.predict import fall_back, predict_by_scores
from faircontext.methods.tuning import (
    TuningOnConfident,
    describe_steps,
    marginal_entropy,
    select_views,
    view_log_posteriors,
)
from faircontext.prompt_files import read_descriptions
from faircontext.types import Diagnostic, Prediction


def descriptor_prompt(name: str, descriptor: str) -> str:
    """Return the sentence of a class and one of its descriptors, as TPS's prototypes are made of."""
    if descriptor.startswith(("a", "used")):
        return f"{name}, which is {descriptor}"
    if descriptor.startswith(("has", "often", "typically", "may", "can")):
        return f"{name}, which {descriptor}"
    return f"{name}, which has {descriptor}"


@register_method("tps", "shift class prototypes so that the confident views agree; no text tower at test time")
@dataclass(frozen=True)
class TPS(TuningOnConfident):
    """Test-time prototype shifting (Sui et al., WACV 2025): `L = H(mean_i p_i)` over a shift of each class.

    `u_c = unit(unit(T_c) + Delta_c)`, with prototypes `T_c` and shifts that start at zero. The confident
    views are selected again at every step.

    The preset `official` has the prototypes of the paper's main table, `micro`, which need a descriptor file. The
    repository's zero-shot thus has more prompts than a single template: compare with zero-shot of the same prototypes.

    Attributes:
        prototypes: `"prompts"`: the prompts of zero-shot; `"templates"`: the mean over CLIP's 80 templates;
            `"descriptors"`: over the descriptors of each class; `"micro"`: the mean of the last two.
        descriptors: JSON file of class names and lists of descriptors.
    """

    official: ClassVar[Mapping[str, object]] = {"prototypes": "micro"}

    prototypes: Literal["prompts", "templates", "descriptors", "micro"] = "prompts"
    descriptors: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prototypes in ("descriptors", "micro") and self.descriptors is None:
            raise ArgumentError(
                f"prototypes={self.prototypes!r} needs descriptors= a JSON file of class names and lists of descriptors"
            )

    def check_labels(self, labels: LabelSpace) -> None:
        """Raise `LabelError` where the descriptor file has nothing on a class; see `read_descriptions`."""
        if self.descriptors is not None:
            read_descriptions(Path(self.descriptors), labels.names)

    @torch.inference_mode(False)  # the shift is differentiated, also where the caller has switched that off
    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image from the plain view with shifted prototypes."""
        episode = self.view_set(episode)
        base = self._prototypes(episode.labels)
        scale = episode.backbone.logit_scale
        shift = torch.zeros_like(base, requires_grad=True)
        diagnostics: dict[str, Diagnostic] = {"steps": self.steps}

        def loss() -> Tensor:
            text = F.normalize(base + shift, dim=-1)
            selected = select_views(episode, text.detach(), self.rho)
            diagnostics["views"] = tuple(map(float, selected.tolist()))
            return marginal_entropy(view_log_posteriors(episode.view_features[selected], text, scale))

        descent = self.minimise([shift], loss)
        if descent.failure is not None:
            return fall_back(episode, base, f"{descent.failure}: answered by the prototypes as they are")
        shifted = F.normalize(base + shift.detach(), dim=-1)
        if not (shifted.norm(dim=-1) > 0.5).all():  # not finite, or so large that their norm overflows
            return fall_back(episode, base, "the shift was not finite: answered by the prototypes as they are")
        diagnostics |= {**describe_steps(descent.losses), "text_shift": float((shifted - base).norm(dim=-1).mean())}
        return predict_by_scores(episode, episode.z, shifted, diagnostics)

    def _prototypes(self, labels: LabelSpace) -> Float[Tensor, "classes dim"]:
        """Return unit-norm prototypes; means are not normalised before they are averaged."""
        if self.prototypes == "prompts":
            return labels.zero_shot_text
        key = ("tps", self.prototypes, self.descriptors)
        return labels.remember(key, lambda: F.normalize(torch.stack(self._means(labels)).mean(0), dim=-1))

    def _means(self, labels: LabelSpace) -> list[Float[Tensor, "classes dim"]]:
        means = []
        if self.prototypes in ("templates", "micro"):
            prompts = prompt_set("imagenet80")
            means.append(LabelSpace(labels.names, labels.backbone, prompts, truncate=True).text.mean(0))
        if self.descriptors is not None and self.prototypes in ("descriptors", "micro"):
            lists = read_descriptions(Path(self.descriptors), labels.names)
            pairs = zip(labels.names, lists, strict=True)
            sentences = [descriptor_prompt(name.replace("_", " "), text) for name, texts in pairs for text in texts]
            features = LabelSpace(sentences, labels.backbone, ("{}",), truncate=True).text[0]
            means.append(torch.stack([part.mean(0) for part in features.split([*map(len, lists)])]))
        return means
