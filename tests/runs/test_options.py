"""What options refuse before anything is read, and what is refused before a model is loaded: a line each."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from faircontext.errors import FairContextError
from faircontext.runs.build import load
from faircontext.runs.options import AnalysisOptions, ClassifyOptions, EvaluateOptions

SETS: dict[str, Any] = {"multi_label": True, "method": "zero_shot"}
STREAM = {"method": "tda", "stream": True}
SHARED = "is not possible with tda, which answers images one after another; leave it out, or encode with other methods"

CLASSIFY = [
    ({"resume": True}, "--resume is of a stored run; give its folder with --out"),
    ({"shard": "0/2"}, "--shard is of a stored run; give its folder with --out"),
    ({"engine": "ray"}, "--engine is of a stored run; give its folder with --out"),
    ({"scores": Path("x.csv")}, "--scores x.csv: must end in .parquet"),
    ({"embeddings": Path("x.csv")}, "--embeddings x.csv: must end in .npy or .parquet"),
    ({"classifier": Path("x.pt")}, "--classifier x.pt: must end in .safetensors"),
    ({"limit": 0}, "limit=0 is not possible"),
    ({"max_pixels": 0}, "max_pixels=0 is not possible"),
    ({"workers": -1}, "workers=-1 is not possible"),
    ({"workers": 9999}, "workers=9999 is not possible; this process may use "),
    ({"threads": 0}, "threads=0 is not possible"),
    ({"threads": 9999, "engine": "ray", "out": Path("x")}, "threads=9999 is not possible; this process may use "),
    ({**STREAM, "workers": "auto"}, f"--workers auto {SHARED}"),
    ({**STREAM, "engine": "ray"}, f"--engine ray {SHARED}"),
    ({**STREAM, "shard": "0/2"}, f"--shard {SHARED}"),
    ({"threshold": 0.3}, "--threshold is of --multi-label; add it, or leave --threshold out"),
    ({"multi_label": True}, "--multi-label answers with zero_shot alone, since the other methods choose one class"),
    ({**SETS, "method": "tpt"}, "add --method zero_shot (of evaluate: --methods zero_shot)"),
    ({**SETS, "threshold": 1.5}, "invalid threshold 1.5: must be between 0 and 1"),
    (
        {**SETS, "unknown": "cosine"},
        "--unknown is not possible with --multi-label: an answer has one decision; leave one out",
    ),
    ({**SETS, "negatives": Path("no.txt")}, "no.txt: no such file or directory"),
    ({**SETS, "negatives": Path("empty.txt")}, "empty.txt: no negatives; give at least one"),
    ({"unknown": "probabilty=0.3"}, "write SCORE=THRESHOLD with one of probability, cosine, energy, or name a file"),
    ({"unknown": "cosine=high"}, "invalid threshold 'high' of --unknown cosine: must be a number from -1 to 1"),
    ({"unknown": "cosine=nan"}, "invalid threshold 'nan' of --unknown cosine: must be a number from -1 to 1"),
    ({"unknown": "probability=2"}, "invalid threshold '2' of --unknown probability: must be a number from 0 to 1"),
    ({"unknown": "energy=inf"}, "invalid threshold 'inf' of --unknown energy: must be a number"),
    ({"unknown": "no.json"}, "no.json: cannot be read: no such file or directory"),
    ({"unknown": "list.json"}, "list.json: is no file of thresholds: must be an object; make it"),
    ({"unknown": "other.json"}, "other.json: is no file of thresholds: score is missing; make it with"),
    ({"unknown": "empty.txt.json"}, "empty.txt.json: is no file of thresholds: invalid JSON: EOF while parsing"),
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"empty.txt": "# nothing\n", "list.json": "[]", "other.json": json.dumps({"run": 1}), "empty.txt.json": "-"}
    for name, text in texts.items():
        Path(name).write_text(text)


def refusal(options: ClassifyOptions | EvaluateOptions, said: str) -> None:
    with pytest.raises(FairContextError, match=re.escape(said)) as caught:
        options.check()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("options", "said"), CLASSIFY, ids=[said for _, said in CLASSIFY])
def test_what_cannot_be_is_a_line_before_anything_is_read(options: dict[str, Any], said: str) -> None:
    refusal(ClassifyOptions(labels="a,b", **options), said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"methods": ()}, "--methods is empty; give at least one name"),
        ({"datasets": ("",)}, "--datasets is empty; give at least one name"),
        ({"orders": ()}, "--orders needs at least one number, for example --orders 0 1 2"),
        ({"orders": (-1,)}, "--orders -1 is not possible; give whole numbers from 0 to 999"),
        ({"methods": ("tda",), "shard": "0/2"}, f"--shard {SHARED}"),
    ],
)
def test_what_evaluate_cannot_be_asked(options: dict[str, Any], said: str) -> None:
    refusal(EvaluateOptions(**{"datasets": ("x",), "root": Path(), **options}), said)


def test_analyses_are_of_one_class() -> None:
    said = "--multi-label answers with zero_shot alone, since the other methods choose one class"
    refusal(AnalysisOptions(datasets=("x",), root=Path(), methods=("margin",), multi_label=True), said)


@pytest.mark.parametrize(
    ("options", "classes", "said"),
    [
        ({"top": 2}, 3, "--top adds columns to the CSV file; name it with --csv"),
        ({"top": 4, "csv": Path("x.csv")}, 3, "--top 4 is not possible: there are 3 classes"),
        ({"top": -1, "csv": Path("x.csv")}, 3, "top=-1 is not possible"),
    ],
)
def test_how_many_of_the_best_there_can_be(options: dict[str, Any], classes: int, said: str) -> None:
    with pytest.raises(FairContextError, match=re.escape(said)):
        ClassifyOptions(labels="a,b", **options).check_top(classes)


@pytest.mark.parametrize(
    ("methods", "options", "said"),
    [
        ("fcl-", {}, "invalid method 'fcl-': must be fcl, or fcl-SUFFIX for a variant of it"),
        ("flc", {}, "unknown method 'flc'; did you mean 'fcl'"),
        ("fcl", {"set": ("fcl.mask=3",)}, "unknown setting of fcl 'mask'; did you mean 'masks'"),
        ("fcl", {"set": ("name=fcl",)}, "unknown setting of fcl 'name'"),
        ("fcl", {"set": ("masks=0",)}, "masks=0 is not possible; it must lie above 0 and at most at 100000"),
        (
            "tpt fcl",
            {"set": ("steps=3",)},
            "'steps=3' is of no method of this run; write METHOD.NAME=VALUE",
        ),
        ("fcl", {"views": ("augmix=on",)}, "augmix is not set with --views: --augmix is an option"),
        ("fcl", {"seed": -1}, "seed=-1 is not possible"),
        ("fcl", {"precision": "fp8"}, "precision='fp8' is not possible"),
        ("fcl", {"batch_size": 17}, "batch_size=17 is not possible"),
        ("fcl", {"device": "gpu"}, "device='gpu' is not possible"),
        ("fcl", {"backbone": "lite9"}, "unknown backbone 'lite9'; did you mean 'lite"),
    ],
)
def test_what_a_model_cannot_be_is_a_line_before_it_is_loaded(methods: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(FairContextError, match=re.escape(said)):
        load(ClassifyOptions(labels="a,b", method=methods.replace(" ", ","), **options))
