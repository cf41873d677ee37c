"""Measure methods with a memory beside others on the same images, in three orders, and write the tables of the study.

    python scripts/study_online.py DATA OUT [--model MODEL] [--features FOLDER] [--engine-image openvino]
    python scripts/study_online.py --tables DATA OUT

DATA holds the data sets, OUT takes the runs, MODEL is the folder of a trained open_clip model. What is compared, and
how it is judged, stands in docs/results/online.md. The table of the registered comparisons goes between its marks
there, all others into CSV files beside it. A call that is stopped goes on where it was; images are encoded once for all
orders and methods.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from page_tables import write_csv
from study_lite import fill

from faircontext.metrics import (
    Interval,
    OrdersDifference,
    accuracy_over_orders,
    difference_over_orders,
    holm,
    means_by_part,
    paired_bootstrap,
)
from faircontext.runs.evaluate import evaluate
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.results import read_results
from faircontext.runs.store import Run, load_runs

FEW = (
    *("clothing10_test", "cue_conflict_shape", "dtd10_all"),
    *("office_caltech10_amazon", "office_caltech10_dslr", "office_caltech10_webcam"),
    *("pacs_art_painting", "pacs_cartoon", "pacs_photo", "pacs_sketch", "shape16_edges", "shape16_silhouettes"),
)
"""Sets of at most 16 classes, where a class soon has several images in a memory."""

SETS = (
    *FEW,
    *("caltech101_coop_test", "flowers_coop_test_partial", "grocery81_test", "imagen_det150_in1k"),
    *("imagenet_sample1000", "nips17", "tiny_imagenet_val"),
)
KNOWN = ("caltech101_coop_test", "clothing10_test", "grocery81_test", "tiny_imagenet_val")
"""Sets whose classes the trained model knows."""

ORDERS = (0, 1, 2)
ONLINE = ("tda", "dmn", "onzeta", "boostadapter", "dpe", "ecalp")
VOTES = {"tda-vote": "tda", "dmn-vote": "dmn", "tda-mean_vote": "tda-mean"}
"""Variants that file images by FCL's vote, and what each is compared with."""

PRIMARY = ("tda-vote", "dmn-vote")
EPISODIC = ("mta", "zero", "fcl-explore")
ASKED = {name: name.replace("-", "_variants-", 1) for name in VOTES}
"""By what rows call a variant: the method that is asked for."""

METHODS = (*EPISODIC, *ONLINE, "tda-mean", *VOTES)
SETTINGS = (
    "fcl-explore.calibrate=false",
    "tda-mean.views=confident",
    f"{ASKED['tda-mean_vote']}.views=confident",
    *(f"{name}.label=fcl-vote" for name in ASKED.values()),
)


@dataclass(frozen=True)
class Part:
    """Runs of the study that one table is of.

    Attributes:
        datasets: which sets.
        limit: images of each, None for all.
        preset: of settings.
        trained: whether they are of the trained model.
        calibrated: images of each set that FCL answers with calibration.
    """

    datasets: tuple[str, ...]
    limit: int | None
    preset: str = "recommended"
    trained: bool = False
    calibrated: int = 10


PARTS = {
    "lite0": Part(SETS, 40),
    "trained": Part(KNOWN, 80, "paper", trained=True),
    "long": Part(FEW, None, calibrated=0),
}


def carry_out(given: argparse.Namespace) -> None:
    """Run what is missing."""
    for name, part in PARTS.items():
        if part.trained and given.model is None:
            continue
        common: dict[str, Any] = {
            "root": given.data,
            "datasets": part.datasets,
            "preset": part.preset,
            "features": given.features or given.out / "features",
            "engine_image": given.engine_image,
            "threads": 1,
            "resume": True,
            **({"backbone": f"local-dir:{given.model}"} if part.trained else {}),
        }
        asked = [ASKED.get(name, name) for name in METHODS]
        streams = {"methods": asked, "set": SETTINGS, "orders": ORDERS, "limit": part.limit}
        evaluate(EvaluateOptions(**common, **streams, out=given.out / name), print, print)
        if part.calibrated:
            fcl = {"methods": ("fcl",), "set": ("fcl.masks=100",), "limit": part.calibrated}
            evaluate(EvaluateOptions(**common, **fcl, out=given.out / f"{name}-fcl"), print, print)


@dataclass
class Answers:
    """A method's answers in one order, by data set and position of the image.

    Attributes:
        correct: whether they are right.
        filed: whether the class under which a memory filed the image is right.
        seen: how many images the memory had learnt from before.
        seconds: that each took.
        megabytes: of the states at the end, by data set.
    """

    correct: dict[tuple[str, int], bool] = field(default_factory=dict)
    filed: dict[tuple[str, int], bool] = field(default_factory=dict)
    seen: dict[tuple[str, int], int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    megabytes: dict[str, float] = field(default_factory=dict)

    def over(self, keys: Sequence[tuple[str, int]]) -> np.ndarray:
        """Return whether those on some images are right."""
        return np.array([self.correct[key] for key in keys], bool)


Study = dict[str, dict[int, Answers]]
"""Answers by method and order."""


def read(runs: Sequence[Run]) -> Study:
    """Read the answers of a part's runs."""
    study: Study = {}
    for run in runs:
        order = run.document["config"].get("stream", {}).get("order", 0)
        labels: dict[int, int] = {}
        for result in read_results(run):
            answers = study.setdefault(result.method, {}).setdefault(order, Answers())
            keys = [(result.dataset, position) for position in result.positions.tolist()]
            answers.correct.update(zip(keys, result.correct.tolist(), strict=True))
            answers.seconds += result.seconds.tolist()
            if result.has_memory:
                answers.megabytes[result.dataset] = result.state["megabytes"]
                answers.seen.update(
                    pair for pair in zip(keys, result.seen_before.tolist(), strict=True) if pair[1] >= 0
                )
            labels.update(zip(result.positions.tolist(), result.labels.tolist(), strict=True))
        _add_filed(study, run, order, labels)
    return study


def _add_filed(study: Study, run: Run, order: int, labels: Mapping[int, int]) -> None:
    dataset = run.document["config"]["dataset"]["name"]
    for row in run.rows.select(["method", "position", "diagnostics"]).to_pylist():
        found, key = json.loads(row["diagnostics"] or "{}"), (dataset, row["position"])
        if row["method"] in study and row["position"] in labels and "pseudo_label" in found:
            study[row["method"]][order].filed[key] = found["pseudo_label"] == labels[row["position"]]


def images_of(study: Study) -> list[tuple[str, int]]:
    """Return the images that all methods have answered in all orders."""
    return sorted(set.intersection(*({*one.correct} for orders in study.values() for one in orders.values())))


def outcomes(study: Study, method: str, keys: Sequence[tuple[str, int]]) -> np.ndarray:
    """Return whether a method is right, by order and image."""
    return np.array([study[method][order].over(keys) for order in sorted(study[method])])


def versus(study: Study, method: str, other: str, keys: Sequence[tuple[str, int]]) -> OrdersDifference:
    """Compare two methods over orders; see `difference_over_orders`."""
    return difference_over_orders(outcomes(study, method, keys), outcomes(study, other, keys))


def shown(found: OrdersDifference | Interval) -> str:
    value = f"{100 * found.value:+.1f}"
    return value if isnan(found.low) else f"{value} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def accuracy(right: np.ndarray) -> str:
    """Return the mean over orders with Wilson's interval of the images."""
    mean = accuracy_over_orders(right).mean
    return f"{100 * mean.value:.1f} ({100 * mean.low:.1f} to {100 * mean.high:.1f})"


def table(study: Study) -> Iterator[str]:
    """Yield a row for each method: accuracy, orders, and differences from zero-shot and from FCL's exploration."""
    keys = images_of(study)
    against = {
        base: {method: versus(study, method, base, keys) for method in study if method != base}
        for base in ("zero_shot", "fcl-explore")
    }
    corrected = {
        base: dict(zip(ONLINE, holm([found[method].p_value for method in ONLINE]), strict=True))
        for base, found in against.items()
    }
    differences = ("over zero-shot (95%)", "p, Holm", "over FCL's exploration (95%)", "p, Holm")
    costs = ("images seen before", "state, MB", "s/image")
    names = ("method", "n", "mean of orders (95%, of the images)", "sd, min to max of orders", *differences, *costs)
    yield f"| {' | '.join(names)} |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for method in ("zero_shot", *METHODS):
        right, orders = outcomes(study, method, keys), study[method]
        cells = [method, str(len(keys)), accuracy(right)]
        cells.append(spread(right) if orders[0].seen else "")
        for base, found in against.items():
            p_value = corrected[base].get(method)
            cells += [shown(found[method]) if method in found else "", "" if p_value is None else f"{p_value:.2g}"]
        seen = [count for one in orders.values() for count in one.seen.values()]
        sizes = [size for one in orders.values() for size in one.megabytes.values()]
        cells += [f"{np.mean(seen):.0f}" if seen else "0", f"{max(sizes):.1f}" if sizes else ""]
        cells.append(f"{np.mean(np.concatenate([one.seconds for one in orders.values()])):.3f}")
        yield f"| {' | '.join(cells)} |"


def spread(right: np.ndarray) -> str:
    found = accuracy_over_orders(right)
    return f"{100 * found.sd:.1f}, {100 * found.least:.1f} to {100 * found.most:.1f}"


def votes(study: Study) -> Iterator[str]:
    """Yield a row for each memory that FCL's vote files, against the same memory as it is."""
    keys = images_of(study)
    yield "| memory | n | filed by zero-shot: right | by FCL's vote: right | answers, vote less zero-shot (95%) | p |"
    yield "|---|---|---|---|---|---|"
    for method, base in VOTES.items():
        found = versus(study, method, base, keys)
        pure = [filed(study, one) for one in (base, method)]
        yield f"| {base} | {len(keys)} | {pure[0]} | {pure[1]} | {shown(found)} | {found.p_value:.2g} |"


def filed(study: Study, method: str) -> str:
    """Return the share of images that a memory filed under their class, over all orders."""
    right = [value for one in study[method].values() for value in one.filed.values()]
    return f"{100 * np.mean(right):.1f}" if right else ""


def positions(study: Study) -> Iterator[str]:
    """Yield, for each method with a memory, its gain over zero-shot in each third of the stream."""
    yield "| method | first third | second third | last third |"
    yield "|---|---|---|---|"
    keys = images_of(study)
    for method in (method for method, orders in study.items() if orders[0].seen):
        part = np.array([thirds(one.seen, keys) for _, one in sorted(study[method].items())])
        changes = outcomes(study, method, keys).astype(float) - outcomes(study, "zero_shot", keys)
        gains, counts = means_by_part(changes, part, 3)
        cells = [f"{100 * gain.value:+.1f} (n = {n})" for gain, n in zip(gains, counts.tolist(), strict=True)]
        yield f"| {method} | {' | '.join(cells)} |"


def thirds(seen: Mapping[tuple[str, int], int], keys: Sequence[tuple[str, int]]) -> list[int]:
    """Return in which third of its stream each image lies, -1 where it left no trace there."""
    lengths: dict[str, int] = {}
    for (name, _), count in seen.items():
        lengths[name] = max(lengths.get(name, 0), count + 1)
    return [3 * seen[key] // lengths[key[0]] if key in seen else -1 for key in keys]


def calibrated(runs: Sequence[Run], study: Study) -> Iterator[str]:
    """Yield rows of FCL with calibration, on its fewer images, beside others on the same images in order 0."""
    fcl = read(runs)
    keys = sorted({*fcl["fcl"][0].correct} & {*images_of(study)})
    first = {method: orders[0].over(keys) for method, orders in study.items()} | {"fcl": fcl["fcl"][0].over(keys)}
    yield "| method | n | order 0 (95%) | FCL less the method (95%) |"
    yield "|---|---|---|---|"
    for method in ("fcl", "zero_shot", *METHODS):
        change = "" if method == "fcl" else shown(paired_bootstrap(first["fcl"], first[method]))
        yield f"| {method} | {len(keys)} | {accuracy(first[method][None])} | {change} |"


def registered(studies: Mapping[str, Study]) -> Iterator[str]:
    """Yield the primary comparisons, corrected for their number."""
    names = [(part, method) for part in ("lite0", "trained") if part in studies for method in PRIMARY]
    found = [versus(studies[part], method, VOTES[method], images_of(studies[part])) for part, method in names]
    yield "| model | memory | vote less zero-shot (95%) | sd of orders | p | p, Holm |"
    yield "|---|---|---|---|---|---|"
    for (part, method), one, p_value in zip(names, found, holm([one.p_value for one in found]), strict=True):
        cells = (part, VOTES[method], shown(one), f"{100 * one.sd:.1f}", f"{one.p_value:.2g}", f"{p_value:.2g}")
        yield f"| {' | '.join(cells)} |"


def whole(runs: Sequence[Run], expected: int) -> bool:
    """Tell whether a part's runs are all there and complete."""
    return len(runs) == expected and all(run.complete for run in runs)


def tables(out: Path) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Return the tables of the parts that are complete, by file and part, and that of the registered comparisons."""
    studies, written = {}, dict[str, dict[str, list[str]]]()
    for name, part in PARTS.items():
        runs = load_runs(out / name) if (out / name).exists() else []
        if not whole(runs, len(part.datasets) * len(ORDERS)):
            continue
        study = studies[name] = read(runs)
        for kind, make in (("methods", table), ("votes", votes), ("thirds", positions)):
            written.setdefault(kind, {})[name] = [*make(study)]
        fcl = load_runs(out / f"{name}-fcl") if (out / f"{name}-fcl").exists() else []
        if part.calibrated and whole(fcl, len(part.datasets)):
            written.setdefault("calibrated", {})[name] = [*calibrated(fcl, study)]
    return written, [*registered(studies)] if {"lite0", "trained"} <= {*studies} else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--engine-image", default="auto")
    parser.add_argument("--page", type=Path, default=Path("docs/results/online.md"))
    parser.add_argument("--tables", action="store_true", help="write the tables of what is there, and run nothing")
    given = parser.parse_args()
    if not given.tables:
        carry_out(given)
    written, primary = tables(given.out)
    for kind, parts in written.items():
        write_csv(given.page.parent / f"online-{kind}.csv", parts)
        print(f"online-{kind}.csv: {', '.join(parts)}")
    if primary:
        text = given.page.read_text(encoding="utf-8")
        given.page.write_text(fill(text, {"primary": "\n".join(primary)}), encoding="utf-8")


if __name__ == "__main__":
    main()
