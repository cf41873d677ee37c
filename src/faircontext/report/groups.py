"""Runs sorted into groups that one table can show: what differs is the method and the data set alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from faircontext.bench.store import Run, load_runs
from faircontext.errors import ArgumentError
from faircontext.report.reported import SETS
from faircontext.report.results import Result, read_results

__all__ = ["Group", "group_runs", "method_title", "read_runs", "remarks", "set_title"]

TITLES = {
    "zero_shot": "Zero-shot",
    "tpt": "TPT",
    "ctpt": "C-TPT",
    "rlcf": "RLCF",
    "mta": "MTA",
    "zero": "ZERO",
    "ttl": "TTL",
    "tps": "TPS",
    "rtpt": "R-TPT",
    "fcl": "FCL",
}
"""Methods in the order of the paper's rows."""

_Key = tuple[str, str | None, str, str, str, int, str]
"""The first fields of a `Group`."""


@dataclass(frozen=True)
class Group:
    """Results that one table shows.

    Attributes:
        backbone, pretrained, precision, preset, prompts, seed: what all have in common.
        family: `natural-shift`, `fine-grained` or `own`.
        results: by name of the data set and by method, both in the order of the table.
    """

    backbone: str
    pretrained: str | None
    precision: str
    preset: str
    prompts: str
    seed: int
    family: str
    results: Mapping[str, Mapping[str, Result]]

    @property
    def title(self) -> str:
        """What all have in common, in words."""
        kind = {
            "natural-shift": "natural distribution shifts",
            "fine-grained": "fine-grained sets",
            "own": "other sets",
        }
        weights = ", ".join(word for word in (self.pretrained, self.precision) if word)
        return (
            f"{self.backbone} ({weights}) on {kind[self.family]}; preset {self.preset}, prompts {self.prompts}, "
            f"seed {self.seed}"
        )

    @cached_property
    def methods(self) -> list[str]:
        """What the methods are called, in the order of rows: the paper's, each variant after its method."""
        found = dict.fromkeys(name for results in self.results.values() for name in results)
        order = list(TITLES)
        rank = {name: order.index(base) if (base := name.partition("-")[0]) in order else len(order) for name in found}
        return sorted(found, key=lambda name: (rank[name], "-" in name))

    def row(self, method: str) -> dict[str, Result]:
        """Return a method's results that have answers, by data set."""
        return {name: found[method] for name, found in self.results.items() if method in found and found[method].number}


def method_title(name: str) -> str:
    """Return what the paper calls a method; `fcl-50` becomes `FCL-50`."""
    base, dash, variant = name.partition("-")
    return f"{TITLES[base]}{dash}{variant}" if base in TITLES else name


def set_title(name: str) -> str:
    """Return the heading that the paper gives a data set, its name where it is none of the paper's."""
    return next((sets[name] for sets in SETS.values() if name in sets), name)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read all runs below some folders, each once.

    Raises:
        ArgumentError: there is none, or one cannot be read.
    """
    if not folders:
        raise ArgumentError("give at least one folder of runs, as faircontext evaluate --out makes it")
    runs: dict[Path, Run] = {}
    for folder in folders:
        try:
            found = load_runs(folder)
        except (KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(f"{folder}: holds a run.json that lacks {error}; delete it or name its run") from None
        runs |= {run.folder.resolve(): run for run in found if run.folder.resolve() not in runs}
    return list(runs.values())


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Sort the results of runs into groups.

    Raises:
        ArgumentError: a method was measured on a data set by two runs of one group, or a `run.json` lacks something.
    """
    groups: dict[_Key, dict[str, dict[str, Result]]] = {}
    for run in runs:
        try:
            key, name, results = _key(run), str(run.document["config"]["dataset"]["name"]), read_results(run)
            _ = [(result.planned, result.hash) for result in results]
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"{run.folder / 'run.json'}: is no description of a run ({error!r})") from None
        if results:  # a run of analyses has none
            _add(groups.setdefault(key, {}).setdefault(name, {}), results)
    families = [*SETS, "own"]
    keys = sorted(groups, key=lambda key: (key[0], families.index(key[-1]), *map(str, key[1:-1])))
    return [Group(*key, _in_order(key[-1], groups[key])) for key in keys]


def _key(run: Run) -> _Key:
    config = run.document["config"]
    backbone, name = config["backbone"], config["dataset"]["name"]
    family = next((family for family, sets in SETS.items() if name in sets), "own")
    # `pretrained` stands beside the backbone, or among its facts.
    pretrained = config.get("pretrained", backbone.get("pretrained"))
    return (
        str(backbone["name"]),
        pretrained,
        str(backbone["precision"]),
        str(config["preset"]),
        str(config["prompts"]),
        int(config["seed"]),
        family,
    )


def _add(held: dict[str, Result], results: Sequence[Result]) -> None:
    """Take the results of one more run on a data set; zero-shot, which is part of every run, may be there already."""
    alone = [result.method for result in results] == ["zero_shot"]
    for result in results:
        other = held.get(result.method)
        if other is None:
            held[result.method] = result
        elif result.method != "zero_shot" or (alone and other.config["methods"].keys() == {"zero_shot"}):
            raise _doubled(other, result)
        elif result.number > other.number:
            held[result.method] = result


def _doubled(first: Result, second: Result) -> ArgumentError:
    name, both = first.config["dataset"]["name"], f"{first.run.folder} and {second.run.folder}"
    if first.config["shard"] is not None and second.config["shard"] is not None:
        return ArgumentError(f"{both}: are shards of {name}; join them with faircontext merge, or name one")
    how = "the same settings" if first.hash == second.hash else "other settings"
    return ArgumentError(
        f"{both}: both measure {first.method} on {name}, with {how}; name one, or call a variant {first.method}-SUFFIX"
    )


def _in_order(family: str, results: Mapping[str, dict[str, Result]]) -> dict[str, dict[str, Result]]:
    order = [*SETS.get(family, {}), *sorted(results)]
    return {name: results[name] for name in dict.fromkeys(order) if name in results}


def remarks(groups: Sequence[Group]) -> list[str]:
    """Return a line for each run that is not whole: not complete, or a shard."""
    found: dict[Path, str] = {}
    for group in groups:
        for result in (result for results in group.results.values() for result in results.values()):
            run, shard = result.run, result.config["shard"]
            part = "" if shard is None else f"shard {shard[0]} of {shard[1]} (counted from 0); "
            if shard is not None or not run.complete:
                found[run.folder] = f"{part}{result.number + result.refused:,} of {result.planned:,} images so far"
    return [f"{folder}: {remark}" for folder, remark in found.items()]
