"""Ablations: what an experiment file may say, that only what is missing is run, and what is concluded from rows."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from torch import Tensor

from faircontext import Backbone, create_method
from faircontext.backbones.base import Backbone as AnyBackbone
from faircontext.backbones.prompts import PROMPT_SETS
from faircontext.cli import main
from faircontext.errors import ArgumentError
from faircontext.metrics.stats import mcnemar_exact, wilson_interval
from faircontext.runs.ablate import compare_results
from faircontext.runs.experiments import ExperimentRun, experiment_names, missing, read_experiment
from faircontext.runs.results import Result, read_results
from faircontext.runs.store import load_run, load_runs
from faircontext.views import ViewRecipe
from made_runs import write_run


def write(place: Path, **facts: object) -> Path:
    place.write_text(json.dumps({"datasets": ["pictures"], "variants": {"base": {}}, **facts}))
    return place


@pytest.mark.parametrize("name", experiment_names())
def test_every_packaged_experiment_can_be_created(name: str, lite: Backbone) -> None:
    experiment = read_experiment(name)
    assert experiment.title
    assert experiment.reference in experiment.facts["variants"]
    for label, found in experiment.facts["variants"].items():
        own = {**experiment.facts["settings"], **found}
        changes = {key: tuple(v) if isinstance(v, list) else v for key, v in own.items()}
        ViewRecipe(**{key: tuple(v) if isinstance(v, list) else v for key, v in changes.pop("views", {}).items()})
        assert changes.pop("prompts", "single") in PROMPT_SETS
        method = changes.pop("method", experiment.facts["method"])
        create_method(method, preset="recommended", backbone=lite, **changes)
        assert experiment.labels[label].partition("-")[0] == method


def test_variants_with_the_same_views_and_prompts_share_a_run_most_masks_first(tmp_path: Path) -> None:
    variants = {
        "base": {},
        "many": {"masks": 800},
        "crops": {"views": {"scale": [0.08, 1.0]}},
        "own": {"views": {"scale": [0.08, 1.0]}, "beta": None, "gamma": [0.2, 0.4]},
        "seven": {"prompts": "generic7"},
        "zero": {"method": "zero"},
    }
    runs = read_experiment(str(write(tmp_path / "e.json", settings={"masks": 50}, variants=variants))).runs
    assert [run.group for run in runs] == ["single", "single-scale=0.08-1.0", "generic7"]
    assert runs[0].methods == {"fcl-many": ("masks=800",), "fcl-base": ("masks=50",), "zero-zero": ()}
    assert runs[1].methods["fcl-own"] == ("masks=50", "beta=none", "gamma=0.2,0.4")


def test_a_variant_that_names_the_experiments_own_method_has_its_settings(tmp_path: Path) -> None:
    variants = {"base": {}, "same": {"method": "fcl", "k": 3}, "odd": {"masks": "many"}}
    place = write(tmp_path / "e.json", settings={"masks": 50}, variants=variants)
    (run,) = read_experiment(str(place)).runs
    assert run.methods["fcl-same"] == ("masks=50", "k=3")
    assert run.methods["fcl-odd"] == ("masks=many",)  # refused by the method, which says what it takes


def test_only_what_no_pass_has_is_missing() -> None:
    def run(**methods: tuple[str, ...]) -> ExperimentRun:
        return ExperimentRun(group="single", methods=methods)

    both = run(a=("k=1",), b=("k=2",))
    assert missing(both, []) == both
    assert missing(both, [run(a=("k=1",))]) == run(b=("k=2",))
    assert missing(both, [run(a=("k=9",))]) == both
    assert missing(both, [run(a=("k=1",)), run(b=("k=2",))]) is None
    # Settings that were written in another order are the same.
    assert missing(run(a=("k=1", "rho=1")), [run(a=("rho=1", "k=1"))]) is None


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"variant": {}}, "unknown entry of .*'variant'.*variants"),
        ({"datasets": []}, r"invalid datasets \[\]: list should have at least 1 item"),
        ({"datasets": "pictures"}, 'invalid datasets "pictures": must be a valid array'),
        ({"variants": {}}, "invalid variants {}: dictionary should have at least 1 item"),
        ({"variants": {"lr 1": {}}}, '"lr 1": string should match pattern'),
        ({"variants": {"lr.1": {}}}, '"lr.1": string should match pattern'),
        ({"variants": {"a": 3}}, "invalid variants.a 3: must be an object"),
        ({"reference": "bse"}, "unknown reference of .*'bse'.*base"),
        ({"seed": "x"}, 'invalid seed "x": must be a valid integer'),
        ({"seed": True}, "invalid seed true: must be a valid integer"),
        ({"limit": True}, "invalid limit true: must be a valid integer"),
        ({"limit": "ten"}, 'invalid limit "ten": must be a valid integer'),
        ({"pretrained": 3}, "invalid pretrained 3: must be a valid string"),
        ({"variants": {"a": {"views": "count=16"}}}, 'invalid variants.a.views "count=16": must be an object'),
        ({"variants": {"a": {"prompts": 7}}}, "invalid variants.a.prompts 7: must be a valid string"),
    ],
)
def test_what_an_experiment_file_cannot_say(facts: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        read_experiment(str(write(tmp_path / "e.json", **facts)))
    assert "e.json" in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[]", "\udcff", "[" * 100_000, '{"variants": {"a": {}, "a": {"k": 1}}}'])
def test_what_is_no_experiment_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "e.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ArgumentError, match=r"e\.json: (is no|cannot be read)"):
        read_experiment(str(tmp_path / "e.json"))


def test_names_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"unknown experiment 'lite0-txt'.*lite0-text"):
        read_experiment("lite0-txt")
    missing_file = f"{tmp_path}/nothing.json: cannot be read: no such file or directory; see faircontext ablate list"
    with pytest.raises(ArgumentError, match=f"^{missing_file}$"):
        read_experiment(str(tmp_path / "nothing.json"))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "is no JSON object: Expecting value: line 1 column 1 (char 0); write one"),
        ("{}", "is no experiment: invalid datasets []: list should have at least 1 item, not 0; write an object"),
    ],
)
def test_an_empty_experiment_file_is_told_how_the_smallest_one_looks(content: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(ArgumentError) as caught:
        read_experiment(str(tmp_path / "e.json"))
    told, example = str(caught.value).split(", for example ")
    assert told == f"{tmp_path}/e.json: {fault}"
    (tmp_path / "e.json").write_text(example)
    assert [*read_experiment(str(tmp_path / "e.json")).labels] == ["base", "fewer"]


OTHER = {"a": {1: False, 2: True}, "b": {1: True}, "c": {1: True}}


def result(folder: Path, name: str, dataset: str, right: dict[int, bool]) -> Result:
    """Return a result on some images of a data set, by position."""
    place = write_run(folder / name / dataset, dataset, {name: [at for at, good in right.items() if good]})
    run = load_run(place)
    vars(run)["rows"] = run.rows.filter(pc.is_in(run.rows["position"], pa.array([*right])))
    (found,) = read_results(run)
    return found


def test_comparison_is_paired_on_the_images_that_both_have(tmp_path: Path) -> None:
    own = [result(tmp_path, "own", "a", {1: True, 2: True}), result(tmp_path, "own", "b", {1: False, 9: True})]
    other = [result(tmp_path, "other", name, right) for name, right in OTHER.items()]
    found = compare_results(own, other)
    assert (found["n"], found["gained"], found["lost"], found["p_value"]) == (3, 1, 1, mcnemar_exact(1, 1))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert (found["low"], found["high"]) == wilson_interval(2, 3)
    assert found["difference"] == 0
    assert found["datasets"]["a"] == {"n": 2, "correct": 2, "other_correct": 1, "gained": 1, "lost": 0}
    assert found["datasets"]["b"] == {"n": 1, "correct": 0, "other_correct": 1, "gained": 0, "lost": 1}
    assert compare_results(own, [])["difference"] is None
    zero_shots = [one.zero_shot for one in own if one.zero_shot is not None]
    assert compare_results(own) == compare_results(own, zero_shots)
    assert compare_results(own)["n"] == 4


@pytest.fixture
def ablate(picture_set: Path, tiny_folder: Callable[[str], Path], tmp_path: Path) -> Callable[..., int]:
    """Return a function that runs an experiment with the tiny model on the pictures."""

    def call(place: Path, *words: str) -> int:
        backbone = ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32")
        where = ("--root", str(picture_set.parent), "--out", str(tmp_path / "out"))
        return main(["ablate", str(place), *where, *backbone, *words])

    return call


SETTINGS = {"masks": 16, "k": 3, "lr": 0.5}


def test_an_experiment_runs_only_what_is_missing(
    ablate: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variants = {"base": {}, "explore": {"calibrate": False}, "few": {"views": {"count": 16}}}
    place = write(tmp_path / "e.json", preset="paper", limit=6, settings=SETTINGS, variants=variants)
    assert ablate(place) in (0, 1)
    folder = tmp_path / "out" / "e"
    first = json.loads((folder / "e.results.json").read_text())
    assert [variant["label"] for variant in first["variants"]] == ["base", "explore", "few"]
    assert first["variants"][0]["difference"] == 0
    assert first["train_info"]["few"]["masks"] == 16
    assert first["meta_info"]["datasets"]["pictures"]
    assert {"seconds", "created", "images", "experiment"} <= first["run_info"].keys()

    runs = load_runs(folder)
    found = {result.method: result for run in runs for result in read_results(run)}
    by_hand = found["fcl-base"].correct.mean() - found["fcl-explore"].correct.mean()
    assert first["variants"][1]["difference"] == pytest.approx(-by_hand)

    stamps = {file: file.stat().st_mtime_ns for file in folder.glob("*/*/*/*.parquet")}
    assert len(stamps) == 2
    monkeypatch.setattr("faircontext.runs.evaluate.evaluate", lambda *_: pytest.fail("nothing is missing"))
    assert ablate(place) in (0, 1)
    monkeypatch.undo()

    # A variant of text alone on images that are known: nothing is encoded, and no other run is touched.
    uniform = {"method": "fcl_variants", **SETTINGS, "pair_weight": "uniform"}
    write(place, preset="paper", limit=6, settings=SETTINGS, variants={**variants, "uniform": uniform})
    encoded: list[int] = []
    encode = AnyBackbone.encode_parts

    def counted(self: AnyBackbone, parts: Iterable[Tensor]) -> Tensor:
        parts = [*parts]
        encoded.extend(map(len, parts))
        return encode(self, parts)

    monkeypatch.setattr(AnyBackbone, "encode_parts", counted)
    assert ablate(place) in (0, 1)
    assert sum(encoded) == 0
    assert {file: file.stat().st_mtime_ns for file in stamps} == stamps
    assert len(list(folder.glob("*/*/*/*.parquet"))) == 3
    second = json.loads((folder / "e.results.json").read_text())
    assert second["variants"][:3] == first["variants"]
    assert second["variants"][3]["n"] == first["variants"][0]["n"]  # whose rows are called fcl-uniform
    capsys.readouterr()

    write(place, preset="paper", limit=5, settings=SETTINGS, variants=variants)
    assert ablate(place) == 2
    assert "limit was 6 and is 5" in capsys.readouterr().err


def test_what_was_wrong_before_any_run_can_be_put_right(
    ablate: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "e.json", preset="paper", limit=2, settings={"msks": 16})
    assert ablate(place) == 2
    assert "unknown setting of fcl 'msks'" in capsys.readouterr().err
    write(place, preset="paper", limit=2, settings={**SETTINGS, "calibrate": False})
    assert ablate(place) in (0, 1)
    (tmp_path / "out" / "e" / "experiment.json").write_text("{")
    assert ablate(place) == 2
    assert "experiment.json: cannot be read" in capsys.readouterr().err


def test_only_a_variant_as_it_is_now_is_concluded_from(ablate: Callable[..., int], tmp_path: Path) -> None:
    def conclude(**variants: dict) -> dict:
        place = write(tmp_path / "e.json", preset="paper", limit=4, settings=SETTINGS, variants=variants)
        assert ablate(place) in (0, 1)
        found = json.loads((tmp_path / "out" / "e" / "e.results.json").read_text())
        return dict(found["train_info"]["other"])

    base = {"calibrate": False}
    assert conclude(base=base, other={**base, "views": {"count": 16}})["rho"] == 0.3
    # It moves to a folder that comes before its old one by name; then it changes again, and then back.
    assert conclude(base=base, other={**base, "rho": 0.9})["rho"] == 0.9
    assert conclude(base=base, other={**base, "rho": 0.5})["rho"] == 0.5
    assert conclude(base=base, other={**base, "rho": 0.9})["rho"] == 0.9
    assert len(load_runs(tmp_path / "out" / "e")) == 4


def test_variants_of_two_precisions_are_told(
    ablate: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {"preset": "paper", "limit": 2, "settings": {**SETTINGS, "calibrate": False}}
    assert ablate(write(tmp_path / "e.json", **facts)) in (0, 1)
    assert "one precision" not in capsys.readouterr().err
    place = write(tmp_path / "e.json", **facts, variants={"base": {}, "more": {"rho": 0.5}})
    assert ablate(place, "--precision", "bf16") in (0, 1)
    assert "variants were not all answered by one model, in one precision" in capsys.readouterr().err


def test_unreadable_files_are_told_whether_runs_are_new_or_not(ablate: Callable[..., int], tmp_path: Path) -> None:
    place = write(tmp_path / "e.json", preset="paper", settings={**SETTINGS, "calibrate": False})
    assert ablate(place) == 1
    assert ablate(place) == 1


def test_answers_do_not_depend_on_whether_features_are_kept(
    picture_set: Path, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    words = ["evaluate", "--datasets", "pictures", "--root", str(picture_set.parent), "--limit", "4"]
    words += ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--set", "masks=16", "k=3"]
    kept = ["--features", str(tmp_path / "features")]
    for name, extra in (("without", []), ("first", kept), ("second", kept)):
        assert main([*words, "--out", str(tmp_path / name), *extra]) in (0, 1)
    tables = [
        load_runs(tmp_path / name)[0].rows.drop_columns(["seconds", "shared_seconds"])
        for name in ("without", "first", "second")
    ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    assert list((tmp_path / "features").glob("*.safetensors"))


def test_views_are_set_by_the_run(
    picture_set: Path, tiny_folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "evaluate",
        "--datasets",
        "pictures",
        "--root",
        str(picture_set.parent),
        "--methods",
        "zero",
        "--limit",
        "1",
    ]
    words += ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--out", str(tmp_path / "runs")]
    assert main([*words, "--views", "count=16", "scale=0.3,0.9"]) in (0, 1)
    (run,) = load_runs(tmp_path / "runs")
    assert (run.document["config"]["views"]["count"], run.document["config"]["views"]["scale"]) == (16, [0.3, 0.9])
    for word, message in {
        "nmber=3": "unknown setting of --views 'nmber'",
        "count=x": "count=x is not possible",
        "count=0": "count=0 is not possible",
        "augmix=on": "augmix is not set with --views",
        "plain=stretch": "plain=stretch is not possible; it takes own or crop or pad or squash",
        "scale": "'scale' is not a setting",
    }.items():
        assert main([*words, "--views", word]) == 2
        assert message in capsys.readouterr().err


def test_settings_without_a_label_go_to_the_only_method_beside_zero_shot(
    picture_set: Path, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    words = ["analyze", "margin", "--datasets", "pictures", "--root", str(picture_set.parent), "--limit", "3"]
    words += ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--out", str(tmp_path)]
    assert main([*words, "--set", "masks=8"]) in (0, 1)
    (run,) = load_runs(tmp_path)
    assert run.document["config"]["methods"]["margin"]["masks"] == 8
    rows = [row for row in run.rows.to_pylist() if row["method"] == "margin" and not row["error"]]
    assert all(json.loads(row["diagnostics"])["bound"] <= json.loads(row["diagnostics"])["probability"] for row in rows)


def test_a_setting_that_no_method_takes_is_told_by_its_variant_before_anything_runs(
    ablate: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "e.json", variants={"base": {}, "odd": {"views": {"count": 8}, "masks": "many"}})
    assert ablate(place) == 2
    assert "e: variant 'odd': masks=many is not possible" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_runs_of_another_experiment_are_not_taken_where_its_description_is_gone(
    ablate: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "e.json", preset="paper", limit=3, variants={"base": {"masks": 8, "calibrate": False}})
    assert ablate(place) in (0, 1)
    for content in ("{", None):
        description = tmp_path / "out" / "e" / "experiment.json"
        description.unlink() if content is None else description.write_text(content)
        write(place, preset="paper", limit=2, variants={"base": {"masks": 8, "calibrate": False}})
        capsys.readouterr()
        assert ablate(place) == 2
        assert ("limit was 3 and is 2" if content is None else "delete it") in capsys.readouterr().err
    assert load_runs(tmp_path / "out")
