"""Prompts on the command line: templates, files of them, and descriptions of classes, for classify and evaluate."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faircontext.runs.build import build, load
from faircontext.runs.experiments import ExperimentRun
from faircontext.runs.groups import RunSettings
from faircontext.runs.options import AblationOptions, ModelOptions
from faircontext.runs.store import load_run
from faircontext.serve.forms import ClassifyForm, ExplainForm
from faircontext.serve.options import ServeOptions
from faircontext.serve.service import Service

Run = Callable[..., tuple[int, str, str]]
NAMES = "red circle,blue square,猫"


@pytest.fixture
def described(tmp_path: Path) -> Path:
    path = tmp_path / "described.json"
    names = {"red circle": ["Red and round.", "A {} is a disc."], "Blue square": ["Blue."], "猫": ["A cat."]}
    path.write_text(json.dumps(names | {"dog": ["No class."]}))
    return path


@pytest.fixture
def photo(picture_set: Path) -> Path:
    return picture_set / "images" / "00.png"


def test_templates_are_repeated_and_read_from_files(command: Run, photo: Path, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("# two\n一张{}的照片\na sketch of a {}.\n", encoding="utf-8")
    words = ("--template", "a sketch of a {}.", "--template", "art of the {c}.", "--templates", tmp_path / "more.txt")
    code, out, _ = command("classify", photo, "--labels", NAMES, "--method", "zero_shot", *words)
    assert code == 0
    assert "prompts: a sketch of a {}. | art of the {}. | 一张{}的照片\n" in out


@pytest.mark.parametrize("context", ["cl", "cl-hp"])
def test_a_template_without_blanks_is_adapted(command: Run, photo: Path, tmp_path: Path, context: str) -> None:
    words = ("--template", "一张{}的照片", "--set", "masks=8", f"context={context}", "--json", tmp_path / "run.json")
    assert command("classify", photo, "--labels", NAMES, *words)[0] == 0
    (answer,) = json.loads((tmp_path / "run.json").read_text())["answers"]
    assert answer["fallback"] == ""
    assert answer["diagnostics"]["context_shift"] > 0


def test_descriptions_are_the_prompts_and_are_recorded(
    command: Run, photo: Path, described: Path, tmp_path: Path
) -> None:
    words = ("--descriptions", described, "--set", "masks=8", "context=cl-hp", "--json", tmp_path / "run.json")
    code, out, _ = command("classify", photo, "--labels", NAMES, *words)
    assert code == 0
    assert "prompts: 1 to 2 descriptions of each class\n" in out
    run = json.loads((tmp_path / "run.json").read_text())["run"]
    assert run["templates"] == []
    assert run["descriptions"] == [["Red and round.", "A red circle is a disc."], ["Blue."], ["A cat."]]


def evaluate(command: Run, picture_set: Path, out: Path, *words: object) -> tuple[int, str, str]:
    where = ("--datasets", "pictures", "--root", picture_set.parent, "--out", out, "--methods", "zero_shot")
    return command("evaluate", *where, *words)


def test_runs_with_other_prompts_have_another_name_and_hash(command: Run, picture_set: Path, tmp_path: Path) -> None:
    names = {key: ["A thing."] for key in (picture_set / "classnames.txt").read_text().splitlines()}
    file = tmp_path / "d.json"
    file.write_text(json.dumps({"pictures": names, "others": {"x": ["y"]}}))
    cases = {
        "single": (),
        "a {}": ("--template", "a {}"),
        "generic7+a {}": ("--prompts", "generic7", "--template", "a {}"),
        "described": ("--descriptions", file),
        "both": ("--descriptions", file, "--prompts", "single"),
    }
    runs = {}
    for case, words in cases.items():
        assert evaluate(command, picture_set, tmp_path / case, *words)[0] == 1  # one file is no picture
        runs[case] = load_run(tmp_path / case / "pictures")
    settings = {case: RunSettings.of(run).prompts for case, run in runs.items()}
    assert [settings[case] for case in ("single", "a {}", "generic7+a {}")] == ["single", "a {}", "generic7+a {}"]
    assert settings["described"].startswith("descriptions-")
    assert settings["both"] == f"single+{settings['described']}"
    assert len({run.document["hashes"]["zero_shot"] for run in runs.values()}) == len(cases)
    config = runs["both"].document["config"]
    assert config["templates"] == ["a photo of a {}."]
    assert config["descriptions"]["prompts"] == len(config["names"])
    assert "descriptions" not in runs["single"].document["config"]


def test_a_run_goes_on_with_the_same_descriptions_alone(command: Run, picture_set: Path, tmp_path: Path) -> None:
    names = (picture_set / "classnames.txt").read_text().splitlines()
    file = tmp_path / "d.json"
    file.write_text(json.dumps({key: ["A thing."] for key in names}))
    words = ("--descriptions", file, "--resume")
    for _ in range(2):
        assert evaluate(command, picture_set, tmp_path / "runs", *words)[0] == 1
    file.write_text(json.dumps({key: ["Another thing."] for key in names}))
    code, _, err = evaluate(command, picture_set, tmp_path / "runs", *words)
    assert code == 2
    assert "is another run than the one that is asked for" in err
    assert "descriptions.hash was" in err


def test_all_leaves_out_what_cannot_run_on_descriptions(
    command: Run, photo: Path, described: Path, tmp_path: Path
) -> None:
    words = ("--descriptions", described, "--set", "fcl.masks=2")
    for more, left in (
        ((), {"fcl", "tpt", "ctpt", "rtpt", "rlcf"}),
        (("fcl.context=cl-hp",), {"tpt", "ctpt", "rtpt", "rlcf"}),
    ):
        json_file = tmp_path / "run.json"
        code, _, err = command(
            "classify", photo, "--labels", NAMES, *words, *more, "--method", "all", "--json", json_file
        )
        assert code == 0
        notes = [
            line for line in err.splitlines() if " is left out of all: descriptions of the classes have no" in line
        ]
        assert {line.removeprefix("note: ").partition(" ")[0] for line in notes} == left
        ran = {answer["method"] for answer in json.loads(json_file.read_text())["answers"]}
        assert {"zero_shot", "mta", "zero"} <= ran
        assert not ran & left
    code, _, err = command("classify", photo, "--labels", NAMES, "--descriptions", described, "--method", "tpt")
    assert code == 2
    assert "for tpt to learn; use other prompts, or a method that does without, as zero_shot does" in err


def test_a_description_that_is_too_long_is_told_by_file_and_class(command: Run, photo: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    file.write_text(json.dumps({"red circle": ["a"], "blue square": ["b", "word " * 200], "猫": ["c"]}))
    words = ("classify", photo, "--labels", NAMES, "--descriptions", file, "--method", "zero_shot")
    code, _, err = command(*words)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{file}: class 'blue square': prompt 'word word " in err
    assert err.endswith("shorten it, or truncate it (--truncate)\n")
    assert command(*words, "--truncate")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--template", "a photo"], "prompt template 'a photo' needs exactly one {} for the class name"),
        (["--templates", "{tmp}/no.txt"], "no.txt: cannot be read: no such file or directory"),
        (["--descriptions", "{tmp}/no.json"], "no.json: cannot be read: no such file or directory"),
        (["--descriptions", "{tmp}/few.json"], "few.json: lacks prompts of '猫'; give each class at least one"),
        (["--descriptions", "{tmp}/full.json"], "in common for context='cl' to learn; use context='cl-hp'"),
        (["--template", "photo{}"], "runs into the class name, as in 'photored circle' (put a blank between)"),
        (["--template", "{}照片"], "has no words before the class name for context='cl' to learn; use context='cl-hp'"),
        (["--templates", ""], "--templates is empty; name a file or folder"),
    ],
)
def test_prompts_that_cannot_be_used_are_one_line(
    command: Run, photo: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    few = {"red circle": ["a"], "blue square": ["b"]}
    (tmp_path / "few.json").write_text(json.dumps(few))
    (tmp_path / "full.json").write_text(json.dumps({**few, "猫": ["c"]}))
    code, _, err = command(
        "classify", photo, "--labels", NAMES, *(word.replace("{tmp}", str(tmp_path)) for word in words)
    )
    assert code == 2
    assert err.startswith("faircontext: ")
    assert message in err
    assert err.count("\n") == 1


def test_every_command_that_loads_a_model_takes_prompts(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    own: dict[str, Any] = {"backbone": f"local-dir:{tiny_folder('clip')}", "precision": "fp32", "template": ("my {}.",)}
    options = ModelOptions(**own)
    explained = build(options, load(options), ("cat", "dog"), "natural")
    assert explained.labels.templates == ("my {}.",)
    run = ExperimentRun(group="a", methods={"fcl": ()}, datasets=("x",), prompts="generic7")
    for given, prompts in (({"template": ("my {}.",)}, (None, ("my {}.",))), ({}, ("generic7", ()))):
        options = run.evaluation(AblationOptions(root=tmp_path, **given), tmp_path)
        assert (options.prompts, options.template) == prompts
    service = Service(ServeOptions(labels="cat,dog", method="zero_shot", **own), {"default": ("cat", "dog")})
    for given, templates in (({}, ("my {}.",)), ({"template": ["your {}."]}, ("your {}.",))):
        form = ClassifyForm.model_construct(images=[], **given)
        assert service.request(form).predictor.labels.templates == templates
    assert service.request(ExplainForm.model_construct()).predictor.labels.templates == ("my {}.",)
