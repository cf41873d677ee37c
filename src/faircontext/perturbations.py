"""Perturbations that images are given on purpose, and how they are written: common corruptions, and attacks.

The corruptions are those of ImageNet-C (Hendrycks & Dietterich, 2019, Sec. 4.1): fifteen that are reported, four extra
ones to choose settings on, each in five severities. How they are made is in `corruptions`; how the attack is made, in
`attacks`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from faircontext.errors import ArgumentError, check_type, unknown_name

KINDS: Mapping[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}
"""The corruptions by kind, as ImageNet-C's archives are called."""

COMMON = tuple(name for kind, names in KINDS.items() if kind != "extra" for name in names)
"""The fifteen that the mean corruption error is the mean over."""

SEVERITIES = (1, 2, 3, 4, 5)

_INTEGER = re.compile("-?[0-9]{1,9}")
"""A number as it is written, in digits of ASCII; those of other scripts are digits for Python as well."""

_ALL = tuple(name for names in KINDS.values() for name in names)


@dataclass(frozen=True, order=True)
class Corruption:
    """A corruption in one severity.

    Attributes:
        name: one of `KINDS`.
        severity: 1 to 5.

    Raises:
        ArgumentError: there is no such corruption or severity.
    """

    name: str
    severity: int

    def __post_init__(self) -> None:
        if self.name not in _ALL:
            raise unknown_name("corruption", self.name, _ALL)
        check_type("severity", self.severity, int)
        if self.severity not in SEVERITIES:
            raise ArgumentError(f"invalid severity {self.severity} of {self.name}: must be 1, 2, 3, 4 or 5")

    def __str__(self) -> str:
        return f"{self.name}:{self.severity}"

    @property
    def summary(self) -> str:
        """What is done to the images, for a person."""
        return f"the images are corrupted first: {self.name}, severity {self.severity} of {SEVERITIES[-1]}"

    @property
    def facts(self) -> dict[str, Any]:
        """What records say of it."""
        return {"kind": "corruption", "name": self.name, "severity": self.severity}


@dataclass(frozen=True, order=True)
class Attack:
    """Projected gradient descent in the maximum norm (Madry et al., 2018) on zero-shot, as in R-TPT's protocol.

    Attributes:
        eps: by how much a value of a pixel may change, in 1/255; a whole number, as images have 8 bits.
        steps: of ascent, each of `eps / 4`.

    Raises:
        ArgumentError: a value is out of range.
    """

    eps: int
    steps: int = 7

    def __post_init__(self) -> None:
        for name, most in (("eps", 255), ("steps", 10_000)):
            check_type(name, value := getattr(self, name), int)
            if not 1 <= value <= most:
                unit = ", in 1/255" if name == "eps" else ""
                raise ArgumentError(f"invalid {name} {value} of pgd: must be a whole number from 1 to {most:,}{unit}")

    def __str__(self) -> str:
        return f"pgd:{self.eps}"

    @property
    def summary(self) -> str:
        """What is done to the images, for a person."""
        return f"the images are attacked first: PGD against zero-shot, by at most {self.eps}/255, {self.steps} steps"

    @property
    def facts(self) -> dict[str, Any]:
        """What records say of it."""
        return {"kind": "attack", "name": "pgd", "eps": self.eps, "steps": self.steps, "step": self.eps / 4}


Perturbation = Corruption | Attack
"""What is done to an image before any method sees it."""


def parse_corruptions(words: Iterable[str]) -> list[Corruption | None]:
    """Read corruptions as they are written, each once, in their order.

    Args:
        words: `NAME:SEVERITY`; `NAME` for all five severities; a kind of `KINDS` or `all` (the fifteen of `COMMON`) in
            place of a name; `none` for the image as it is, which is returned as None.

    Raises:
        ArgumentError: there is no such corruption or severity.
    """
    corruptions: dict[Corruption | None, None] = {}
    for word in words:
        name, colon, severity = word.partition(":")
        if word == "none":
            corruptions[None] = None
            continue
        if name == "none":
            raise ArgumentError(f"invalid corruption {word!r}: none has no severity; write none, or NAME:SEVERITY")
        if colon and not _INTEGER.fullmatch(severity):
            raise ArgumentError(f"invalid severity {severity!r} of {name}: must be 1, 2, 3, 4 or 5")
        names = COMMON if name == "all" else KINDS.get(name, (name,))
        if names == (name,) and name not in _ALL:
            raise unknown_name("corruption", name, (*_ALL, *KINDS, "all", "none"))
        severities = (int(severity),) if colon else SEVERITIES
        corruptions |= dict.fromkeys(Corruption(name_of_kind, level) for name_of_kind in names for level in severities)
    return [*corruptions]


def parse_attack(word: str) -> Attack | None:
    """Read an attack as it is written, `pgd:EPS`; `none` is None.

    Raises:
        ArgumentError: it is no such attack.
    """
    if word == "none":
        return None
    name, colon, eps = word.partition(":")
    if name == "none":
        raise ArgumentError(f"invalid attack {word!r}: none has no eps; write none, or pgd:EPS")
    if name != "pgd":
        raise unknown_name("attack", name, ("pgd", "none"))
    if not _INTEGER.fullmatch(eps):
        given = f"invalid eps {eps!r} of pgd" if colon else f"invalid attack {word!r}: has no eps, which"
        raise ArgumentError(f"{given}{':' * bool(colon)} must be a whole number from 1 to 255, in 1/255, as in pgd:4")
    return Attack(int(eps))
