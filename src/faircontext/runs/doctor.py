"""What is wrong with an installation: versions, extras, cache, device, precision, weights, known facts, data sets.

Each check gives findings, and a problem comes with its fix. Nothing is mended or deleted. The cache is made where there
is none, and keeps what loading the model leaves there, as after every command; weights of a tag or of `hf-hub:` that
are not on this machine are fetched, as by every command.
"""

import platform
import shutil
import warnings
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions, version
from itertools import combinations
from pathlib import Path
from typing import Literal
from uuid import uuid4

import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from faircontext import __version__
from faircontext.backbones import Backbone, list_backbones, list_pretrained
from faircontext.cache import cache_folder, count_damaged
from faircontext.corruptions import check_library
from faircontext.datasets.check import Report, check_dataset
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import CORRUPTED, Dataset, known_name
from faircontext.episode import Episode
from faircontext.errors import FairContextError, FairContextWarning, and_more, first_reason, reason_of, silence
from faircontext.imageio import load_image
from faircontext.labels import LabelSpace
from faircontext.methods import ZeroShot
from faircontext.runs.build import load_backbone
from faircontext.runs.options import DoctorOptions
from faircontext.system import usable_processors

DEVELOPERS = ("benchmark", "dev", "docs")
"""Extras for work on faircontext itself, which are not looked at."""

SPACE = 200 * 2**20
"""Bytes that should be free where features are stored."""

OPENAI = {"a diagram": 0.9927937, "a dog": 0.00421068, "a cat": 0.00299572}
"""What OpenAI's README says that ViT-B/32 answers for its picture of a diagram, with the three texts as prompts."""

_PER_CLASS = 5
"""Images of each class that are answered to find swapped class folders."""


@dataclass(frozen=True)
class Finding:
    """One line of what was found.

    Attributes:
        topic: what was looked at.
        state: ok, note (nothing to do, or perhaps) or problem.
        text: what was found.
        fix: what to do.
    """

    topic: str
    state: Literal["ok", "note", "problem"]
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.state:8} {self.topic}: {self.text}{f'; {self.fix}' if self.fix else ''}"


def examine(options: DoctorOptions) -> Iterator[Finding]:
    """Look at everything, and yield what is found as it is found."""
    try:
        installed = distribution("faircontext")
    except PackageNotFoundError:
        text = "faircontext is run without being installed: what it needs is not known"
        yield Finding("versions", "note", text, "pip install faircontext")
    else:
        yield from _own_version(installed)
        yield from _versions(installed)
        yield from _extras(installed)
    yield from _cache()
    backbone = yield from _model(options)
    if backbone is not None and options.picture is not None:
        yield from _known_facts(backbone, options)
    if options.root is not None:
        yield from _datasets(options.root, backbone)


def _own_version(installed: Distribution) -> Iterator[Finding]:
    """Compare the code with the package's metadata, which says what the code needs."""
    if installed.version != __version__:
        text = f"the code is faircontext {__version__}, and the installed package says {installed.version}"
        fix = (
            "install it again: pip install --force-reinstall --no-deps faircontext, or of a checkout: pip install -e ."
        )
        yield Finding("versions", "problem", text, fix)


def _versions(installed: Distribution) -> Iterator[Finding]:
    """Compare the packages that are there with those that are declared."""
    unmet = _unmet(_declared(installed, ""))
    for requirement, present in unmet:
        if present is None:
            yield Finding("versions", "problem", f"{requirement.name} is missing", f"pip install '{requirement}'")
        else:
            needed = f"{requirement.name} {present} is installed, and {requirement} is needed"
            yield Finding("versions", "problem", needed, f"pip install --upgrade '{requirement}'")
    if not unmet:
        yield Finding("versions", "ok", f"faircontext {__version__}, torch {torch.__version__}, all that is needed")


def _extras(installed: Distribution) -> Iterator[Finding]:
    """Look for what each extra brings, by the package's own metadata, and import what is there in full."""
    always = {*map(str, _declared(installed, ""))}
    for extra in installed.metadata.get_all("Provides-Extra") or ():
        if extra in DEVELOPERS:
            continue
        needed = [need for need in _declared(installed, extra) if str(need) not in always]
        if unmet := _unmet(needed):
            missing = [need.name for need, present in unmet if present is None]
            old = [f"{need.name} {present}, needed {need.specifier}" for need, present in unmet if present is not None]
            in_full = " in full" * (len(missing) < len(needed))
            text = f"{extra} is not installed{in_full} ({', '.join([*missing, *old])})"
            yield Finding("extras", "note", text, f"if you need it: pip install 'faircontext[{extra}]'")
        elif problem := next(filter(None, map(_import_problem, needed)), ""):
            yield Finding("extras", "problem", f"{extra} is installed, and cannot be used: {problem}")
        else:
            yield Finding("extras", "ok", extra)


def _unmet(requirements: Sequence[Requirement]) -> list[tuple[Requirement, str | None]]:
    """Return what is missing or in another version than is needed, with that version, None where it is missing."""
    versions = [(package, _found(package.name)) for package in requirements]
    return [
        (package, present)
        for package, present in versions
        if present is None or not package.specifier.contains(present, prereleases=True)
    ]


def _import_problem(requirement: Requirement) -> str:
    """Import what a package brings, and return what is wrong and the fix, or nothing."""
    try:
        with silence():
            if requirement.name == "imagecorruptions-imaug":  # knows what is often missing
                check_library()
            elif module := _modules().get(canonicalize_name(requirement.name)):
                import_module(module)
    except FairContextError as error:
        return str(error)
    except Exception as error:  # of whatever a package does when it is imported
        fix = f"pip install --force-reinstall '{requirement}'"
        return f"{requirement.name} cannot be imported: {type(error).__name__}: {first_reason(error)}; {fix}"
    return ""


@cache
def _modules() -> dict[str, str]:
    """Return the module that each installed package brings, the one of its own name where there are several."""
    names: dict[str, str] = {}
    for module, packages in packages_distributions().items():
        for package in map(canonicalize_name, packages):
            if package not in names or canonicalize_name(module) == package:
                names[package] = module
    return names


def _declared(installed: Distribution, extra: str) -> list[Requirement]:
    """Return what is needed with an extra, or without any."""
    lines = map(Requirement, installed.requires or ())
    return [package for package in lines if package.marker is None or package.marker.evaluate({"extra": extra})]


def _found(package: str) -> str | None:
    """Return the version of a package that is installed, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cache() -> Iterator[Finding]:
    """Write a file where features are stored, read it, and look at the entries and at the free space."""
    folder = cache_folder()
    if folder is None:
        yield Finding("cache", "note", "off: features are not stored", "FAIRCONTEXT_CACHE names a folder for them")
        return
    other = "set FAIRCONTEXT_CACHE to a folder that can be written, or to off"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"doctor-{uuid4().hex}.partial"
        try:
            probe.write_bytes(b"faircontext")
            assert probe.read_bytes() == b"faircontext"
        finally:
            probe.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
        entries, damaged = count_damaged(folder)
    except OSError as error:
        yield Finding("cache", "problem", f"{folder} cannot be used: {reason_of(error)}", other)
        return
    if free < SPACE:
        text = f"{free / 2**20:,.0f} MB are free at {folder}"
        yield Finding("cache", "problem", text, f"the disk is full: make room, or {other}")
    if damaged:
        text = f"{damaged} of {entries} entries cannot be read, and are computed each time"
        yield Finding("cache", "problem", text, f"delete the folder {folder}")
    if free >= SPACE and not damaged:
        yield Finding("cache", "ok", f"{entries} entries in {folder}")


def _model(options: DoctorOptions) -> Generator[Finding, None, Backbone | None]:
    """Load the model, which checks device, precision, weights and features, and return it where that is possible."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            backbone = load_backbone(options)
            labels = LabelSpace(("cat", "dog"), backbone)
            sizes = labels.text.shape[-1], _features_of_grey(backbone).shape[-1]
        except FairContextError as error:
            yield Finding("model", "problem", str(error))
            return None
    for warning in heard:
        if issubclass(warning.category, FairContextWarning):
            yield Finding("model", "note", str(warning.message))
    if sizes[0] != sizes[1]:
        text = f"text features have {sizes[0]} numbers and image features {sizes[1]}"
        yield Finding("model", "problem", text, "take towers of one model")
        return None
    origin = ", ".join(map(str, backbone.facts.values())) if "warnings" not in backbone.facts else ""
    yield Finding("model", "ok", f"{backbone.name} on {backbone.device}; weights can be used{origin and ', ' + origin}")
    agrees = "computes in float32" if backbone.precision == "fp32" else "agrees with float32 on a test picture"
    yield Finding("precision", "ok", f"{backbone.precision} {agrees}")
    return backbone


def _features_of_grey(backbone: Backbone) -> torch.Tensor:
    return backbone.encode_image(torch.full((1, 3, backbone.image_size, backbone.image_size), 0.5))


def _known_facts(backbone: Backbone, options: DoctorOptions) -> Iterator[Finding]:
    """Compare the answer for OpenAI's picture with that of its README."""
    assert options.picture is not None
    try:
        image = load_image(options.picture)
        labels = LabelSpace(tuple(OPENAI), backbone, ("{}",))
        probabilities = ZeroShot()(Episode(image, labels)).probabilities.tolist()
    except FairContextError as error:
        yield Finding("known facts", "problem", str(error))
        return
    shown = ", ".join(f"{name} {value:.4f}" for name, value in zip(OPENAI, probabilities, strict=True))
    if not (options.backbone.replace("/", "-").startswith("ViT-B-32") and options.pretrained == "openai"):
        text = f"{shown}; what is published is of ViT-B-32 with openai"
        yield Finding("known facts", "note", text)
        return
    gap = max(abs(measured - published) for measured, published in zip(probabilities, OPENAI.values(), strict=True))
    if gap <= 0.01:
        yield Finding("known facts", "ok", f"{shown}, as published")
    else:
        fix = "take OpenAI's weights, with QuickGELU, and its picture CLIP.png"
        yield Finding("known facts", "problem", f"{shown}, and published are {[*OPENAI.values()]}", fix)


def _datasets(root: Path, backbone: Backbone | None) -> Iterator[Finding]:
    """Check every data set below a folder, and whether class folders are swapped."""
    if not root.is_dir():
        yield Finding("data", "problem", f"{root}: no such folder", "give --root the folder that holds the data sets")
        return
    names = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        yield Finding("data", "problem", f"{root}: no data sets in it", "put each into a folder of its own")
    for name in names:
        try:
            report, several = _read(name, root)
            for problem in report.problems:
                yield Finding("data", "problem", f"{name}: {problem}", f"see: faircontext data check {name} --root ...")
            if not report.problems:
                labels = "; its images have several labels, for --multi-label" * several
                yield Finding("data", "ok", f"{name}: {report.summary[0]}{labels}")
            if backbone is not None and report.usable and not several and known_name(name) not in CORRUPTED:
                yield from _swapped(load_dataset(name, root), backbone)
        except FairContextError as error:
            yield Finding("data", "problem", str(error))


def _read(name: str, root: Path) -> tuple[Report, bool]:
    """Return what a check of a data set shows, and whether it was read as one whose images have several labels."""
    report = check_dataset(name, root)
    if known_name(name) is None and (report.problems or not report.most_labels):
        multi_label = check_dataset(name, root, multi_label=True)
        if multi_label.most_labels > 1 and not multi_label.problems:
            return multi_label, True
    return report, False


def _swapped(dataset: Dataset, backbone: Backbone) -> Iterator[Finding]:
    """Find pairs of classes whose images are answered with each other's names."""
    if len(dataset.names) < 2 or len({*dataset.names}) < len(dataset.names):
        return
    labels = LabelSpace(dataset.names, backbone, truncate=True)
    answers: list[tuple[int, int]] = []
    counts = [0] * len(dataset.names)
    for sample in dataset.samples:
        if sample.label is None or counts[sample.label] == _PER_CLASS:
            continue
        try:
            answer = ZeroShot()(Episode(load_image(sample.path), labels)).index
        except FairContextError:  # files that cannot be read have been told
            continue
        counts[sample.label] += 1
        answers.append((sample.label, answer))
    for first, second in confused_pairs(answers):
        pair = f"{dataset.names[first]!r} and {dataset.names[second]!r}"
        text = f"{dataset.name}: images of {pair} are answered with each other's name"
        yield Finding("data", "problem", text, "see whether the two class folders are swapped")


def confused_pairs(answers: Sequence[tuple[int, int]], least: int = 3) -> list[tuple[int, int]]:
    """Return the pairs of classes of which more than half of the images are answered with the other, both ways.

    Args:
        answers: true class and answer of each image.
        least: images that each of the two classes must have.
    """
    counts = Counter(answers)
    images = Counter(label for label, _ in answers)
    enough = [label for label, n in images.items() if n >= least]
    return [
        (first, second)
        for first, second in combinations(sorted(enough), 2)
        if 2 * counts[first, second] > images[first] and 2 * counts[second, first] > images[second]
    ]


def describe_for_others(options: DoctorOptions, findings: Sequence[Finding]) -> list[str]:
    """Return lines to paste into a bug report, without names of people, files or folders."""
    shown, tag = _public_name(options.backbone), options.pretrained
    if tag is not None:
        published = {name for _, name in list_pretrained(options.backbone.replace("/", "-"))}
        shown += f" with {tag if tag in published else 'a file'}"
    topics = dict.fromkeys(finding.topic for finding in findings)
    states = {topic: [one.state for one in findings if one.topic == topic] for topic in topics}
    counts = [
        f"{topic}: {and_more([f'{kinds.count(kind)} {kind}' for kind in dict.fromkeys(kinds)])}"
        for topic, kinds in states.items()
    ]
    packages = ("torch", "torchvision", "open-clip-torch", "transformers", "timm", "numpy", "pillow")
    return [
        f"faircontext {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        ", ".join(f"{package} {_found(package) or 'missing'}" for package in packages),
        f"backbone {shown}, device {options.device}, precision {options.precision}, {usable_processors()} processors",
        "; ".join(counts),
    ]


def _public_name(backbone: str) -> str:
    """Return a backbone's name where it is one that anybody knows; folders are somebody's own."""
    scheme, colon, _ = backbone.partition(":")
    if colon:
        return f"{scheme}:FOLDER"
    return backbone if backbone.replace("/", "-") in list_backbones() else "NAME"
