"""ImageNet-C and CIFAR-C on disk: folders and arrays that the test makes, their parts, and what is wrong with them."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coop_trees import draw
from faircontext import Backbone, FairContextError, load_image
from faircontext.cli import main
from faircontext.datasets import check_dataset, load_dataset
from faircontext.datasets.spec import expand, imagenet_wnids
from faircontext.imageio import read_image
from faircontext.perturbations import Corruption
from faircontext.runs.doctor import _datasets
from faircontext.runs.store import load_run
from faircontext.sources import ArrayRow

NAMES = [f"thing {index}" for index in range(10)]


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    """CIFAR-10-C of four pictures in each severity; the value of each tells which it is."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    for start, name in ((0, "fog"), (100, "snow")):
        pictures = np.empty((20, 32, 32, 3), np.uint8)
        pictures[:] = (start + np.arange(20))[:, None, None, None]
        np.save(folder / f"{name}.npy", pictures)
    np.save(folder / "labels.npy", np.tile([3, 1, 4, 9], 5))
    (folder / "classnames.txt").write_text("\n".join(NAMES))
    return folder


def read(cifar: Path, part: str) -> tuple[list[int], list[int | None]]:
    """Return the values of the pictures of a part, and their labels."""
    samples = load_dataset(f"cifar10_c:{part}", cifar.parent).samples
    pictures = [load_image(sample.path) for sample in samples]
    assert {picture.shape for picture in pictures} == {(32, 32, 3)}
    assert all((picture == picture[0, 0, 0]).all() for picture in pictures)
    return [int(picture[0, 0, 0]) for picture in pictures], [sample.label for sample in samples]


def test_a_severity_is_a_fifth_of_an_array(cifar: Path) -> None:
    assert read(cifar, "fog:1") == ([0, 1, 2, 3], [3, 1, 4, 9])
    assert read(cifar, "fog:5") == ([16, 17, 18, 19], [3, 1, 4, 9])
    assert read(cifar, "snow:2") == ([104, 105, 106, 107], [3, 1, 4, 9])
    dataset = load_dataset("CIFAR-10-C:snow:2", cifar.parent)
    assert (dataset.name, dataset.corruption, dataset.names) == ("cifar10_c", Corruption("snow", 2), tuple(NAMES))
    assert [sample.key for sample in dataset.samples] == ["00000", "00001", "00002", "00003"]
    assert dataset.listed == 10_000


def test_labels_may_be_those_of_one_severity(cifar: Path) -> None:
    np.save(cifar / "labels.npy", np.array([0, 1, 2, 3], np.uint8))
    assert read(cifar, "fog:4") == ([12, 13, 14, 15], [0, 1, 2, 3])


def test_names_of_the_binary_version_are_taken(cifar: Path) -> None:
    (cifar / "classnames.txt").rename(cifar / "batches.meta.txt")
    (cifar / "batches.meta.txt").write_text("\n".join(name.replace(" ", "_") for name in NAMES) + "\n\n")
    assert load_dataset("cifar10_c:fog:1", cifar.parent).names == tuple(NAMES)


def test_class_folders_are_read_as_well(cifar: Path) -> None:
    for name in ("cat", "dog"):
        draw(cifar / "frost" / "3" / name / "a.png")
    (cifar / "classnames.txt").unlink()
    dataset = load_dataset("cifar10_c:frost:3", cifar.parent)
    assert dataset.names == ("cat", "dog")
    assert [(sample.key, sample.label) for sample in dataset.samples] == [("cat/a.png", 0), ("dog/a.png", 1)]


def save(path: Path, values: object) -> None:
    np.save(path, values, allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "fog",
            np.zeros((20, 32, 32), np.uint8),
            "shape (20, 32, 32) and type uint8; must be (pictures,",
        ),
        (
            "fog",
            np.zeros((20, 32, 32, 4), np.uint8),
            "shape (20, 32, 32, 4) and type uint8; must be (",
        ),
        (
            "fog",
            np.zeros((20, 32, 32, 3), np.float32),
            "float32; must be (pictures, height, width, 3) of type uint8",
        ),
        ("fog", np.zeros((19, 32, 32, 3), np.uint8), "holds 19 pictures; five severities of equally many must lie one"),
        ("fog", np.zeros((0, 32, 32, 3), np.uint8), "shape (0, 32, 32, 3) and type uint8; must be"),
        ("fog", np.array([{}] * 20), "cannot be read as an array of NumPy: array can't be memory-mapped"),
        ("labels", np.zeros(7, np.int64), "shape (7,) and type int64; must be 20 integers, or 4 for all severities"),
        ("labels", np.zeros(20), "shape (20,) and type float64; must be 20 integers"),
        ("labels", np.zeros((20, 1), np.int64), "shape (20, 1) and type int64; must be 20 integers"),
        ("labels", np.full(20, 10), "labels are from 10 to 10, and the 10 classes that are named are 0 to 9"),
        ("labels", np.full(20, -1), "labels are from -1 to -1, and the 10 classes that are named are 0 to 9"),
        ("labels", np.array([{}] * 20), "cannot be read as an array of NumPy: array can't be memory-mapped"),
    ],
)
def test_an_array_of_another_shape_or_type_is_one_line(name: str, values: object, message: str, cifar: Path) -> None:
    save(cifar / f"{name}.npy", values)
    with pytest.raises(FairContextError) as refused:
        load_dataset("cifar10_c:fog:1", cifar.parent)
    assert str(refused.value).startswith(str(cifar / f"{name}.npy"))
    assert message in str(refused.value)


def test_nothing_is_unpickled(cifar: Path) -> None:
    class Opened:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(cifar / "opened"), "w")

    for name in ("fog", "labels"):
        kept = (cifar / f"{name}.npy").read_bytes()
        (cifar / f"{name}.npy").write_bytes(pickle.dumps(Opened()))
        with pytest.raises(FairContextError, match="cannot be read as an array of NumPy"):
            load_dataset("cifar10_c:fog:1", cifar.parent)
        (cifar / f"{name}.npy").write_bytes(kept)
    assert not (cifar / "opened").exists()


def test_a_truncated_array_is_one_line(cifar: Path) -> None:
    content = (cifar / "fog.npy").read_bytes()
    (cifar / "fog.npy").write_bytes(content[:-1])
    with pytest.raises(FairContextError, match=r"fog\.npy: cannot be read as an array of NumPy: mmap length"):
        load_dataset("cifar10_c:fog:1", cifar.parent)


def test_an_array_that_is_gone_is_an_unreadable_image(tmp_path: Path) -> None:
    with pytest.raises(FairContextError) as refused:
        read_image(ArrayRow(str(tmp_path / "fog.npy"), 3))
    assert str(refused.value).startswith(f"{tmp_path / 'fog.npy'}/3: the array cannot be read: ")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("cifar10_c", "its parts are measured one by one; name a corruption and a severity, as in cifar10_c:fog:3"),
        ("cifar10_c:fog", "its parts are measured one by one"),
        ("cifar10_c:fgo:3", "unknown corruption 'fgo'; did you mean 'fog' or 'frost'?"),
        ("cifar10_c:fog:6", "invalid severity 6 of fog: must be 1, 2, 3, 4 or 5"),
        ("cifar10_c:frost:1", "cifar10_c: no folder frost/1 in "),
        ("cifar100_c:fog:1", "cifar100_c: no such folder in "),
    ],
)
def test_what_is_not_there_is_one_line(word: str, message: str, cifar: Path) -> None:
    with pytest.raises(FairContextError) as refused:
        load_dataset(word, cifar.parent)
    assert message in str(refused.value)


def test_missing_names_say_what_to_put_there(cifar: Path) -> None:
    (cifar / "classnames.txt").unlink()
    with pytest.raises(FairContextError) as refused:
        load_dataset("cifar10_c:fog:1", cifar.parent)
    assert str(refused.value) == (
        f"{cifar}: has no classnames.txt; give the 10 class names in the order of labels, one a line, or copy "
        "batches.meta.txt or fine_label_names.txt of CIFAR's binary version to it"
    )


@pytest.mark.parametrize("kind", ["", "weather"])
def test_imagenet_c_has_folders_of_wnids(kind: str, tmp_path: Path) -> None:
    wnids = imagenet_wnids()
    for wnid in (wnids[7], wnids[0]):
        draw(tmp_path / "imagenet-c" / kind / "fog" / "2" / wnid / "ILSVRC2012_val_00000293.JPEG")
    dataset = load_dataset("imagenet_c:fog:2", tmp_path)
    assert [sample.label for sample in dataset.samples] == [0, 7]
    assert dataset.samples[1].key == f"{wnids[7]}/ILSVRC2012_val_00000293.JPEG"
    assert (len(dataset.names), dataset.listed) == (1000, 50_000)
    with pytest.raises(FairContextError, match=r"imagenet_c: no folder fog/3 in .*imagenet-c$"):
        load_dataset("imagenet_c:fog:3", tmp_path)


def test_words_stand_for_several_parts() -> None:
    assert expand(["imagenet_c:fog:3", "pets"]) == ["imagenet_c:fog:3", "pets"]
    assert expand(["ImageNet-C:fog"]) == [f"imagenet_c:fog:{severity}" for severity in range(1, 6)]
    assert len(expand(["cifar10_c"])) == 75
    with pytest.raises(FairContextError, match=r"cifar10_c:none: has no images as they are"):
        expand(["cifar10_c:none"])
    with pytest.raises(FairContextError, match=r"cifar10_c:none:3: has no images as they are; name cifar10_c:fog"):
        expand(["cifar10_c:none:3"])
    assert expand(["cifar10_c:extra:1"])[-1] == "cifar10_c:saturate:1"


def test_a_check_looks_at_all_parts(cifar: Path) -> None:
    report = check_dataset("cifar10_c:fog:1", cifar.parent, partial=True)
    assert report.problems == ()
    assert report.summary[0] == "found: the usual layout: CIFAR-10-C, fog:1"
    counts = check_dataset("cifar10_c", cifar.parent).problems  # a line for each part, whatever is wrong with it
    assert len(counts) == 4
    assert counts[-1] == "72 more of the kind"
    report = check_dataset("cifar10_c", cifar.parent, partial=True)
    assert report.summary[0] == "10 of 75 corruptions and severities can be evaluated"
    assert report.usable
    assert report.problems[-1] == "62 more of the kind"


def test_parts_are_measured_as_runs_of_their_own(
    cifar: Path, tiny_folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--backbone", f"local-dir:{tiny_folder('clip')}", "--precision", "fp32", "--methods", "zero_shot"]
    words = ["evaluate", "--datasets", "cifar10_c:fog:1", "cifar10_c:snow:5", "--root", str(cifar.parent), *model]
    assert main([*words, "--out", str(tmp_path / "runs"), "--partial"]) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["cifar10_c-fog-1", "cifar10_c-snow-5"]
    run = load_run(tmp_path / "runs" / "cifar10_c-fog-1")
    assert run.document["config"]["shift"] == {"kind": "corruption", "name": "fog", "severity": 1, "stored": True}
    assert run.rows["label_index"].to_pylist() == [3, 1, 4, 9]
    assert main([*words, "--out", str(tmp_path / "two"), "--partial", "--corrupt", "fog:1"]) == 2
    assert "its images are corrupted as they are; leave --corrupt and --attack out" in capsys.readouterr().err


def test_pixels_are_those_of_the_array(tmp_path: Path, make_image: Callable[..., np.ndarray]) -> None:
    pictures = np.stack([make_image(seed, 13, 29) for seed in range(5)])
    for order in (pictures, np.asfortranarray(pictures)):
        np.save(tmp_path / f"{order.flags.c_contiguous}.npy", order)
        for row in range(5):
            source = ArrayRow(str(tmp_path / f"{order.flags.c_contiguous}.npy"), row)
            assert np.array_equal(load_image(source), pictures[row])
            assert Image.open(io.BytesIO(source.open().read())).size == (29, 13)


def test_the_doctor_knows_them(cifar: Path, tiny: Callable[[str], Backbone]) -> None:
    findings = [*_datasets(cifar.parent, tiny("clip"))]
    assert {finding.state for finding in findings} == {"problem"}  # 65 parts are not there
    assert all("CIFAR-10-C: cifar10_c:" in finding.text or "more of the kind" in finding.text for finding in findings)
