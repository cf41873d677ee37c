"""Carry out a file of variants, only what is missing, and compare the variants with a reference, paired by image."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from faircontext import __version__
from faircontext.errors import ArgumentError, check_minimum
from faircontext.files import check_folder, to_json, write_whole
from faircontext.metrics.scores import Comparison, compare_sets
from faircontext.runs.checks import check_same
from faircontext.runs.evaluate import evaluate_missing
from faircontext.runs.experiments import Experiment, ExperimentRun, missing, read_experiment, shared
from faircontext.runs.groups import common_images
from faircontext.runs.option_parts import Say
from faircontext.runs.options import AblationOptions
from faircontext.runs.records import row_name
from faircontext.runs.results import Result, read_results
from faircontext.runs.store import Run

SCHEMA_VERSION = 1


def ablate(name: str, out: Path, options: AblationOptions, say: Say, warn: Say) -> int:
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
    _check_settings(experiment)
    folder, unreadable = out / experiment.name, False
    _check_same(folder / "experiment.json", experiment)
    runs_of: dict[str, list[Run]] = {name: [] for name in experiment.labels}
    for requested in experiment.runs:
        for path, earlier in _passes(requested, folder / requested.group).items():
            # A variant that was changed or taken out of the file since is left where it is, and is in no result.
            if labels := shared(requested, earlier):
                runs = evaluate_missing(earlier.evaluation(options, path, features=out / "features"), say, warn)
                unreadable = unreadable or any(run.unreadable for run in runs)
                for variant, label in experiment.labels.items():
                    runs_of[variant] += runs if label in labels else []
    document = ablation_results(experiment, runs_of)
    if len(document["meta_info"]["backbones"]) > 1:
        warn(f"{folder}: variants were not all answered by one model, in one precision on one kind of device")
    path = folder / f"{experiment.name}.results.json"
    write_whole(path, to_json(document))
    for line in (*_lines(experiment, document), str(path)):
        say(line)
    return int(unreadable)


def _changed(experiment: Experiment, options: AblationOptions) -> Experiment:
    """Return the experiment with what the options change of it."""
    check_minimum("limit", 1 if options.limit is None else options.limit, 1)
    changes = {"limit": options.limit, "backbone": options.backbone, "pretrained": options.pretrained}
    facts = {**experiment.facts, **{key: value for key, value in changes.items() if value}}
    return replace(experiment, facts=facts)


def _check_same(path: Path, experiment: Experiment) -> None:
    """Refuse to go on with runs of another experiment; variants may come and go."""
    ignored = ("variants", "title", "reference")
    now = {key: value for key, value in experiment.facts.items() if key not in ignored}
    if path.exists() and any(path.parent.glob("*/*/*/run.json")):  # what was wrong before any run can be put right
        check_same(path.parent, _read(path), now)
        return
    check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, to_json(now))


def _passes(requested: ExperimentRun, folder: Path) -> dict[Path, ExperimentRun]:
    """Return what has been asked in each folder, together all variants: what is new gets a folder of its own."""
    paths = sorted(path.parent for path in folder.glob("*/variants.json"))
    passes = {}
    for path in (path for path in paths if any(path.glob("*/run.json"))):  # others ended before they began
        methods = {label: tuple(overrides) for label, overrides in _read(path / "variants.json").items()}
        passes[path] = replace(requested, methods=methods)
    if new := missing(requested, passes.values()):
        path = next(path for index in count(1) if (path := folder / f"{index:03}") not in passes)
        path.mkdir(parents=True, exist_ok=True)
        write_whole(
            path / "variants.json", to_json({label: list(overrides) for label, overrides in new.methods.items()})
        )
        passes[path] = new
    return passes


def _read(path: Path) -> dict[str, Any]:
    # What has to go: a pass that does not say what it holds, but no run for the sake of `experiment.json`.
    lost = str(path.parent if path.name == "variants.json" else "it")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path}: cannot be read ({error}); delete {lost}") from None
    if not isinstance(document, dict):
        raise ArgumentError(f"{path}: holds no JSON object; delete {lost}")
    return document


def _check_settings(experiment: Experiment) -> None:
    """Refuse settings that no method takes before anything is run."""
    for run in experiment.runs:
        try:
            run.settings()
        except ArgumentError as error:
            raise ArgumentError(f"{experiment.name}: {error}") from None


def ablation_results(experiment: Experiment, runs_of: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return the results of an experiment as they are written: see the page on ablations.

    Args:
        experiment: what was asked.
        runs_of: for each variant the runs that hold it, as it is asked now.
    """
    results = {
        name: [one for run in runs_of[name] for one in read_results(run) if one.method == row_name(label) and one.n]
        for name, label in experiment.labels.items()
    }
    reference = results[experiment.reference]
    variants = [
        {
            "label": name,
            **compare_results(own, reference),
            "zero_shot": compare_results(own),
            "fallbacks": sum(one.fallbacks for one in own),
            "changes": experiment.facts["variants"][name],
        }
        for name, own in results.items()
    ]
    runs = list({run.folder: run for group in runs_of.values() for run in group}.values())
    sessions = [session for run in runs for session in run.document["sessions"]]
    return {
        "schema_version": SCHEMA_VERSION,
        "name": experiment.name,
        "title": experiment.title,
        "reference": experiment.reference,
        "variants": variants,
        "run_info": {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": sum(session["seconds"] for session in sessions if "seconds" in session),
            "images": sum(one.n for one in reference),
            "experiment": experiment.facts,
        },
        "train_info": {name: own[-1].settings if own else {} for name, own in results.items()},
        "meta_info": _origin(runs),
    }


def compare_results(own: Sequence[Result], other: Sequence[Result] | None = None) -> dict[str, Any]:
    """Return accuracy, paired difference and exact test on the images that both have, all together and by data set.

    Args:
        own: of a method, by data set.
        other: of what it is compared with; None for zero-shot, on each one's images.

    Returns:
        `n`, `accuracy` with its 95% Wilson interval (`low`, `high`), `difference` with its paired bootstrap interval
        (`difference_low`, `difference_high`) and, of five data sets or more, the interval over sets like these
        (`difference_sets_low`, `difference_sets_high`, else None), `gained` and `lost` (images on which one of both
        alone is correct), `p_value` of McNemar's exact test, and `datasets`: for each its `n`, `correct`,
        `other_correct`, `gained`, `lost`. All numbers but the counts are None without an image.
    """
    others = None if other is None else {one.dataset: one for one in other}
    known = {one.dataset: _compared(one, others) for one in sorted(own, key=lambda one: one.dataset)}
    comparisons = {name: compared for name, compared in known.items() if compared is not None}
    if not comparisons:
        return {"n": 0, **dict.fromkeys(_NUMBERS), "gained": 0, "lost": 0, "p_value": None, "datasets": {}}
    whole, change = Comparison.pooled(comparisons.values()), compare_sets([*comparisons.values()])
    ends = (None, None) if change.sets is None else (change.sets.low, change.sets.high)
    numbers = (whole.accuracy.value, *whole.accuracy.interval, *vars(change.images).values(), *ends)
    return {
        "n": whole.n,
        **dict(zip(_NUMBERS, numbers, strict=True)),
        "gained": whole.gained,
        "lost": whole.lost,
        "p_value": whole.p_value,
        "datasets": {name: _counts(compared) for name, compared in comparisons.items()},
    }


def _compared(one: Result, others: Mapping[str, Result] | None) -> Comparison | None:
    """Compare a result with another one of its data set, or with zero-shot; None where they share no image."""
    if others is None:
        return one.comparison
    if one.dataset not in others:
        return None
    positions, correct = common_images([one, others[one.dataset]])
    return Comparison.of(*correct) if len(positions) else None


_NUMBERS = (
    *("accuracy", "low", "high", "difference"),
    *(f"difference_{end}" for end in ("low", "high", "sets_low", "sets_high")),
)


def _counts(compared: Comparison) -> dict[str, int]:
    correct = {"n": compared.n, "correct": compared.accuracy.correct, "other_correct": compared.reference.correct}
    return {**correct, "gained": compared.gained, "lost": compared.lost}


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


def _once(facts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({json.dumps(one, sort_keys=True): one for one in facts}.values())


def _lines(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """Return the results as they are printed."""
    lines = [
        f"\n{experiment.name}: {experiment.title}",
        f"{'variant':18} {'n':>5}  top-1   over {experiment.reference}, 95%   right/lost   p   over zero-shot, 95%",
    ]
    for one in document["variants"]:
        if not one["n"]:
            lines.append(f"{one['label']:18} {0:>5}")
            continue
        lines.append(
            f"{one['label']:18} {one['n']:>5} {100 * one['accuracy']:>6.1f}   {describe_difference(one)}"
            f"   {one['gained']:>3}/{one['lost']:<3} {one['p_value']:>6.3g}   {describe_difference(one['zero_shot'])}"
        )
    return lines


def describe_difference(compared: Mapping[str, Any]) -> str:
    """Return a difference with its interval over these images and, where there is one, that over sets like these."""
    value, *ends = (compared[name] and 100 * compared[name] for name in _NUMBERS[3:])
    images, sets = ("" if low is None else f"{low:+.1f} to {high:+.1f}" for low, high in (ends[:2], ends[2:]))
    return f"{value:+.1f} ({images}{sets and f'; sets {sets}'})"
