"""Carry out a file of variants, only what is missing, and conclude what each variant gains, paired by image."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from faircontext import __version__
from faircontext.errors import ArgumentError, check_minimum
from faircontext.files import check_folder, to_json, write_whole
from faircontext.methods import create_method, parse_settings
from faircontext.metrics.scores import Comparison
from faircontext.runs.evaluate import evaluate
from faircontext.runs.experiments import Cell, Experiment, cells, missing, read_experiment, shared
from faircontext.runs.groups import common_images
from faircontext.runs.options import ExperimentOptions, check_path
from faircontext.runs.records import method_of
from faircontext.runs.results import Result, read_results
from faircontext.runs.session import Say
from faircontext.runs.store import Run, check_same, load_run

__all__ = ["SCHEMA_VERSION", "ablate", "compare_results", "conclude"]

SCHEMA_VERSION = 1


def ablate(name: str, out: Path, options: ExperimentOptions, say: Say, warn: Say) -> int:
    """Run what is missing of an experiment, write `OUT/NAME/NAME.results.json`, and return the exit code.

    Args:
        name: see `read_experiment`.
        out: folder for the runs.
        options: what is asked.
        say: takes what is printed.
        warn: takes warnings.

    Raises:
        FairContextError: see `evaluate`; or the folder holds another experiment of this name.
    """
    experiment = _changed(read_experiment(name), options)
    if options.root is None:
        raise ArgumentError("ablate needs --root, the folder that holds the data sets")
    check_path("out", out, "a folder for the runs")
    _check_settings(experiment)
    folder, unreadable = out / experiment.name, False
    _check_same(folder / "experiment.json", experiment)
    runs_of: dict[str, list[Run]] = {name: [] for name in experiment.labels}
    for cell in cells(experiment):
        passes = {path: Cell(cell.prompts, cell.views, _overrides(path)) for path in _passes(folder / cell.name)}
        if new := missing(cell, list(passes.values())):
            path = next(path for number in count(1) if (path := folder / cell.name / f"{number:03}") not in passes)
            path.mkdir(parents=True, exist_ok=True)
            _write(path / "variants.json", {label: list(words) for label, words in new.variants.items()})
            passes[path] = new
        for path, earlier in passes.items():
            # A variant that was changed or taken out of the file since is left where it is, and not concluded from.
            if wanted := shared(cell, earlier):
                runs = _Pass(experiment, options, path, earlier, out / "features").carry_out(say, warn)
                unreadable = unreadable or any(run.document["counts"]["refused"] for run in runs)
                for variant, label in experiment.labels.items():
                    runs_of[variant] += runs if label in wanted else []
    document = conclude(experiment, runs_of)
    if len(document["meta_info"]["backbones"]) > 1:
        warn(f"{folder}: variants were not all answered by one model, in one precision on one kind of device")
    _write(folder / f"{experiment.name}.results.json", document)
    for line in _lines(experiment, document):
        say(line)
    say(str(folder / f"{experiment.name}.results.json"))
    return int(unreadable)


def _changed(experiment: Experiment, options: ExperimentOptions) -> Experiment:
    """Return the experiment with what the options change of it."""
    check_minimum("limit", 1 if options.limit is None else options.limit, 1)
    changes = {"limit": options.limit, "backbone": options.backbone, "pretrained": options.pretrained}
    facts = {**experiment.facts, **{key: value for key, value in changes.items() if value is not None}}
    return replace(experiment, facts=facts)


def _check_same(path: Path, experiment: Experiment) -> None:
    """Refuse to go on with runs of another experiment; variants may come and go."""
    facts = {key: value for key, value in experiment.facts.items() if key not in ("variants", "title", "reference")}
    now = json.loads(json.dumps(facts))
    if path.exists() and any(path.parent.glob("*/*/*/run.json")):  # what was wrong before any run can be put right
        check_same(path.parent, _read(path), now)
        return
    check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, now)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    write_whole(path, to_json(document))


def _passes(folder: Path) -> list[Path]:
    """Return the passes that have begun; one that was refused before it began may be written over."""
    paths = sorted(path.parent for path in folder.glob("*/variants.json"))
    return [path for path in paths if any(path.glob("*/run.json"))]


def _overrides(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the variants of a pass."""
    return {label: tuple(words) for label, words in _read(path / "variants.json").items()}


def _read(path: Path) -> dict[str, Any]:
    # What has to go: a pass that does not say what it holds, but no run for the sake of `experiment.json`.
    lost = str(path.parent if path.name == "variants.json" else "it")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path}: cannot be read ({error}); delete {lost}") from None
    if not isinstance(found, dict):
        raise ArgumentError(f"{path}: holds no JSON object; delete {lost}")
    return found


def _check_settings(experiment: Experiment) -> None:
    """Refuse settings that no method takes before anything is run, by the variant's name."""
    for cell in cells(experiment):
        for label, words in cell.variants.items():
            try:
                parsed: dict[str, Any] = parse_settings(method_of(label), words)
                create_method(method_of(label), **parsed)
            except ArgumentError as error:
                variant = label.partition("-")[2]
                raise ArgumentError(f"{experiment.name}: variant {variant!r}: {error}") from None


@dataclass(frozen=True)
class _Pass:
    """Variants that are run together, in a folder of their own."""

    experiment: Experiment
    options: ExperimentOptions
    folder: Path
    cell: Cell
    features: Path

    def carry_out(self, say: Say, warn: Say) -> list[Run]:
        """Answer what has not been answered yet, and return the runs."""
        facts, runs = self.experiment.facts, self.runs()
        by_name = {run.document["config"]["dataset"]["name"]: run for run in runs}
        asked = {key: facts[key] for key in ("limit", "seed", "preset", "pretrained")} | {"prompts": self.cell.prompts}
        for run in runs:
            check_same(run.folder, {key: run.document["config"].get(key) for key in asked}, asked)
        done = {name for name, run in by_name.items() if run.complete}
        wanted = [name for name in facts["datasets"] if Path(name).name not in done]
        if not wanted:
            return runs
        words = tuple(f"{label}.{word}" for label, words in self.cell.variants.items() for word in words)
        options = self.options.evaluation(
            datasets=tuple(wanted),
            methods=tuple(self.cell.variants),
            out=self.folder,
            prompts=self.cell.prompts,
            views=self.cell.views,
            **{key: facts[key] for key in ("limit", "backbone", "pretrained", "preset", "seed")},
            set=words,
            features=self.features,
        )
        try:
            evaluate(options, say, warn)
        except KeyboardInterrupt as stop:
            raise type(stop)(str(stop).replace("go on with --resume", "the same command goes on")) from None
        return self.runs()

    def runs(self) -> list[Run]:
        """Return the runs that are there."""
        return [load_run(path.parent) for path in sorted(self.folder.glob("*/run.json"))]


def conclude(experiment: Experiment, runs_of: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return the results of an experiment as they are written: see the page on ablations.

    Args:
        experiment: what was asked.
        runs_of: for each variant the runs that hold it, as it is asked now.
    """
    results = {
        name: [one for run in runs_of[name] for one in read_results(run) if one.method == label and one.n]
        for name, label in experiment.labels.items()
    }
    reference = results[experiment.reference]
    variants = [
        {
            "label": name,
            **compare_results(found, reference),
            "zero_shot": compare_results(found, [one.zero_shot for one in found if one.zero_shot is not None]),
            "fallbacks": sum(one.fallbacks for one in found),
            "changes": experiment.facts["variants"][name],
        }
        for name, found in results.items()
    ]
    runs = [*{run.folder: run for found in runs_of.values() for run in found}.values()]
    sessions = [session for run in runs for session in run.document["sessions"]]
    settings = {name: found[-1].settings if found else {} for name, found in results.items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "name": experiment.name,
        "title": experiment.facts["title"],
        "reference": experiment.reference,
        "variants": variants,
        "run_info": {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": sum(session["seconds"] for session in sessions if "seconds" in session),
            "images": sum(one.n for one in reference),
            "experiment": experiment.facts,
        },
        "train_info": settings,
        "meta_info": _origin(runs),
    }


def compare_results(own: Sequence[Result], other: Sequence[Result]) -> dict[str, Any]:
    """Return accuracy, paired difference and exact test on the images that both have, all together and by data set.

    Args:
        own: of a method, by data set.
        other: of what it is compared with.

    Returns:
        `n`, `accuracy` with its 95% Wilson interval (`low`, `high`), `difference` with its paired bootstrap interval
        (`difference_low`, `difference_high`), `gained` and `lost` (images on which one of both alone is correct),
        `p_value` of McNemar's exact test, and `datasets`: for each its `n`, `correct`, `other_correct`, `gained`,
        `lost`. All numbers but the counts are None without an image.
    """
    others = {one.dataset: one for one in other}
    pairs: dict[str, list[np.ndarray]] = {}
    for one in sorted(own, key=lambda one: one.dataset):
        if one.dataset in others:
            positions, correct = common_images([one, others[one.dataset]])
            pairs |= {one.dataset: correct} if len(positions) else {}
    if not pairs:
        return {"n": 0, **dict.fromkeys(_NUMBERS), "gained": 0, "lost": 0, "p_value": None, "datasets": {}}
    found = Comparison.of(*(np.concatenate(side) for side in zip(*pairs.values(), strict=True)))
    change = found.difference
    numbers = (found.accuracy.value, *found.accuracy.interval, change.value, change.low, change.high)
    return {
        "n": found.n,
        **dict(zip(_NUMBERS, numbers, strict=True)),
        "gained": found.gained,
        "lost": found.lost,
        "p_value": found.p_value,
        "datasets": {name: _counts(Comparison.of(*correct)) for name, correct in pairs.items()},
    }


_NUMBERS = ("accuracy", "low", "high", "difference", "difference_low", "difference_high")


def _counts(found: Comparison) -> dict[str, int]:
    correct = {"n": found.n, "correct": found.accuracy.correct, "other_correct": found.reference.correct}
    return {**correct, "gained": found.gained, "lost": found.lost}


def _origin(runs: Sequence[Run]) -> dict[str, Any]:
    """Return with what and on what the runs were made, each thing once."""
    configs = [run.document["config"] for run in runs]
    sessions = [(run.document["config"], session) for run in runs for session in run.document["sessions"]]
    return {
        "faircontext": __version__,
        "versions": _once([{**config["versions"], **session["versions"]} for config, session in sessions]),
        "backbones": _once([config["backbone"] for config in configs]),
        "datasets": {config["dataset"]["name"]: config["dataset"]["hash"] for config in configs},
        "hardware": sorted({f"{session['processor']}, {session['threads']} threads" for _, session in sessions}),
    }


def _once(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({json.dumps(one, sort_keys=True): one for one in found}.values())


def _lines(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """Return the results as they are printed."""
    lines = [
        f"\n{experiment.name}: {experiment.facts['title']}",
        f"{'variant':18} {'n':>5}  top-1   over {experiment.reference}, 95%   right/lost   p   over zero-shot, 95%",
    ]
    for one in document["variants"]:
        if not one["n"]:
            lines.append(f"{one['label']:18} {0:>5}")
            continue
        lines.append(
            f"{one['label']:18} {one['n']:>5} {100 * one['accuracy']:>6.1f}   {_difference(one)}"
            f"   {one['gained']:>3}/{one['lost']:<3} {one['p_value']:>6.3g}   {_difference(one['zero_shot'])}"
        )
    return lines


def _difference(found: Mapping[str, Any]) -> str:
    value, low, high = (100 * found[key] for key in ("difference", "difference_low", "difference_high"))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
