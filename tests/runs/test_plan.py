"""Which images a run answers, and what its configuration depends on."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import faircontext.analysis  # noqa: F401 (registers analyses)
from faircontext import FCL, Backbone, FairContextError, LabelSpace, ViewRecipe, ZeroShot
from faircontext.datasets.listing import data_hash
from faircontext.datasets.spec import Dataset, Sample
from faircontext.runs.answer import Predictor
from faircontext.runs.build import Model, create_methods
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.orders import choose, parse_shard
from faircontext.runs.plan import Plan, plan_of


@given(st.integers(0, 200), st.integers(0, 9), st.none() | st.integers(1, 250), st.integers(1, 7))
def test_shards_are_a_partition(number: int, seed: int, limit: int | None, parts: int) -> None:
    whole = choose(number, seed, limit)
    shards = [choose(number, seed, limit, (part, parts)) for part in range(parts)]
    assert sorted(chain.from_iterable(shards)) == sorted(whole)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@given(st.integers(0, 200), st.integers(0, 9), st.integers(1, 250), st.integers(0, 50))
def test_a_limit_takes_the_head_of_a_permutation(number: int, seed: int, limit: int, more: int) -> None:
    whole = choose(number, seed)
    assert sorted(whole) == [*range(number)]
    head = choose(number, seed, limit).tolist()
    assert head == choose(number, seed, limit + more)[:limit].tolist() == whole[:limit].tolist()


def test_a_limit_is_a_sample_and_not_the_head_of_the_data_set() -> None:
    chosen = choose(10_000, 0, 100)
    assert np.mean(chosen) == pytest.approx(5_000, abs=900)  # 3 standard errors of a uniform sample
    assert chosen.tolist() != choose(10_000, 1, 100).tolist()


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "a/b", "1/0", "0/0", "1/2/3"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FairContextError, match=r"--shard .* is not possible; write i/n"):
        parse_shard(text)
    assert parse_shard("1/2") == (1, 2)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    samples = []
    for place in range(4):
        path = tmp_path / f"{place}.png"
        path.write_bytes(b"x" * place)
        samples.append(Sample(path.name, path, place % 2))
    return Dataset("set", tmp_path, "test", "all", ("cat", "dog"), tuple(samples))


def test_the_hash_of_data_depends_on_names_sizes_and_labels_alone(dataset: Dataset) -> None:
    known = data_hash(dataset)
    assert data_hash(replace(dataset, samples=dataset.samples[::-1])) == known
    assert data_hash(replace(dataset, samples=dataset.samples[:3])) != known
    first, *rest = dataset.samples
    assert data_hash(replace(dataset, samples=(replace(first, label=1), *rest))) != known
    assert data_hash(replace(dataset, samples=(replace(first, key="y.png"), *rest))) != known
    first.path.write_bytes(b"longer")
    assert data_hash(dataset) != known


def test_a_file_that_is_gone_has_no_size_and_ends_nothing(dataset: Dataset) -> None:
    known = data_hash(dataset)
    dataset.samples[0].path.unlink()
    assert data_hash(dataset) != known


@pytest.fixture
def plan(dataset: Dataset, lite: Backbone) -> Plan:
    predictor = Predictor(LabelSpace(dataset.names, lite), {"zero_shot": ZeroShot(), "fcl": FCL(masks=8)}, ViewRecipe())
    return Plan(dataset, predictor, 0, None, None, {"preset": "paper"})


def test_a_hash_depends_on_what_the_answers_depend_on(plan: Plan, dataset: Dataset) -> None:
    predictor = plan.predictor
    other = replace(predictor, methods={**predictor.methods, "fcl": FCL(masks=9)})
    changed = replace(plan, predictor=other)
    assert changed.hashes["zero_shot"] == plan.hashes["zero_shot"]
    assert changed.hashes["fcl"] != plan.hashes["fcl"] != plan.hashes["zero_shot"]
    for changes in ({"seed": 1}, {"predictor": replace(predictor, recipe=ViewRecipe(count=8))}):
        assert replace(plan, **changes).hashes["zero_shot"] != plan.hashes["zero_shot"]
    for changes in ({"limit": 2}, {"shard": (0, 2)}, {"dataset": replace(dataset, samples=dataset.samples[:2])}):
        part = replace(plan, **changes)
        assert part.hashes == plan.hashes
        assert part.config != plan.config


def test_the_configuration_names_the_weights(plan: Plan, lite_fp32: Backbone) -> None:
    backbone = plan.config["backbone"]
    assert backbone["weights"] == plan.predictor.labels.backbone.weights_hash
    assert len(backbone["weights"]) == 64
    if backbone["precision"] != "fp32":
        assert backbone["weights"] != lite_fp32.weights_hash
    assert plan.config["methods"]["fcl"]["masks"] == 8
    assert plan.folder_name == "set"
    assert replace(plan, shard=(1, 3)).folder_name == "set-shard-1-of-3"


WORDS = ("zero_shot", "fcl", "fcl-few", "fcl_variants-moved", "tpt", "tda", "stability")
ROWS = ("zero_shot", "fcl", "fcl-few", "fcl-moved", "tpt", "tda", "stability")
MOVED = "pairs=top3 gamma=0.3,0.7 masks=auto budget=64 occluder=mean hp_base=init proxy=mean pair_weight=uniform"
FROZEN = {
    "paper": "8e8e5662ceb4 c3d811d04db8 e184adaef946 165ffe0aebe9 a2e601d1c79f 7308666751d4 308458c6e693",
    "recommended": "6405fdbf9e84 ea1f221df20a d8d802be1511 9ffb196efe1f 33740199633b aea04b54a1d4 f40161576c09",
    "official": "030685f6dc1d 9b3e9a3fedcc 87e8a86ed390 677467657169 9e46ce2885a1 e060457f463b 332ceb59909b",
}
"""Recorded when `fcl` had the settings of `fcl_variants`. What changes one leaves stored runs that cannot go on."""


@pytest.mark.parametrize("preset", FROZEN)
def test_hashes_stay_so_that_stored_runs_go_on(preset: str, dataset: Dataset, lite: Backbone) -> None:
    moved = (f"fcl_variants-moved.{word}" for word in (*MOVED.split(), "context=cl-hp"))
    settings = ("fcl-few.masks=8", "fcl-few.safe=true", *moved)
    options = EvaluateOptions(datasets=("set",), methods=WORDS, root=dataset.folder, preset=preset, set=settings)
    plan = plan_of(options, dataset, Model(lite))
    vars(plan)["config"] = {**plan.config, "backbone": {}, "versions": {}}  # of this machine
    assert plan.hashes == dict(zip(ROWS, FROZEN[preset].split(), strict=True))


def test_a_method_and_what_has_its_name_in_rows_need_two_names(dataset: Dataset, lite: Backbone) -> None:
    options = EvaluateOptions(datasets=("set",), methods=("fcl", "fcl_variants"), root=dataset.folder)
    with pytest.raises(FairContextError, match="fcl_variants and fcl have the same name in rows; make one a variant"):
        create_methods(options, lite)
