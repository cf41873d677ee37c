"""The wheel: built, and installed beside nothing but what it declares, it answers a photo; nothing is downloaded."""

import os
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(find_spec("hatchling") is None, reason='hatchling is not installed: pip install -e ".[dev]"'),
    pytest.mark.skipif(os.name != "posix", reason="links to installed packages are those of POSIX"),
]


def called(*words: object, **options: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network by the backend that is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    building = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder)
    called(sys.executable, "-m", "pip", *building, ROOT)
    (made,) = folder.glob("faircontext-*.whl")
    return made


def needed(requirements: list[str], extras: frozenset[str] = frozenset()) -> dict[str, Distribution]:
    """Return the distributions that requirements need here, and what these need in turn; extras where asked for."""
    found: dict[str, Distribution] = {}
    wanted = [(text, extras) for text in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        text, chosen = wanted.pop()
        requirement = Requirement(text)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in (*chosen, "")):
            continue
        own = (requirement.name.lower(), frozenset(requirement.extras))
        if own in seen:
            continue
        seen.add(own)
        try:
            found[own[0]] = distribution(requirement.name)
        except PackageNotFoundError:
            pytest.fail(f"{requirement.name} is declared, and is not installed")
        wanted += [(inner, own[1]) for inner in found[own[0]].requires or ()]
    return found


def test_it_holds_what_the_package_reads_and_no_more(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    source = ROOT / "src"
    tracked = called("git", "ls-files", "src", cwd=ROOT).split() if (ROOT / ".git").exists() else []
    held = {name for name in names if ".dist-info/" not in name}
    assert {Path(name).relative_to("src").as_posix() for name in tracked} <= held
    assert all((source / name).is_file() and "__pycache__" not in name for name in held)


def test_it_answers_a_photo_without_extras(wheel: Path, tmp_path: Path, photo_files: dict[str, Path]) -> None:
    clean = tmp_path / "clean"
    called(sys.executable, "-m", "venv", "--without-pip", clean)
    python = clean / "bin/python"
    called(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    site = Path(called(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (metadata,) = site.glob("faircontext-*.dist-info")
    for installed in needed(Distribution.at(metadata).requires or []).values():
        tops = {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(installed.locate_file(top))).resolve())
    assert not (site / "openvino").exists()  # of an extra
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"HF_HUB_OFFLINE": "1", "FAIRCONTEXT_CACHE": "off"}
    labels = ["--labels", "tabby cat,rocket,cup of coffee", "--set", "masks=16"]
    printed = called(clean / "bin/faircontext", "classify", photo_files["cat"], *labels, cwd=tmp_path, env=environment)
    assert "tabby cat" in printed
    assert "1 answered, 0 unreadable" in printed
