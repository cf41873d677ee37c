"""Classify a user's photos, beside zero-shot: printed and written as they come, or a run on disk as of `evaluate`."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from faircontext.datasets.inputs import InputOptions, Inputs, collect
from faircontext.datasets.spec import Dataset
from faircontext.errors import ArgumentError, and_more, counted, one_line
from faircontext.files import check_folder, check_outputs
from faircontext.names import name_warnings
from faircontext.runs.answer import AnsweredImage, answer_images
from faircontext.runs.checks import read_document
from faircontext.runs.classify_options import ClassifyOptions
from faircontext.runs.exports import EntrySpool, Export, RowWriter, describe_run, exports_of, exports_of_rows
from faircontext.runs.features import EmbeddingsWriter, ScoresWriter, manifest_of, manifest_path, write_classifier
from faircontext.runs.label_totals import LabelTotals
from faircontext.runs.options import Say
from faircontext.runs.orders import choose, parse_shard
from faircontext.runs.plan import Plan, plan_of
from faircontext.runs.prepare import Item
from faircontext.runs.records import Record, Row, row_name, split_methods
from faircontext.runs.runner import Engine, carry_out_in, describe_engine, engine_of
from faircontext.runs.setup import Setup
from faircontext.runs.shift_options import check_shift, facts_of_shift
from faircontext.runs.store import Run
from faircontext.runs.stream_options import check_one_stream
from faircontext.runs.streams import Streams
from faircontext.runs.totals import Totals
from faircontext.runs.unknown import NONE
from faircontext.sources import Remote

__all__ = ["classify"]


def classify(options: ClassifyOptions, inputs: Sequence[str], listed: Iterable[str], warn: Say) -> int:
    """Answer images, print and write as the options ask, and return the exit code.

    Args:
        options: what is asked.
        inputs: what names the images, see `collect`; `-` stands for `listed`.
        listed: lines of file names that stand for `-`.
        warn: takes warnings.

    Raises:
        FairContextError: an option has a value that cannot be used.
        KeyboardInterrupt: the run was stopped; what was answered is written.
    """
    options.check()
    check_one_stream(options)
    shard = None if options.shard is None else parse_shard(options.shard)
    names = options.names_for(inputs)
    options.check_top(len(names))
    options.set_threads()
    roots = inputs if options.labels_from_folders else ()
    how = InputOptions(options.exclude, options.image_column, options.label_column, options.multi_label)
    found = collect(inputs, listed, names, roots, how)
    if options.out is not None:
        _check_out(options.out, inputs)
    if options.out is None:
        return _answer(options, names, inputs, found, warn)
    return _store(options, options.out, shard, names, inputs, found, warn)


def _check_out(out: Path, inputs: Sequence[str]) -> None:
    if out.exists() and not out.is_dir():
        raise ArgumentError(f"{out}: is a file; --out names the folder of a run, --csv and --json name files")
    real = out.resolve()
    for word in inputs:
        if word != "-" and os.path.isdir(word) and Path(word).resolve() in (real, *real.parents):  # noqa: PTH112
            raise ArgumentError(f"--out {out}: lies in {word}, whose images are answered; name another folder")
    check_folder(out)


class _Outputs:
    """The files that options ask for; opened together, so that a wrong argument leaves earlier files as they were."""

    def __init__(self, options: ClassifyOptions, setup: Setup, stack: ExitStack) -> None:
        self._shift = {} if options.shift is None else {"shift": str(options.shift)}
        facts = {**manifest_of(setup.labels), **facts_of_shift(options.shift)} if options.stored else {}
        columns = (*["scores"] * options.multi_label, *self._shift)
        self._rows = stack.enter_context(RowWriter(options.csv, options.top, columns)) if options.csv else None
        self._spool = stack.enter_context(EntrySpool(options.json)) if options.json else None
        self._numbers: list[ScoresWriter | EmbeddingsWriter] = []
        if options.scores:
            self._numbers.append(stack.enter_context(ScoresWriter(options.scores, facts)))
        if options.embeddings:
            self._numbers.append(stack.enter_context(EmbeddingsWriter(options.embeddings, facts)))

    def add(self, exports: Iterable[Export]) -> None:
        """Take what is known of an image."""
        taken = [*exports]
        for export in taken if self._rows else ():
            assert self._rows is not None
            self._rows.write(export.row, export.top, {**export.cells, **self._shift})
        if self._spool:
            self._spool.add(export.entry for export in taken)
        for writer in self._numbers:
            for export in taken:
                writer.add(export)

    def finish(self, document: Mapping[str, Any]) -> None:
        """Write what is written at the end."""
        if self._spool:
            self._spool.write(document, "answers")


def _check_files(options: ClassifyOptions, found: Inputs) -> None:
    outputs = [options.csv, options.json, options.scores, options.embeddings, options.classifier]
    if options.embeddings is not None and options.embeddings.suffix.lower() != ".parquet":
        outputs.append(manifest_path(options.embeddings))
    paths = (Path(str(sample.path)) for sample in found.images if not isinstance(sample.path, Remote))
    run = [options.out / name for name in ("run.json", "rows.parquet")] if options.out else []
    check_outputs(filter(None, outputs), chain(paths, found.files, options.files_read(), run))


def _warnings(found: Inputs, names: Sequence[str], setup: Setup) -> list[str]:
    """Return what a person should know before a run, a line each."""
    odd = name_warnings(names, several=setup.label_rule is not None)
    return [*found.warnings, *odd, *setup.warnings(), *found.truth_warnings]


def _answer(options: ClassifyOptions, names: Sequence[str], inputs: Sequence[str], found: Inputs, warn: Say) -> int:
    """Answer images and show each as it comes; nothing is stored but the files that are asked for."""
    read = options.reader()
    model = options.load(split_methods(options.method)).for_dataset(_name_of(inputs))  # as a stored run's
    setup = model.on(names, options.choose_prompts(names), options.regime, options.truncate).judged_by(options)
    _check_files(options, found)
    images = found.images
    positions = np.arange(len(images))
    if options.limit is not None:
        positions = np.sort(choose(len(images), options.seed, options.limit))
    with ExitStack() as stack:
        # Opened last, so that a wrong argument leaves an earlier file as it was.
        outputs = _Outputs(options, setup, stack)
        if options.classifier:
            write_classifier(options.classifier, setup.labels)
        _print_run(options, setup, len(positions))
        for warning in _warnings(found, names, setup):
            warn(warning)
        totals = totals_of(setup, [*setup.methods])
        several = setup.label_rule is not None
        items = (Item.of(images[position], several) for position in positions.tolist())
        workers, features = options.count_of_workers or 0, options.features
        shift = options.shift
        check_shift(shift, setup.labels.backbone, (images[int(position)] for position in positions))
        streams = Streams(setup.methods, setup.labels, max(1, len(positions)))
        how = (setup.labels, setup.methods, setup.recipe, options.seed, read, workers, features, shift, streams)
        stream = setup.judge(answer_images(items, *how))
        interruption: KeyboardInterrupt | None = None
        threshold = _threshold_of(setup)
        try:
            for answered in _until_unreadable(_with_progress(stream, len(positions), setup), options.strict):
                totals.add(answered)
                outputs.add(exports_of(answered, setup.labels, options.top, options.stored, threshold))
        except KeyboardInterrupt as caught:
            interruption = caught
        finally:
            totals.print()
            for warning in totals.warnings():
                warn(warning)
            outputs.finish(describe_run(options, setup, totals.summary(), totals.images))
    if interruption is not None:
        raise type(interruption)(f"interrupted after {totals.images} of {len(positions)} images")
    return 1 if totals.unreadable else 0


def _store(
    options: ClassifyOptions,
    out: Path,
    shard: tuple[int, int] | None,
    names: Sequence[str],
    inputs: Sequence[str],
    found: Inputs,
    warn: Say,
) -> int:
    """Answer images into a run on disk, then write the files that are asked for from what is stored."""
    model = options.load(options.labels_of_methods)
    name = _name_of(inputs)
    dataset = Dataset(
        name,
        Path.cwd(),
        and_more(inputs),
        "all",
        tuple(names),
        found.images,
        regime=options.regime,
        in_order=True,
        image_column=options.image_column,
    )
    plan = plan_of(options, dataset, model, shard)
    _check_files(options, found)
    if options.classifier:
        write_classifier(options.classifier, plan.setup.labels)
    folder = out if shard is None else out / f"shard-{shard[0]}-of-{shard[1]}"
    plan = _going_on(plan, folder) if options.resume else plan
    engine, facts = engine_of(options, model)
    for line in [*plan.describe(), *describe_engine(facts)]:
        print(line, flush=True)
    for warning in _warnings(found, names, plan.setup):
        warn(warning)
    strict, interruption = _Strict(engine), None
    try:
        carry_out_in(folder, plan, strict if options.strict else engine, options.resume, facts, warn)
    except KeyboardInterrupt as caught:
        interruption = caught
    totals = _export(options, plan, folder, warn)
    if strict.unreadable is not None:
        print(_stopped(strict.unreadable.path, strict.unreadable.error), file=sys.stderr)
        return 1
    if interruption is not None:
        raise interruption
    return 1 if totals.unreadable else 0


def _going_on(plan: Plan, folder: Path) -> Plan:
    """Return a plan whose rows hold what those of an earlier call hold: scores and embeddings that it asked for."""
    if not (folder / "run.json").is_file():
        return plan
    held = read_document(folder / "run.json")["config"].get("stored", ())
    return replace(plan, stored=tuple(held)) if {*plan.stored} < {*held} else plan


class _Strict:
    """An engine that stops the run after the first file that is unreadable."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.unreadable: Record | None = None

    def __call__(
        self, plan: Plan, positions: Sequence[int], *, streams: Streams | None = None
    ) -> Iterator[list[Record]]:
        for records in self._engine(plan, positions, streams=streams) if streams else self._engine(plan, positions):
            yield records
            if records[0].error:
                self.unreadable = records[0]
                raise KeyboardInterrupt


def _stopped(path: str, error: str) -> str:
    return f"stopped at {one_line(path)}, as --strict asks: {error}"


def _name_of(inputs: Sequence[str]) -> str:
    """Return what a run on images is called: as the one folder, archive or table that was given, or `images`."""
    name = Path(os.path.abspath(inputs[0])).name if len(inputs) == 1 and inputs[0] != "-" else ""  # noqa: PTH100
    return "images" if not name or any(mark in name for mark in "*?[{") else name


def _export(options: ClassifyOptions, plan: Plan, folder: Path, warn: Say) -> Totals:
    """Count what a run holds, say it, and write files of answers from it."""
    run = Run(folder, {"config": plan.config})
    asked = [*plan.setup.methods] if options.method == "all" else [*map(row_name, split_methods(options.method))]
    setup = replace(plan.setup, methods={label: plan.setup.methods[label] for label in asked})
    totals = totals_of(setup, asked)
    files = options.csv or options.json or options.stored
    with ExitStack() as stack:
        outputs = _Outputs(options, setup, stack)
        for rows in run.tables():
            totals.add_rows(rows)
            if files:
                outputs.add(exports_of_rows(rows, plan.dataset.names, asked, options.top, _threshold_of(setup)))
        outputs.finish(describe_run(options, setup, totals.summary(), totals.images))
    totals.print()
    for warning in totals.warnings():
        warn(warning)
    return totals


def totals_of(setup: Setup, methods: Sequence[str]) -> Totals:
    """Return what counts the answers of a set-up."""
    if (rule := setup.label_rule) is None:
        return Totals(methods)
    return LabelTotals(methods, len(setup.labels), rule.threshold)


def _threshold_of(setup: Setup) -> float | None:
    return None if setup.label_rule is None else setup.label_rule.threshold


def _until_unreadable(stream: Iterator[AnsweredImage], strict: bool) -> Iterator[AnsweredImage]:
    """Pass answers on, where --strict asks so up to the first unreadable file."""
    for answered in stream:
        yield answered
        if strict and answered.error:
            print(_stopped(answered.path, answered.error), file=sys.stderr)
            break


def _with_progress(answers: Iterator[AnsweredImage], total: int, setup: Setup) -> Iterator[AnsweredImage]:
    """Print a line per image, with a progress bar below on a terminal and none in a pipe."""
    several = len(setup.methods) > 1
    wide = 14 if several else 24
    beside = not several or "zero_shot" not in setup.methods  # where it is one of several, it has columns of its own
    titles = setup.methods if several else ("prediction",)
    head = " ".join(_columns(title, "votes", "prob.", wide) for title in titles)
    head = f"{'zero-shot':{wide}} " * beside + head
    if setup.label_rule is not None:
        head = f"{'labels and their scores':62}"
    print(f"{head}  image")
    for answered in tqdm(answers, total=total, unit="image", disable=not sys.stderr.isatty(), leave=False):
        if answered.error:
            cells = f"{'unreadable: ' + answered.error:{len(head)}}"
        elif setup.label_rule is not None:
            given = setup.label_rule.given(answered)
            cells = f"{', '.join(f'{name} {score:.2f}' for name, score in given) or '(none)':{len(head)}}"
        else:
            cells = f"{answered.rows[0].zero_shot:{wide}.{wide}} " * beside
            cells += " ".join(_cells_of(row, wide) for row in answered.rows)
        yield answered  # first, so that a row is in its file before anything can go wrong with showing it
        tqdm.write(one_line(f"{cells}  {answered.path}"))


def _cells_of(row: Row, wide: int) -> str:
    votes = "" if row.votes is None else str(row.votes)
    return _columns(row.prediction or NONE, votes, f"{row.confidence:.3f}", wide)


def _columns(prediction: str, votes: str, probability: str, wide: int) -> str:
    """Return the columns of a method in a line."""
    return f"{prediction:{wide}.{wide}} {votes:>5} {probability:>6}"


def _print_run(options: ClassifyOptions, setup: Setup, images: int) -> None:
    """Say what is about to run, with every setting that differs from the paper's."""
    recipe, labels = setup.recipe, setup.labels
    summaries = []
    for label, method in setup.methods.items():
        default = type(method)().settings()
        changed = [f"{name}={value}" for name, value in method.settings().items() if value != default[name]]
        summaries.append(f"{label}{' (' + ', '.join(changed) + ')' if changed else ''}")
    print(
        f"{labels.backbone.name} ({labels.backbone.arithmetic}, {labels.backbone.device}), preset {options.preset}; "
        f"{recipe.count} views of scale {recipe.scale[0]:g} to {recipe.scale[1]:g}; seed {options.seed}\n"
        f"{', '.join(summaries)}\n"
        f"{counted(images, 'image')}, {counted(len(labels), 'class')}, "
        f"prompts: {labels.summary}"
    )
    if options.shift is not None:
        print(options.shift.summary)
    if setup.label_rule is not None:
        print(setup.label_rule.summary)
