"""The command line: `classify` on real photos, every error as one line, and help without the cost of torch."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import faircontext.backbones
import faircontext.runs.classify
from faircontext import Backbone, ViewRecipe, __version__, create_method
from faircontext.backbones import lite as backbones_lite
from faircontext.backbones.lite import Lite
from faircontext.calibrate import total_loss
from faircontext.cli import main
from faircontext.runs.decisions import AnsweredImage
from helpers import DEFAULT_SIGNALS, without_collector

LABELS = ("--labels", "cat,rocket,dog")
CHEAP = ("--set", "masks=8", "k=2")
COMMAND = (sys.executable, "-m", "faircontext")


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs the command in this process, with eight views instead of 64."""
    monkeypatch.setattr(Lite, "recommended", {**Lite.recommended, "views": {"scale": (0.5, 1.0), "count": 8}})

    def run(*words: object) -> Result:
        code = main([str(word) for word in words])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def classify(cli: Callable[..., Result], lite: Backbone, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that classifies cheaply, with a backbone that is loaded once for all tests."""
    monkeypatch.setattr(faircontext.backbones, "create_backbone", lambda *_, **__: lite)
    return lambda *words: cli("classify", *words, *CHEAP)


@pytest.fixture
def photo(photo_files: dict[str, Path]) -> Path:
    return photo_files["cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, photo_files: dict[str, Path]) -> Path:
    """Three photos in folders named after classes; one of them is in the wrong folder."""
    folder = tmp_path_factory.mktemp("photos")
    for name, photo in (("cat/1.png", "cat"), ("rocket/2.jpg", "rocket"), ("dog/3.png", "cup of coffee")):
        (folder / name).parent.mkdir()
        (folder / name).write_bytes(photo_files[photo].read_bytes())
    return folder


def rows(path: Path) -> dict[bytes, bytes]:
    """Return the lines of a CSV file by image, without the seconds."""
    lines = [line.rpartition(b",")[0] for line in path.read_bytes().splitlines()]
    assert lines[0] == b"path,label,zero_shot,prediction,votes,confidence,method,fallback,error"
    return {line.partition(b",")[0]: line for line in lines[1:]}


# Answers


def test_rows_are_the_same_alone_in_a_folder_in_reverse_and_again(
    cli: Callable[..., Result],
    classify: Callable[..., Result],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = sorted(folder.rglob("*.*"))
    assert classify(folder, *LABELS, "--csv", tmp_path / "folder").code == 0
    expected = rows(tmp_path / "folder")
    assert list(expected) == [os.fsencode(file) for file in files]
    classify(*reversed(files), *LABELS, "--csv", tmp_path / "reverse")
    assert list(rows(tmp_path / "reverse").values()) == list(expected.values())[::-1]
    for file in files:
        classify(file, *LABELS, "--csv", tmp_path / "alone")
        assert rows(tmp_path / "alone") == {os.fsencode(file): expected[os.fsencode(file)]}
    monkeypatch.undo()
    monkeypatch.setattr(Lite, "recommended", {**Lite.recommended, "views": {"scale": (0.5, 1.0), "count": 8}})
    cli("classify", folder, *LABELS, *CHEAP, "--csv", tmp_path / "again")  # with a backbone loaded anew
    assert rows(tmp_path / "again") == expected


@pytest.mark.process
def test_another_process_writes_the_same_row_and_shows_no_progress_bar(
    photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backbones_lite._IMAGE_SIZES, "lite0", 224)  # as in a process of its own
    words = ["classify", str(photo), *LABELS, *CHEAP, "--csv"]
    done = subprocess.run([*COMMAND, *words, str(tmp_path / "theirs")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 answered, 0 unreadable, 0 fell back" in done.stdout
    assert main([*words, str(tmp_path / "ours")]) == 0
    assert rows(tmp_path / "ours") == rows(tmp_path / "theirs")


def test_another_seed_gives_other_rows(classify: Callable[..., Result], photo: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        classify(photo, *LABELS, "--seed", seed, "--csv", tmp_path / str(seed))
    assert rows(tmp_path / "0") != rows(tmp_path / "1")


def test_folder_names_are_the_truth_of_both_accuracies(classify: Callable[..., Result], folder: Path) -> None:
    result = classify(folder, *LABELS)
    accuracy = r"66\.7% \(n = 3, 95% interval 20\.8 to 93\.9\)"
    assert result.code == 0
    assert re.search(rf"^zero-shot +{accuracy}$", result.out, re.MULTILINE)
    assert re.search(rf"^fcl +{accuracy}$", result.out, re.MULTILINE)
    paired = "paired: fcl alone right on 0, zero-shot alone right on 0; exact McNemar p = 1\n"
    assert paired in result.out


def test_without_truth_no_accuracy_is_printed(classify: Callable[..., Result], photo: Path) -> None:
    result = classify(photo, "--labels", "fox,rocket")
    assert result.code == 0
    assert "n = " not in result.out
    assert "McNemar" not in result.out


def test_the_run_says_what_differs_from_the_paper(classify: Callable[..., Result], photo: Path) -> None:
    result = classify(photo, *LABELS)
    changed = "k=2, beta=5.0, masks=8, grids=(3, 4, 5, 6, 7), estimator=least-squares, smoothing=0.15, lr=0.006"
    assert re.match(rf"lite0 \(\w+, cpu\), preset recommended; 8 views .*\nfcl \({re.escape(changed)}\)\n", result.out)
    assert "1 image, 3 classes, prompts: a photo of a {}." in result.out


def test_the_paper_preset_has_its_views(cli: Callable[..., Result], photo: Path, tmp_path: Path) -> None:
    words = ("classify", photo, *LABELS, "--method", "zero_shot", "--preset", "paper", "--json", tmp_path / "run.json")
    assert cli(*words).code == 0
    run = json.loads((tmp_path / "run.json").read_text())["run"]
    assert run["views"] == {
        "count": 64,
        "scale": [0.08, 1.0],
        "ratio": [3 / 4, 4 / 3],
        "flip": 0.5,
        "augmix": "off",
        "regime": "natural",
    }
    assert run["methods"] == {"zero_shot": {}}


def test_the_json_file_holds_every_setting_and_answer(
    classify: Callable[..., Result], folder: Path, tmp_path: Path, lite: Backbone
) -> None:
    classify(folder, *LABELS, "--json", tmp_path / "run.json", "--csv", tmp_path / "rows.csv", "--seed", "7")
    report = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    settings = create_method("fcl", preset="recommended", backbone=lite, masks=8, k=2).settings()
    recipe = ViewRecipe(count=8, scale=(0.5, 1.0)).facts
    run = report["run"]
    assert run["methods"] == {"fcl": json.loads(json.dumps(settings))}
    assert run["views"] == json.loads(json.dumps(recipe))
    assert (run["backbone"], run["precision"], run["device"]) == ("lite0", lite.precision, "cpu")
    assert (run["preset"], run["seed"], run["batch_size"]) == ("recommended", 7, 16)
    assert (run["labels"], run["templates"]) == (["cat", "rocket", "dog"], ["a photo of a {}."])
    assert report["versions"]["faircontext"] == __version__
    assert report["summary"]["fcl"]["method"] == {"correct": 2, "n": 3}
    assert len(report["answers"]) == len(rows(tmp_path / "rows.csv")) == 3
    for answer in report["answers"]:
        line = rows(tmp_path / "rows.csv")[os.fsencode(answer["path"])].decode().split(",")
        assert line[1:5] == [answer["label"], answer["zero_shot"], answer["prediction"], str(answer["votes"])]
        assert line[5] == f"{answer['confidence']:.6f}"
        assert answer["top5"][0] == [answer["prediction"], pytest.approx(answer["confidence"])]
        assert {name for name, _ in answer["top5"]} == {"cat", "rocket", "dog"}
        assert len(answer["candidates"]) == 2
        assert answer["diagnostics"]["views_selected"] == 2


def test_an_unreadable_image_is_a_row_and_exit_code_one(
    classify: Callable[..., Result], photo: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_text("no image")
    result = classify(tmp_path / "broken.png", photo, *LABELS, "--csv", tmp_path / "rows.csv")
    assert result.code == 1
    assert result.err == ""
    assert "unreadable: not an image but text" in result.out
    assert "1 answered, 1 unreadable, 0 fell back" in result.out
    broken, answered = rows(tmp_path / "rows.csv").values()
    assert broken.endswith(b"broken.png,,,,,,fcl,,not an image but text")
    assert answered.endswith(b",fcl,,")


def test_a_dash_reads_file_names_from_standard_input(
    classify: Callable[..., Result], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(folder / "rocket" / "2.jpg"), str(folder / "missing.png"), str(folder / "cat" / "1.png")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(names) + "\n\n"))
    result = classify("-", *LABELS, "--csv", tmp_path / "rows.csv")
    assert result.code == 1
    assert [os.fsdecode(name) for name in rows(tmp_path / "rows.csv")] == names
    assert rows(tmp_path / "rows.csv")[os.fsencode(names[1])].endswith(b",no such file")


def test_class_names_may_come_from_a_file(classify: Callable[..., Result], photo: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("# animals\ncat\n\ndog\n")
    result = classify(photo, "--labels-file", tmp_path / "names.txt")
    assert result.code == 0
    assert "1 image, 2 classes" in result.out


def test_an_ensemble_votes_over_seven_templates(classify: Callable[..., Result], photo: Path, tmp_path: Path) -> None:
    assert classify(photo, *LABELS, "--prompts", "generic7", "--csv", tmp_path / "rows.csv").code == 0
    assert next(iter(rows(tmp_path / "rows.csv").values())).split(b",")[2:5] == [b"cat", b"cat", b"7"]


def test_fallbacks_are_counted(
    classify: Callable[..., Result], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faircontext.methods.fcl.total_loss", lambda *a, **k: total_loss(*a, **k) * float("nan"))
    result = classify(folder, *LABELS, "--csv", tmp_path / "rows.csv")
    assert result.code == 0
    assert "3 answered, 0 unreadable, 3 fell back" in result.out
    fallbacks = [line.split(b",")[7] for line in rows(tmp_path / "rows.csv").values()]
    assert fallbacks == [b"the loss was not finite: answered by exploration alone"] * 3


def test_an_interrupted_run_keeps_what_it_had(
    classify: Callable[..., Result], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_images = faircontext.runs.executors.answer_images

    def interrupted(*arguments):
        yield next(answer_images(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(faircontext.runs.executors, "answer_images", interrupted)
    result = classify(folder, *LABELS, "--csv", tmp_path / "rows.csv", "--json", tmp_path / "run.json")
    assert result.code == 130
    assert result.err == "faircontext: interrupted after 1 of 3 images\n"
    assert "1 answered" in result.out
    assert len(rows(tmp_path / "rows.csv")) == len(json.loads((tmp_path / "run.json").read_text())["answers"]) == 1


def test_answers_are_not_kept_once_they_are_written(
    classify: Callable[..., Result], photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_images, alive = faircontext.runs.executors.answer_images, []

    def watched(*arguments) -> Iterator[AnsweredImage]:
        seen: list[weakref.ref] = []
        for answer in answer_images(*arguments):
            seen += [weakref.ref(answer), *map(weakref.ref, answer.predictions)]
            alive.append(sum(reference() is not None for reference in seen))
            yield answer

    monkeypatch.setattr(faircontext.runs.executors, "answer_images", watched)
    photos = [tmp_path / f"{n}.png" for n in range(5)]
    for path in photos:
        path.write_bytes(photo.read_bytes())
    with without_collector():
        assert classify(*photos, *LABELS, "--csv", tmp_path / "rows.csv", "--json", tmp_path / "run.json").code == 0
    assert alive == [2, 4, 4, 4, 4]  # an answer with its prediction, and the one before, which is just being shown
    assert len(json.loads((tmp_path / "run.json").read_text())["answers"]) == 5


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.process
@pytest.mark.parametrize(
    ("stop", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.smoke), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_a_process_with_what_was_computed_written(
    photo_files: dict[str, Path], tmp_path: Path, stop: signal.Signals, code: int
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for n in range(60):
        (photos / f"{n:02}.png").write_bytes(photo_files["cat"].read_bytes())
    table, document = tmp_path / "rows.csv", tmp_path / "run.json"
    words = ["classify", str(photos), *LABELS, "--csv", str(table), "--json", str(document)]
    with subprocess.Popen(
        [*DEFAULT_SIGNALS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not table.exists() or len(table.read_text().splitlines()) < 3:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(stop)
        _, errors = process.communicate(timeout=60)
    answered = len(table.read_text().splitlines()) - 1
    assert process.returncode == code
    assert errors.splitlines()[-1] == f"faircontext: interrupted after {answered} of 60 images"
    assert len(json.loads(document.read_text())["answers"]) == answered
    assert 2 <= answered < 30  # at once, not after the images that were left


def test_class_names_may_be_those_of_the_folders(classify: Callable[..., Result], folder: Path) -> None:
    result = classify(folder, "--labels-from-folders")
    assert f"{len([entry for entry in folder.iterdir() if entry.is_dir()])} classes" in result.out
    refused = classify(folder, "--labels-from-folders", *LABELS)
    assert refused.code == 2
    assert "leaves no place for --labels" in refused.err


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        ({"0": "cat", "1": "cat"}, ("cat", "cat")),
        ({"Cat": "cat", "cat": "cat", "rocket": "rocket"}, ()),
        ({"0": "cat", "1": "cat", "2": "rocket"}, ("cat", "cat", "rocket")),
        ({"01": "cat", "02": "rocket"}, ("1", "2", "3")),
    ],
)
def test_classify_and_evaluate_count_the_same_images_as_right(
    cli: Callable[..., Result],
    classify: Callable[..., Result],
    photo_files: dict[str, Path],
    tmp_path: Path,
    folders: dict[str, str],
    names: tuple[str, ...],
) -> None:
    for folder, photo in folders.items():
        (tmp_path / "mine/images" / folder).mkdir(parents=True)
        (tmp_path / "mine/images" / folder / f"{folder}.png").write_bytes(photo_files[photo].read_bytes())
    words = ["--labels-from-folders"]
    if names:
        words = ["--labels-file", tmp_path / "mine/classnames.txt"]
        words[1].write_text("\n".join(names))
    methods, found = ("zero_shot", "fcl"), {}
    ours = classify(tmp_path / "mine/images", *words, "--method", ",".join(methods), "--json", tmp_path / "run.json")
    summary = json.loads((tmp_path / "run.json").read_text())["summary"]
    theirs = cli("evaluate", "--datasets", "mine", "--root", tmp_path, "--out", tmp_path / "runs", *CHEAP)
    assert (ours.code, theirs.code) == (0, 0)
    assert "without images" not in ours.err
    for method in methods:
        correct, n = summary[method]["method"]["correct"], summary[method]["method"]["n"]
        assert n == len(folders)
        found[method] = f"{100 * correct / n:.1f}% (n = {n}"
        assert re.search(rf"^  {method} +{re.escape(found[method])}", theirs.out, re.MULTILINE)
    assert f"zero-shot    {found['zero_shot']}" in ours.out


def test_a_name_that_is_too_long_can_be_cut(classify: Callable[..., Result], photo: Path) -> None:
    words = (photo, "--labels", f"cat,{'very ' * 150}long")
    refused, cut = classify(*words), classify(*words, "--truncate")
    assert refused.code == 2
    assert "more than the 128 that lite0 reads; shorten the class name, or truncate it" in refused.err
    assert cut.code == 0
    assert "note: cut to what lite0 reads: very very" in cut.err


def test_only_a_terminal_shows_a_progress_bar(
    classify: Callable[..., Result], photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert classify(photo, *LABELS).err == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    classify(photo, *LABELS)
    assert "0/1" in sys.stderr.getvalue()


def test_on_a_terminal_a_row_has_its_width(
    classify: Callable[..., Result], photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("a long name " * 8).strip() / "photo-1234.png"
    path.parent.mkdir()
    path.write_bytes(photo.read_bytes())
    words = (path, *LABELS, "--csv", tmp_path / "rows.csv")
    assert f"  {path}\n" in classify(*words).out  # programs that read a pipe get all of it
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    classify(*words)
    (row,) = (line for line in shown.getvalue().splitlines() if line.endswith("photo-1234.png"))
    assert len(row) == 80
    assert f"  {str(path)[:6]}" in row
    assert "…" in row
    assert list(rows(tmp_path / "rows.csv")) == [os.fsencode(path)]


def test_names_that_the_terminal_cannot_show_do_not_end_the_run(
    classify: Callable[..., Result], photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert classify(photo, "--labels", "猫,犬", "--csv", tmp_path / "rows.csv").code == 0
    assert next(iter(rows(tmp_path / "rows.csv").values())).decode().split(",")[3] in ("猫", "犬")


def test_file_names_of_any_bytes_are_taken(classify: Callable[..., Result], photo: Path, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.png"
    try:
        Path(os.fsdecode(name)).write_bytes(photo.read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    words = (tmp_path, *LABELS, "--csv", tmp_path / "rows.csv", "--json", tmp_path / "run.json")
    assert classify(*words).code == 0
    assert list(rows(tmp_path / "rows.csv")) == [name.replace(b"\xff", b"\\udcff")]


# Errors


ERRORS = [
    (["{tmp}/missing.jpg", *LABELS], "missing.jpg: no such file or folder"),
    (["{tmp}", *LABELS], "no images in"),
    (LABELS, "give at least one image, folder, or -"),
    (["{photo}"], "give the class names either as --labels a,b,c or as --labels-file FILE"),
    (["{photo}", *LABELS, "--labels-file", "{photo}"], "give the class names either as"),
    (["{photo}", "--labels", "dog " * 200], "more than the 128 that lite0 reads"),
    (["{photo}", *LABELS, "--csv", "{tmp}/missing/rows.csv"], "rows.csv: cannot be written: no such file"),
    (["{photo}", *LABELS, "--csv", "{tmp}"], "cannot be written: is a directory"),
    (["{photo}", *LABELS, "--json", "{tmp}/missing/run.json"], "run.json: cannot be written: no such file"),
]


@pytest.mark.parametrize(("words", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_an_error_is_one_line_with_the_fix(
    cli: Callable[..., Result], photo: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    result = cli("classify", *(word.replace("{tmp}", str(tmp_path)).replace("{photo}", str(photo)) for word in words))
    assert result.code == 2
    assert result.err.startswith("faircontext: ")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.process
def test_a_real_process_shows_an_error_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "classify", str(tmp_path / "x.jpg"), *LABELS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"faircontext: {tmp_path / 'x.jpg'}: no such file or folder\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--xyzzy", "1"], "Unrecognized options: --xyzzy"),
        (["--seed", "x"], "Error parsing --seed: invalid literal for int() with base 10: 'x'"),
        (["--seed"], "Missing value for argument '--seed'"),
    ],
)
def test_options_that_cannot_be_read_are_an_error_of_one_line(
    cli: Callable[..., Result], photo: Path, words: list[str], message: str
) -> None:
    result = cli("classify", photo, *LABELS, *words)
    assert result.code == 2
    assert result.err.startswith(f"faircontext: {message}")
    assert result.err.endswith("; see faircontext classify --help\n")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "word", "close"),
    [
        ("classify", "--label", "--labels"),
        ("classify", "--label=a,b", "--labels"),
        ("explain", "--labels_fil", "--labels-file"),
        ("report", "--outs", "--out"),
        ("tables", "--formats", "--format"),
    ],
)
def test_an_unknown_option_is_refused_with_the_close_one(
    cli: Callable[..., Result], command: str, word: str, close: str
) -> None:
    given = word.partition("=")[0]
    result = cli(command, "photo.png", word, "cat,dog")
    assert result == (2, "", f"faircontext: unknown option '{given}'; did you mean '{close}'?\n")


def test_an_unknown_command_is_refused_with_the_close_one(cli: Callable[..., Result]) -> None:
    result = cli("clasify")
    assert (result.code, result.out) == (2, "")
    assert result.err == "faircontext: unknown command 'clasify'; did you mean 'classify'?\n"


COLUMNS = ("prob.",)


@pytest.mark.usefixtures("one_lite")
def test_zero_shot_stands_beside_several_methods_with_their_probabilities(
    cli: Callable[..., Result], photo: Path, tmp_path: Path
) -> None:
    words = ("--method", "zero,tpt", "--set", "tpt.lr=0", "--csv", tmp_path / "rows.csv")
    result = cli("classify", photo, *LABELS, *words)
    assert result.code == 0
    head, line = result.out.splitlines()[3:5]
    assert head.split() == ["zero", *COLUMNS, "tpt", *COLUMNS, "zero-shot", "image"]
    with (tmp_path / "rows.csv").open(newline="") as file:
        zero, tpt = csv.DictReader(file)
    cells = [zero["prediction"], f"{float(zero['confidence']):.3f}"]
    cells += [tpt["prediction"], f"{float(tpt['confidence']):.3f}", zero["zero_shot"]]
    assert line.split() == [*" ".join(cells).split(), str(photo)]
    assert zero["votes"]


def test_several_methods_have_a_column_and_rows_of_their_own(
    cli: Callable[..., Result], lite: Backbone, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faircontext.backbones, "create_backbone", lambda *_, **__: lite)
    words = ("--method", "zero_shot,tpt,zero", "--set", "tpt.lr=0", "zero.rho=0.5", "--csv", tmp_path / "rows.csv")
    result = cli("classify", folder, *LABELS, *words)
    lines = result.out.splitlines()
    assert lines[3].split() == ["zero_shot", *COLUMNS, "tpt", *COLUMNS, "zero", *COLUMNS, "image"]
    assert "zero_shot, tpt (lr=0.0), zero (rho=0.5)" in lines[1]
    with (tmp_path / "rows.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["method"] for row in table] == ["zero_shot", "tpt", "zero"] * 3
    assert all(row["prediction"] == row["zero_shot"] for row in table if row["method"] == "tpt")
    assert result.out.count("paired: ") == 2


def test_all_methods_are_those_that_the_backbone_can_run(
    cli: Callable[..., Result], lite0_bf16: Backbone, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faircontext.backbones, "create_backbone", lambda *_, **__: lite0_bf16)
    result = cli("classify", photo, *LABELS, "--method", "all", "--set", "fcl.masks=8")
    assert [word for word in result.out.splitlines()[3].split() if word not in COLUMNS] == [
        *("zero_shot", "tpt", "ctpt", "rlcf", "mta", "zero", "tps", "rtpt", "fcl", "image")
    ]
    refused = cli("classify", photo, *LABELS, "--method", "ttl")
    assert refused.code == 2
    assert "ttl needs a backbone with attention blocks that can be adapted (a vision transformer, such" in refused.err
    unclear = cli("classify", photo, *LABELS, "--method", "tpt,ctpt", "--set", "lr=0.1")
    assert "'lr=0.1' is of no method of this run; write METHOD.NAME=VALUE, with one of tpt, ctpt" in unclear.err


# Help, version, lists


def test_help_names_every_command_and_comes_from_a_real_process() -> None:
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert {"classify", "list"} <= set(re.findall(r"^  (\w+)  ", done.stdout, re.MULTILINE))


def test_without_a_command_help_is_shown_and_the_exit_code_is_two(cli: Callable[..., Result]) -> None:
    shown = cli("--help")
    assert shown == (0, shown.out, "")
    assert cli() == (2, shown.out, "")


def test_the_version_is_the_packages(cli: Callable[..., Result]) -> None:
    assert cli("--version") == (0, f"faircontext {__version__}\n", "")


def test_classify_explains_its_options(cli: Callable[..., Result]) -> None:
    shown = cli("classify", "--help")
    assert (shown.code, shown.err) == (0, "")
    assert {"--labels", "--labels-file", "--backbone", "--method", "--preset", "--set", "--csv", "--json"} <= set(
        shown.out.split()
    )


def test_methods_and_backbones_are_listed(cli: Callable[..., Result]) -> None:
    methods = cli("list", "methods")
    assert methods.code == 0
    assert {"fcl", "zero_shot"} <= {line.split()[0] for line in methods.out.splitlines()}
    assert cli("list", "backbones", "lite*") == (0, "lite0\nlite1\nlite2\n", "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen([*COMMAND, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    process.stdout.close()
    with process:
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("command", ["classify", "evaluate", "analyze", "explain", "serve", "ablate"])
def test_help_has_headings_and_all_options_of_a_part(cli: Callable[..., Result], command: str) -> None:
    shown = cli(command, "--help").out
    headings = re.findall(r"^\W*([\w-]+) options\W*$", shown, re.MULTILINE)
    if command == "classify":
        assert any("--labels " in line for line in shown.splitlines()[:20])
    parts = {"prompts", *(() if command == "ablate" else ("model", "method", "reading"))}
    assert parts <= {*headings}
    assert headings.index("run" if "run" in headings else "model") < headings.index("prompts")
    for option in ("--prompts", "--template", "--templates", "--descriptions", "--truncate", "--context"):
        assert f" {option} " in shown or f" {option}," in shown
    assert "A prompt template with {} for the class name" in shown
