"""Evidence maps against a ground truth: collages of photos, on which it is known where each class is.

Usage: python benchmarks/evidence.py --data FOLDER --features FOLDER --out evidence.json [--figure evidence.png]
    [--model FOLDER] [--sets NAME:SIDE:COLLAGES:MOST ...]

For each data set it makes collages, and from 25 to MOST encoded images the maps of all classes by the package's
estimators and by its rivals; what is kept is AUC, pointing and energy in the class's own cell, on average over a
collage. Collages of even index choose (half A), those of odd index report (half B). Beside them: how well the maps of
two seeds agree on single photos, insertion and deletion on them, what estimating costs beside encoding, and the same
collages on a trained checkpoint (--model) and on a vision transformer with random weights, with a gradient method.
Features are stored in --features: a second run encodes nothing but insertion and deletion. Needs pip
install 'faircontext[benchmark]'.
"""

import argparse
import json
import logging
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from evidence_page import draw, tables
from explainers import PAPER_GRIDS, SIDE, Estimated, Explainer, Subject
from rivals import GradCam, Lime, Rise, Sliding

import faircontext
from faircontext import Backbone, LabelSpace, create_backbone, load_image
from faircontext.analysis.stability import cell_regions
from faircontext.backbones.lite import Lite
from faircontext.backbones.open_clip import OpenClip
from faircontext.datasets.collages import Collage, Collages
from faircontext.datasets.load import load_dataset
from faircontext.datasets.spec import Dataset
from faircontext.evidence import Evidence, importance, sample_masks
from faircontext.metrics.saliency import deletion, insertion, localise, rank_correlation

COUNTS = (25, 50, 100, 200, 400, 800, 1600)
SETS = ("pacs_photo:2:24:400", "office_caltech10_amazon:3:24:100", "clothing10_test:3:24:100")
SETTINGS: dict[str, Any] = dict(Lite.recommended["fcl"])
RECOMMENDED = Estimated("recommended", SETTINGS["estimator"], SETTINGS["grids"], SETTINGS["smoothing"])
OURS = (
    Estimated("paper", "paper", PAPER_GRIDS, 0.0),
    Estimated("paper's grids, covariance", "covariance", PAPER_GRIDS, 0.0),
    Estimated("paper's grids, covariance, smoothed", "covariance", PAPER_GRIDS, RECOMMENDED.smoothing),
    RECOMMENDED,
    Estimated("covariance, smoothed", "covariance", RECOMMENDED.grids, 0.1),
)
WINDOWS = tuple(
    Sliding(f"sliding occlusion, window {word}{', log' if log else ''}", window, log)
    for log in (False, True)
    for word, window in (("of two steps", None), ("1/4", 0.25), ("3/8", 0.375), ("1/2", 0.5))
)
LASSOS = tuple(
    Lime(f"LIME (captum), alpha {alpha}{', log' if log else ''}", alpha=alpha, log=log)
    for alpha, log in ((0.01, False), (0.001, False), (0.01, True))
)
"""Variants of rivals, of which half A chooses one each: of the posterior, or of the log-posterior."""

VARIANTS = tuple(
    Estimated(f"{estimator}, {word} grids, smoothing {width}", estimator, grids, width)
    for estimator in ("covariance", "least-squares")
    for word, grids in (("paper's", PAPER_GRIDS), ("recommended", RECOMMENDED.grids))
    for width in (0.0, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2)
)
"""Settings of the package's maps; half A says which of them is best."""

STEPS = 28
"""Portions in which pixels are put in or taken out."""

CHOSEN_AT = 100
"""Encoded images at which half A chooses among the variants of a rival, which are compared up to there."""


def score(collage: Collage, maps: torch.Tensor) -> list[float]:
    """Return AUC, pointing and energy in the own cells of a collage's classes, on average over the cells."""
    regions = cell_regions(len(collage.cells), SIDE, SIDE)
    found = [localise(maps[label], regions) for label in collage.cells.ravel().tolist()]
    return [
        float(np.mean([getattr(one, name)[cell] for cell, one in enumerate(found)]))
        for name in ("auc", "pointing", "energy")
    ]


Scores = dict[str, dict[int, list[list[float]]]]
"""By explainer and number of encoded images: AUC, pointing and energy of each collage."""


def measure(
    subjects: Sequence[tuple[Subject, Collage]], explainers: Sequence[Explainer], counts: Sequence[int]
) -> Scores:
    """Score explainers; larger numbers of images first, so that the first masks of many are encoded once."""
    scores: Scores = {explainer.title: {count: [] for count in counts} for explainer in explainers}
    for subject, collage in subjects:
        for explainer in explainers:
            for count in sorted(counts, reverse=True):
                scores[explainer.title][count].append(score(collage, explainer.maps(subject, count)))
    return scores


def choose(scores: Sequence[Scores], titles: Sequence[str], count: int) -> str:
    """Return the explainer with the largest AUC on half A, as the mean over data sets."""

    def mean(title: str) -> float:
        return float(np.mean([np.mean([row[0] for row in one[title][count][::2]]) for one in scores]))

    return max(titles, key=mean)


def collages_of(
    dataset: Dataset, side: int, count: int, labels: LabelSpace, beta: float, features: Path | None
) -> Iterator[tuple[Subject, Collage]]:
    """Yield subjects with their collages."""
    for collage in Collages(dataset, side).draw(count):
        yield Subject(collage.pixels, labels, beta, features), collage


def on_sets(options: argparse.Namespace, backbone: Backbone) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Measure everything on the collages of each data set; return that, and what half A chose."""
    found = []
    for word in options.sets:
        name, side, count, most = word.split(":")
        dataset = load_dataset(name, options.data)
        labels = LabelSpace(dataset.names, backbone)
        counts = [one for one in COUNTS if one <= int(most)]
        few = [one for one in counts if one <= CHOSEN_AT]
        scores: Scores = {}
        subjects = list(collages_of(dataset, int(side), int(count), labels, beta_of(backbone), options.features))
        scores |= measure(subjects, (*OURS, Rise()), counts)
        scores |= measure(subjects, (*WINDOWS, *LASSOS), few)
        scores |= measure(subjects, VARIANTS, [one for one in counts if one in (100, 400)])
        found.append({"name": name, "side": int(side), "classes": len(dataset.names), "scores": scores})
        print(f"{name}: {count} collages of {side} x {side}", flush=True)
        found[-1]["_subjects"] = subjects
    at = max(one for one in found[0]["scores"][WINDOWS[0].title])
    chosen = {
        "sliding occlusion": choose([one["scores"] for one in found], [one.title for one in WINDOWS], at),
        "LIME": choose([one["scores"] for one in found], [one.title for one in LASSOS], at),
    }
    best = [explainer for explainer in (*WINDOWS, *LASSOS) if explainer.title in chosen.values()]
    for one in found:
        more = [count for count in one["scores"]["recommended"] if count > at]
        for title, rows in measure(one.pop("_subjects"), best, more).items():
            one["scores"][title] |= rows
    return found, chosen


def single_photos(options: argparse.Namespace, per_class: int = 4) -> tuple[Dataset, list[Path]]:
    """Return the first data set, and the first photos of each of its classes."""
    dataset = load_dataset(options.sets[0].partition(":")[0], options.data)
    taken: dict[int, list[Path]] = {}
    for sample in dataset.samples:
        taken.setdefault(sample.label, []).append(sample.path)
    return dataset, [path for paths in taken.values() for path in paths[:per_class]][: options.photos]


def curves(options: argparse.Namespace, backbone: Backbone, explainers: Sequence[Explainer]) -> dict[str, Any]:
    """Return the areas under the insertion and the deletion curve of single photos, from `CHOSEN_AT` encoded images.

    The score is the posterior of the class that the plain view favours.
    """
    dataset, photos = single_photos(options)
    labels = LabelSpace(dataset.names, backbone)
    areas: dict[str, dict[str, list[float]]] = {one.title: {"insertion": [], "deletion": []} for one in explainers}
    for path in photos:
        subject = Subject(load_image(path), labels, beta_of(backbone), options.features)
        x, label = subject.episode.x, int((subject.text @ subject.z).argmax())

        def score(images: torch.Tensor, subject: Subject = subject, label: int = label) -> torch.Tensor:
            return subject.posterior(backbone.encode_image(images))[:, label]

        for explainer in explainers:
            small = explainer.maps(subject, options.curve_images)[label]
            size = x.shape[-1]
            whole = small[torch.arange(size) * SIDE // size][:, torch.arange(size) * SIDE // size]
            for name, curve in (("insertion", insertion), ("deletion", deletion)):
                areas[explainer.title][name].append(curve(score, x, whole.numpy(), steps=STEPS).area)
    return {"name": dataset.name, "photos": len(photos), "images": options.curve_images, "areas": areas}


def agreement(options: argparse.Namespace, backbone: Backbone, per_class: int = 4) -> dict[str, Any]:
    """Return Spearman's correlation of the maps of two seeds, of the class that the plain view favours."""
    dataset, photos = single_photos(options, per_class)
    labels = LabelSpace(dataset.names, backbone)
    wider = [one for one in VARIANTS if one.grids == RECOMMENDED.grids and one.smoothing in (0.15, 0.2)]
    explainers = (RECOMMENDED, OURS[0], OURS[-1], *wider)
    counts = [count for count in COUNTS if count <= 100]
    found: dict[str, dict[int, list[float]]] = {one.title: {count: [] for count in counts} for one in explainers}
    for path in photos:
        pair = [Subject(load_image(path), labels, beta_of(backbone), options.features, seed) for seed in (0, 1)]
        label = int((pair[0].text @ pair[0].z).argmax())
        for explainer in explainers:
            for count in sorted(counts, reverse=True):
                first, second = (explainer.maps(subject, count)[label] for subject in pair)
                found[explainer.title][count].append(rank_correlation(first, second))
    return {"name": dataset.name, "photos": len(photos), "spearman": found}


def cost(options: argparse.Namespace, backbone: Backbone, masks: int = 100, repeats: int = 5) -> dict[str, float]:
    """Return processor seconds of encoding masks, and those of each estimator as shares of them."""
    dataset = load_dataset(options.sets[0].partition(":")[0], options.data)
    collage = next(Collages(dataset).draw(1))
    subject = Subject(collage.pixels, LabelSpace(dataset.names, backbone), beta_of(backbone))
    x, size = subject.episode.x, subject.episode.x.shape[-1]
    drawn = sample_masks(masks, subject.episode.stream("masks"), RECOMMENDED.grids, 0.5)

    def seconds(run: Any) -> float:
        run()
        times = []
        for _ in range(repeats):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
        return statistics.median(times)

    def encode() -> torch.Tensor:
        parts = [drawn.pixels(start, start + 16, size, size) for start in range(0, masks, 16)]
        return torch.cat([backbone.encode_image(x * ~part[:, None]) for part in parts])

    whole, found = seconds(encode), importance(subject.z, encode(), subject.text, subject.beta)

    def evidence(estimator: Any, smoothing: float) -> Evidence:
        return Evidence(found, drawn, size, size, estimator, smoothing)

    width = RECOMMENDED.smoothing
    parts = {
        "paper": lambda: evidence("paper", 0.0).maps,
        "covariance, smoothed": lambda: evidence("covariance", width).maps,
        "least squares, smoothed": lambda: evidence("least-squares", width).maps,
        "reliability": lambda: evidence("covariance", width).reliability,
        "standard error": lambda: evidence("covariance", width).error(),
    }
    return {"masks": masks, "encoding": whole, **{name: seconds(run) / whole for name, run in parts.items()}}


def beta_of(backbone: Backbone) -> float:
    """Return the recommended beta of a backbone, or else the paper's."""
    return float(str(backbone.recommended.get("fcl", {}).get("beta", 0.2 * backbone.logit_scale)))


def compared(chosen: Mapping[str, str]) -> list[Explainer]:
    """Return the recommended and the paper's maps, and the rivals that half A chose."""
    rivals = [one for one in (*WINDOWS, *LASSOS) if one.title in chosen.values()]
    return [RECOMMENDED, OURS[0], Rise(), *rivals]


def gradient_models(options: argparse.Namespace) -> Iterator[tuple[str, Backbone]]:
    """Yield models through which gradients go, with names: the backbone, a trained checkpoint, random weights."""
    yield options.backbone.rpartition("/")[2], create_backbone(options.backbone, precision="fp32", engine="torch")
    if options.model is not None:
        yield options.model.name, create_backbone(f"local-dir:{options.model}", precision="fp32", engine="torch")
    if options.random:
        logging.disable(logging.WARNING)  # that the weights are random is what is wanted
        torch.manual_seed(0)
        model, tokenizer = open_clip.create_model(options.random), open_clip.get_tokenizer(options.random)
        title = f"{options.random}, random weights"
        yield title, OpenClip(title, model, tokenizer, precision="fp32")


def with_gradients(options: argparse.Namespace, sliding: Sliding) -> list[dict[str, Any]]:
    """Measure the masks of `CHOSEN_AT` encoded images, and Grad-CAM, on models with gradients."""
    name, side, count, _ = options.sets[0].split(":")
    dataset = load_dataset(name, options.data)
    found = []
    for title, backbone in gradient_models(options):
        labels = LabelSpace(dataset.names, backbone)
        few = min(int(count), options.gradient_collages)
        subjects = list(collages_of(dataset, int(side), few, labels, beta_of(backbone), options.features))
        scores = measure(subjects, (RECOMMENDED, OURS[0], Rise(), sliding), [options.gradient_masks])
        scores |= measure(subjects, (GradCam(),), [GradCam.cost(len(dataset.names))])
        found.append({"model": title, "name": name, "side": int(side), "scores": scores})
        print(f"{title}: {few} collages", flush=True)
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Run, write what was measured, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--features", type=Path, help="folder that keeps features")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--figure", type=Path, help="PNG file to draw")
    parser.add_argument("--model", type=Path, help="folder of a trained open_clip model")
    parser.add_argument("--random", default="ViT-B-32", help="architecture that gets random weights, or none")
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME:SIDE:COLLAGES:MOST")
    parser.add_argument("--photos", type=int, default=28, help="single photos for the agreement of two seeds")
    parser.add_argument("--curve-images", type=int, default=CHOSEN_AT, help="encoded images for insertion and deletion")
    parser.add_argument("--gradient-collages", type=int, default=12)
    parser.add_argument("--gradient-masks", type=int, default=CHOSEN_AT)
    options = parser.parse_args(words)
    backbone = create_backbone(options.backbone)
    sets, chosen = on_sets(options, backbone)
    sliding = next(one for one in WINDOWS if one.title == chosen["sliding occlusion"])
    document = {
        "meta_info": {
            "faircontext": faircontext.__version__,
            "torch": torch.__version__,
            "backbone": options.backbone.rpartition("/")[2],
            "precision": backbone.precision,
            "weights": backbone.weights_hash,
            "beta": beta_of(backbone),
            "estimator": RECOMMENDED.estimator,
            "smoothing": RECOMMENDED.smoothing,
        },
        "chosen": chosen,
        "sets": sets,
        "agreement": agreement(options, backbone),
        "curves": curves(options, backbone, compared(chosen)),
        "cost": cost(options, backbone),
        "gradients": with_gradients(options, sliding),
    }
    document = json.loads(json.dumps(document), parse_float=lambda text: round(float(text), 4))
    options.out.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    blocks = tables(document)
    print("\n\n".join(f"{name}\n{block}" for name, block in blocks.items()))
    if options.figure is not None:
        draw(document, options.figure)


if __name__ == "__main__":
    main()
