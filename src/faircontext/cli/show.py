"""`faircontext tables`, `figures`, `report`, `data` and `list`: what runs have measured, data sets, and names."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from faircontext.cli.options import parse_options, say, warn
from faircontext.errors import ArgumentError, and_more, check_minimum, counted, one_line


@dataclass(frozen=True)
class Tables:
    """Print tables of runs; the runs of a table differ only in method and data set.

    Every accuracy comes with its number of images and a 95% interval, every gain is over zero-shot on the same images.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with runs, searched recursively."""
    style: Literal["paper", "long", "shift", "classes", "confusion"] = "paper"
    """paper: methods by data sets; long: a row per data set and method, with intervals and tests; shift: comparison of
    runs of evaluate --corrupt and --attack, with the mean corruption error; classes: a row per class, with recall,
    precision and F1; confusion: confusion matrix."""
    format: Literal["md", "latex", "csv", "rich"] = "rich"
    """Markdown, LaTeX with booktabs, CSV (proportions, not percent), or rich for a terminal."""
    compare: Literal["paper"] | None = None
    """paper: add the paper's values for the backbone, if it has any; this does not change the exit code."""
    metric: Literal["top1", "top5", "ece", "brier", "nll", "aurc", "mean_per_class"] = "top1"
    """Metric of style paper."""
    out: Path | None = None
    """File for the tables (default: standard output)."""


def tables(arguments: Sequence[str]) -> int:
    """Run `faircontext tables`."""
    options = parse_options(Tables, arguments, "tables")
    if options.style not in ("paper", "long") and options.compare:
        raise ArgumentError(f"--compare paper is not possible with --style {options.style}; leave it out")
    if options.metric != "top1" and (options.style != "paper" or options.compare):
        hints = {"long": "--style long shows all metrics", "paper": "--compare paper is of top-1 accuracy"}
        what = hints.get(options.style, f"--style {options.style} is of top-1 accuracy")
        raise ArgumentError(f"--metric {options.metric} is not possible: {what}; leave --metric out")
    from faircontext.files import check_outputs, write_whole
    from faircontext.report.tables import write_tables
    from faircontext.runs.groups import find_runs

    runs = find_runs(options.runs)
    if options.out is not None:
        check_outputs([options.out], [run.folder / name for run in runs for name in ("run.json", "rows.parquet")])
    shown = options.out is None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if shown else None
    compared = options.compare is not None
    text = write_tables(runs, options.style, options.format, options.metric, warn, compared=compared, width=width)
    if options.out is None:
        print(text, end="")
    else:
        write_whole(options.out, text)
    return 0


@dataclass(frozen=True)
class Threshold:
    """Choose, on a labelled run, the score below which predictions are withheld as "none of these".

    Prints, for each method, the threshold, the coverage and the error rate among the predictions kept, with 95%
    intervals. --out writes the file that classify and evaluate take as --unknown. With --temperature, calibration
    before and after is printed, on images that were not used for fitting. On a run of --multi-label it chooses the
    value of --threshold with the largest F1, or with --precision.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a run of evaluate, or of classify --out with known labels."""
    score: Literal["probability", "cosine", "energy"] = "probability"
    """Score of the prediction; cosine and energy need a run with --unknown."""
    coverage: float | None = None
    """Minimum coverage: the fraction of images whose prediction is kept."""
    risk: float | None = None
    """Maximum error rate among the predictions kept; the coverage is maximised."""
    precision: float | None = None
    """On a run of --multi-label: minimum precision; the number of predicted labels is maximised."""
    temperature: bool = False
    """Also fit a temperature for the probabilities of each method, on half of the images; needs a run with --scores."""
    out: Path | None = None
    """File for the thresholds, which ends in .json."""


def threshold(arguments: Sequence[str]) -> int:
    """Run `faircontext threshold`."""
    options = parse_options(Threshold, arguments, "threshold")
    if options.out is not None and options.out.suffix.lower() != ".json":
        raise ArgumentError(f"--out {options.out}: must end in .json")
    import numpy as np

    from faircontext.files import check_outputs, to_json, write_whole
    from faircontext.runs.label_results import choose_label_threshold, is_multi_label
    from faircontext.runs.store import load_only_run
    from faircontext.runs.unknown import choose_thresholds

    if options.out is not None:
        check_outputs([options.out], options.run.rglob("*") if options.run.is_dir() else [])
    run = load_only_run(options.run)
    by_label = is_multi_label(run)
    if options.precision is not None and not by_label:
        raise ArgumentError("--precision is of runs of --multi-label; for others give --coverage or --risk")
    if by_label:
        if options.coverage is not None or options.risk is not None or options.temperature:
            raise ArgumentError(
                f"{run.folder}: its images may have several labels, whose threshold is chosen by --precision, or by "
                "the largest F1 where nothing is given; --coverage, --risk and --temperature are of one label an image"
            )
        if options.out is not None:
            raise ArgumentError("--out is of thresholds for --unknown; pass that of labels as --threshold")
        metrics = choose_label_threshold(run, options.precision)
        say(f"--threshold {metrics.threshold!r}: {metrics}; it was chosen on these images")
        return 0
    points, document = choose_thresholds(run, options.score, options.coverage, options.risk, options.temperature)
    for method, (n, *measured) in ((name, one.items()) for name, one in document.get("calibration", {}).items()):
        shown = ", ".join("{} {value:.3f} [{low:.3f}, {high:.3f}]".format(name, **ends) for name, ends in measured)
        say(f"{method:14} temperature {document['temperatures'][method]:.4g}; on {n[1]} other images: {shown}")
    for method, point in points.items():
        least = np.float32(point.threshold)  # as scores are compared; as float64 it has more digits
        say(f"{method:14} {options.score} >= {least!s}: answers {point.coverage}; wrong {point.risk}")
    if options.out is not None:
        write_whole(options.out, to_json(document) + "\n")
    return 0


@dataclass(frozen=True)
class Figures:
    """Draw all figures for which runs have data, each as PDF, PNG and plotted numbers.

    No model or data set is needed. For figures that cannot be drawn, the command that makes their runs is printed.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with runs, and with costs.json and NAME.results.json, searched recursively."""
    out: Path = field(default=Path("figures"), kw_only=True)
    """Folder for the figures, created if it does not exist."""
    only: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of figures (default: all). --only list prints them."""


def figures(arguments: Sequence[str]) -> int:
    """Run `faircontext figures`: 0 where every figure that was asked for by name is drawn, or any where none was."""
    options = parse_options(Figures, arguments, "figures")
    from faircontext.report.figures import FIGURES, draw_from

    if options.only == ("list",):
        print("\n".join(FIGURES))
        return 0
    return draw_from(options.runs, options.only, options.out, say, warn)


@dataclass(frozen=True)
class Report:
    """Write one HTML page about runs: settings, tables, charts, and each image that a method fixed or broke.

    The page is a single self-contained file.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders with runs, searched recursively; runs of the analysis gallery add evidence maps."""
    out: Path = Path("report.html")
    """File for the page."""
    thumbnails: int = 1000
    """Number of images with thumbnails: first those that a method fixed or broke, then evenly spaced ones."""


def report(arguments: Sequence[str]) -> int:
    """Run `faircontext report`: write the page, and print where it is."""
    options = parse_options(Report, arguments, "report")
    check_minimum("thumbnails", options.thumbnails, 0)
    from faircontext.files import check_outputs, write_whole
    from faircontext.report.page import build_page
    from faircontext.runs.groups import find_runs

    runs = find_runs(options.runs)
    check_outputs([options.out], [run.folder / name for run in runs for name in ("run.json", "rows.parquet")])
    page = build_page(runs, options.thumbnails)
    write_whole(options.out, page.html)
    for line in page.warnings:
        warn(line)
    size = len(page.html.encode()) / 1e6
    print(f"{options.out}: {counted(page.images, 'image')}, {page.pictures:,} of them with pictures; {size:.1f} MB")
    return 0


@dataclass(frozen=True)
class Data:
    """List known data sets, check those on disk, or make collages of photos.

    `check` prints the expected location of a data set, what was found, and problems. Exit code 0: all of them can be
    evaluated; 1: not all of them; 2: an invalid argument. `collage` writes a data set of collages with a different
    class in each cell, for testing evidence maps by faircontext analyze pointing.
    """

    what: Annotated[Literal["list", "check", "collage"], tyro.conf.Positional]
    """list, check or collage."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Data sets to check, or the one for collages: names from the list, or folders below --root. For list: shell
    patterns."""
    all: bool = field(default=False, kw_only=True)
    """Check all data sets of the list."""
    root: Path | None = field(default=None, kw_only=True)
    """Folder that holds the data sets."""
    split: Literal["test", "val", "official"] = field(default="test", kw_only=True)
    """Which images."""
    read: bool = field(default=False, kw_only=True)
    """Decode every image, which takes time."""
    partial: bool = field(default=False, kw_only=True)
    """Accept missing images."""
    multi_label: bool = field(default=False, kw_only=True)
    """Multi-label data sets, see evaluate."""
    out: Path | None = field(default=None, kw_only=True)
    """For collage: folder to write the data set to, new or empty."""
    side: int = field(default=2, kw_only=True)
    """For collage: number of cells along a side."""
    limit: int = field(default=100, kw_only=True)
    """For collage: number of collages."""
    seed: int = field(default=0, kw_only=True)
    """For collage: random seed."""


def data(arguments: Sequence[str]) -> int:
    """Run `faircontext data`."""
    options = parse_options(Data, arguments, "data")
    return {"list": _list_datasets, "check": _check_datasets, "collage": _write_collages}[options.what](options)


def _list_datasets(options: Data) -> int:
    from faircontext.datasets import DATASETS, list_datasets

    names = [name for pattern in options.names or ("*",) for name in list_datasets(pattern)]
    if not names:
        raise ArgumentError(f"none of the data sets matches {' or '.join(map(repr, options.names))}")
    print(f"{'name':16} {'in the paper':16} {'classes':>7} {'test':>7}  {'folder':52} from")
    for name in dict.fromkeys(names):
        spec = DATASETS[name]
        folder = "/".join(filter(None, (spec.folders[0], spec.inner[0])))
        line = f"{name:16} {spec.title:16} {spec.classes:>7,} {spec.images['test']:>7,}  {folder:52} {spec.home}"
        print(line.rstrip())
    return 0


def _check_datasets(options: Data) -> int:
    from faircontext.datasets import check_dataset, expected_tree, list_datasets, locate

    if options.root is None:
        raise ArgumentError("data check needs --root, the folder that holds the data sets")
    if bool(options.names) == options.all:
        raise ArgumentError("data check takes names of data sets, or --all")
    if not options.root.is_dir():
        raise ArgumentError(f"{options.root}: no such folder; --root is the folder that holds the data sets")
    failed = 0
    names = list_datasets() if options.all else list(dict.fromkeys(options.names))
    for name in names:
        locate(name, options.root)
    for name in names:
        print(f"{name} ({options.split})")
        for line in expected_tree(name, options.root):
            print(f"  expected: {line}")
        several = options.multi_label
        report = check_dataset(name, options.root, options.split, options.read, options.partial, several)
        for line in report.summary:
            print(f"  {one_line(line)}")
        for line in report.problems:
            print(f"  PROBLEM: {one_line(line)}")
        good = report.usable and not report.problems
        failed += not good
        print(
            f"  {'can be evaluated' if good else 'cannot be evaluated' if not report.usable else 'not in full'}",
            flush=True,
        )
    print(f"{len(names) - failed} of {len(names)} can be evaluated")
    return 1 if failed else 0


def _write_collages(options: Data) -> int:
    from faircontext.datasets import Collages, load_dataset, write_collages

    if options.root is None or options.out is None:
        raise ArgumentError("data collage needs --root, the folder that holds the data set, and --out, a new folder")
    if len(options.names) != 1:
        raise ArgumentError("data collage takes the name of one data set")
    check_minimum("limit", options.limit, 1)
    dataset = load_dataset(options.names[0], options.root, options.split)
    collages = Collages(dataset, options.side, options.seed)
    write_collages(collages, options.out, options.limit)
    if collages.unreadable:
        print(one_line(f"photos that cannot be read are left out: {and_more(collages.unreadable)}"))
    print(f"{options.limit} collages of {options.side} x {options.side} photos of {dataset.name} are in {options.out}")
    return 0


@dataclass(frozen=True)
class List:
    """List methods, analyses, backbones, or pairs of backbone and weights, by name."""

    what: Annotated[Literal["methods", "analyses", "backbones", "pretrained"], tyro.conf.Positional]
    """What to list."""
    pattern: Annotated[str, tyro.conf.Positional] = "*"
    """Shell pattern for the names."""


def list_names(arguments: Sequence[str]) -> int:
    """Run `faircontext list`: print names, with a line about each method, and the activation of each architecture."""
    options = parse_options(List, arguments, "list")
    if options.what == "backbones":
        from faircontext.backbones import activation_of, list_backbones

        lines = [f"{name:32} {activation_of(name)}".rstrip() for name in list_backbones(options.pattern)]
    elif options.what == "pretrained":
        from faircontext.backbones import list_pretrained

        lines = [f"{name:32} {tag}" for name, tag in list_pretrained(options.pattern)]
    else:
        from faircontext.analysis import list_analyses
        from faircontext.methods import list_methods
        from faircontext.methods.base import METHODS

        names = (list_methods if options.what == "methods" else list_analyses)(options.pattern)
        lines = [f"{name:13} {METHODS[name].summary}" for name in names]
    if not lines:
        raise ArgumentError(f"none of the {options.what} matches {options.pattern!r}")
    print("\n".join(lines))
    return 0
