"""The cache of features: a second process does not run the text encoder, and damage costs time only."""

import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from faircontext import Backbone, LabelSpace, create_backbone
from faircontext.backbones.open_clip import TextEncoder
from faircontext.cache import cache_folder, cached_features, count_damaged, write_tensors
from faircontext.errors import FairContextWarning
from helpers import same_bits

NAMES = ("cat", "dog", "three-toed sloth")
CPU = torch.device("cpu")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after whose call the text encoder must not run."""

    def forbid() -> None:
        monkeypatch.setattr(TextEncoder, "forward", lambda *_: pytest.fail("the text tower was run"))

    return forbid


def test_features_come_from_the_cache_to_the_bit(
    cache: Path, tiny_folder: Callable[[str], Path], forbidden: Callable[[], None]
) -> None:
    def features() -> tuple[torch.Tensor, ...]:
        labels = LabelSpace(NAMES, create_backbone(f"local-dir:{tiny_folder('clip')}", precision="fp32"))
        return labels.text, LabelSpace(NAMES, labels.backbone, ("art of the {}.",)).text

    computed = features()
    assert len(list((cache / "text").iterdir())) == 2
    forbidden()
    for first, second in zip(computed, features(), strict=True):
        assert same_bits(first, second)


@pytest.mark.parametrize("layout", ["quick", "siglip"])
def test_other_weights_or_prompts_are_other_entries(layout: str, cache: Path, tiny: Callable[[str], Backbone]) -> None:
    LabelSpace(NAMES, tiny("clip")).text  # noqa: B018 (fills the cache)
    for labels in (
        LabelSpace(NAMES, tiny(layout)),
        LabelSpace(NAMES[::-1], tiny("clip")),
        LabelSpace(NAMES, tiny("clip"), ("art of the {}.",)),
    ):
        before = len(list((cache / "text").iterdir()))
        labels.text  # noqa: B018 (fills the cache)
        assert len(list((cache / "text").iterdir())) == before + 1


def counted(value: torch.Tensor, calls: list[int]) -> Callable[[], torch.Tensor]:
    return lambda: calls.append(1) or value


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "folder"])
def test_a_damaged_entry_is_made_again(damage: str, cache: Path) -> None:
    calls: list[int] = []
    value = torch.arange(12.0).reshape(3, 4)
    cached_features(cache / "text", {"a": 1}, CPU, counted(value, calls))
    (entry,) = (cache / "text").iterdir()
    content = bytearray(entry.read_bytes())
    if damage == "folder":
        entry.unlink()
        entry.mkdir()
    else:
        content[-1] ^= 1
        entry.write_bytes({"empty": b"", "cut": bytes(content[:-5]), "flipped": bytes(content)}[damage])
    for number in (2, 3 if damage == "folder" else 2):
        assert torch.equal(cached_features(cache / "text", {"a": 1}, CPU, counted(value, calls)), value)
        assert len(calls) == number
    assert not list(cache.rglob("*.partial"))


@pytest.mark.parametrize("below", ["file/below", None])
def test_a_cache_that_cannot_be_written_or_is_off_is_no_error(below: str | None, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = None if below is None else tmp_path / below
    assert torch.equal(cached_features(folder, {}, CPU, lambda: torch.ones(2)), torch.ones(2))


@pytest.mark.skipif(os.name != "posix", reason="a limit on files stands for a full disk")
def test_a_full_disk_is_no_error_and_leaves_nothing(tmp_path: Path) -> None:
    import resource

    earlier = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, earlier[1]))
    try:
        found = cached_features(tmp_path, {}, CPU, lambda: torch.ones(100, 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, earlier)
    assert found.sum() == 10_000
    assert [*tmp_path.iterdir()] == []


def test_an_entry_with_too_few_rows_is_made_again(tmp_path: Path) -> None:
    calls: list[int] = []
    for rows, made in ((4, 1), (2, 1), (6, 2), (4, 2)):
        found = cached_features(tmp_path, {}, CPU, counted(torch.arange(float(rows)), calls), rows)
        assert len(found) >= rows
        assert len(calls) == made


def test_the_cache_can_be_switched_off_and_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRCONTEXT_CACHE", "off")
    assert cache_folder() is None
    monkeypatch.setenv("FAIRCONTEXT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("FAIRCONTEXT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "platform"))
    assert cache_folder().name == "faircontext"


def test_a_converted_tower_is_no_damaged_entry(cache: Path) -> None:
    cached_features(cache / "text", {"a": 1}, CPU, lambda: torch.ones(2, 3))
    write_tensors(cache / "engines" / "tower.safetensors", {"weights": torch.ones(2)}, {})
    assert count_damaged(cache) == (1, 0)
    (cache / "text" / "b.safetensors").write_bytes(b"cut")
    assert count_damaged(cache) == (2, 1)


@pytest.mark.parametrize("problem", ["no space left on device", "file exists"])
def test_a_folder_that_was_asked_for_and_takes_nothing_is_said_once(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "features"
    if problem == "file exists":
        folder.write_text("")
    else:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(full))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        for name in ("one", "two"):
            found = cached_features(folder, {"name": name}, CPU, lambda: torch.ones(2, 3), asked=True)
            assert torch.equal(found, torch.ones(2, 3))
            cached_features(folder, {"name": name}, CPU, lambda: torch.ones(2, 3))  # nobody has asked for the cache
    (line,) = heard
    assert issubclass(line.category, FairContextWarning)
    assert str(line.message) == f"{folder}: features cannot be kept: {problem}; the run goes on without them"
