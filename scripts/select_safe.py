"""Select the rule of `fcl(safe=True)` on half of the images of a study's base run, and report it on the other half.

Usage: python scripts/select_safe.py ablations/lite0-text [--label fcl-base]

A rule says, from the image's own quantities, whether calibration may change exploration's answer. Each is a threshold
on one quantity; the first half of each data set's images (in the order of the run, which the seed mixes) chooses the
threshold, the second half reports.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from faircontext.bench.plan import choose
from faircontext.bench.store import load_runs
from faircontext.metrics.stats import discordant, mcnemar_exact, paired_bootstrap


@dataclass(frozen=True)
class Image:
    """Three answers to an image, whether they are right, and what calibration went by."""

    dataset: str
    first_half: bool
    zero_shot: bool
    explored: bool
    calibrated: bool
    changed: bool
    values: dict[str, float]


RULES: dict[str, tuple[Callable[[dict[str, float]], float], Sequence[float]]] = {
    # The first: how far exploration's votes leave the matter open, and so on; larger is more open.
    "lead in votes at most": (lambda v: -(v["votes_old_before"] - v["votes_new_before"]), np.arange(0.0, 1.05, 0.1)),
    "ratio of posteriors at least": (
        lambda v: v["posterior_new_before"] / v["posterior_old_before"],
        np.arange(0.3, 1, 0.1),
    ),
    "entropy over its maximum at least": (lambda v: v["entropy_before"] / v["most"], np.arange(0.3, 1, 0.1)),
    "move of the text at most": (lambda v: -v["text_shift"], (0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.15)),
    "lead after at least": (lambda v: v["vote_share"] - v["votes_old_after"], np.arange(0.0, 1.05, 0.1)),
}
"""Quantity and thresholds; "at most" is a threshold of the other sign."""


def read(folder: Path, label: str) -> list[Image]:
    found = []
    for run in load_runs(folder):
        config = run.document["config"]
        if label not in config["methods"]:
            continue
        dataset = config["dataset"]
        order = choose(dataset["images"], config["seed"], config["limit"])
        early = set(order[: len(order) // 2])
        most = float(np.log(min(config["methods"][label]["k"], dataset["classes"])))
        rows = run.rows.filter(pc.and_(pc.equal(run.rows["method"], label), pc.equal(run.rows["error"], "")))
        for row in rows.to_pylist():
            values = {**json.loads(row["diagnostics"]), "most": most}
            if "explored" not in values:
                continue
            truth, explored = row["label_index"], int(values["explored"])
            found.append(
                Image(
                    dataset["name"],
                    row["position"] in early,
                    row["zero_shot_index"] == truth,
                    explored == truth,
                    row["index"] == truth,
                    row["index"] != explored,
                    {key: value for key, value in values.items() if isinstance(value, int | float)},
                )
            )
    return found


def answer(images: Sequence[Image], rule: str, threshold: float) -> np.ndarray:
    """Return whether the guarded answers are right."""
    quantity, _ = RULES[rule]
    bound = -threshold if rule.endswith("at most") else threshold
    return np.array(
        [i.calibrated if i.changed and quantity(i.values) >= bound - 1e-9 else i.explored for i in images], bool
    )


def describe(name: str, own: np.ndarray, other: np.ndarray, against: str) -> str:
    gained, lost = discordant(own, other)
    change = paired_bootstrap(own, other)
    return (
        f"{name:44} {100 * own.mean():5.1f}  over {against} {100 * change.value:+.2f} "
        f"({100 * change.low:+.2f} to {100 * change.high:+.2f}), {gained}/{lost}, p = {mcnemar_exact(gained, lost):.2g}"
    )


def power(images: int, rate: float, gain: float, draws: int = 4000) -> float:
    """Return how often McNemar's test finds a gain (p < 0.05), where a share of the answers changes."""
    rng = np.random.default_rng(0)
    better, worse = (rate + gain) / 2, (rate - gain) / 2
    counts = rng.multinomial(images, (better, worse, 1 - rate), size=draws)
    return float(np.mean([mcnemar_exact(int(a), int(b)) < 0.05 for a, b, _ in counts]))


def report(images: Sequence[Image]) -> Iterator[str]:
    halves = [[i for i in images if i.first_half], [i for i in images if not i.first_half]]
    names = ("first half", "second half")
    for name, half in zip(names, halves, strict=True):
        zero, explored, calibrated = (
            np.array([getattr(i, which) for i in half], bool) for which in ("zero_shot", "explored", "calibrated")
        )
        yield f"{name}: n = {len(half)}, zero-shot {100 * zero.mean():.1f}, exploration {100 * explored.mean():.1f}"
        yield describe("  calibrated", calibrated, explored, "exploration")
        yield describe("  calibrated", calibrated, zero, "zero-shot")
    early, late = halves
    explored = np.array([i.explored for i in early], bool)
    scored = [
        (int(answer(early, rule, t).sum()), -lost, rule, float(t))
        for rule, (_, thresholds) in RULES.items()
        for t in thresholds
        for lost in [discordant(answer(early, rule, t), explored)[1]]
    ]
    for rule in RULES:
        _, _, _, threshold = max((s for s in scored if s[2] == rule), key=lambda s: s[:2])
        yield describe(f"  {rule} {threshold:.2f}: first", answer(early, rule, threshold), explored, "exploration")
        others = np.array([i.explored for i in late], bool)
        yield describe("    second", answer(late, rule, threshold), others, "exploration")
        zeros = np.array([i.zero_shot for i in late], bool)
        yield describe("    second", answer(late, rule, threshold), zeros, "zero-shot")
    changed = np.mean([i.changed for i in images])
    for gain in (0.01, 0.02, 0.03):
        if gain <= changed:
            found = power(len(late), changed, gain)
            yield f"power to find a gain of {100 * gain:.0f} points on {len(late)} images: {found:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--label", default="fcl-base")
    options = parser.parse_args()
    for line in report(read(options.folder, options.label)):
        print(line)


if __name__ == "__main__":
    main()
