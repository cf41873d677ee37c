"""What FCL and the analyses of its evidence have in common: exploring candidates and localising their evidence."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from faircontext.episode import Episode
from faircontext.errors import ArgumentError, check_interval, check_minimum
from faircontext.evidence import Occluder
from faircontext.explore import Aggregation, Exploration, explore
from faircontext.methods.base import Method

__all__ = ["Localising"]


@dataclass(frozen=True)
class Localising(Method):
    """A method that explores candidates and looks where their evidence is (paper, Sec. "Explore with Fair Context").

    Attributes:
        k: K, number of candidates.
        rho: fraction of views that is kept.
        beta: inverse temperature of all scores; None for 0.2 times the backbone's own scale (20 on CLIP).
        aggregation: what ranks classes, `"vote"` or `"mean"` of the posterior.
        masks: N_m, number of masks.
        grids: grid sizes of the masks.
        gamma: fraction of cells that a mask occludes, or a range from which each mask draws.
        occluder: what occluded pixels become: `"black"`, `"mean"` or `"blur"`.
    """

    k: int = 10
    rho: float = 0.3
    beta: float | None = None
    aggregation: Aggregation = "vote"
    masks: int = 400
    grids: tuple[int, ...] = (7, 9, 11, 13)
    gamma: float | tuple[float, float] = 0.5
    occluder: Occluder = "black"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("rho", self.rho, 0.0, 1.0)
        check_interval("gamma", self.gamma, 0.0, 1.0)
        if self.beta is not None:
            check_interval("beta", self.beta, 0.0, 1e6)
        for name in ("k", "masks"):
            check_minimum(name, getattr(self, name), 1)
        if self.masks > 100_000:
            raise ArgumentError(f"masks={self.masks} is not possible; give at most 100,000")
        if not self.grids or min(self.grids) < 2 or max(self.grids) > 512:
            raise ArgumentError(f"grids={self.grids} is not possible; give grid sizes from 2 to 512")

    def temperature(self, episode: Episode) -> float:
        """Return beta, which depends on the backbone where it is not given."""
        return self.beta if self.beta is not None else 0.2 * episode.backbone.logit_scale

    def phi(self, episode: Episode, text: Float[Tensor, "classes dim"], k: int) -> Exploration:
        """Run `Phi_k` on the image's views against some classes."""
        return explore(episode.view_features, text, self.temperature(episode), k, self.rho, self.aggregation)

    def evidence(
        self, episode: Episode, text: Float[Tensor, "candidates dim"]
    ) -> Float[Tensor, "candidates height width"]:
        """Return `E_c` of the candidates (paper, "Class Evidence Map Estimation")."""
        return episode.evidence(text, self.temperature(episode), self.masks, self.grids, self.gamma, self.occluder)
