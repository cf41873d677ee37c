"""Record what the package's commands put out on fixed inputs, and compare two recordings.

Usage: python scripts/record_outputs.py record OUT [--digits 5] [--lite --data FOLDER [--datasets NAME ...]]
       python scripts/record_outputs.py compare A B [--tolerance 1e-4] [--elsewhere] [--renamed FILE.json]

Recorded before code is moved and again after it, outputs show what a user would see change. OUT gets a JSON file for
each group of commands: what each printed, its exit code, and what is in the files that it wrote. Inputs are made from
seeds, a tiny open_clip model among them; with --lite, the backbone lite0 answers three images of each of three labelled
sets below FOLDER. Times, hardware and versions are left out, as is help. --digits rounds numbers, to save space.

`compare` prints a line for each difference; the exit code is 1 where there is any. With --elsewhere one of the
recordings may come from another processor or from other versions of libraries: hashes, which cover both, are not
compared, and the last digit of a printed number may differ by one. FILE.json maps old names, as in A, to new ones.
"""

import argparse
import csv
import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

PROCESSES = (
    ("lists",),
    ("classify", "explain", "evaluate", "merge", "analyze", "ablate"),
    ("tables", "figures", "report"),
)
"""Groups of commands, those of a line in one process: loading libraries takes longer than most commands do.

What is listed must not depend on what other commands have imported, and what is read from runs needs no model.
"""

ANALYSES = ("ambiguity", "decomposition", "entropy", "evidence", "gallery", "margin", "stability")
"""All that need no collages."""

STYLES, FORMATS = ("paper", "long"), ("md", "latex", "csv", "rich")
METRICS = ("top5", "ece", "brier", "nll", "mean_per_class")

SHOWN = 50
"""So many differences are printed."""


@dataclass(frozen=True)
class Subject:
    """What commands are run on.

    Attributes:
        backbone: its name.
        sets: names of data sets below the folder `data`.
        classify: images, classes and methods of each call of `classify`.
        explain: the image that is explained, and its classes.
        limit: how many images of each set are answered.
        precision: of the backbone.
    """

    backbone: str
    sets: tuple[str, ...]
    classify: tuple[str, ...]
    explain: str
    limit: int
    precision: str = "auto"


TINY = Subject(
    backbone="local-dir:tiny",
    sets=("shapes", "table"),
    classify=(
        "data/shapes --labels-from-folders --set masks=16",
        "data/table/images data/shapes/cat --labels cat,dog,sun --method zero_shot,tpt,fcl --prompts generic7 "
        "--set fcl.masks=16",
    ),
    explain="data/shapes/cat/0.png --labels cat,dog,guitar",
    limit=8,
    precision="fp32",  # the default depends on the processor
)


def lite_subject(data: Path, names: Sequence[str]) -> Subject:
    """Return lite0 on labelled sets, the first three where none are named."""
    sets = names or sorted(path.parent.name for path in data.glob("*/labels.csv"))[:3]
    if len(sets) < 2:
        raise SystemExit(f"{data}: two data sets are needed, each a folder with a labels.csv")
    first = shlex.quote(f"data/{sets[0]}")
    with (data / sets[0] / "labels.csv").open(newline="", encoding="utf-8") as file:
        images = [shlex.quote(f"data/{sets[0]}/{row['path']}") for row in csv.DictReader(file)]
    labels = f"--labels-file {first}/classnames.txt"
    return Subject(
        backbone="lite0",
        sets=tuple(sets),
        classify=(
            f"{images[0]} {images[-1]} {labels} --set masks=16",
            f"{images[0]} {labels} --method tpt,zero,fcl --prompts generic7 --set fcl.masks=16",
        ),
        explain=f"{images[-1]} {labels}",
        limit=3,
    )


def commands(of: Subject) -> dict[str, list[str]]:
    """Return the commands of each group, as words for a shell; a group writes into the folder of its name."""
    first, *others = map(shlex.quote, of.sets)
    sets, rest = " ".join((first, *others)), " ".join(others)
    model = f"--backbone {of.backbone} --precision {of.precision} --views count=8"
    few = min(of.limit, 5)
    on, on_few = (f"--root data {model} --limit {limit}" for limit in (of.limit, few))
    shard = f"evaluate --datasets {first} {on_few} --methods fcl --set masks=16 --out merge/shards --shard"
    masks = " ".join(f"{name}.masks=16" for name in ANALYSES)
    runs = " ".join(f"evaluate/{name}" for name in (first, *others))
    return {
        "lists": [
            *("list methods", "list analyses", "list backbones 'lite?'", "list pretrained ViT-B-16", "ablate list"),
            *("reproduce list", "figures runs --only list", "data list", "data list '*net*' dtd"),
            f"data check {sets} --root data --read",
        ],
        "classify": [
            f"classify {words} {model} --csv classify/{number}.csv --json classify/{number}.json"
            for number, words in enumerate(of.classify)
        ],
        "explain": [f"explain {of.explain} {model} --set masks=16 --out explain"],
        "evaluate": [
            f"evaluate --datasets {first} {on} --methods all --set fcl.masks=16 --out evaluate",
            f"evaluate --datasets {rest} {on} --methods tpt zero,fcl fcl-8 --set fcl.masks=16 fcl-8.masks=8 "
            "--out evaluate",
            f"evaluate --datasets {first} {on_few} --methods fcl --prompts generic7 --preset paper --set masks=8 "
            "--out evaluate/ensemble",
        ],
        "merge": [f"{shard} 0/2", f"{shard} 1/2", "merge merge/shards --out merge/whole"],
        "analyze": [
            f"analyze {' '.join(ANALYSES)} --datasets {sets} {on_few} --set {masks} stability.fewer=4,8 "
            "--out analyze/runs",
            f"data collage {first} --root data --out analyze/data/collages --limit 3",
            f"analyze pointing --datasets collages --root analyze/data {model} --set masks=16 --out analyze/collages",
        ],
        # The second call finds everything there, and concludes from it.
        "ablate": 2 * [f"ablate variants.json --root data --precision {of.precision} --limit {few} --out ablate"],
        "tables": [
            *(f"tables {runs} --style {style} --format {kind}" for style in STYLES for kind in FORMATS),
            *(f"tables published --style paper --format {kind} --compare paper" for kind in FORMATS),
            "tables published --style long --format csv --compare paper",
            *(f"tables {runs} --metric {metric} --format csv" for metric in METRICS),
            "tables published --metric nll --format md --out tables/nll.md",
            f"tables merge/shards/{first}-shard-0-of-2 --format md",
        ],
        "figures": [
            f"figures {runs} analyze ablate costs.json --out figures/all",
            f"figures evaluate/{first} published --only calibration-gain --out figures/two",
        ],
        "report": [f"report {runs} published/imagenet published/dtd analyze/runs --out report/page.html"],
    }


def record(
    out: Path, of: Subject = TINY, data: Path | None = None, digits: int | None = None, without: Sequence[str] = ()
) -> None:
    """Run all commands and write what they put out, a file for each group.

    Args:
        out: folder for the files.
        of: what the commands run on.
        data: folder of labelled sets; two small ones are made where it is not given.
        digits: decimals of numbers that are kept, all where it is not given.
        without: groups that are left out; no other may need them.
    """
    from recorded_files import read_file
    from recorded_inputs import publish

    out.mkdir(parents=True, exist_ok=True)
    groups = {group: words for group, words in commands(of).items() if group not in without}
    with tempfile.TemporaryDirectory(prefix="record-") as name:
        folder = Path(name)
        make_inputs(folder, of, data)
        for together in ([group for group in process if group in groups] for process in PROCESSES):
            if "tables" in together:
                publish([folder / "evaluate" / name for name in of.sets], folder / "published")
            for group in together:
                (folder / group).mkdir()
            for group, printed in in_one_process({group: groups[group] for group in together}, folder).items():
                paths = sorted(path for path in (folder / group).rglob("*") if is_output(path, folder))
                files = {path.relative_to(folder).as_posix(): read_file(path) for path in paths}
                found = rounded({"commands": printed, "files": files}, digits)
                (out / f"{group}.json").write_text(to_text(found) + "\n", encoding="utf-8")


def make_inputs(folder: Path, of: Subject, data: Path | None) -> None:
    from recorded_inputs import draw_model, draw_sets, write_experiment

    if data is None:
        draw_sets(folder / "data")
        draw_model(folder / "tiny")
    else:  # a link, so that paths in outputs are the same wherever the sets lie
        (folder / "data").symlink_to(data.resolve(), target_is_directory=True)
    write_experiment(folder, of.backbone, of.sets)


def in_one_process(groups: Mapping[str, Sequence[str]], folder: Path) -> dict[str, Any]:
    """Run commands in a process whose working directory is the inputs' folder, and return what they printed."""
    # With one thread, sums are taken in one order; without a cache, features are computed and not found, and PyTorch is
    # the engine of the image tower.
    settings = {"OMP_NUM_THREADS": "1", "FAIRCONTEXT_CACHE": "off", "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}
    words = (sys.executable, str(Path(__file__).resolve()), "run", json.dumps(groups))
    done = subprocess.run(words, cwd=folder, env={**os.environ, **settings}, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"{', '.join(groups)}: the process ended with {done.returncode}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run(groups: Mapping[str, Sequence[str]]) -> dict[str, list[dict[str, Any]]]:
    """Run commands in this process, and return of each its exit code and what it printed."""
    from faircontext.cli import main as faircontext
    from recorded_files import lines_of

    def carry_out(command: str) -> dict[str, Any]:
        output, notes = io.StringIO(), io.StringIO()
        with redirect_stdout(output), redirect_stderr(notes):
            try:
                code: int | str = faircontext(shlex.split(command))
            except Exception as error:  # what breaks a command is recorded: the others can still be compared
                code = f"{type(error).__name__}: {error}"
        printed = {"stdout": lines_of(output.getvalue()), "stderr": lines_of(notes.getvalue())}
        return {"command": command, "exit code": code, **printed}

    return {group: [*map(carry_out, asked)] for group, asked in groups.items()}


def is_output(path: Path, folder: Path) -> bool:
    """Return whether a file is recorded: image features are a cache, named by hashes; locks are hidden, and empty."""
    return path.is_file() and "features" not in path.relative_to(folder).parts and not path.name.startswith(".")


def rounded(value: Any, digits: int | None) -> Any:
    """Return a JSON value with at most so many decimals in each number, those in texts included."""
    if digits is None:
        return value
    if isinstance(value, dict):
        return {key: rounded(inner, digits) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner, digits) for inner in value]
    if isinstance(value, str):
        long = rf"\d+\.\d{{{digits + 1},}}(?:e[-+]?\d+)?"
        return re.sub(long, lambda found: repr(round(float(found[0]), digits)), value)
    return round(value, digits) if isinstance(value, float) else value


def to_text(value: Any, indent: str = "", width: int = 118) -> str:
    """Return JSON text with sorted keys, in which what fits is on one line."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not isinstance(value, dict | list) or len(indent) + len(line) <= width:
        return line
    inner = indent + " "
    if isinstance(value, list):
        parts = [to_text(part, inner, width) for part in value]
    else:
        names = {key: json.dumps(key, ensure_ascii=False) for key in sorted(value)}
        parts = [f"{name}: {to_text(value[key], inner, width)}" for key, name in names.items()]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{end}"


def compare(options: argparse.Namespace) -> int:
    """Print the differences of two recordings and return the exit code."""
    from recorded_compare import Comparison

    renamed = json.loads(options.renamed.read_text(encoding="utf-8")) if options.renamed else {}
    lines = Comparison(options.tolerance, options.elsewhere).folders(options.first, options.second, renamed)
    found = 0
    for found, line in enumerate(lines, 1):
        if found <= SHOWN:
            print(line)
    if found > SHOWN:
        print(f"and {found - SHOWN:,} more")
    if not found:
        print(f"{options.first} and {options.second}: no difference")
    return int(found > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True, metavar="{record,compare}")
    recording = actions.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--digits", type=int)
    recording.add_argument("--lite", action="store_true")
    recording.add_argument("--data", type=Path)
    recording.add_argument("--datasets", nargs="*", default=())
    comparing = actions.add_parser("compare")
    comparing.add_argument("first", type=Path)
    comparing.add_argument("second", type=Path)
    comparing.add_argument("--tolerance", type=float, default=1e-4)
    comparing.add_argument("--elsewhere", action="store_true")
    comparing.add_argument("--renamed", type=Path)
    actions.add_parser("run").add_argument("groups", type=json.loads)  # what `record` starts
    options = parser.parse_args(arguments)
    if options.action == "compare":
        return compare(options)
    if options.action == "run":
        print(json.dumps(run(options.groups)))
        return 0
    if options.lite != (options.data is not None):
        parser.error("--lite and --data belong together")
    logging.disable(logging.WARNING)  # open_clip would say that the tiny model's weights are random
    subject = lite_subject(options.data, options.datasets) if options.lite else TINY
    record(options.out, subject, options.data, options.digits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
