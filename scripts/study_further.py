"""Carry out what docs/results/control.md registers beside the positive control, on lite0.

Usage: python scripts/study_further.py DATA --confirm STUDY [--out further] [--jobs 2] [--page docs/results/control.md]

STUDY has the further images. On them `recommended` is compared with zero-shot, with `safe=true` and with `fast-85`. And
exploration is compared with zero-shot on photos as they are and on the same photos reduced to 64 pixels on the shorter
side, which the model enlarges again: on DATA, which chooses, and on STUDY. A call that is stopped goes on; the tables
of the page are filled at the end, and all numbers are in `further.json` beside it. `--tables-only` runs nothing.
"""

import argparse
import csv
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from study_lite import fill

from faircontext.files import to_json, write_whole
from faircontext.imageio import load_image
from faircontext.metrics.bootstrap import bootstrap_mean, interval_over_sets
from faircontext.metrics.scores import Comparison
from faircontext.runs.results import read_results
from faircontext.runs.store import load_runs

SIDE = 64
"""Pixels of the shorter side of reduced images, those of tiny_imagenet_val."""

FAST = ("safe=true", "pairs=top3", "masks=32", "safe_openness=0.85")
SETTINGS: dict[str, tuple[str, ...]] = {
    "fcl": (),
    "fcl-explore": ("calibrate=false",),
    "fcl-safe": ("safe=true",),
    "fcl_variants-fast85": FAST,
}
"""By label: what the method has over the preset `recommended`."""

MARGINS = {"fcl-safe": 0.005, "fcl-fast85": 0.0075}
"""By row: how far the 95% interval over images of a cheaper method less `fcl` may reach, either way."""

Sets = Mapping[str, Mapping[str, np.ndarray]]
"""By data set and method, which images are right."""


def sets_of(root: Path) -> list[str]:
    return sorted(path.parent.name for path in root.glob("*/labels.csv"))


def reduce_images(source: Path, target: Path) -> None:
    """Copy a data set with its images reduced; one that is small enough stays as it is."""
    if (target / "labels.csv").exists():
        return
    with (source / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        image = Image.fromarray(load_image(source / row["path"]))
        scale = SIDE / min(image.size)
        row["path"] = f"{Path(row['path']).with_suffix('')}.png"
        (target / row["path"]).parent.mkdir(parents=True, exist_ok=True)
        if scale < 1:
            size = [max(1, round(length * scale)) for length in image.size]
            image = image.resize((size[0], size[1]), Image.Resampling.LANCZOS)
        image.save(target / row["path"])
    names = (source / "classnames.txt").read_text(encoding="utf-8")
    (target / "classnames.txt").write_text(names, encoding="utf-8")
    with (target / "labels.csv").open("w", encoding="utf-8", newline="") as file:  # last: it says that all are there
        table = csv.DictWriter(file, [*rows[0]])
        table.writeheader()
        table.writerows(rows)


def evaluate(options: argparse.Namespace, root: Path, name: str, methods: Sequence[str]) -> None:
    """Answer all images of all sets in a folder; a call that was stopped goes on."""
    changes = [f"{label}.{setting}" for label in methods for setting in SETTINGS[label]]
    given = ("--set", *changes) if changes else ()
    place = ("--out", options.out / name, "--features", options.out / "features", "--resume")
    how = ("--backbone", "lite0", "--workers", options.jobs, "--threads", 1)
    words = ("evaluate", "--methods", *methods, *given, "--datasets", *sets_of(root), "--root", root, *how, *place)
    code = subprocess.run((sys.executable, "-m", "faircontext", *map(str, words)), check=False).returncode
    if code not in (0, 1):
        raise SystemExit(f"faircontext evaluate of {name} ended with {code}; the same call goes on")


def carry_out(options: argparse.Namespace) -> None:
    for half, root in (("choosing", options.root), ("further", options.confirm)):
        for name in sets_of(root):
            reduce_images(root / name, options.out / "reduced" / half / name)
    evaluate(options, options.confirm, "further", [*SETTINGS])
    evaluate(options, options.out / "reduced" / "further", "further-reduced", ["fcl-explore"])
    evaluate(options, options.root, "choosing", ["fcl-explore"])
    evaluate(options, options.out / "reduced" / "choosing", "choosing-reduced", ["fcl-explore"])


def read(folder: Path) -> Sets:
    """Read which images are right, in the order of the data set, which is that of `labels.csv`."""
    found = {}
    for run in load_runs(folder):
        if not run.complete:
            raise SystemExit(f"{run.folder}: is not complete; the same call goes on")
        found[run.document["config"]["dataset"]["name"]] = {
            result.method: result.correct[np.argsort(result.positions)] for result in read_results(run)
        }
    return found


def difference(pairs: Mapping[str, np.ndarray], comparison: Comparison | None = None) -> dict[str, Any]:
    """Return a mean difference per image, by set, with its intervals over these images and over sets like these."""
    values = [*pairs.values()]
    images, over = bootstrap_mean(np.concatenate(values)), interval_over_sets(values)
    counts = {} if comparison is None else {"gained": comparison.gained, "lost": comparison.lost}
    return {
        "n": sum(map(len, values)),
        "difference": images.value,
        "images": [images.low, images.high],
        "sets": None if over is None else [over.low, over.high],
        **counts,
        "by_set": {name: float(own.sum()) for name, own in pairs.items()},
    }


def less(found: Sets, method: str, reference: str) -> dict[str, Any]:
    """Compare two methods on the same images."""
    pairs = {name: own[method].astype(float) - own[reference] for name, own in found.items()}
    compared = Comparison.pooled(Comparison.of(own[method], own[reference]) for own in found.values())
    return difference(pairs, compared)


def gains(plain: Sets, reduced: Sets) -> dict[str, Any]:
    """Return what exploration gains on images as they are and on reduced ones, and the difference of both gains."""
    gain = {
        kind: {name: own["fcl-explore"].astype(float) - own["zero_shot"] for name, own in found.items()}
        for kind, found in (("plain", plain), ("reduced", reduced))
    }
    more = {name: gain["reduced"][name] - own for name, own in gain["plain"].items()}
    return {
        "plain": less(plain, "fcl-explore", "zero_shot"),
        "reduced": less(reduced, "fcl-explore", "zero_shot"),
        "more": difference(more),
    }


def summarise(out: Path) -> dict[str, Any]:
    """Return all numbers, and what the registered rules say."""
    further = read(out / "further")
    compared = {"fcl": less(further, "fcl", "zero_shot"), "fcl-explore": less(further, "fcl-explore", "zero_shot")}
    cheaper = {label: less(further, label, "fcl") for label in MARGINS}
    small = {half: gains(read(out / half), read(out / f"{half}-reduced")) for half in ("choosing", "further")}
    return {
        "over zero-shot": compared,
        "over recommended": cheaper,
        "small images": small,
        "rules": {
            "a gain elsewhere": above_zero(compared["fcl"]["sets"]),
            "small images gain": above_zero(small["further"]["more"]["sets"]),
            **{label: all(abs(end) <= margin for end in cheaper[label]["images"]) for label, margin in MARGINS.items()},
        },
        "settings": {label: [*settings] for label, settings in SETTINGS.items()},
    }


def above_zero(ends: Sequence[float] | None) -> bool:
    return ends is not None and ends[0] > 0


def row(name: str, found: Mapping[str, Any]) -> str:
    """Return a row of a table."""
    spans = (
        "" if found[over] is None else " to ".join(f"{100 * end:+.1f}" for end in found[over])
        for over in ("images", "sets")
    )
    alone = f"{found['gained']} / {found['lost']}" if "gained" in found else ""
    return f"| {name} | {found['n']} | {100 * found['difference']:+.2f} | {' | '.join(spans)} | {alone} |"


def tables(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the blocks of the page."""
    rows = [
        *(row(f"`{name}` over zero-shot", found) for name, found in document["over zero-shot"].items()),
        *(row(f"`{name}` over `fcl`", found) for name, found in document["over recommended"].items()),
    ]
    small = [
        row(f"{half}: {title}", found[name])
        for half, found in document["small images"].items()
        for name, title in (("plain", "as they are"), ("reduced", "reduced"), ("more", "the second less the first"))
    ]
    head = "| {} | n | points | over these images | over sets like these | alone right |\n|---|---|---|---|---|---|\n"
    return {
        "further": head.format("comparison") + "\n".join(rows),
        "small": head.format("gain of exploration over zero-shot") + "\n".join(small),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--confirm", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("further"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/control.md"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables-only", action="store_true")
    options = parser.parse_args()
    if not options.tables_only:
        carry_out(options)
    document = summarise(options.out)
    write_whole(options.page.parent / "further.json", to_json(document))
    text = fill(options.page.read_text(encoding="utf-8"), tables(document))
    options.page.write_text(text, encoding="utf-8")
    print(to_json(document["rules"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
