"""Experiments as JSON files: variants of one method that are compared, or the runs that a table of the paper needs.

Either becomes runs of `evaluate`. Variants that share views and prompts are run together, so that they share an image's
features. For the paper, a method with its settings belongs to one group, and runs are stored by backbone, prompts and
group: a table that needs a run finds it, whichever table it was made for.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from faircontext.datasets.spec import CATALOGUE
from faircontext.errors import ArgumentError, reason_of, unknown_name
from faircontext.runs.documents import Entries, check_entries
from faircontext.runs.option_parts import PromptOptions
from faircontext.runs.options import AnalysisOptions, EvaluateOptions, ExperimentOptions
from faircontext.runs.records import is_analysis, variant_of


class _VariantEntries(Entries):
    model_config = ConfigDict(extra="allow")  # settings of the method

    method: str = ""
    prompts: str = ""
    views: dict[str, Any] = Field({})


class VariantsFile(Entries):
    """What a file of variants may say, and what holds where it does not; `reference` is the first variant."""

    title: str = ""
    method: str = "fcl"
    backbone: str = "lite0"
    pretrained: str | None = None
    preset: str = "recommended"
    prompts: str = "single"
    seed: int = 0
    limit: int | None = None
    datasets: list[str] = Field([], min_length=1)
    settings: dict[str, Any] = Field({})
    # A dot would end the label in `--set LABEL.NAME=VALUE`.
    variants: dict[Annotated[str, Field(pattern=r"^[\w-]+$")], _VariantEntries] = Field({}, min_length=1)
    reference: str = ""


_OWN = ("views", "prompts", "method")
"""What a variant may change besides the method's settings."""


@dataclass(frozen=True, kw_only=True)
class ExperimentRun:
    """Methods that one call of `evaluate` runs together; its runs differ in the data set alone.

    Attributes:
        group: name of its folder; of the paper's, runs of one group have the same methods and settings.
        methods: for each label of a row its settings, as overrides for `evaluate --set`.
        datasets: names.
        backbone: architecture.
        pretrained: its weights.
        preset: what settings start from.
        prompts: name of the prompt set.
        views: overrides for `evaluate --views`.
        limit: images of each data set, None for all.
        seed: of views, masks and the order of images.
    """

    group: str
    methods: Mapping[str, tuple[str, ...]]
    datasets: tuple[str, ...] = ()
    backbone: str = "lite0"
    pretrained: str | None = None
    preset: str = "recommended"
    prompts: str = "single"
    views: tuple[str, ...] = ()
    limit: int | None = None
    seed: int = 0

    @property
    def analysis(self) -> bool:
        """Whether evidence is analysed, in place of answering."""
        return all(map(is_analysis, self.methods))

    @property
    def overrides(self) -> tuple[str, ...]:
        """Overrides for `evaluate --set`."""
        return tuple(f"{label}.{word}" for label, overrides in self.methods.items() for word in overrides)

    @property
    def folder(self) -> str:
        """Where its runs are, below the folder of all of the paper's runs."""
        model = "-".join(filter(None, (self.backbone, self.pretrained)))
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', model).strip('-')}/{self.prompts}/{self.group}"

    def only(self, labels: Iterable[str]) -> "ExperimentRun":
        """Return the same with some of the methods."""
        return replace(self, methods={label: self.methods[label] for label in labels})

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return all settings of the methods over their defaults, the preset `paper`.

        Raises:
            ArgumentError: a setting is unknown or has a value that cannot be used; the error names the variant.
        """
        from faircontext.runs.build import create_plainly

        settings = {}
        for label, overrides in self.methods.items():
            try:
                settings[label] = create_plainly(label, overrides).settings()
            except ArgumentError as error:
                raise ArgumentError(f"variant {variant_of(label)!r}: {error}") from None
        return settings

    def evaluation(self, options: ExperimentOptions, out: Path, **more: Any) -> EvaluateOptions:
        """Return the options of `evaluate` that make the runs in a folder; `more` are options of its own."""
        kind = AnalysisOptions if self.analysis else EvaluateOptions
        shared = {field.name for field in fields(kind)} & {field.name for field in fields(options)}
        values = {name: getattr(options, name) for name in shared}
        names = ("datasets", "backbone", "pretrained", "preset", "views", "limit", "seed")
        values |= {name: getattr(self, name) for name in names}
        if not (isinstance(options, PromptOptions) and options.given_prompts):
            values["prompts"] = self.prompts
        values |= {"methods": tuple(self.methods), "set": self.overrides, "out": out, "resume": True}
        return kind(**values | more)


@dataclass(frozen=True)
class Experiment:
    """A file that has been read.

    Attributes:
        name: of the file.
        facts: its entries: those of `VariantsFile` where it compares variants; else of a table or figure of the paper
            `title`, `order` among them, `runs`, `costs` (backbones on which time and memory are measured), `counted`
            (data sets whose classes and images are counted) and `figures` (what is drawn in the end).
    """

    name: str
    facts: Mapping[str, Any]

    @property
    def title(self) -> str:
        """What it is."""
        return str(self.facts["title"])

    @cached_property
    def labels(self) -> dict[str, str]:
        """What each variant is called in rows."""
        variants = self.facts["variants"]
        return {name: f"{changes.get('method', self.facts['method'])}-{name}" for name, changes in variants.items()}

    @property
    def reference(self) -> str:
        """The variant that the others are compared with."""
        return str(self.facts["reference"] or next(iter(self.facts["variants"])))

    @cached_property
    def runs(self) -> list[ExperimentRun]:
        """What is run; of variants those with the most masks first: the others find theirs encoded."""
        return _runs_of_variants(self) if "variants" in self.facts else _runs_of_paper(self.facts)

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """Data sets whose classes and images are counted."""
        return _datasets(self.facts.get("counted", ()))

    @property
    def datasets(self) -> list[str]:
        """All data sets, each once."""
        return list(dict.fromkeys([*self.counted, *(name for run in self.runs for name in run.datasets)]))


def _shipped() -> dict[str, Any]:
    """Return the files that come with the package, by name."""
    paths = sorted((files("faircontext") / "experiments").iterdir(), key=lambda path: path.name)
    return {p.name.removesuffix(".json"): json.loads(p.read_text("utf-8")) for p in paths if p.name.endswith(".json")}


def experiment_names(paper: bool = False) -> list[str]:
    """Return the names of the experiments that come with the package.

    Args:
        paper: whether those of the paper's tables and figures are returned, in its order, or those with variants.
    """
    shipped = _shipped()
    if paper:
        return sorted((name for name in shipped if "order" in shipped[name]), key=lambda name: shipped[name]["order"])
    return [name for name, entries in shipped.items() if "variants" in entries]


def read_experiment(name: str, paper: bool = False) -> Experiment:
    """Read an experiment that comes with the package, or a file of variants.

    Args:
        name: one of `experiment_names`; or, of variants, a path that ends in `.json`.
        paper: whether it is one of the paper.

    Raises:
        ArgumentError: there is none, or it says something that is not possible.
    """
    if name.endswith(".json") and not paper:
        entries = _read(Path(name))
    elif name in (names := experiment_names(paper)):
        entries = _shipped()[name]
    else:
        raise unknown_name("experiment", name, names)
    if paper:
        return Experiment(name, entries)
    if unknown := [key for key in entries if key not in VariantsFile.model_fields]:
        raise unknown_name(f"entry of {name}", unknown[0], VariantsFile.model_fields)
    entries = {key: field.default for key, field in VariantsFile.model_fields.items()} | entries
    check_entries(VariantsFile, entries, f"{name}: is no experiment", f"write an object{_EXAMPLE}")
    experiment = Experiment(Path(name).name.removesuffix(".json"), entries)
    if experiment.reference not in entries["variants"]:
        raise unknown_name(f"reference of {name}", experiment.reference, entries["variants"])
    return experiment


def _read(path: Path) -> dict[str, Any]:
    try:
        return {**json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)}
    except (UnicodeDecodeError, OSError) as error:
        raise ArgumentError(f"{path}: cannot be read: {reason_of(error)}; see faircontext ablate list") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: is no JSON object: {error}; write one{_EXAMPLE}") from None


_EXAMPLE = ', for example {"datasets": ["dtd"], "variants": {"base": {}, "fewer": {"masks": 50}}}'
"""How the smallest file of variants looks."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's entries; Python would take the last of two with one name, without a word."""
    names = [name for name, _ in pairs]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{doubled!r} is there twice in one object")
    return dict(pairs)


def _runs_of_variants(experiment: Experiment) -> list[ExperimentRun]:
    entries, methods = experiment.facts, dict[tuple[str, tuple[str, ...]], dict[str, tuple[str, ...]]]()
    settings = {name: _settings(entries, changes) for name, changes in entries["variants"].items()}
    for name in sorted(settings, key=lambda name: -_masks(settings[name])):
        changes = entries["variants"][name]
        key = (changes.get("prompts", entries["prompts"]), _overrides(changes.get("views", {})))
        methods.setdefault(key, {})[experiment.labels[name]] = _overrides(settings[name])
    shared = {key: entries[key] for key in ("backbone", "pretrained", "preset", "limit", "seed")}
    shared["datasets"] = tuple(entries["datasets"])
    return [
        ExperimentRun(
            group="-".join((prompts, *(word.replace(",", "-") for word in views))),
            methods=labelled,
            prompts=prompts,
            views=views,
            **shared,
        )
        for (prompts, views), labelled in methods.items()
    ]


def _masks(settings: Mapping[str, Any]) -> float:
    masks = settings.get("masks", 0)
    return masks if isinstance(masks, int | float) else 0  # what is no number is an error where it is read


def _settings(entries: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the method's settings of a variant; another method takes none of the experiment's own."""
    common = entries["settings"] if changes.get("method", entries["method"]) == entries["method"] else {}
    return {**common, **{key: value for key, value in changes.items() if key not in _OWN}}


def _runs_of_paper(entries: Mapping[str, Any]) -> list[ExperimentRun]:
    runs = []
    for run in entries.get("runs", ()):
        methods = {label: _overrides(settings) for label, settings in run["methods"].items()}
        changes = {"datasets": _datasets([run["datasets"]]), "methods": methods}
        runs.append(ExperimentRun(**{"pretrained": "openai", "preset": "paper", **run, **changes}))
    return runs


def _datasets(groups: Sequence[Any]) -> tuple[str, ...]:
    """Return names of data sets; `natural-shift` and `fine-grained` stand for the paper's."""
    regimes = {"natural-shift": "natural", "fine-grained": "fine-grained"}
    names: list[str] = []
    for group in groups:
        names += group if isinstance(group, list) else [n for n, e in CATALOGUE.items() if e.regime == regimes[group]]
    return tuple(names)


def _overrides(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return settings as they are written on a command line."""
    return tuple(f"{name}={_word(value)}" for name, value in settings.items())


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_word, value))
    return value if isinstance(value, str) else json.dumps(value).replace("null", "none")


def missing(run: ExperimentRun, earlier: Iterable[ExperimentRun]) -> ExperimentRun | None:
    """Return what of a run is in no earlier one, or None."""
    earlier_labels = {label for other in earlier for label in shared(run, other)}
    rest = [label for label in run.methods if label not in earlier_labels]
    return run.only(rest) if rest else None


def shared(run: ExperimentRun, earlier: ExperimentRun) -> set[str]:
    """Return the labels that an earlier run has with the same settings, in whatever order."""
    methods = earlier.methods
    return {label for label, words in run.methods.items() if label in methods and set(methods[label]) == set(words)}
