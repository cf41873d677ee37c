"""Classify a user's photos, beside zero-shot: printed and written as they come, or a run on disk as of `evaluate`."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from faircontext.datasets.containers import InputOptions
from faircontext.datasets.inputs import Inputs, collect
from faircontext.datasets.spec import Dataset
from faircontext.errors import ArgumentError, and_more, counted, one_line
from faircontext.files import check_folder, check_outputs
from faircontext.names import name_warnings
from faircontext.runs.answer import Predictor
from faircontext.runs.build import load, set_threads
from faircontext.runs.executors import Executor
from faircontext.runs.option_parts import Say
from faircontext.runs.options import ClassifyOptions
from faircontext.runs.outputs import Outputs, manifest_path, write_classifier
from faircontext.runs.plan import Plan, plan_of
from faircontext.runs.records import Answer, answers_of, row_name, split_methods
from faircontext.runs.run import Lines, describe_executor, executor_of, run, run_stored
from faircontext.runs.store import Run
from faircontext.runs.summary import Summary
from faircontext.sources import Remote


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
    options.check_one_stream()
    names = options.names_for(inputs)
    options.check_top(len(names))
    set_threads(options)
    roots = inputs if options.labels_from_folders else ()
    input_options = InputOptions(options.exclude, options.image_column, options.label_column, options.several)
    collected = collect(inputs, listed, names, roots, input_options)
    for name, folder in (("--out", options.out), ("--sort-into", options.sort_into)):
        if folder is not None:
            _check_out(name, folder, inputs)
    no_file = (one.path for one in collected.images if not isinstance(one.path, Path))
    if options.sort_into is not None and (other := next(no_file, None)):
        raise ArgumentError(f"--sort-into is of image files, and {other} is none; unpack it, or leave --sort-into out")
    model = load(options)
    plan = plan_of(options, _dataset(options, names, inputs, collected), model)
    _check_files(options, collected)
    odd = name_warnings(names, multi_label=plan.predictor.decision.several)
    warnings = [*collected.warnings, *odd, *plan.predictor.warnings(), *collected.truth_warnings]
    executor = executor_of(options, model)
    if options.out is None:
        return _answer(options, plan, executor, warnings, warn)
    folder = options.out if plan.shard is None else options.out / f"shard-{plan.shard[0]}-of-{plan.shard[1]}"
    return _store(options, folder, plan, executor, warnings, warn)


def _dataset(options: ClassifyOptions, names: Sequence[str], inputs: Sequence[str], collected: Inputs) -> Dataset:
    """Return the images as a data set, which keeps their order."""
    more: dict[str, Any] = {"regime": options.regime, "in_order": True, "image_column": options.image_column}
    return Dataset(_name_of(inputs), Path.cwd(), and_more(inputs), "all", tuple(names), collected.images, **more)


def _check_out(name: str, out: Path, inputs: Sequence[str]) -> None:
    if out.exists() and not out.is_dir():
        raise ArgumentError(f"{out}: is a file; {name} names a folder, --csv and --json name files")
    real = out.resolve()
    for word in inputs:
        if word != "-" and os.path.isdir(word) and Path(word).resolve() in (real, *real.parents):  # noqa: PTH112
            raise ArgumentError(f"{name} {out}: lies in {word}, whose images are answered; name another folder")
    check_folder(out)


def _check_files(options: ClassifyOptions, collected: Inputs) -> None:
    outputs = [options.csv, options.json, options.scores, options.embeddings, options.classifier]
    if options.embeddings is not None and options.embeddings.suffix.lower() != ".parquet":
        outputs.append(manifest_path(options.embeddings))
    paths = (Path(str(sample.path)) for sample in collected.images if not isinstance(sample.path, Remote))
    run = [options.out / name for name in ("run.json", "rows.parquet")] if options.out else []
    check_outputs(filter(None, outputs), chain(paths, collected.files, options.files_read(), run))


def _answer(
    options: ClassifyOptions, plan: Plan, executor: tuple[Executor, Any], warnings: Iterable[str], warn: Say
) -> int:
    """Answer images and show each as it comes; nothing is stored but the files that are asked for."""
    predictor, counts, unreadable = plan.predictor, plan.count([*plan.predictor.methods]), None
    with ExitStack() as stack:
        # Opened last, so that a wrong argument leaves an earlier file as it was.
        outputs = Outputs(options, plan, stack)
        if options.classifier:
            write_classifier(options.classifier, predictor.labels)
        _print_run(options, predictor, len(plan.positions))
        for warning in warnings:
            warn(warning)
        try:
            with Lines(predictor, len(plan.positions)) as lines:
                unreadable = run(plan, executor[0], [outputs, counts, lines], strict=options.strict)
        finally:
            _say_stopped(unreadable)
            outputs.finish(options, counts, warn)
    return 1 if counts.unreadable else 0


def _store(
    options: ClassifyOptions,
    folder: Path,
    plan: Plan,
    executor: tuple[Executor, Mapping[str, Any]],
    warnings: Iterable[str],
    warn: Say,
) -> int:
    """Answer images into a run on disk, then write the files that are asked for from what is stored."""
    if options.classifier:
        write_classifier(options.classifier, plan.predictor.labels)
    plan = _going_on(plan, folder) if options.resume else plan
    execute, metadata = executor
    for line in [*plan.describe(), *describe_executor(metadata)]:
        print(line, flush=True)
    for warning in warnings:
        warn(warning)
    unreadable, interruption = None, None
    try:
        _, _, unreadable = run_stored(plan, folder, execute, options.resume, metadata, warn, strict=options.strict)
    except KeyboardInterrupt as caught:
        interruption = caught
    counts = _export(options, plan, folder, warn)
    _say_stopped(unreadable)
    if interruption is not None:
        raise interruption
    return 1 if counts.unreadable else 0


def _say_stopped(unreadable: Answer | None) -> None:
    """Say which file ended the run, if one did."""
    if unreadable is not None:
        print(f"stopped at {one_line(unreadable.path)}, as --strict asks: {unreadable.error}", file=sys.stderr)


def _going_on(plan: Plan, folder: Path) -> Plan:
    """Return a plan whose rows hold all that those of an earlier call hold: scores, embeddings, best classes."""
    if not (folder / "run.json").is_file():
        return plan
    from faircontext.runs.documents import read_document

    config, predictor = read_document(folder / "run.json")["config"], plan.predictor
    earlier = tuple(config.get("stored", ()))
    stored = earlier if {*predictor.stored} < {*earlier} else predictor.stored
    return replace(plan, predictor=replace(predictor, stored=stored, top=max(predictor.top, config.get("top", 5))))


def _name_of(inputs: Sequence[str]) -> str:
    """Return what a run on images is called: as the one folder, archive or table that was given, or `images`."""
    name = Path(os.path.abspath(inputs[0])).name if len(inputs) == 1 and inputs[0] != "-" else ""  # noqa: PTH100
    return "images" if not name or any(mark in name for mark in "*?[{") else name


def _export(options: ClassifyOptions, plan: Plan, folder: Path, warn: Say) -> Summary:
    """Count what a run holds, say it, and write files of answers from it."""
    run = Run(folder, {"config": plan.config})
    everything, methods = [*plan.predictor.methods], plan.predictor.methods
    labels = everything if options.method == "all" else [*map(row_name, split_methods(options.method))]
    plan = replace(plan, predictor=replace(plan.predictor, methods={label: methods[label] for label in labels}))
    counts = plan.count(labels)
    with ExitStack() as stack:
        outputs = Outputs(options, plan, stack)
        for rows in run.tables():
            counts.add_rows(rows)
            for answers in answers_of(rows, labels) if outputs else ():
                outputs.add(answers)
        outputs.finish(options, counts, warn)
    return counts


def _print_run(options: ClassifyOptions, predictor: Predictor, images: int) -> None:
    """Say what is about to run, with every setting that differs from the paper's."""
    recipe, labels = predictor.recipe, predictor.labels
    summaries = []
    for label, method in predictor.methods.items():
        default = type(method)().settings().items()
        changed = [f"{name}={value}" for name, value in method.settings().items() if (name, value) not in default]
        summaries.append(f"{label}{' (' + ', '.join(changed) + ')' if changed else ''}")
    print(
        f"{labels.backbone.name} ({labels.backbone.arithmetic}, {labels.backbone.device}), preset {options.preset}; "
        f"{recipe.count} views of scale {recipe.scale[0]:g} to {recipe.scale[1]:g}{recipe.remark}; "
        f"seed {options.seed}\n"
        f"{', '.join(summaries)}\n"
        f"{counted(images, 'image')}, {counted(len(labels), 'class')}, "
        f"prompts: {labels.summary}"
    )
    if options.perturbation is not None:
        print(options.perturbation.summary)
    if summary := predictor.decision.summary:
        print(summary)
