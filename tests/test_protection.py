"""The faults that `scripts/check_protection.py` puts into the code can still be put in, as code moves."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shutil import copytree
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("check_protection", ROOT / "scripts" / "check_protection.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_fault_changes_the_code_and_names_tests_that_are_there(script: ModuleType, tmp_path: Path) -> None:
    for fault in script.FAULTS.values():
        assert [name for name in fault.tests if not (ROOT / "tests" / name).is_file()] == []
    source = tmp_path / "src"
    copytree(ROOT / "src" / "faircontext", source / "faircontext", ignore=lambda *_: ["__pycache__"])
    whole = {path: path.read_bytes() for path in source.rglob("*.py")}
    for name, fault in script.FAULTS.items():
        script.put_in(fault, source)
        changed = [path for path, content in whole.items() if path.read_bytes() != content]
        assert changed, name
        for path in changed:
            path.write_bytes(whole[path])
