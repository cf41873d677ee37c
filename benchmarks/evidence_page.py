"""What `evidence.py` has measured, as Markdown tables and a figure; both come from its JSON file alone.

Usage: python benchmarks/evidence_page.py docs/results/evidence.json    # prints all tables
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faircontext.metrics.bootstrap import average_interval, bootstrap_mean, paired_bootstrap
from faircontext.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PAGE, PURPLE, VERMILION, styled

__all__ = ["draw", "halves", "shown", "tables"]

MEASURES = ("auc", "pointing", "energy")
Document = Mapping[str, Any]


def halves(scores: Mapping[str, Any], title: str, count: int | str, measure: str = "auc") -> tuple[np.ndarray, ...]:
    """Return a measure of the collages of half A (even index) and of half B (odd index)."""
    values = np.array(scores[title][str(count)])[:, MEASURES.index(measure)]
    return values[::2], values[1::2]


def shown(document: Document) -> list[str]:
    """Return the explainers of the main table, in its order: the package's, then the rivals that half A chose."""
    ours = [
        "paper",
        "paper's grids, covariance",
        "paper's grids, covariance, smoothed",
        "recommended",
        "covariance, smoothed",
    ]
    return [*ours, "RISE", *document["chosen"].values()]


def tables(document: Document) -> dict[str, str]:
    """Return the tables by name, as Markdown."""
    return {
        "pooled": _pooled(document),
        "auc": _by_set(document, shown(document), _auc),
        "paired": _by_set(document, [one for one in shown(document) if one != "recommended"], _paired),
        "pointing": _pointing(document),
        "settings": _settings(document),
        "choices": _choices(document),
        "agreement": _agreement(document),
        "curves": _curves(document),
        "cost": _cost(document),
        "gradients": _gradients(document),
    }


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _interval(values: np.ndarray, digits: int = 3) -> str:
    mean = bootstrap_mean(values)
    return f"{mean.value:.{digits}f} ({mean.low:.{digits}f} to {mean.high:.{digits}f})"


def _by_set(document: Document, titles: Sequence[str], cell: Callable[[Mapping[str, Any], str, str], str]) -> str:
    """Return a table for each data set: a row for each explainer, a column for each number of encoded images."""
    parts = []
    for one in document["sets"]:
        scores = one["scores"]
        counts = list(scores["recommended"])
        first, second = map(len, halves(scores, "recommended", counts[0]))
        rows = [[title, *(cell(scores, title, count) for count in counts)] for title in titles]
        parts.append(
            f"**{one['name']}, {one['side']} x {one['side']}, {one['classes']} classes** "
            f"(n = {first} collages in half A, {second} in half B)\n\n"
            + _table(["encoded images", *(f"{int(count):,}" for count in counts)], rows)
        )
    return "\n\n".join(parts)


def _auc(scores: Mapping[str, Any], title: str, count: str) -> str:
    first, second = halves(scores, title, count)
    return f"{first.mean():.3f}; **{second.mean():.3f}** ({_interval(second).partition('(')[2]}"


def _paired(scores: Mapping[str, Any], title: str, count: str) -> str:
    words = []
    for half in (0, 1):
        found = paired_bootstrap(halves(scores, "recommended", count)[half], halves(scores, title, count)[half])
        words.append(f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})")
    return f"{words[0].partition(' ')[0]}; **{words[1].partition(' ')[0]}** {words[1].partition(' ')[2]}"


def _pooled(document: Document) -> str:
    """Return the differences to the recommended maps in half B, as the mean over data sets."""
    sets = document["sets"]
    counts = [
        count for count in sets[0]["scores"]["recommended"] if all(count in one["scores"]["RISE"] for one in sets)
    ]
    rows = []
    for title in shown(document):
        if title != "recommended":
            rows.append([title, *(_mean_difference(sets, title, count) for count in counts)])
    return _table(["recommended minus, half B, encoded images", *counts], rows)


def _mean_difference(sets: Sequence[Mapping[str, Any]], title: str, count: str) -> str:
    both = [(halves(one["scores"], "recommended", count)[1], halves(one["scores"], title, count)[1]) for one in sets]
    found = average_interval([ours - theirs for ours, theirs in both])
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _pointing(document: Document) -> str:
    rows = []
    for one in document["sets"]:
        for title in shown(document):
            counts = [count for count in ("100", "400") if count in one["scores"][title]]
            cells = [
                _interval(halves(one["scores"], title, count, measure)[1], 2)
                for count in counts[:1]
                for measure in ("pointing", "energy")
            ]
            rows.append([f"{one['name']}, {one['side']} x {one['side']}", title, *(cells or ["", ""])])
    return _table(["half B, 100 encoded images", "maps", "pointing", "energy"], rows)


def _settings(document: Document, most: int = 8) -> str:
    """Return the AUC of the settings of the package's maps that half A likes best, and of the recommended ones."""
    sets, meta = document["sets"], document["meta_info"]
    own = f"{meta['estimator']}, recommended grids, smoothing {meta['smoothing']}"
    counts = [count for count in ("100", "400") if count in sets[0]["scores"]["recommended"]]
    titles = [title for title in sets[0]["scores"] if ", smoothing " in title]

    def means(title: str, count: str, half: int) -> list[float]:
        known = [one["scores"] for one in sets if count in one["scores"][title]]
        return [float(halves(scores, title, count)[half].mean()) for scores in known]

    def cell(title: str, count: str, half: int) -> str:
        found = means(title, count, half)
        mean = f"{np.mean(found):.3f}"
        return mean + (f" ({', '.join(f'{one:.3f}' for one in found)})" if len(found) > 1 else "")

    titles.sort(key=lambda title: -np.mean(means(title, counts[0], 0)) if counts else 0.0)
    rows = [
        [title, *(cell(title, count, half) for count in counts for half in (0, 1))]
        for title in dict.fromkeys((*titles[:most], own))
    ]
    return _table(["maps", *(f"{count} encoded images, half {half}" for count in counts for half in "AB")], rows)


def _choices(document: Document) -> str:
    """Return half A's AUC of the variants of rivals."""
    sets = document["sets"]
    titles = [title for title in sets[0]["scores"] if title.startswith(("sliding", "LIME"))]
    at = max(set.intersection(*({*one["scores"][title]} for one in sets for title in titles)), key=int)
    rows = [[title, *(f"{halves(one['scores'], title, at)[0].mean():.3f}" for one in sets)] for title in titles]
    names = [f"{one['name']}, {one['side']} x {one['side']}" for one in sets]
    return _table([f"half A, {at} encoded images", *names], rows)


def _agreement(document: Document) -> str:
    found = document["agreement"]["spearman"]
    counts = list(next(iter(found.values())))
    rows = [[title, *(_interval(np.array(values[count]), 2) for count in counts)] for title, values in found.items()]
    return _table([f"{document['agreement']['photos']} photos, encoded images", *counts], rows)


def _curves(document: Document) -> str:
    """Return the areas under the curves, and the paired differences of the recommended maps to the others."""
    areas, names = document["curves"]["areas"], ("insertion", "deletion")
    ours = areas["recommended"]
    rows = []
    for title, values in areas.items():
        cells = [_interval(np.array(values[name])) for name in names]
        for name in names:
            found = paired_bootstrap(np.array(ours[name]), np.array(values[name]))
            difference = f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
            cells.append("" if title == "recommended" else difference)
        rows.append([title, *cells])
    head = f"{document['curves']['photos']} photos, {document['curves']['images']} encoded images"
    return _table([head, *names, *(f"recommended minus, {name}" for name in names)], rows)


def _cost(document: Document) -> str:
    found = document["cost"]
    names = [name for name in found if name not in ("masks", "encoding")]
    return _table(
        ["computing", f"processor time, as a share of encoding {found['masks']} masks"],
        [[name, f"{100 * found[name]:.2f}%"] for name in names],
    )


def _gradients(document: Document) -> str:
    rows = []
    for one in document["gradients"]:
        for title, counts in one["scores"].items():
            for count, values in counts.items():
                auc = np.array(values)[:, 0]
                rows.append([one["model"], title, count, _interval(auc), str(len(auc))])
    return _table(["model", "maps", "encoded images", "AUC", "n"], rows)


STYLES = {
    "recommended": ("recommended", BLUE, "-", "o"),
    "covariance, smoothed": ("covariance, smoothed", GREEN, "--", "s"),
    "paper": ("paper's sum", BLACK, ":", "v"),
    "RISE": ("RISE", VERMILION, "-.", "^"),
    "sliding occlusion": ("sliding occlusion", ORANGE, "-", "D"),
    "LIME": ("LIME", PURPLE, "--", "P"),
}
"""By explainer or family of rivals: label, colour, line and marker."""


def draw(document: Document, path: Path) -> None:
    """Draw AUC in half B against the number of encoded images, a panel for each data set."""
    from matplotlib.figure import Figure

    sets = document["sets"]
    ticks = np.unique([int(count) for one in sets for count in one["scores"]["recommended"]])
    with styled():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
        for place, (axes, one) in enumerate(zip(panels, sets, strict=True)):
            lines = _draw_lines(axes, document, one)
            axes.set_title(f"{one['name']}, {one['side']} x {one['side']}", loc="left")
            axes.set_xlabel("encoded images")
            axes.plot([ticks[0], max(map(int, one["scores"]["recommended"]))], [0.5, 0.5], color=GREY, linewidth=0.6)
            axes.set_xscale("log", base=2)
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.minorticks_off()
            axes.set_xlim(ticks[0] * 0.85, ticks[-1] * 5)  # with room for the labels
            axes.spines["bottom"].set_bounds(ticks[0] * 0.85, ticks[-1])
            if place == 0:
                axes.set_ylabel("AUC of a class's map in its own cell")
            _label(axes, lines)
        count = len(halves(sets[0]["scores"], "recommended", next(iter(sets[0]["scores"]["recommended"])))[1])
        figure.supxlabel(
            f"Half B: collages that chose nothing, n = {count} each. Band: 95% interval of recommended. Grey: chance.",
            fontsize=6.5,
        )
        figure.savefig(path, dpi=200)


def _draw_lines(axes: Any, document: Document, one: Mapping[str, Any]) -> list[tuple[float, float, str, str]]:
    """Draw a line for each explainer; return where each ends, its label and colour."""
    ends = []
    for key, (label, colour, line, marker) in STYLES.items():
        title = document["chosen"].get(key, key)
        counts = [int(count) for count in one["scores"][title]]
        values = [halves(one["scores"], title, count)[1] for count in counts]
        order = np.argsort(counts)
        x, y = np.array(counts)[order], np.array([part.mean() for part in values])[order]
        axes.plot(x, y, color=colour, linestyle=line, marker=marker, markersize=3)
        if key == "recommended":
            bands = [bootstrap_mean(values[at]) for at in order]
            axes.fill_between(x, [b.low for b in bands], [b.high for b in bands], color=colour, alpha=0.12, linewidth=0)
        ends.append((float(x[-1]), float(y[-1]), label, colour))
    return ends


def _label(axes: Any, ends: Sequence[tuple[float, float, str, str]], gap: float = 0.021) -> None:
    """Write each label at the end of its line; those that would touch move apart, both by as much."""
    ends = sorted(ends, key=lambda end: end[1])
    heights = np.array([end[1] for end in ends])
    for _ in range(200):
        missing = (gap - np.diff(heights)).clip(0) / 2
        heights[1:] += missing
        heights[:-1] -= missing
    for (x, y, label, colour), height in zip(ends, heights, strict=True):
        axes.annotate(label, (x, y), (x * 1.12, height), color=colour, fontsize=6, va="center", annotation_clip=False)


if __name__ == "__main__":
    found = tables(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print("\n\n".join(f"{name}\n\n{block}" for name, block in found.items()))
