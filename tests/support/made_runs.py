"""Runs with known answers, written as `evaluate` writes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from faircontext.runs.orders import arrange, run_name
from faircontext.runs.records import Answer
from faircontext.runs.store import RunStore

CLASSES = 10


def describe_run(
    dataset: str,
    methods: Mapping[str, Mapping[str, Any]],
    images: int = 20,
    classes: int = CLASSES,
    backbone: str = "ViT-B-16",
    **config: Any,
) -> dict[str, Any]:
    """Return what the `run.json` of a run says before it begins; its rows have the hash `abc`."""
    counts = {"classes": classes, "images": images, "listed": images}
    return {
        "schema_version": 2,
        "config": {
            "dataset": {"name": dataset, "split": "test", **counts, "hash": dataset},
            "backbone": {"name": backbone, "precision": "fp32"},
            "preset": "paper",
            "prompts": "single",
            "seed": 0,
            "limit": None,
            "shard": None,
            **config,
            "methods": methods,
        },
        "hashes": dict.fromkeys(methods, "abc"),
    }


def write_run(
    folder: Path,
    dataset: str,
    right: Mapping[str, Sequence[int]],
    images: int = 20,
    unreadable: Sequence[int] = (),
    answered: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    backbone: str = "ViT-B-16",
    labels: Sequence[int] | None = None,
    confidence: Sequence[float] | None = None,
    arranged: Sequence[int] = (),
    states: Mapping[str, Mapping[str, Any]] | None = None,
    **config: Any,
) -> Path:
    """Write a run in which each method has some images right, by their positions, and return its folder.

    Args:
        folder: of the run.
        dataset: its data set.
        right: for each method, the images that it has right; a wrong answer is the class after the true one.
        images: how many there are.
        unreadable: images whose files are unreadable.
        answered: how many have come; fewer than all leave the run incomplete.
        settings: of methods.
        backbone: its name.
        labels: true classes; the position modulo 10 where they are not given.
        confidence: of all methods, by position; 0.6 where it is not given.
        arranged: positions in the order in which methods with a memory, those of `states`, have seen their images.
        states: of methods with a memory, at the end.
        **config: what else `run.json` says, for example limit, shard, seed, pretrained, listed or split.
    """
    names = [*right]
    dataset_facts = {name: config.pop(name) for name in ("listed", "split") if name in config}
    methods = {name: dict((settings or {}).get(name, {})) for name in names}
    document = describe_run(dataset, methods, images, backbone=backbone, **{"pretrained": "openai"} | config)
    document["config"]["dataset"] |= dataset_facts
    document["hashes"] = {name: f"{name}:{sorted(methods[name].items())}" for name in names}
    with RunStore(folder, document, names, resume=False) as store:
        for position in range(images if answered is None else answered):
            label = position % CLASSES if labels is None else labels[position]
            records = [_record(dataset, position, label, name, right, position in unreadable) for name in names]
            if confidence is not None:
                records = [replace(record, confidence=confidence[position]) for record in records]
            if position in arranged and position not in unreadable:
                text = json.dumps({"t": [*arranged].index(position) + 1})
                records = [replace(r, diagnostics=text) if r.method in (states or {}) else r for r in records]
            store.add(records)
        if answered is None:
            store.update(**({} if states is None else {"states": states}))
            store.finish()
    return folder


def write_stream(
    folder: Path,
    dataset: str,
    right: Mapping[str, Sequence[int]],
    order: int,
    memory: Sequence[str] = ("tda",),
    tuned: Sequence[str] = (),
    arrangement: str = "shuffled",
    images: int = 20,
    **more: Any,
) -> Path:
    """Write a run of methods with a memory, see `write_run`.

    Args:
        folder: below which the run's folder lies, called as `evaluate` calls it.
        dataset: its data set.
        right: for each method, the images that it has right.
        order: of the images.
        memory: which methods have a memory.
        tuned: which of them have settings that their authors chose for the data set.
        arrangement: what the run says of how classes lie in the stream.
        images: how many there are.
        **more: see `write_run`.
    """
    facts = {"methods": [*memory], "order": order, "arrangement": arrangement, "horizon": images, "streams": 1}
    state = {"seen": images, "chain": "abc", "megabytes": 1.5, "backward_passes": 0}
    return write_run(
        folder / run_name(dataset, None, None, order, arrangement),
        dataset,
        right,
        images,
        arranged=arrange(np.arange(images), order).tolist(),
        states=dict.fromkeys(memory, state),
        stream=facts | {"tuned": [*tuned]},
        **more,
    )


def _record(
    dataset: str, position: int, label: int, method: str, right: Mapping[str, Sequence[int]], unreadable: bool
) -> Answer:
    common: dict[str, Any] = {
        "path": f"{position:05}.png",
        "label": "missile",  # all classes have one name: only the index tells them apart
        "method": method,
        "dataset": dataset,
        "config": "abc",
        "position": position,
        "label_index": label,
    }
    if unreadable:
        return Answer(**common, error="truncated")
    wrong = (label + 1) % CLASSES
    index = label if position in right[method] else wrong
    first = label if position in right.get("zero_shot", ()) else wrong
    rest = [(label + step) % CLASSES for step in range(2, 6)]  # a wrong answer's second guess is right on even images
    top5 = (label, wrong, *rest[:3]) if index == label else (wrong, label if position % 2 == 0 else rest[3], *rest[:3])
    probability = 0.6 if index == label else 0.3 if position % 2 == 0 else 0.05
    return Answer(
        **common,
        zero_shot="missile",
        prediction="missile",
        confidence=0.6,
        zero_shot_index=first,
        index=index,
        top5=top5,
        top5_probabilities=(0.6, 0.1, 0.1, 0.1, 0.1),
        label_probability=probability,
        probability_norm=0.5,
    )
