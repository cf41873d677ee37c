"""What stands once in the source: the record of an answer, what is right, an answer as a dictionary, a predictor."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import faircontext

ROOT = Path(faircontext.__file__).parent
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.rglob("*.py"))
}

Test = Callable[[ast.AST], bool]


def where(module: str, source: str, test: Test) -> Iterator[str]:
    """Yield the innermost class or function of each node that a test finds, once."""
    owners: dict[str, None] = {}

    def visit(node: ast.AST, owner: str) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            owner = f"{owner}.{node.name}"
        if test(node):
            owners[owner] = None
        for child in ast.iter_child_nodes(node):
            visit(child, owner)

    visit(ast.parse(source), module)
    yield from owners


def words_in(node: ast.AST) -> set[str]:
    """Return the names, attributes and texts in an expression."""
    found = set()
    for inner in ast.walk(node):
        found |= {getattr(inner, kind) for kind in ("id", "attr", "value") if isinstance(getattr(inner, kind, 0), str)}
    return found


def is_record(node: ast.AST) -> bool:
    """Tell whether a class holds an answer; the published schema of the service's JSON holds none."""
    if not isinstance(node, ast.ClassDef) or "BaseModel" in {getattr(base, "id", "") for base in node.bases}:
        return False
    annotated = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
    return {"path", "method", "prediction", "confidence"} <= {ast.unparse(target) for target in annotated}


def compares(node: ast.AST) -> bool:
    """Tell whether a prediction is compared with the true class, by operator or by Arrow's function."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        sides = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("pc.equal", "pc.not_equal", "np.equal"):
        sides = node.args
    else:
        return False
    return sum("label_index" in words_in(side) for side in sides) == 1 and len(sides) == 2


def makes_dictionary(node: ast.AST) -> bool:
    """Tell whether a function makes a dictionary of what an answer has: by the columns, or with its keys."""
    if not isinstance(node, ast.FunctionDef):
        return False
    inner = [*ast.walk(node)]
    keys = [{getattr(key, "value", None) for key in one.keys} for one in inner if isinstance(one, ast.Dict)]
    by_columns = "CSV_COLUMNS" in words_in(node) and any(isinstance(one, ast.DictComp) for one in inner)
    return by_columns or any({"prediction", "confidence"} <= names for names in keys)


def calls(*names: str) -> Test:
    """Return a test for calls of some names."""
    return lambda node: isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names


OF_RUNS = ("runs", "serve", "cli")
CASES: dict[str, tuple[Test, tuple[str, ...], tuple[str, ...], str]] = {
    "the record of an answer": (
        is_record,
        (),
        ("runs.records.Answer",),
        "class Row:\n    path: str\n    method: str\n    prediction: str\n    confidence: float",
    ),
    "what is right": (
        compares,
        (),
        ("runs.records.is_correct",),
        "def right(row):\n    return row['index'] == row['label_index']",
    ),
    "an answer as a dictionary": (
        makes_dictionary,
        OF_RUNS,
        ("runs.records.Answer.cells", "runs.records.Answer.entry"),
        "def as_json(answer):\n    return {'prediction': answer.prediction, 'confidence': answer.confidence}",
    ),
    "a predictor": (
        calls("Predictor"),
        (),
        ("runs.build.build",),
        "def make():\n    return Predictor(labels, methods)",
    ),
    "methods and label spaces of commands": (
        calls("create_method", "LabelSpace"),
        OF_RUNS,
        (
            "runs.build.Model.space",
            "runs.build.create_methods",
            "runs.build.create_plainly",
            # What is examined there has classes of its own, and no run.
            "runs.doctor._known_facts",
            "runs.doctor._model",
            "runs.doctor._swapped",
        ),
        "def make():\n    return LabelSpace(names, backbone)",
    ),
    "decisions": (
        lambda node: (
            isinstance(node, ast.Name)
            and node.id in ("Abstention", "MultiLabel", "MultiLabelOptions", "UnknownOptions")
        ),
        (),
        (
            "runs.multi_label.MultiLabelOptions.decision_for",
            "runs.options.RunnerOptions",  # the composition of options
            "runs.unknown.UnknownOptions.decision_for",
        ),
        "def make():\n    return Abstention('cosine')",
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_it_stands_once(what: str) -> None:
    test, folders, expected, second = CASES[what]
    modules = [name for name in SOURCES if not folders or name.partition(".")[0] in folders]
    found = [place for name in modules for place in where(name, SOURCES[name], test)]
    assert sorted(found) == sorted(expected)
    assert [*where("other", second, test)]  # a second one would be found
