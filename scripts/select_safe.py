"""Select the rule of `fcl(safe=True)` on half of a study's images, and report it on the other half.

Usage: python scripts/select_safe.py ablations/lite0-text [--label fcl-base]

A rule says, from the image's own quantities, whether calibration may change exploration's answer: each is a threshold
on one quantity. The first half of each data set's images, in the order of the run, which the seed mixes, chooses; the
second half reports, against zero-shot or exploration, whichever was better on the first.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from faircontext.methods import FCL
from faircontext.metrics.scores import Comparison
from faircontext.metrics.stats import mcnemar_exact
from faircontext.runs.orders import choose
from faircontext.runs.store import load_runs

Values = dict[str, float]


@dataclass(frozen=True)
class Image:
    """Whether zero-shot, exploration and calibration are right on an image, and what calibration went by."""

    dataset: str
    first_half: bool
    zero_shot: bool
    explored: bool
    calibrated: bool
    changed: bool
    values: Values


def lead(values: Values) -> float:
    """Return by how many votes the changed answer leads the one that it replaces."""
    return round((values["vote_share"] - values["votes_old_after"]) * values["views_selected"])


# Larger is safer.
RULES: dict[str, tuple[Callable[[Values], float], Sequence[float]]] = {
    "lead after calibration, votes": (lead, (1, 2, 3, 4, 6)),
    "minus exploration's lead, votes": (
        lambda v: -round((v["votes_old_before"] - v["votes_new_before"]) * v["views_selected"]),
        (-1, -2, -4, -8),
    ),
    "lead after less lead before, votes": (
        lambda v: lead(v) - round((v["votes_old_before"] - v["votes_new_before"]) * v["views_selected"]),
        (-8, -4, 0, 1),
    ),
    "ratio of posteriors before": (
        lambda v: v["posterior_new_before"] / v["posterior_old_before"],
        (0.6, 0.7, 0.8, 0.9),
    ),
    "entropy over its maximum": (lambda v: v["entropy_before"] / v["most"], (0.5, 0.7, 0.8, 0.9, 0.95)),
    "minus the move of the text": (lambda v: -v["text_shift"], (-0.15, -0.1, -0.08, -0.06)),
}
"""What a rule looks at, and its thresholds."""


def read(folder: Path, label: str) -> list[Image]:
    found: dict[tuple[str, str], Image] = {}
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
            found[dataset["name"], row["path"]] = Image(
                dataset["name"],
                row["position"] in early,
                row["zero_shot_index"] == truth,
                explored == truth,
                row["index"] == truth,
                row["index"] != explored,
                values,
            )
    return list(found.values())


def correct(images: Sequence[Image], which: str) -> np.ndarray:
    return np.array([getattr(image, which) for image in images], bool)


def allowed(images: Sequence[Image], rule: str, threshold: float) -> np.ndarray:
    """Return where calibration changes the answer and the rule lets it."""
    quantity, _ = RULES[rule]
    return np.array([image.changed and quantity(image.values) >= threshold - 1e-9 for image in images], bool)


def guarded(images: Sequence[Image], rule: str, threshold: float) -> np.ndarray:
    """Return whether the answers under a rule are right."""
    return np.where(allowed(images, rule, threshold), correct(images, "calibrated"), correct(images, "explored"))


def compared(own: np.ndarray, other: np.ndarray) -> str:
    comparison = Comparison.of(own, other)
    change = comparison.difference
    interval = f"{100 * change.value:+.2f} points ({100 * change.low:+.2f} to {100 * change.high:+.2f}"
    return f"{interval}; alone correct {comparison.gained} / {comparison.lost}, p = {comparison.p_value:.2g})"


def power(images: int, rate: float, gain: float, draws: int = 4000) -> float:
    """Return how often McNemar's test finds a gain (p < 0.05), where a share of images is right with one of both."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(images, ((rate + gain) / 2, (rate - gain) / 2, 1 - rate), size=draws)
    return float(np.mean([mcnemar_exact(int(a), int(b)) < 0.05 for a, b, _ in counts]))


def select(images: Sequence[Image], rules: Sequence[str] = tuple(RULES)) -> tuple[str, float]:
    """Return the rule and threshold that are right most often; of equals the one that interferes least."""

    def worth(rule: str, threshold: float) -> tuple[int, int]:
        return int(guarded(images, rule, threshold).sum()), int(allowed(images, rule, threshold).sum())

    pairs = [(rule, threshold) for rule in rules for threshold in RULES[rule][1]]
    return max(pairs, key=lambda pair: worth(*pair))


def report(images: Sequence[Image]) -> Iterator[str]:
    early, late = ([image for image in images if image.first_half == first] for first in (True, False))
    for name, half in (("first", early), ("second", late)):
        accuracies = {which: 100 * correct(half, which).mean() for which in ("zero_shot", "explored", "calibrated")}
        shown = ", ".join(f"{which} {value:.1f}" for which, value in accuracies.items())
        yield f"{name} half: n = {len(half)}; {shown}"
        yield f"  calibrated over explored: {compared(correct(half, 'calibrated'), correct(half, 'explored'))}"
    for name in RULES:
        _, bound = select(early, [name])
        comparison = Comparison.of(guarded(early, name, bound), correct(early, "explored"))
        pair = f"{comparison.gained} / {comparison.lost}"
        yield f"  {name} >= {bound:g}: {pair}, changes {allowed(early, name, bound).sum()}"
    rule, threshold = select(early)
    ship = ("entropy over its maximum", FCL().safe_openness)
    better = "zero_shot" if correct(early, "zero_shot").sum() > correct(early, "explored").sum() else "explored"
    for title, (name, bound) in {"selected": (rule, threshold), "safe=True": ship}.items():
        yield f"{title}: {name} >= {bound:g}"
        for half, part in (("first", early), ("second", late), ("both", [*early, *late])):
            own = guarded(part, name, bound)
            yield f"  {half}: over explored {compared(own, correct(part, 'explored'))}"
            yield f"  {half}: over zero-shot {compared(own, correct(part, 'zero_shot'))}"
            gain = correct(part, "calibrated").mean() - correct(part, "explored").mean()
            kept = (own.mean() - correct(part, "explored").mean()) / gain if gain > 0 else float("nan")
            changes, all_changes = allowed(part, name, bound).sum(), sum(image.changed for image in part)
            yield (
                f"  {half}: changes {changes} of {len(part)} answers, calibration {all_changes}; "
                + (
                    f"{100 * kept:.0f}% of calibration's gain is kept"
                    if gain > 0
                    else "calibration has no gain to keep"
                )
            )
    yield f"better on the first half: {better}"
    yield "safe=True by set (changed, alone correct over explored):"
    for name in dict.fromkeys(image.dataset for image in images):
        part = [image for image in images if image.dataset == name]
        safe = Comparison.of(guarded(part, *ship), correct(part, "explored"))
        every = Comparison.of(correct(part, "calibrated"), correct(part, "explored"))
        if sum(image.changed for image in part):
            yield (
                f"  {name}: {allowed(part, *ship).sum()} of {len(part)}, {safe.gained} / {safe.lost}; unguarded "
                f"{sum(image.changed for image in part)}, {every.gained} / {every.lost}"
            )
    rate = np.mean(correct(images, "calibrated") != correct(images, "explored"))
    for gain in (0.005, 0.01, 0.02):
        yield (
            f"power to find a gain of {100 * gain:g} points over exploration on {len(late)} images, {100 * rate:.1f}% "
            f"discordant or as many as the gain needs: {power(len(late), max(rate, gain), gain):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--label", default="fcl-base")
    options = parser.parse_args()
    for line in report(read(options.folder, options.label)):
        print(line)


if __name__ == "__main__":
    main()
