"""The real lite backbone, real photos and small deterministic images; each is made once and shared by all tests."""

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

os.environ["FAIRCONTEXT_CACHE"] = "off"  # features are computed, unless a test is about the cache
os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched in tests
os.environ.setdefault("MALLOC_PERTURB_", "0")  # with a setting of memory, commands do not keep what they free
if "PYTEST_XDIST_WORKER" in os.environ:  # tests run side by side: one thread for each process
    os.environ["OMP_NUM_THREADS"] = "1"

from open_clip.tokenizer import SimpleTokenizer  # after the number of threads, which PyTorch reads once
from PIL import Image

from faircontext import FCL, Backbone, Episode, LabelSpace, ViewRecipe, ZeroShot, create_backbone, load_image
from faircontext.backbones import lite as backbones_lite
from faircontext.datasets.spec import Dataset, Sample
from faircontext.runs.answer import Predictor
from faircontext.runs.plan import Plan
from faircontext.system import resident_mb
from helpers import CLASSES, give_memory_back
from tiny_clip import write_model, write_narrow

for profile, examples in {"quick": 20, "all": 200}.items():  # what a busy machine takes says nothing: no deadline
    settings.register_profile(profile, max_examples=examples, deadline=None)
settings.load_profile("quick")

PHOTOS = {
    "astronaut": "astronaut.png",
    "cat": "chelsea.png",
    "cup of coffee": "coffee.png",
    "rocket": "rocket.jpg",
    "motorcycle": "motorcycle_left.png",
}
"""Photos in scikit-image's wheel, by what they show."""

KEPT = pytest.StashKey[float]()
"""MB that the process had when memory was last given back."""


_LONGEST = ("test_commands_put_out_what_is_recorded", "copy counts", "test_a_signal_ends_a_process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first: a worker that began with one of them last would end after all others."""
    items.sort(key=lambda item: not any(name in item.name for name in _LONGEST))


def pytest_collection_finish() -> None:
    """Take what imports have made out of the collector's sight: it looked through all of it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def memory() -> Iterator[None]:
    """Give memory back after each file."""
    yield
    give_memory_back()


@pytest.fixture(scope="session", autouse=True)
def one_vocabulary() -> Iterator[None]:
    """CLIP's vocabulary is read once for each way to ask for it: hundreds of tiny models have it."""
    made: dict[str, dict[str, Any]] = {}
    read = SimpleTokenizer.__init__

    def init(self: SimpleTokenizer, *args: Any, **options: Any) -> None:
        if (key := repr((args, options))) not in made:
            read(self, *args, **options)
            made[key] = self.__dict__
        self.__dict__ = dict(made[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimpleTokenizer, "__init__", init)
        yield


@pytest.fixture(scope="session", autouse=True)
def without_raw() -> Iterator[None]:
    """Camera raw is refused, whether or not rawpy is installed; a test of raw says otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faircontext.imagefiles.reads_raw", lambda: False)
        yield


@pytest.fixture(autouse=True)
def growth(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give memory back after a test that leaves much: models in reference cycles wait long for the collector."""
    yield
    if Path("/proc/self/status").exists() and resident_mb() > request.config.stash.get(KEPT, 1000.0) + 150:
        give_memory_back()
        request.config.stash[KEPT] = resident_mb()


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of labelled pictures that the environment names."""
    if not os.environ.get("FAIRCONTEXT_DATA"):
        pytest.skip("FAIRCONTEXT_DATA does not name a folder of labelled pictures")
    return Path(os.environ["FAIRCONTEXT_DATA"])


@pytest.fixture(scope="session")
def photo_files() -> dict[str, Path]:
    """Photos by what they show; the files are read where they were installed, so that nothing is downloaded."""
    folder = Path(find_spec("skimage").submodule_search_locations[0]) / "data"
    return {name: folder / file for name, file in PHOTOS.items()}


@pytest.fixture(scope="session")
def photos(photo_files: dict[str, Path]) -> dict[str, np.ndarray]:
    """The same photos, decoded."""
    return {name: load_image(path) for name, path in photo_files.items()}


@pytest.fixture(scope="session")
def make_image() -> Callable[..., np.ndarray]:
    """Return a function that makes an image of coloured patches and noise from a seed."""

    def make(seed: int, height: int = 90, width: int = 120) -> np.ndarray:
        rng = np.random.default_rng(seed)
        patches = rng.integers(0, 256, (5, 5, 3)).repeat(-(-height // 5), 0).repeat(-(-width // 5), 1)[:height, :width]
        return np.clip(patches + rng.normal(0, 20, patches.shape), 0, 255).astype(np.uint8)

    return make


@pytest.fixture(scope="session")
def lite0() -> Backbone:
    """The default backbone in the precision that it chooses here."""
    return create_backbone("lite0")


@pytest.fixture(scope="session")
def create_lite() -> Callable[..., Backbone]:
    """Return a function that creates the default backbone on pictures of 64 x 64, a twelfth of the work: where what it
    sees does not matter, it stands for the default one, with its tokenizer, its text encoder and its settings."""

    def create(precision: str = "auto") -> Backbone:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(backbones_lite._IMAGE_SIZES, "lite0", 64)
            return create_backbone("lite0", precision=precision)

    return create


@pytest.fixture(scope="session")
def lite(create_lite: Callable[..., Backbone]) -> Backbone:
    """The default backbone on small pictures, in the precision that it chooses here."""
    return create_lite()


@pytest.fixture(scope="session")
def lite_fp32(create_lite: Callable[..., Backbone]) -> Backbone:
    """The same in float32."""
    return create_lite("fp32")


@pytest.fixture(scope="session")
def lite_double(create_lite: Callable[..., Backbone]) -> Backbone:
    """A copy of it whose text encoder computes in float64."""
    backbone = create_lite()
    backbone.text_encoder.double()
    return backbone


@pytest.fixture(scope="session")
def lite0_bf16(lite0: Backbone) -> Backbone:
    """The default backbone in bfloat16, where the processor computes in it."""
    if lite0.precision != "bf16":
        pytest.skip("this processor has no bfloat16 arithmetic")
    return lite0


@pytest.fixture(scope="session")
def labels(lite: Backbone) -> LabelSpace:
    """Ten classes, the five that the photos show among them."""
    return LabelSpace(CLASSES, lite)


@pytest.fixture(scope="session")
def make_episode(labels: LabelSpace) -> Callable[..., Episode]:
    """Return a function that makes a fresh episode of eight views."""

    def make(image: np.ndarray, space: LabelSpace = labels, seed: int = 0, views: int = 8) -> Episode:
        return Episode(image, space, ViewRecipe(count=views, scale=(0.3, 1.0)), seed)

    return make


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of trained models that the environment names."""
    if not os.environ.get("FAIRCONTEXT_MODELS"):
        pytest.skip("FAIRCONTEXT_MODELS does not name a folder of trained models")
    return Path(os.environ["FAIRCONTEXT_MODELS"])


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that writes the tiny open_clip model of a layout, once."""

    @cache
    def write(layout: str) -> Path:
        return write_model(tmp_path_factory.mktemp("tiny") / layout, layout)

    return write


@pytest.fixture(scope="session")
def tiny(tiny_folder: Callable[[str], Path]) -> Callable[[str], Backbone]:
    """Return a function that loads the tiny open_clip model of a layout in float32, once."""
    return cache(lambda layout: create_backbone(f"local-dir:{tiny_folder(layout)}", precision="fp32"))


@pytest.fixture(scope="session")
def tiny_double(tiny_folder: Callable[[str], Path]) -> Backbone:
    """A private copy of the tiny model whose text encoder computes in float64."""
    backbone = create_backbone(f"local-dir:{tiny_folder('clip')}", precision="fp32")
    backbone.text_encoder.double()
    return backbone


PICTURE_NAMES = ("cat", "dog", "missile", "missile")


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
    (folder / "classnames.txt").write_text("\n".join(PICTURE_NAMES) + "\n")
    return folder


@pytest.fixture(scope="session")
def pictures(picture_set: Path) -> Dataset:
    """The same, read."""
    paths = sorted((picture_set / "images").iterdir())
    samples = tuple(Sample(f"images/{path.name}", path, number % 4) for number, path in enumerate(paths))
    return Dataset("pictures", picture_set, "a table", "all", PICTURE_NAMES, samples)


@pytest.fixture(scope="session")
def make_plan(pictures: Dataset, tiny: Callable[[str], Backbone]) -> Callable[..., Plan]:
    """Return a function that plans zero-shot and FCL of eight masks on the pictures."""

    def make(limit: int | None = None, shard: tuple[int, int] | None = None, seed: int = 0) -> Plan:
        methods = {"zero_shot": ZeroShot(), "fcl": FCL(masks=8, k=3)}
        setup = Predictor(LabelSpace(PICTURE_NAMES, tiny("clip")), methods, ViewRecipe(count=8, scale=(0.3, 1.0)))
        return Plan(pictures, setup, seed, limit, shard, {"preset": "paper", "prompts": "single"})

    return make


@pytest.fixture(scope="session")
def narrow_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in which white is too large for half precision."""
    return write_narrow(tmp_path_factory.mktemp("narrow"), 46.0)


@pytest.fixture(scope="session")
def white_among(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., np.ndarray]) -> Path:
    """Four pictures, the third all white."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(4):
        pixels = np.full((40, 50, 3), 255, np.uint8) if number == 2 else make_image(number, 40, 50) // 2
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def white_set(white_among: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same pictures as a data set."""
    folder = tmp_path_factory.mktemp("sets") / "white"
    folder.mkdir()
    names = sorted(path.name for path in white_among.iterdir())
    for name in names:
        (folder / name).write_bytes((white_among / name).read_bytes())
    lines = [f"{name},{number % 3}" for number, name in enumerate(names)]
    (folder / "labels.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    (folder / "classnames.txt").write_text("cat\ndog\nmissile\n")
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium, the system's own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
