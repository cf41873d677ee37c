"""Methods with a memory on shifted images: each shift is a stream of its own; tables tell shifts and orders apart."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from faircontext import TDA, Backbone, Episode, LabelSpace, ViewRecipe
from faircontext.cli import main
from faircontext.datasets.spec import Sample
from faircontext.perturbations import Perturbation
from faircontext.runs.answer import Predictor, answer_images
from faircontext.runs.groups import find_runs, group_runs
from faircontext.runs.store import load_run
from made_perturbed import PERTURBATIONS, perturbed_views

pytest.importorskip("imagecorruptions")


@pytest.mark.parametrize("perturbation", PERTURBATIONS, ids=str)
def test_a_stream_learns_from_the_shifted_pictures(
    perturbation: Perturbation, tiny: Callable[[str], Backbone], photo_files: dict[str, Path]
) -> None:
    labels, method, recipe = LabelSpace((*photo_files,), tiny("clip")), TDA(), ViewRecipe(count=4)
    items = [Sample(name, path, index) for index, (name, path) in enumerate(photo_files.items())]
    state = method.start(labels)
    for item, answered in zip(
        items,
        answer_images(items, Predictor(labels, {"tda": method}, recipe), 7, perturbation=perturbation),
        strict=True,
    ):
        expected, state = method.step(Episode.of(perturbed_views(item, labels, recipe, perturbation), labels), state)
        assert answered.predictions[0].diagnostics["t"] == expected.diagnostics["t"] == state.seen
        assert np.allclose(answered.predictions[0].probabilities, expected.probabilities, atol=1e-6)


def test_each_shift_and_order_is_a_stream_of_its_own(
    tiny_folder: Callable[[str], Path], picture_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluate(out: Path, *more: str) -> list[str]:
        model = ("--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--preset", "paper")
        where = ("--datasets", "pictures", "--root", str(picture_set.parent), "--out", str(out))
        assert main(["evaluate", *where, *model, "--methods", "tda", *more]) == 1  # a file is unreadable
        capsys.readouterr()
        return sorted(path.name for path in out.iterdir())

    both, alone = tmp_path / "both", tmp_path / "alone"
    names = [f"pictures{perturbation}-order-{order}" for perturbation in ("-contrast-3", "") for order in (0, 2)]
    assert evaluate(both, "--corrupt", "none", "contrast:3", "--orders", "0", "2") == names
    assert evaluate(alone, "--corrupt", "contrast:3", "--orders", "2") == [names[1]]
    runs = [load_run(folder / names[1]) for folder in (both, alone)]
    first, second = (run.rows.drop_columns(["seconds", "shared_seconds"]) for run in runs)
    assert first.equals(second)
    assert runs[0].document["states"] == runs[1].document["states"]
    times = [json.loads(text).get("t") for text in first["diagnostics"].to_pylist()]
    assert sorted(time for time in times if time)[0] == 1
    assert len({load_run(both / name).document["hashes"]["tda"] for name in names}) == 4
    settings = [(group.settings.shift, group.settings.stream) for group in group_runs(find_runs([both]))]
    assert sorted(settings) == [
        (perturbation, f"order {order}") for perturbation in ("", "contrast:3") for order in (0, 2)
    ]

    assert main(["tables", str(both), "--style", "long", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    found = {(row["shift"], row["stream"], row["method"]) for row in rows}
    assert found == {(s, *one) for s in ("", "contrast:3") for one in (("", "zero_shot"), ("orders 0 2", "tda"))}
    assert main(["tables", str(both), "--style", "shift", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {(row["shift"], row["stream"]) for row in rows} == {("contrast:3", "order 0"), ("contrast:3", "order 2")}
    assert main(["tables", str(alone), "--style", "shift", "--format", "md"]) == 0
    assert "seed 0, order 2" in capsys.readouterr().out
