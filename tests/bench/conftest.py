"""A small labelled data set, and plans of the tiny model on it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircontext import FCL, Backbone, LabelSpace, ViewRecipe, ZeroShot
from faircontext.bench.plan import Plan, Setup
from faircontext.datasets.spec import Dataset, Sample

NAMES = ("cat", "dog", "missile", "missile")


@pytest.fixture(scope="session")
def picture_set(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., np.ndarray]) -> Path:
    """A folder with labels.csv: twelve pictures of four classes, two of one name, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("sets") / "pictures"
    (folder / "images").mkdir(parents=True)
    lines = ["path,label"]
    for number in range(13):
        path = folder / "images" / f"{number:02}.png"
        if number == 5:
            path.write_bytes(b"\x89PNG but no more")
        else:
            Image.fromarray(make_image(number, 40, 50)).save(path)
        lines.append(f"images/{path.name},{number % 4}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    (folder / "classnames.txt").write_text("\n".join(NAMES) + "\n")
    return folder


@pytest.fixture(scope="session")
def pictures(picture_set: Path) -> Dataset:
    """The same, read."""
    paths = sorted((picture_set / "images").iterdir())
    samples = tuple(Sample(f"images/{path.name}", path, number % 4) for number, path in enumerate(paths))
    return Dataset("pictures", picture_set, "a table", "all", NAMES, samples)


@pytest.fixture(scope="session")
def make_plan(pictures: Dataset, tiny: Callable[[str], Backbone]) -> Callable[..., Plan]:
    """Return a function that plans zero-shot and FCL of eight masks on the pictures."""

    def make(limit: int | None = None, shard: tuple[int, int] | None = None, seed: int = 0) -> Plan:
        methods = {"zero_shot": ZeroShot(), "fcl": FCL(masks=8, k=3)}
        setup = Setup(LabelSpace(NAMES, tiny("clip")), methods, ViewRecipe(number=8, scale=(0.3, 1.0)))
        return Plan(pictures, setup, seed, limit, shard, {"preset": "paper"})

    return make
