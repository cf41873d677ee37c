"""Options of what is done to images before any method sees them, and what a run's configuration says of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from faircontext.datasets.spec import Sample
from faircontext.errors import ArgumentError
from faircontext.perturbations import Attack, Corruption, Perturbation, parse_attack, parse_corruptions
from faircontext.runs.option_parts import BackboneOptions

if TYPE_CHECKING:
    from faircontext.backbones import Backbone

_OPTION = {Corruption: "corrupt", Attack: "attack", type(None): "corrupt"}


@dataclass(frozen=True, kw_only=True)
class PerturbationOptions:
    """Options of perturbations; each is a run of its own."""

    group: ClassVar[str] = "perturbation"

    corrupt: tuple[str, ...] = ()
    """Corruptions of ImageNet-C, NAME:SEVERITY as in fog:3; NAME for severities 1 to 5, a kind (noise, blur, weather,
    digital, extra) or all in place of NAME, none for the images as they are."""
    attack: tuple[str, ...] = ()
    """Attack on zero-shot, pgd:EPS with EPS in 1/255, as in pgd:4; needs labels, and the image tower in PyTorch in
    fp32. none for the images as they are."""

    @property
    def perturbations(self) -> tuple[Perturbation | None, ...]:
        """What is asked for, a run each; None is the images as they are, where nothing is asked for it alone.

        Raises:
            ArgumentError: there is no such corruption, severity or attack.
        """
        asked: list[Perturbation | None] = [*parse_corruptions(self.corrupt), *map(parse_attack, self.attack)]
        return tuple(dict.fromkeys(asked)) or (None,)

    def check_perturbations(self) -> None:
        """Check what is asked for, and that what makes it is installed; raise `ArgumentError` where it is not."""
        if any(isinstance(perturbation, Corruption) for perturbation in self.perturbations):
            from faircontext.corruptions import check_library

            check_library()

    def check_attack(self, backbone: BackboneOptions, several: bool) -> None:
        """Raise `ArgumentError` where it is known before a model is loaded that an attack cannot be made.

        Args:
            backbone: options of the model.
            several: whether an image may have several labels.
        """
        attack = next((perturbation for perturbation in self.perturbations if isinstance(perturbation, Attack)), None)
        if attack is None:
            return
        if several:
            raise ArgumentError(
                f"--attack {attack} moves an image away from its one true class, and here it may have several; leave "
                "one of the two out"
            )
        from faircontext.backbones.engines import resolve_precision, usable_device

        precision = resolve_precision(backbone.precision, usable_device(backbone.device))
        if precision != "fp32" or backbone.engine_image == "openvino":
            runs = "openvino" if backbone.engine_image == "openvino" else precision
            raise ArgumentError(
                f"--attack {attack} needs the exact gradient of the image tower, which {runs} does not give; add "
                "--engine-image torch --precision fp32"
            )

    def each_perturbation(self) -> Iterator[Self]:
        """Yield the options of each run."""
        for perturbation in self.perturbations:
            words = () if perturbation is None else (str(perturbation),)
            yield replace(self, **{"corrupt": (), "attack": ()} | {_OPTION[type(perturbation)]: words})

    @property
    def perturbation(self) -> Perturbation | None:
        """The one that is asked for; raise `ArgumentError` where there are several."""
        if len(self.perturbations) > 1:
            asked = " and ".join(
                "none" if perturbation is None else str(perturbation) for perturbation in self.perturbations[:2]
            )
            raise ArgumentError(f"one corruption or attack is possible here, not {asked}; evaluate takes several")
        return self.perturbations[0]


def check_perturbation(perturbation: Perturbation | None, backbone: "Backbone", samples: Iterable[Sample]) -> None:
    """Raise `ArgumentError` where a model or some images do not allow what is asked for to be done to the images."""
    if isinstance(perturbation, Corruption):
        from faircontext.corruptions import check_size

        check_size(backbone.image_size)
    if isinstance(perturbation, Attack):
        from faircontext.attacks import check_attackable

        check_attackable(backbone)
        if (unknown := next((one.key for one in samples if one.label is None), None)) is not None:
            raise ArgumentError(
                f"--attack {perturbation} needs the true class of every image, and {unknown} has no label; give it "
                "one, by the name of its folder or in a table, or leave it out"
            )


def metadata_of_perturbation(perturbation: Perturbation | None, stored: bool = False) -> dict[str, Any]:
    """Return what a run's configuration says of a perturbation; nothing of none, so that hashes of other runs stay.

    Args:
        perturbation: what is done to the images.
        stored: whether the images lie corrupted on disk.
    """
    if perturbation is None:
        return {}
    if not isinstance(perturbation, Corruption):
        return {"shift": perturbation.facts}
    if stored:
        return {"shift": {**perturbation.facts, "stored": True}}
    from faircontext.corruptions import library_versions

    return {"shift": {**perturbation.facts, "versions": library_versions()}}
