"""RLCF: feedback of a reward model on what the policy finds most probable in the confident views."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from faircontext.backbones.base import TRAINABLE_ENCODER
from faircontext.episode import Episode
from faircontext.labels import LabelSpace
from faircontext.methods.base import Limits, register_method
from faircontext.methods.tuning import Loss, PromptTuning, TuningOnConfident, select_views, view_log_posteriors
from faircontext.types import Prediction

_REWARD_SCALE = 2.5


def rewards_of_views(
    episode: Episode, selected: Int[Tensor, " selected"], reward: str | None
) -> Float[Tensor, "selected classes"]:
    """Return `max(2.5 cos, 0)` of each selected view with each class, by the reward model.

    Args:
        episode: the image.
        selected: which views.
        reward: name of the reward model, see `LabelSpace.on`; None for the policy itself. It sees the same crops in its
            own size and normalisation.
    """
    judge = episode if reward is None else episode.on(reward)
    if reward is None:
        features = episode.view_features[selected]
    else:
        pixels = judge.views[selected.cpu()].to(judge.backbone.device) / 255.0
        features = judge.backbone.encode_image(pixels).to(episode.backbone.device)
    text = judge.labels.zero_shot_text.to(features.device)
    return (_REWARD_SCALE * features @ text.T).clamp_min(0.0)


def feedback_loss(
    log_posteriors: Float[Tensor, "selected classes"], rewards: Float[Tensor, "selected classes"], k: int
) -> Float[Tensor, ""]:
    """Return the mean over views and their `k` most probable classes of advantage times cross-entropy.

    The advantage is the reward less its mean over the view's `k` classes; with one class it is the reward itself.

    Args:
        log_posteriors: of the policy.
        rewards: of the reward model, constants.
        k: number of classes that are sampled in each view.
    """
    # Rounded and sorted stably: of classes that are equally probable the first counts, which topk leaves open.
    chosen = log_posteriors.detach().float().sort(dim=-1, descending=True, stable=True).indices[:, :k]
    advantages = rewards.to(log_posteriors.dtype).gather(1, chosen)
    if chosen.shape[1] > 1:
        advantages = advantages - advantages.mean(-1, keepdim=True)
    return -(advantages * log_posteriors.gather(1, chosen)).mean()


@dataclass(frozen=True)
class Feedback(TuningOnConfident):
    """What the two variants share.

    Attributes:
        k: number of classes that are sampled in each view.
        reward: the reward model: None for the policy itself, else a name of `LabelSpace.on`.
    """

    official: ClassVar[Mapping[str, object]] = {"reward": "ViT-L-14:openai"}
    setting_limits: ClassVar[Limits] = {"k": 1}

    weight_decay: float = 0.0005
    steps: int = 3
    k: int = 3
    reward: str | None = None

    def check_labels(self, labels: LabelSpace) -> None:
        """Load the reward model, so that a wrong name is found before any image is read."""
        super().check_labels(labels)
        if self.reward is not None:
            labels.on(self.reward)


@register_method("rlcf", "prompt tuning by the feedback of a reward model on the most probable classes")
@dataclass(frozen=True)
class RLCF(Feedback, PromptTuning):
    """RLCF, prompt variant (Zhao et al., ICLR 2024).

    The preset `official` judges with CLIP ViT-L/14, so it knows more than the policy. The repository starts from a
    context that was learnt on labelled ImageNet, and takes five steps on fine-grained data; here it starts from the
    prompt, with three.
    """

    lr: float = 0.007

    def _make_loss(self, episode: Episode, selected: Int[Tensor, " selected"]) -> Loss:
        rewards = rewards_of_views(episode, selected, self.reward)
        return lambda log_posteriors, _: feedback_loss(log_posteriors, rewards, self.k)


@register_method("rlcf_encoder", "tuning of the whole image tower by the feedback of a reward model")
@dataclass(frozen=True)
class RLCFEncoder(Feedback):
    """RLCF, image-encoder variant (Zhao et al., ICLR 2024): all weights of the image encoder, text fixed.

    The preset `official` judges with CLIP ViT-L/14. The repository's prompts have underscores in place of blanks, and
    it tunes in train mode, which matters for batch norms alone; here prompts have blanks, and the encoder stays in eval
    mode.
    """

    needs: ClassVar[frozenset[str]] = frozenset({TRAINABLE_ENCODER})

    lr: float = 0.00001

    @torch.inference_mode(False)  # tuning differentiates, also where the caller has switched that off
    def __call__(self, episode: Episode) -> Prediction:
        """Answer one image from the plain view through the tuned encoder."""
        backbone, text = episode.backbone, episode.labels.zero_shot_text
        self.check(backbone)
        episode = self.view_set(episode)
        selected = select_views(episode, text, self.rho)
        rewards = rewards_of_views(episode, selected, self.reward)
        pixels = episode.views[selected.cpu()].to(backbone.device) / 255.0
        weights = {name: value.clone().requires_grad_() for name, value in backbone.image_encoder.named_parameters()}

        def loss() -> Tensor:
            features = backbone.encode_with(weights, pixels)
            return feedback_loss(view_log_posteriors(features, text, backbone.logit_scale), rewards, self.k)

        descent = self.minimise(list(weights.values()), loss)
        views = tuple(map(float, selected.tolist()))
        return self.answer_by_image(
            episode, descent, lambda: backbone.encode_with(weights, episode.x[None])[0], views=views
        )
