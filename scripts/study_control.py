"""Carry out the positive control of docs/results/control.md: plant misaligned contexts, see whether FCL repairs them.

Usage: python scripts/study_control.py DATA --model MODEL [--confirm STUDY] [--out control] [--jobs 2]
    [--page docs/results/control.md]

DATA is the half on which contexts are planted and settings are chosen, STUDY has the further images that are reported,
MODEL is the folder of a trained open_clip model. Without --confirm nothing but the choosing half is run. A call that is
stopped goes on; what is there is not made again. `--tables-only` runs nothing, and `--images N` runs N images of each
set at most, in a folder of its own, and says what all would take.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from control_contexts import KINDS, SETS, Garden, Planting, directions, read_planted
from study_lite import fill

from faircontext.files import to_json, write_whole
from faircontext.methods import create_method
from faircontext.metrics.bootstrap import draw_counts, interval_over_sets, percentile_interval
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import Interval, holm
from faircontext.report.style import colours_of, draw_line, new_figure, save_figure, styled
from faircontext.runs.build import parse_settings
from faircontext.runs.records import method_of, row_name
from faircontext.runs.results import Result, read_results
from faircontext.runs.store import load_runs

MAPS = ("masks=100", "grids=3,4,5,6,7", "estimator=least-squares", "smoothing=0.15")
"""Of every method that looks for evidence: 100 masks, and the maps that repeat (docs/evidence.md)."""

TEN = ("lr=0.006", "steps=10")
METHODS: dict[str, tuple[str, ...]] = {
    "fcl-explore": ("calibrate=false",),
    "fcl-published": ("lr=0.002", "steps=2"),
    "fcl-softmax": TEN,
    "fcl-area10": ("area=0.1", *TEN),
    "fcl-area25": ("area=0.25", *TEN),
    "fcl-area50": ("area=0.5", *TEN),
    "fcl-free": ("area=0.25", "lambda_align=0", *TEN),
    **{f"fcl_variants-{proxy}": (f"proxy={proxy}", *TEN) for proxy in ("grey", "image", "black", "mean")},
    "fcl_variants-unique": ("area=0.25", "anchor=unique", *TEN),
    "fcl_margins": ("area=0.25",),
    "fcl_margins-half": ("area=0.25", "lambda_com=0.5"),
    "contextual": (),
    "contextual-mean": ("content_free=mean",),
    "contextual-black": ("content_free=black",),
    **dict.fromkeys(("tpt", "ctpt", "tps"), ()),
    **{
        f"fcl-lr{rate}-s{steps}": ("area=0.25", f"lr={rate / 1000:g}", f"steps={steps}")
        for rate, steps in (*product((2, 6, 20, 50), (2, 5, 10)), (2, 40), (6, 40))
        if (rate, steps) != (6, 10)  # that is fcl-area25
    },
}
"""Settings of each label, over the preset `paper`."""

EXPLORED, MAIN = "fcl-explore", "fcl-area25"
GRID = tuple(label for label in METHODS if label.startswith("fcl-lr"))
CONTROLS = ("fcl-softmax", "fcl-grey", "fcl-image")
"""What `MAIN` is compared with for the first hypothesis, by the names of rows; corrected for their number."""


@dataclass(frozen=True)
class Part:
    """What is run on what: a row of the table of costs.

    Attributes:
        half: the half of the images.
        kinds: of misalignment; `none` is run besides.
        planted: strength, in points of zero-shot that the planting costs on the choosing half, with the seed.
        images: of each set, at most.
        methods: labels of `METHODS`, and `chosen` for the settings of the choosing half.
    """

    half: str
    kinds: tuple[str, ...]
    planted: tuple[tuple[int, int], ...]
    images: int
    methods: tuple[str, ...]

    def plantings(self) -> list[Planting]:
        """Return all plantings, the untouched contexts first: they encode what all need."""
        planted = product(SETS, self.kinds, self.planted)
        return [*map(Planting, SETS), *(Planting(name, kind, *of) for name, kind, of in planted)]


THREE = KINDS[:3]
TESTED = ((5, 11), (10, 12), (20, 13))
PARTS = {
    "grid": Part("choosing", THREE, ((10, 1),), 12, (EXPLORED, MAIN, *GRID)),
    "variants": Part(
        "choosing",
        THREE,
        ((10, 1),),
        8,
        (
            *(EXPLORED, "fcl-published", "fcl-softmax", "fcl-area10", MAIN, "fcl-area50", "fcl-free"),
            *(f"fcl_variants-{name}" for name in ("grey", "image", "black", "mean", "unique")),
            *("fcl_margins", "fcl_margins-half", "contextual", "contextual-mean", "contextual-black"),
        ),
    ),
    "confirmed": Part(
        "reporting",
        THREE,
        TESTED,
        40,
        (
            *(EXPLORED, "fcl-published", "fcl-softmax", MAIN, "chosen"),
            *("fcl_variants-grey", "fcl_variants-image", "fcl_margins", "contextual"),
        ),
    ),
    "noise": Part("reporting", ("noise",), TESTED[1:2], 40, (EXPLORED, MAIN, "fcl_variants-grey")),
    "rivals": Part(
        "reporting", THREE, TESTED[1:2], 20, (EXPLORED, MAIN, "fcl_variants-unique", "contextual", "tpt", "ctpt", "tps")
    ),
}
"""Sized by what one image costs on one processor, in seconds: views 1.4 and masks 1.7, once for all contexts; for each
context 1.1 for common evidence of one area, 2.2 for unique evidence, 0.045 a step; a command takes about 12 to start.
That is about half an hour of choosing and an hour and a half of reporting on two processors."""

DIRECTED = {
    **{label: METHODS[label] for label in ("fcl-published", "fcl-softmax", MAIN, "fcl_variants-grey")},
    "fcl-end": ("area=0.25", "lr=0.002", "steps=300"),
    "fcl-endfree": ("area=0.25", "lr=0.002", "steps=300", "lambda_align=0"),
}
"""Whose steps are compared with the way back to the clean tokens; the last two are minimised to the end."""

DIRECTED_IMAGES, DIRECTED_STRENGTH = 3, 10
RESAMPLES = 9999


def settings_of(label: str, chosen: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings of a label, with those of the maps where it has any."""
    own = ("area=0.25", *(f"{name}={value}" for name, value in chosen.items())) if label == "chosen" else METHODS[label]
    return (*MAPS, *own) if label.startswith(("fcl", "chosen")) else own


def words_of(labels: Sequence[str], chosen: Mapping[str, Any]) -> list[str]:
    """Return the options of `faircontext evaluate` for some methods."""
    names = {label: "fcl-chosen" if label == "chosen" else label for label in labels}
    given = [f"{names[label]}.{setting}" for label in labels for setting in settings_of(label, chosen)]
    return ["--methods", *names.values(), "--set", *given]


def answer(options: argparse.Namespace, name: str, planting: Planting, chosen: Mapping[str, Any]) -> None:
    """Run the methods of a part on a planting, as a command of its own; one that was stopped goes on."""
    part, context = PARTS[name], options.out / "contexts" / f"{planting.name}.pth"
    if not context.exists():
        return  # it could not be made so strong
    root = options.root if part.half == "choosing" else options.confirm
    place = ("--out", options.runs / name / planting.name, "--features", options.out / "features")
    images = min(part.images, options.images or part.images)
    how = ("--preset", "paper", "--limit", images, "--threads", 1, "--resume")
    where = ("--datasets", planting.dataset, "--root", root, "--backbone", f"local-dir:{options.model}")
    asked = ("evaluate", *where, *words_of(part.methods, chosen), "--context", context, *place, *how)
    command = (sys.executable, "-m", "faircontext", *map(str, asked))
    code = subprocess.run(command, check=False, stdout=subprocess.PIPE).returncode
    if code not in (0, 1):
        raise SystemExit(f"faircontext evaluate on {planting.name} ended with {code}; the same call goes on")


def carry_out(options: argparse.Namespace, name: str, chosen: Mapping[str, Any]) -> None:
    """Plant the contexts of a part and run its methods on them."""
    part, started = PARTS[name], perf_counter()
    garden = Garden(options.root, options.model, options.out)
    for dataset in SETS:
        garden.plant_none(dataset)
        for kind, seed in product(part.kinds, dict.fromkeys(seed for _, seed in part.planted)):
            garden.plant(dataset, kind, seed, [strength for strength, own in part.planted if own == seed])
    planted, plantings = perf_counter(), part.plantings()
    with ThreadPoolExecutor(options.jobs) as pool:
        for some in (plantings[: len(SETS)], plantings[len(SETS) :]):
            list(pool.map(lambda planting: answer(options, name, planting, chosen), some))
    seconds, images = perf_counter() - planted, min(part.images, options.images or part.images)
    whole = seconds / images * part.images / 60
    print(f"{name}: planted in {planted - started:.0f} s, answered in {seconds:.0f} s; {whole:.0f} minutes for all")


def direct(options: argparse.Namespace) -> None:
    """Compare steps with the way back, on some images of the reporting half."""
    garden = Garden(options.root, options.model, options.out)
    methods = {
        row_name(label): create_method(method_of(label), **parse_settings(method_of(label), (*MAPS, *settings)))
        for label, settings in DIRECTED.items()
    }
    for planting in PARTS["confirmed"].plantings():
        path = options.out / "directions" / f"{planting.name}.json"
        if planting.strength == DIRECTED_STRENGTH and not path.exists() and garden.file(planting).exists():
            rows = directions(garden, planting, options.confirm, methods, DIRECTED_IMAGES)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, to_json([{"dataset": planting.dataset, "kind": planting.kind, **row} for row in rows]))


# Summary


@dataclass(frozen=True)
class Answered:
    """Which images each method has right with a planted context, and exploration with the clean one."""

    planting: Planting
    correct: Mapping[str, np.ndarray]
    clean: np.ndarray

    def difference(self, method: str, reference: str) -> np.ndarray:
        """Return what a method has over another, by image: 1, 0 or -1."""
        return self.correct[method].astype(np.float64) - self.correct[reference]

    @property
    def lost(self) -> np.ndarray:
        """What planting cost exploration, by image: the denominator of recovery."""
        return self.clean.astype(np.float64) - self.correct[EXPLORED]


def read_part(folder: Path, name: str) -> list[Answered]:
    """Read the runs of a part; one that is not complete is left out, with a line about it."""
    found: dict[Planting, dict[str, Result]] = {}
    for planting in PARTS[name].plantings():
        if (folder / name / planting.name).exists():
            (run,) = load_runs(folder / name / planting.name)
            if run.complete:
                found[planting] = {result.method: result for result in read_results(run)}
            else:
                print(f"{name}: {planting.name} is not complete, and left out", file=sys.stderr)
    answered = []
    whole = ((planting, results) for planting, results in found.items() if Planting(planting.dataset) in found)
    for planting, results in whole:
        clean = found[Planting(planting.dataset)][EXPLORED]
        if any(not result.same_images(clean) for result in results.values()):
            raise SystemExit(f"{name}: {planting.name} was answered on other images than the clean context")
        correct = {label: result.correct for label, result in results.items()}
        answered.append(Answered(planting, correct, clean.correct))
    return answered


def drawn_sums(some: Sequence[Answered], columns: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Return sums of columns over resampled images, (resamples, columns): an image is drawn with all its plantings.

    Args:
        some: what was answered.
        columns: for each of them, numbers per image.
    """
    by_set = sums_by_image(some, columns)
    return sum(image_counts(name, len(rows)) @ rows for name, rows in by_set.items())


def sums_by_image(some: Sequence[Answered], columns: Sequence[Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    """Return sums of columns over the plantings of each set, (images, columns)."""
    found: dict[str, np.ndarray] = {}
    for one, own in zip(some, columns, strict=True):
        name = one.planting.dataset
        found[name] = found.get(name, 0.0) + np.stack([*own], 1)
    return found


@cache
def image_counts(name: str, n: int) -> np.ndarray:
    """Return how often each image of a set occurs in each resample; the same for all that is compared."""
    return np.concatenate([*draw_counts(n, RESAMPLES, SETS.index(name))]).astype(np.float64)


def flipped_p(some: Sequence[Answered], differences: Sequence[np.ndarray]) -> float:
    """Return the two-sided p-value of a sign-flip test over images: an image keeps its plantings together.

    Under the null hypothesis an image's sum of differences is as probable as its negative. McNemar's test, which takes
    the same image in several plantings for several images, finds too much.
    """
    sums = np.concatenate([*sums_by_image(some, [(own,) for own in differences]).values()])[:, 0]
    signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(RESAMPLES, len(sums)))
    return (1 + int((np.abs(signs @ sums) >= abs(sums.sum()) - 1e-9).sum())) / (1 + RESAMPLES)


def recovery(some: Sequence[Answered], method: str) -> Interval:
    """Return the recovery of a method with its paired bootstrap interval over images; NaN where nothing was lost."""
    columns = [(one.difference(method, EXPLORED), one.lost) for one in some]
    gained, lost = (sum(float(own[index].sum()) for own in columns) for index in range(2))
    if lost <= 0:
        return Interval(math.nan, math.nan, math.nan)
    draws = drawn_sums(some, columns)
    ratios = np.divide(draws[:, 0], draws[:, 1], out=np.full(len(draws), np.nan), where=draws[:, 1] > 0)
    return percentile_interval(gained / lost, ratios)


def change(some: Sequence[Answered], method: str, reference: str) -> dict[str, Any]:
    """Return the difference of two methods on the same plantings and images, with its intervals and tests."""
    differences = [one.difference(method, reference) for one in some]
    n = sum(map(len, differences))
    images = percentile_interval(
        sum(float(own.sum()) for own in differences) / n, drawn_sums(some, [(own,) for own in differences])[:, 0] / n
    )
    of_sets: dict[str, list[np.ndarray]] = {}
    for one, own in zip(some, differences, strict=True):
        of_sets.setdefault(one.planting.dataset, []).append(own)
    over = {
        "plantings": interval_over_sets(differences) if len(of_sets) > 1 else None,
        "sets": interval_over_sets([np.concatenate(own) for own in of_sets.values()]),
    }
    counts = Comparison.pooled(Comparison.of(one.correct[method], one.correct[reference]) for one in some)
    return {
        "over": reference,
        "difference": images.value,
        "images": [images.low, images.high],
        **{name: None if value is None else [value.low, value.high] for name, value in over.items()},
        "gained": counts.gained,
        "lost": counts.lost,
        "mcnemar": counts.p_value,
        "p_value": flipped_p(some, differences),
    }


def cell(some: Sequence[Answered], method: str, **where: Any) -> dict[str, Any]:
    """Return all that is said of a method on some plantings."""
    found = recovery(some, method)
    return {
        **where,
        "method": method,
        "plantings": len(some),
        "n": sum(len(one.clean) for one in some),
        "right": sum(int(one.correct[method].sum()) for one in some),
        "explored": sum(int(one.correct[EXPLORED].sum()) for one in some),
        "clean": sum(int(one.clean.sum()) for one in some),
        **{name: known(getattr(found, at)) for name, at in (("recovery", "value"), ("low", "low"), ("high", "high"))},
        **change(some, method, EXPLORED),
    }


def cells(answered: Sequence[Answered]) -> Iterator[dict[str, Any]]:
    """Yield the numbers of every kind, strength and method, and of each set with all strengths together."""
    kinds = dict.fromkeys(one.planting.kind for one in answered)
    strengths = [*sorted({one.planting.strength for one in answered} - {0}), None]
    scopes = [*product(strengths, [None]), *product([None], SETS)]
    for kind, (strength, dataset) in product([*kinds, None], scopes):
        some = [
            one
            for one in answered
            if one.planting.kind == (kind or one.planting.kind)
            and (kind is not None or one.planting.kind in THREE)
            and one.planting.strength == (strength if strength is not None else one.planting.strength)
            and one.planting.dataset == (dataset or one.planting.dataset)
        ]
        for method in some[0].correct if some else ():
            yield cell(some, method, kind=kind or "three", strength=strength, set=dataset or "all")


def registered(answered: Sequence[Answered]) -> dict[str, Any]:
    """Return the tests of the registered hypotheses, corrected as the page says."""
    some = [one for one in answered if one.planting.kind in THREE]
    if not some:
        return {}
    first = [change(some, MAIN, reference) for reference in CONTROLS]
    for found, adjusted in zip(first, holm([found["p_value"] for found in first]), strict=True):
        found["holm"] = adjusted
    unharmed = [one for one in answered if one.planting.kind == "none"]
    return {
        "localisation": first,
        "method": change(some, MAIN, EXPLORED),
        "harmless": change(unharmed, MAIN, EXPLORED) if unharmed else None,
    }


def choose_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return learning rate and steps with the largest recovery that cost at most half a point without planting.

    Of equal ones the fewer steps, then the smaller rate. Where none is harmless, or nothing was run, those of `MAIN`.
    """
    parsed = {label: parse_settings("fcl", METHODS[label]) for label in (MAIN, *GRID)}
    found = {(one["kind"], one["strength"], one["set"], one["method"]): one for one in document.get("grid", ())}
    candidates = []
    for label, settings in parsed.items():
        planted, untouched = found.get(("three", None, "all", label)), found.get(("none", None, "all", label))
        if planted and untouched and planted["recovery"] is not None and untouched["difference"] >= -0.005:
            candidates.append((-planted["recovery"], settings["steps"], settings["lr"], label))
    best = parsed[min(candidates)[-1] if candidates else MAIN]
    return {"lr": best["lr"], "steps": best["steps"]}


def summarise(options: argparse.Namespace) -> dict[str, Any]:
    """Return the document beside the page."""
    parts = {name: answered for name in PARTS if (answered := read_part(options.runs, name))}
    paths = sorted((options.out / "directions").glob("*.json"))
    steps = [row for path in paths for row in json.loads(path.read_text(encoding="utf-8"))]
    document: dict[str, Any] = {name: [*cells(answered)] for name, answered in parts.items()}
    return {
        **document,
        "chosen": choose_settings(document),
        "registered": registered(parts.get("confirmed", ())),
        "directions": steps,
        "contexts": read_planted(options.out / "contexts"),
        "settings": {label: [*settings_of(label, {})] for label in METHODS},
    }


def known(value: float) -> float | None:
    return None if math.isnan(value) else value


def percent(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{100 * value:{sign}.1f}"


def span(ends: Sequence[float | None] | None, sign: str = "") -> str:
    return "none" if ends is None or None in ends else f"{percent(ends[0], sign)} to {percent(ends[1], sign)}"


def table(rows: Sequence[Mapping[str, Any]], kind: str, strength: int | None = None) -> Iterator[str]:
    """Yield a table of all methods on one kind of misalignment, all sets together."""
    yield "| method | n | top-1 | over exploration | images | plantings | alone right | p | recovery |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        if (row["kind"], row["strength"], row["set"]) == (kind, strength, "all"):
            recovered = f"{percent(row['recovery'])} ({span([row['low'], row['high']])})" if kind != "none" else ""
            own = (row["method"], str(row["n"]), percent(row["right"] / row["n"]), *compared(row), recovered)
            yield f"| {' | '.join(own)} |"


def compared(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what tables say of a comparison: difference, its intervals, alone right, p."""
    spans = (span(row[name], "+") for name in ("images", "plantings"))
    return (percent(row["difference"], "+"), *spans, f"{row['gained']} / {row['lost']}", f"{row['p_value']:.2g}")


def direction_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of cosines with the way back and of losses, means over images and sets."""
    yield "| misalignment | method | n | cosine, tokens | cosine, text | way left | loss before | loss after |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind, method in dict.fromkeys((row["kind"], row["method"]) for row in rows):
        own = [row for row in rows if (row["kind"], row["method"]) == (kind, method)]
        means = [np.mean([row[name] for row in own]) for name in ("tokens", "text", "gap", "loss_before", "loss_after")]
        numbers = " | ".join([*(f"{value:.2f}" for value in means[:3]), *(f"{value:.4f}" for value in means[3:])])
        yield f"| {kind} | {method} | {len(own)} | {numbers} |"


def contexts_table(contexts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how far the plantings are from the words, by kind and strength."""
    yield "| misalignment | points lost | plantings | made | steps | distance, in lengths of the words |"
    yield "|---|---|---|---|---|---|"
    groups = dict.fromkeys((one["kind"], one["strength"]) for one in contexts)
    for kind, strength in sorted(groups):
        own = [one for one in contexts if (one["kind"], one["strength"]) == (kind, strength)]
        made = [one for one in own if one["lost"] is not None]
        steps = f"{min(one['step'] for one in made)} to {max(one['step'] for one in made)}" if made else ""
        far = f"{np.mean([one['distance'] / one['tokens'] for one in made]):.2f}" if made else ""
        yield f"| {kind} | {strength} | {len(own)} | {len(made)} | {steps} | {far} |"


def hypotheses(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tests of the registered hypotheses."""
    yield "| hypothesis | over | difference | images | plantings | alone right | p | Holm's p |"
    yield "|---|---|---|---|---|---|---|---|"
    tests = [("localisation", one) for one in found["localisation"]]
    tests += [(name, found[name]) for name in ("method", "harmless") if found[name]]
    for name, one in tests:
        adjusted = f"{one['holm']:.2g}" if "holm" in one else ""
        yield f"| {' | '.join((name, one['over'], *compared(one), adjusted))} |"


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw recovery over strength, a panel for each kind and a line for each method."""
    pooled = [row for row in rows if row["set"] == "all" and row["strength"] and row["recovery"] is not None]
    methods = [name for name in dict.fromkeys(row["method"] for row in pooled) if name not in (EXPLORED, "zero_shot")]
    strengths = sorted({row["strength"] for row in pooled})
    with styled():
        title, subtitle = "Recovery of what a planted misalignment costs", "percent, over points lost by zero-shot"
        figure = new_figure(7.0, 2.8, title, subtitle)
        axes = figure.subplots(1, len(THREE), sharey=True)
        for axis, kind in zip(axes, THREE, strict=True):
            for place, (method, colour) in enumerate(zip(methods, colours_of(methods), strict=True)):
                own = [row for row in pooled if (row["kind"], row["method"]) == (kind, method)]
                x = [strengths.index(row["strength"]) + 0.06 * (place - len(methods) / 2) for row in own]
                line = {"marker": "o", "markersize": 3, "label": method}
                draw_line(axis, x, own, ("recovery", "low", "high"), colour, "bars", **line)
            axis.set_title(kind)
            axis.set_xticks(range(len(strengths)), strengths)
            axis.set_ylim(-150, 150)
            axis.axhline(0, color="black", linewidth=0.7)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        save_figure(figure, path)


def write(options: argparse.Namespace, document: Mapping[str, Any]) -> None:
    """Put tables into the page, and the numbers and the figure beside it."""
    write_whole(options.page.with_suffix(".json"), to_json(document))
    blocks = {"contexts": [*contexts_table(document["contexts"])]}
    for name, part in PARTS.items():
        for kind in (*(("three",) if len(part.kinds) > 1 else ()), *part.kinds, "none"):
            blocks[f"{name}-{kind}"] = [*table(document[name], kind)] if name in document else []
    if document["registered"]:
        blocks["hypotheses"] = [*hypotheses(document["registered"])]
    blocks["directions"] = [*direction_table(document["directions"])] if document["directions"] else []
    text = fill(options.page.read_text(encoding="utf-8"), {name: "\n".join(own) for name, own in blocks.items() if own})
    options.page.write_text(text, encoding="utf-8")
    if "confirmed" in document:
        draw(document["confirmed"], options.page.parent.parent / "images" / "control-recovery.svg")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--confirm", type=Path)
    parser.add_argument("--out", type=Path, default=Path("control"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/control.md"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--images", type=int)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=[*PARTS])
    parser.add_argument("--tables-only", action="store_true")
    options = parser.parse_args()
    options.runs = options.out / ("runs" if options.images is None else f"trial-{options.images}")
    torch.set_num_threads(1)
    for half in ("choosing", "reporting") if not options.tables_only else ():
        if half == "reporting" and options.confirm is None:
            continue
        chosen = summarise(options)["chosen"] if half == "reporting" else {}
        for name in (name for name in options.parts if PARTS[name].half == half):
            carry_out(options, name, chosen)
        if half == "reporting" and options.images is None:
            direct(options)
    document = summarise(options)
    if options.images is None:
        write(options, document)
    print(f"chosen: {document['chosen']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
