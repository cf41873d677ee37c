"""What was run, in words: settings that runs have in common, each run with its images and minutes, refused files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from faircontext.bench.store import Run
from faircontext.report.groups import Group, method_title, set_title
from faircontext.report.sheets import Cell, Sheet

__all__ = ["facts", "minutes", "refused_files", "runs_of", "runs_table", "settings"]


def runs_of(group: Group) -> list[Run]:
    """Return the runs that a group's results come from, each once."""
    found = {id(r.run): r.run for results in group.results.values() for r in results.values()}
    return list(found.values())


def minutes(run: Run) -> float:
    """Return how long a run took, all its sessions together."""
    return sum(float(session.get("seconds") or 0.0) for session in run.document.get("sessions", [])) / 60


def facts(group: Group) -> list[tuple[str, str]]:
    """Return what was run, by name; where runs differ, all that was found."""
    runs = runs_of(group)
    configs = [run.document["config"] for run in runs]
    sessions = [session for run in runs for session in run.document.get("sessions", [])]
    weights = [str(found["weights"])[:12] for c in configs if (found := c["backbone"]).get("weights")]
    rows = [
        ("Backbone", [group.backbone]),
        ("Weights", [group.pretrained] if group.pretrained else ["the backbone's own"]),
        ("Hash of the weights", weights),
        ("Precision", [group.precision]),
        ("Device", [str(c["backbone"]["device"]) for c in configs if "device" in c["backbone"]]),
        ("Preset", [group.preset]),
        ("Prompts", [f"{group.prompts}: {_some(c['templates'])}" for c in configs if c.get("templates")]),
        ("Seed", [str(group.seed)]),
        ("Views", [_views(c["views"]) for c in configs if "views" in c]),
        ("Versions", [_versions(c, run) for c, run in zip(configs, runs, strict=True)]),
        ("Machine", [_machine(session) for session in sessions]),
        ("Time", [f"{sum(map(minutes, runs)):,.0f} minutes in {len(runs)} run{'s' if len(runs) != 1 else ''}"]),
    ]
    return [(name, "; ".join(found)) for name, values in rows if (found := [v for v in dict.fromkeys(values) if v])]


def _some(templates: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(f"“{template}”" for template in templates[:most])
    return shown + (f" and {len(templates) - most} more" if len(templates) > most else "")


def _views(views: Mapping[str, Any]) -> str:
    scale = " to ".join(f"{end:g}" for end in views.get("scale", ()))
    return ", ".join(
        words
        for words, there in (
            (f"{views.get('number')} of each image", "number" in views),
            (f"crops of {scale} of its area", bool(scale)),
            (f"flipped with probability {views.get('flip')}", "flip" in views),
            (f"AugMix {views.get('augmix')}", "augmix" in views),
        )
        if there
    )


def _versions(config: Mapping[str, Any], run: Run) -> str:
    found = dict(config.get("versions", {}))
    for session in run.document.get("sessions", []):
        found |= session.get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _machine(session: Mapping[str, Any]) -> str:
    words = [str(session[name]) for name in ("processor", "system") if session.get(name)]
    if session.get("processors"):
        words.insert(1, f"{session['processors']} processors")
    return ", ".join(words)


def settings(group: Group) -> list[tuple[str, str]]:
    """Return the settings of each method; where they differ between data sets, a line for each."""
    lines = []
    for method in group.methods:
        found: dict[str, list[str]] = {}
        for name, results in group.results.items():
            if method in results:
                values = results[method].config["methods"][method]
                text = ", ".join(f"{key} {_short(value)}" for key, value in values.items()) or "no settings"
                found.setdefault(text, []).append(set_title(name))
        for text, sets in found.items():
            lines.append((method_title(method), text if len(found) == 1 else f"{', '.join(sets)}: {text}"))
    return lines


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(map(str, value))
    return "none" if value is None else str(value)


def runs_table(group: Group) -> Sheet:
    """Return a table with a row per run."""
    rows = []
    for run in runs_of(group):
        config, title = run.document["config"], set_title(run.document["config"]["dataset"]["name"])
        images = len(set(run.rows["path"].to_pylist()))
        cells = (
            title,
            config["dataset"]["split"],
            ", ".join(method_title(name) for name in config["methods"]),
            f"{images:,} of {config['dataset']['listed']:,}",
            f"{config['dataset']['classes']:,}",
            f"{minutes(run):,.1f}",
            "yes" if run.complete else "no",
        )
        rows.append(tuple(map(Cell, cells)))
    columns = ("Data set", "Split", "Methods", "Images", "Classes", "Minutes", "Complete")
    return Sheet("Runs", columns, tuple(rows), words=3)


def refused_files(runs: Iterable[Run]) -> Iterator[tuple[str, str, str]]:
    """Yield data set, path and reason of each file that had no answer, once for each data set."""
    seen = set()
    for run in runs:
        name = set_title(run.document["config"]["dataset"]["name"])
        columns = (run.rows[column].to_pylist() for column in ("path", "error"))
        for path, reason in zip(*columns, strict=True):
            if reason and (name, path) not in seen:
                seen.add((name, path))
                yield name, path, reason
