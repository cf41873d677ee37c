"""`faircontext ablate`: run an experiment file, only what is missing of it, and write what its variants gain."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from faircontext.cli.evaluate import Evaluate, evaluate
from faircontext.cli.options import note, parse_options
from faircontext.errors import ArgumentError, check_minimum

if TYPE_CHECKING:
    from faircontext.runs.experiments import Cell, Experiment
    from faircontext.runs.store import Run

__all__ = ["Ablate", "run"]


@dataclass(frozen=True)
class Ablate:
    """Run variants of a method that an experiment file names, and compare them image by image.

    What is there is not run again: a variant that is added to the file is run alone. Image features are kept, so that
    only pictures that no earlier variant needed are encoded. Results are written to OUT/NAME/NAME.results.json.
    """

    experiment: Annotated[str, tyro.conf.Positional]
    """File that ends in .json, or the name of an experiment that comes with the package, or list."""
    root: Path | None = field(default=None, kw_only=True)
    """Folder that holds the data sets."""
    out: Path = field(default=Path("ablations"), kw_only=True)
    """Folder for the runs."""
    limit: int | None = field(default=None, kw_only=True)
    """At most this many images of each data set, in place of what the file says."""
    backbone: str | None = field(default=None, kw_only=True)
    """In place of the file's."""
    pretrained: str | None = field(default=None, kw_only=True)
    """Weights, in place of the file's."""
    device: str = field(default="cpu", kw_only=True)
    """Torch device of the backbone."""
    precision: str = field(default="auto", kw_only=True)
    """Of the image tower: auto, fp32, bf16 or fp16."""
    workers: int | None = field(default=None, kw_only=True)
    """As for evaluate."""
    threads: int | None = field(default=None, kw_only=True)
    """As for evaluate."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse_options(Ablate, arguments, "ablate")
    from faircontext.runs.experiments import Cell, cells, experiment_names, missing, read_experiment, shared

    if options.experiment == "list":
        for name in experiment_names():
            print(f"{name:22} {read_experiment(name).facts['title']}")
        return 0
    experiment = _changed(read_experiment(options.experiment), options)
    if options.root is None:
        raise ArgumentError("ablate needs --root, the folder that holds the data sets")
    if options.out == Path():
        raise ArgumentError("--out is empty; name a folder for the runs")
    _check_settings(experiment)
    folder, code = options.out / experiment.name, False
    _check_same(folder / "experiment.json", experiment)
    answered: dict[str, list[Run]] = {name: [] for name in experiment.labels}
    for cell in cells(experiment):
        passes = {place: Cell(cell.prompts, cell.views, _words(place)) for place in _passes(folder / cell.name)}
        if new := missing(cell, list(passes.values())):
            place = next(place for number in count(1) if (place := folder / cell.name / f"{number:03}") not in passes)
            place.mkdir(parents=True, exist_ok=True)
            _write(place / "variants.json", {label: list(words) for label, words in new.variants.items()})
            passes[place] = new
        for place, found in passes.items():
            # A variant that was changed or taken out of the file since is left where it is, and not concluded from.
            if wanted := shared(cell, found):
                runs = _carry_out(experiment, options, place, found)
                code = max(code, any(run.document["counts"]["refused"] for run in runs))
                for name, label in experiment.labels.items():
                    answered[name] += runs if label in wanted else []
    _conclude(experiment, folder, answered)
    return int(code)


def _changed(experiment: "Experiment", options: Ablate) -> "Experiment":
    """Return the experiment with what the command line changes of it."""
    check_minimum("limit", 1 if options.limit is None else options.limit, 1)
    changes = {"limit": options.limit, "backbone": options.backbone, "pretrained": options.pretrained}
    facts = {**experiment.facts, **{key: value for key, value in changes.items() if value is not None}}
    return replace(experiment, facts=facts)


def _check_same(place: Path, experiment: "Experiment") -> None:
    """Refuse to go on with runs of another experiment; variants may come and go."""
    from faircontext.files import check_folder
    from faircontext.runs.store import check_same

    facts = {key: value for key, value in experiment.facts.items() if key not in ("variants", "title", "reference")}
    now = json.loads(json.dumps(facts))
    if place.exists() and any(place.parent.glob("*/*/*/run.json")):  # what was wrong before any run can be put right
        check_same(place.parent, _read(place), now)
        return
    check_folder(place.parent)
    place.parent.mkdir(parents=True, exist_ok=True)
    _write(place, now)


def _write(place: Path, document: dict[str, Any]) -> None:
    from faircontext.files import to_json, write_whole

    write_whole(place, to_json(document))


def _passes(folder: Path) -> list[Path]:
    """Return the passes that have begun; one that was refused before it began may be written over."""
    places = sorted(place.parent for place in folder.glob("*/variants.json"))
    return [place for place in places if any(place.glob("*/run.json"))]


def _words(place: Path) -> dict[str, tuple[str, ...]]:
    """Return the variants of a pass."""
    return {label: tuple(words) for label, words in _read(place / "variants.json").items()}


def _read(place: Path) -> dict[str, Any]:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{place}: cannot be read ({error}); delete {_lost(place)}") from None
    if not isinstance(found, dict):
        raise ArgumentError(f"{place}: holds no JSON object; delete {_lost(place)}")
    return found


def _lost(place: Path) -> str:
    """Return what has to go: a pass that does not say what it holds, but no run for the sake of `experiment.json`."""
    return str(place.parent if place.name == "variants.json" else "it")


def _check_settings(experiment: "Experiment") -> None:
    """Refuse settings that no method takes before anything is run, by the variant's name."""
    from faircontext.methods import create_method, parse_settings
    from faircontext.runs.experiments import cells

    for cell in cells(experiment):
        for label, words in cell.variants.items():
            name, _, variant = label.partition("-")
            try:
                parsed: dict[str, Any] = parse_settings(name, words)
                create_method(name, **parsed)
            except ArgumentError as error:
                raise ArgumentError(f"{experiment.name}: variant {variant!r}: {error}") from None


def _carry_out(experiment: "Experiment", options: Ablate, place: Path, cell: "Cell") -> "list[Run]":
    """Answer what one pass has not answered yet, and return its runs."""
    from faircontext.runs.store import check_same

    facts = experiment.facts
    assert options.root is not None
    runs = _runs(place)
    found = {run.document["config"]["dataset"]["name"]: run for run in runs}
    asked_for = {key: facts[key] for key in ("limit", "seed", "preset", "pretrained")} | {"prompts": cell.prompts}
    for run in runs:
        check_same(run.folder, {key: run.document["config"].get(key) for key in asked_for}, asked_for)
    wanted = [name for name in facts["datasets"] if Path(name).name not in found or not found[Path(name).name].complete]
    if not wanted:
        return runs
    words = tuple(f"{label}.{word}" for label, words in cell.variants.items() for word in words)
    asked = Evaluate(
        datasets=tuple(wanted),
        methods=tuple(cell.variants),
        root=options.root,
        out=place,
        prompts=cell.prompts,
        views=cell.views,
        limit=facts["limit"],
        backbone=facts["backbone"],
        pretrained=facts["pretrained"],
        preset=facts["preset"],
        seed=facts["seed"],
        set=words,
        device=options.device,
        precision=options.precision,
        workers=options.workers,
        threads=options.threads,
        features=options.out / "features",
        resume=True,
    )
    try:
        evaluate(asked)
    except KeyboardInterrupt as stop:
        raise type(stop)(str(stop).replace("go on with --resume", "the same command goes on")) from None
    return _runs(place)


def _runs(folder: Path) -> "list[Run]":
    from faircontext.runs.store import load_run

    return [load_run(place.parent) for place in sorted(folder.glob("*/run.json"))]


def _conclude(experiment: "Experiment", folder: Path, answered: "Mapping[str, Sequence[Run]]") -> None:
    """Compare the variants, print them, and write the results."""
    from faircontext.bench.conclude import conclude

    document = conclude(experiment, answered)
    if len(document["meta_info"]["backbones"]) > 1:
        note(f"{folder}: variants were not all answered by one model, in one precision on one kind of device")
    _write(folder / f"{experiment.name}.results.json", document)
    print(f"\n{experiment.name}: {experiment.facts['title']}")
    print(f"{'variant':18} {'n':>5}  top-1   over {experiment.reference}, 95%   right/lost   p   over zero-shot, 95%")
    for found in document["variants"]:
        _print_line(found)
    print(folder / f"{experiment.name}.results.json")


def _print_line(found: dict[str, Any]) -> None:
    if not found["n"]:
        print(f"{found['label']:18} {0:>5}")
        return
    print(
        f"{found['label']:18} {found['n']:>5} {100 * found['accuracy']:>6.1f}   {_difference(found)}"
        f"   {found['gained']:>3}/{found['lost']:<3} {found['p_value']:>6.3g}   {_difference(found['zero_shot'])}"
    )


def _difference(found: dict[str, Any]) -> str:
    value, low, high = (100 * found[key] for key in ("difference", "difference_low", "difference_high"))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
