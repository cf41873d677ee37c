"""What importing costs: nothing that a run does not use is imported; and what stubs promise is there."""

import ast
import subprocess
import sys
from collections.abc import Collection
from importlib import import_module
from pathlib import Path

import pytest

import faircontext
from made_runs import describe_run

MODULES = [
    f"faircontext.{path.relative_to(folder).with_suffix('').as_posix().replace('/', '.')}"
    for folder in [Path(faircontext.__file__).parent]
    for path in sorted(folder.rglob("*.py"))
    if path.name[0] != "_"
]
"""Every module but the packages themselves, which are imported with their modules."""

CORE = [name for name in MODULES if name.split(".")[1] not in ("report", "cli", "runs", "serve", "datasets")]

POSIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")


def imported_by(script: str) -> set[str]:
    """Return the top-level packages that a fresh process has imported after running a script."""
    script += "\nimport sys; print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


STUBS = sorted(Path(faircontext.__file__).parent.rglob("*.pyi"))


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_every_name_of_a_stub_is_in_its_module(stub: Path) -> None:
    package = ".".join(["faircontext", *stub.parent.relative_to(STUBS[0].parent).parts])
    assert STUBS[0].parent == Path(faircontext.__file__).parent
    nodes = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    names = [(node.module or "", alias.asname or alias.name) for node in nodes for alias in node.names]
    assert names
    for module, name in names:
        assert getattr(import_module(package), name) is getattr(import_module(f"{package}.{module}"), name)


def test_the_package_alone_imports_nothing_heavy() -> None:
    assert not {"torch", "matplotlib", "numpy", "timm", "transformers", "tyro"} & imported_by("import faircontext")


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_help_imports_neither_torch_nor_tyro(words: list[str]) -> None:
    modules = imported_by(f"from faircontext.cli import main; main({words})")
    assert not {"torch", "tyro", "numpy", "matplotlib"} & modules


def test_an_answer_needs_no_library_that_checks_json_files() -> None:
    assert "pydantic" not in imported_by("import faircontext.runs.classify, faircontext.runs.options")


READERS = ("report.tables", "report.page", "report.figures", "runs.results", "runs.groups", "runs.store")


def test_reading_a_run_loads_neither_torch_nor_a_method() -> None:
    script = f"""
import sys
from importlib import import_module
for reader in {READERS}:
    import_module(f"faircontext.{{reader}}")
ours = ("faircontext.methods", "faircontext.backbones")
assert not [name for name in sys.modules if name.startswith(ours)]
"""
    assert not {"torch", "torchvision", "timm", "open_clip", "transformers"} & imported_by(script)


BLOCKED = [
    "matplotlib",
    "ray",
    "gradio",
    "open_clip",
    *(f"faircontext.{part}" for part in ("runs", "report", "datasets")),
]
BLOCK = f"""
import sys
from importlib import import_module
sys.modules.update(dict.fromkeys({BLOCKED}))  # importing one of them now raises ImportError
"""
ANSWER = """
import numpy as np
from faircontext import Episode, LabelSpace, ViewRecipe, create_backbone, create_method
labels = LabelSpace(["cat", "dog"], create_backbone("lite0"))
episode = Episode(np.zeros((9, 9, 3), np.uint8), labels, ViewRecipe(count=2))
assert create_method("fcl", masks=2)(episode).fallback is None
"""


@pytest.mark.smoke
@pytest.mark.process
def test_core_and_lite_work_without_what_only_other_parts_need() -> None:
    assert "faircontext.methods.fcl" in CORE
    assert "faircontext.backbones.lite" in CORE
    of_open_clip = [f"faircontext.backbones.{name}" for name in ("open_clip", "checkpoints", "fit")]
    imports = "\n".join(f"import {module}" for module in CORE if module not in of_open_clip)
    assert "torch" in imported_by(BLOCK + imports + ANSWER)


WITHOUT_POSIX = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({POSIX_MODULES}))  # as on Windows: importing one of them now raises ImportError
for name in {MODULES}:
    importlib.import_module(name)
from pathlib import Path
from faircontext.runs.store import RunStore
from faircontext.errors import ArgumentError
from faircontext.system import lifetime_peak_mb
document = {describe_run("set", {"zero_shot": {}})}
with RunStore(Path(sys.argv[1]), document, (), False):
    try:
        RunStore(Path(sys.argv[1]), document, (), True)
    except ArgumentError as error:
        print(error)
RunStore(Path(sys.argv[1]), document, (), True).finish()
print(lifetime_peak_mb())
"""


@pytest.mark.process
def test_every_module_imports_and_a_run_is_locked_without_what_only_posix_has(tmp_path: Path) -> None:
    assert "faircontext.runs.store" in MODULES
    words = [sys.executable, "-W", "ignore", "-c", WITHOUT_POSIX, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    locked = f"{tmp_path}/run: another process is at work on this run; wait for it, or stop it"
    assert done.stdout.splitlines() == [locked, "None"]


def test_public_names_are_those_that_are_listed() -> None:
    assert dir(faircontext) == sorted(faircontext.__all__)
    for name in faircontext.__all__:
        assert getattr(faircontext, name) is not None
    assert faircontext.FCL.__module__ == "faircontext.methods.fcl"


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="No faircontext attribute fcl"):
        _ = faircontext.fcl


PACKAGES = ("analysis", "backbones", "datasets", "methods", "metrics", "report", "runs")


def test_the_api_page_has_the_public_names_of_all_packages_and_no_others() -> None:
    page = Path(__file__).parents[1] / "docs" / "api.md"
    if not page.exists():
        pytest.skip("the documentation is not here")
    listed = {line.removeprefix("::: ") for line in page.read_text("utf-8").splitlines() if line.startswith("::: ")}
    shown = {name.rpartition(".")[2] for name in listed}
    for package in PACKAGES:
        names = import_module(f"faircontext.{package}").__all__
        assert set(names) <= shown, f"{package}: {sorted(set(names) - shown)}"
    assert {*faircontext.__all__} - {"__version__"} <= shown
    assert not [name for name in listed if not is_public(name)]


def is_public(name: str) -> bool:
    """Tell whether a dotted name is that of a module, listed by its package, or defined in the module that it names."""
    owner, _, own = name.rpartition(".")
    if name in MODULES or any(part.startswith("_") for part in name.split(".")):
        return name in MODULES
    module = import_module(owner)
    defined = hasattr(module, own) and getattr(getattr(module, own), "__module__", owner) == owner
    return defined or own in getattr(module, "__all__", ())


def test_what_is_not_listed_or_begins_with_a_line_is_not_public() -> None:
    names = ("faircontext.FCL", "faircontext.views", "faircontext.fcl", "faircontext.runs.store._lock")
    assert [is_public(name) for name in names] == [True, True, False, False]


def test_no_circle_of_modules() -> None:
    """All imports count, those within functions and for type checking too: they are what a reader has to follow."""
    assert not on_circles()


def on_circles() -> set[str]:
    """Return the modules that import themselves by way of others."""
    root = Path(faircontext.__file__).parent.parent
    files = {".".join(path.relative_to(root).with_suffix("").parts): path for path in root.rglob("faircontext/**/*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    imports = {name: imports_of(path, files) - {name} for name, path in files.items()}
    reached, further = {name: {*others} for name, others in imports.items()}, True
    while further:
        further = False
        for name, others in reached.items():
            more = set().union(*(imports[other] for other in others)) - others
            reached[name] |= more
            further |= bool(more)
    return {name for name, others in reached.items() if name in others}


def imports_of(path: Path, known: Collection[str]) -> set[str]:
    """Return the modules of this package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{name.name}" for name in node.names}
            found |= {name if name in known else node.module for name in inner}
    return found & set(known)
