"""The container and the system service of docs/serve.md fit the service: engine, cache, options, and time to end."""

import ast
import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from faircontext.cli.classify import Serve
from faircontext.cli.options import parse_options
from faircontext.serve.server import _GRACE

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PAGE = (ROOT / "docs/serve.md").read_text()
LONGEST_END = _GRACE + 5  # and what the worker is at, see WorkQueue.close


def unit() -> dict[str, str]:
    """Return the part [Service] of the systemd unit."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)[0])
    return dict(parser["Service"])


def command_of(kind: str, folder: Path) -> list[str]:
    """Return the words of a command that starts the service, with files that are here."""
    if kind == "unit":
        words = shlex.split(unit()["ExecStart"])[2:]
    else:
        entry = json.loads(re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)[0])
        run = re.findall(r"^docker run (.*\\\n.*)$", PAGE, re.MULTILINE)[0].replace("\\\n", " ")
        words = [*entry[2:], *shlex.split(run.partition(" faircontext --")[2].join(("--", "")))]
    (folder / "token").write_text("a-word-of-twenty-six-signs")
    (folder / "pets.txt").write_text("cat\ndog\n")
    return [re.sub(r"(%d|/etc/faircontext)/", f"{folder}/", word) for word in words]


@pytest.mark.parametrize("kind", ["unit", "container"])
def test_its_command_starts_with_requests_that_fit_their_time(kind: str, tmp_path: Path) -> None:
    options = parse_options(Serve, command_of(kind, tmp_path), "serve")
    options.check()
    assert options.read_label_sets()
    assert options.max_images * 3.5 <= options.timeout  # seconds of FCL with 400 masks in PyTorch, on two processors


def test_both_have_the_engine_and_a_cache_for_it() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for text in (DOCKERFILE, PAGE.partition("## As a system service")[2]):
        extras = re.findall(r"\[(serve,\w+)\]", text)[0].split(",")
        assert {"serve", "fast"} <= {*extras} <= known.keys()
    (folder,) = re.findall(r"FAIRCONTEXT_CACHE=(\S+)", DOCKERFILE)
    assert re.search(rf"install --directory --owner=faircontext {folder}$", DOCKERFILE, re.MULTILINE)
    assert f"\nVOLUME {folder}\n" in DOCKERFILE
    assert f"-v faircontext:{folder} " in PAGE
    service = unit()
    assert service["Environment"] == f"FAIRCONTEXT_CACHE=%C/{service['CacheDirectory']}"


def test_both_wait_for_what_was_accepted() -> None:
    assert int(unit()["TimeoutStopSec"]) > LONGEST_END
    assert int(re.findall(r"--stop-timeout (\d+)", PAGE)[0]) > LONGEST_END
    assert int(re.findall(r"docker stop --time (\d+)", DOCKERFILE)[0]) > LONGEST_END


def test_the_container_looks_after_itself_with_python_alone() -> None:
    command = json.loads(re.findall(r"^ +CMD (\[\"python.*)$", DOCKERFILE, re.MULTILINE)[0])
    assert command[:2] == ["python", "-c"]
    ast.parse(command[2])
    assert "/readyz" in command[2]
