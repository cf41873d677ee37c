"""What an ablation's runs say: each variant compared with the reference and with zero-shot, on the same images."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from faircontext import __version__
from faircontext.bench.pooled import compare_pooled, read_answers
from faircontext.runs.experiments import Experiment
from faircontext.runs.store import Run

__all__ = ["SCHEMA_VERSION", "conclude"]

SCHEMA_VERSION = 1


def conclude(experiment: Experiment, answered: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return the results of an experiment as they are written: see the page on ablations.

    Args:
        experiment: what was asked.
        answered: for each variant the runs that hold it, as it is asked now.
    """
    answers = {name: read_answers(answered[name], label) for name, label in experiment.labels.items()}
    reference = answers[experiment.reference]
    variants = [
        {
            "label": name,
            **compare_pooled(found.correct, reference.correct),
            "zero_shot": compare_pooled(found.correct, found.zero_shot),
            "fallbacks": found.fallbacks,
            "changes": experiment.facts["variants"][name],
        }
        for name, found in answers.items()
    ]
    runs = [*{run.folder: run for found in answered.values() for run in found}.values()]
    sessions = [session for run in runs for session in run.document["sessions"]]
    return {
        "schema_version": SCHEMA_VERSION,
        "name": experiment.name,
        "title": experiment.facts["title"],
        "reference": experiment.reference,
        "variants": variants,
        "run_info": {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": sum(session["seconds"] for session in sessions if "seconds" in session),
            "images": len(reference.correct),
            "experiment": experiment.facts,
        },
        "train_info": {name: found.settings for name, found in answers.items()},
        "meta_info": _origin(runs),
    }


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
