"""Run the code of docs/tutorial.md, write what it prints and draws into the page, and make the notebook of it.

Usage: python scripts/write_tutorial.py [--page docs/tutorial.md] [--notebook examples/tutorial.ipynb]

The page is the source of both. A block of `python` or `sh` is a cell: the block of `text` after it is what it printed,
and the image after that what its last expression drew. All else is text.
"""

import argparse
import ast
import base64
import contextlib
import io
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import PIL.Image

from faircontext.cli import main as faircontext

_CELL = re.compile(
    r"^```(?P<kind>python|sh)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?"
    r"(?:\n!\[(?P<alt>[^\]]*)\]\((?P<picture>[^)]+)\)\n)?",
    re.MULTILINE | re.DOTALL,
)
_LONGEST = 1400
"""The longer side of a picture, in pixels."""

_PASSING = {r"^.* \d+ of \d+ images, .* left; .*\n": "", r"\d+\.\d+(?= s\b)": "..."}
"""What is printed differently in each run, and what stands for it: progress, and seconds."""


@dataclass(frozen=True)
class Cell:
    """A piece of the page.

    Attributes:
        kind: `text`, `python` or `sh`.
        text: Markdown, or code.
        printed: what the code prints.
        picture: the image file that shows what it draws, relative to the page; None where it draws nothing.
        alt: what is to be seen there.
    """

    kind: str
    text: str
    printed: str = ""
    picture: str | None = None
    alt: str = ""

    def to_markdown(self) -> str:
        """Return the cell as it stands in the page."""
        if self.kind == "text":
            return self.text
        printed = f"\n```text\n{self.printed}```\n" if self.printed else ""
        picture = f"\n![{self.alt}]({self.picture})\n" if self.picture else ""
        return f"```{self.kind}\n{self.text}```\n{printed}{picture}"


def split(page: str) -> list[Cell]:
    """Return the cells of a page, which `to_markdown` joins to the same page."""
    cells, end = [], 0
    for match in _CELL.finditer(page):
        cells.append(Cell("text", page[end : match.start()]))
        found = match.groupdict()
        cells.append(Cell(found["kind"], found["code"], found["printed"] or "", found["picture"], found["alt"] or ""))
        end = match.end()
    return [cell for cell in [*cells, Cell("text", page[end:])] if cell.text]


def run(cells: list[Cell], folder: Path) -> Iterator[tuple[Cell, PIL.Image.Image | None]]:
    """Run the code in a folder, one namespace for all cells; yield each cell with what it has printed and drawn."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    sys.modules["tutorial"] = type(sys)("tutorial")  # where dataclasses look for their annotations
    for cell in cells:
        if cell.kind == "text":
            yield cell, None
            continue
        stream = io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            drawn = _run_python(cell.text, names) if cell.kind == "python" else _run_commands(cell.text)
        printed = stream.getvalue()
        for pattern, text in _PASSING.items():
            printed = re.sub(pattern, text, printed, flags=re.MULTILINE)
        yield replace(cell, printed=printed), drawn


def _run_python(code: str, names: dict[str, Any]) -> PIL.Image.Image | None:
    """Run code; return the value of its last expression if that is an image, and print any other, as notebooks do."""
    tree, value = ast.parse(code), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "tutorial", "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "tutorial", "eval"), names)
    if isinstance(value, PIL.Image.Image):
        return value.convert("RGB")
    if value is not None:
        print(repr(value))
    return None


def _run_commands(text: str) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        if program != "faircontext" or faircontext(arguments) != 0:
            raise SystemExit(f"{line}: failed, or is no command of this package")


def to_notebook(cells: list[Cell], pictures: Path) -> dict[str, Any]:
    """Return the page as a Jupyter notebook (format 4.5), with the pictures that lie in a folder."""
    made, count = [], 0
    for number, cell in enumerate(cells):
        head = {"id": f"cell-{number:02}", "metadata": {}}
        if cell.kind == "text":
            text = re.sub(r"\]\((?!\w+:|#)", "](../docs/", cell.text).strip("\n")
            made.append({"cell_type": "markdown", **head, "source": _lines(text)})
            continue
        count += 1
        code = cell.text if cell.kind == "python" else re.sub("^(?=faircontext)", "!", cell.text, flags=re.MULTILINE)
        outputs: list[dict[str, Any]] = []
        if cell.printed:
            outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(cell.printed)})
        if cell.picture:
            image = base64.b64encode((pictures / cell.picture).read_bytes()).decode("ascii")
            data = {"image/jpeg": image, "text/plain": [f"<{cell.alt}>"]}
            outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        source = _lines(code.strip("\n"))
        made.append({"cell_type": "code", **head, "execution_count": count, "source": source, "outputs": outputs})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write_notebook(page: Path, notebook: Path) -> None:
    """Make the notebook from the page and its pictures as they are."""
    document = to_notebook(split(page.read_text(encoding="utf-8")), page.parent)
    notebook.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=Path("docs/tutorial.md"))
    parser.add_argument("--notebook", type=Path, default=Path("examples/tutorial.ipynb"))
    options = parser.parse_args()
    done = []
    with tempfile.TemporaryDirectory() as folder:
        for cell, drawn in run(split(options.page.read_text(encoding="utf-8")), Path(folder)):
            if (drawn is None) != (cell.picture is None):
                raise SystemExit(f"an image stands after the code that draws one, and after no other: {cell.text}")
            if drawn is not None and cell.picture is not None:
                drawn.thumbnail((_LONGEST, _LONGEST))
                drawn.save(options.page.parent / cell.picture, quality=80, optimize=True)
            done.append(cell)
    options.page.write_text("".join(cell.to_markdown() for cell in done), encoding="utf-8")
    write_notebook(options.page, options.notebook)
    return 0


if __name__ == "__main__":
    sys.exit(main())
