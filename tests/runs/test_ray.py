"""The same evaluation on a local Ray cluster gives the same records, also when an actor is killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from carried import carry_out
from faircontext import FairContextError
from faircontext.cli import main
from faircontext.imageio import read_image
from faircontext.runs.executors import answer_here, rebuild
from faircontext.runs.options import EvaluateOptions
from faircontext.runs.plan import Plan
from faircontext.runs.store import load_run
from helpers import descendants

ray = pytest.importorskip("ray")

from faircontext.runs.executors import answer_on_ray  # noqa: E402 (only where Ray is installed)
from faircontext.runs.ray import check_address, connect  # noqa: E402

FLOATS = (
    "confidence",
    "top5_probabilities",
    "label_probability",
    "probability_norm",
    "diagnostics",
    "seconds",
    "shared_seconds",
)

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray's own sockets and processes
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def local(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    here = partial(answer_here, read=read_image, workers=0)
    return carry_out(plan, tmp_path_factory.mktemp("local"), here, False, {}, print).rows


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    yield
    ray.shutdown()


def assert_alike(rows: pa.Table, others: pa.Table) -> None:
    assert rows.drop_columns(list(FLOATS)).equals(others.drop_columns(list(FLOATS)))
    for name in ("confidence", "label_probability", "probability_norm"):
        first, second = (table[name].drop_null().to_numpy() for table in (rows, others))
        assert abs(first - second).max() < 1e-4
    first, second = (torch.tensor(t["top5_probabilities"].drop_null().to_pylist()[:8]) for t in (rows, others))
    assert torch.allclose(first, second, atol=1e-4)


def test_ray_answers_alike_also_when_an_actor_is_killed(
    options: EvaluateOptions, plan: Plan, local: pa.Table, tmp_path: Path
) -> None:
    engine = partial(answer_on_ray, build=partial(rebuild, options), workers=1)
    assert_alike(carry_out(plan, tmp_path / "quiet", engine, False, {"engine": "ray"}, print).rows, local)
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 60
        while not killed and time.monotonic() < end:
            for process in descendants():
                if b"_Actor" in _words(process):
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)
                    return
            time.sleep(0.2)

    killer = threading.Thread(target=kill)
    killer.start()
    rows = carry_out(plan, tmp_path / "killed", engine, False, {"engine": "ray"}, print).rows
    killer.join()
    assert killed
    assert_alike(rows, local)


def _words(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.smoke
def test_a_picture_that_overflows_is_a_row_with_an_error_here_too(
    white_set: Path, narrow_folder: Path, tmp_path: Path
) -> None:
    common = ("--datasets", white_set.name, "--root", str(white_set.parent), "--methods", "zero", "--views", "count=8")
    model = ("--backbone", f"local-dir:{narrow_folder}", "--precision", "fp16")
    runs = []
    for engine in ("local", "ray"):
        out = tmp_path / engine
        assert main(["evaluate", *common, *model, "--out", str(out), "--engine", engine]) == 1
        runs.append(load_run(out / white_set.name))
    assert all(run.complete for run in runs)
    for name in ("path", "method", "error", "index"):
        assert runs[0].rows[name].equals(runs[1].rows[name])
    errors = {row["path"] for row in runs[1].rows.to_pylist() if row["error"]}
    assert errors == {"2.png"}


def test_a_cluster_that_runs_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    if not ray.is_initialized():
        connect(ray, 1, 128)
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    check_address()
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{ray.get_runtime_context().gcs_address.rpartition(':')[2]}")
    check_address()


def test_an_actor_that_plans_something_else_is_refused(options: EvaluateOptions, plan: Plan, tmp_path: Path) -> None:
    other = EvaluateOptions(**{**vars(options), "set": ("fcl.masks=9", "fcl.k=3")})
    engine = partial(answer_on_ray, build=partial(rebuild, other), workers=1)
    with pytest.raises(FairContextError, match=r"methods.fcl.masks was 8 and is 9"):
        carry_out(plan, tmp_path, engine, False, {"engine": "ray"}, print)


def test_a_cluster_without_room_for_an_actor_is_refused(
    options: EvaluateOptions, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself would wait for such a machine for ever."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    engine = partial(answer_on_ray, build=partial(rebuild, options), workers=1)
    with pytest.raises(FairContextError, match="threads=1000 is not possible; the largest machine of the Ray cluster"):
        carry_out(plan, tmp_path, engine, False, {"engine": "ray"}, print)
