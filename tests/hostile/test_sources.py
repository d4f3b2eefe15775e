"""What no source of ours does: unpickle, run texts, start shells, unpack archives, or listen to other machines."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "core").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")])
UNPICKLING = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "jsonpickle"}
ARCHIVES = {"tarfile", "zipfile", "telnetlib", "ftplib", "xmlrpc", "multiprocessing"}
ALLOWED = {
    "plugins/kit/dovetail_kit/workers.py": UNPICKLING,  # between processes of one program
    "plugins/kit/dovetail_kit/commands/completion.py": {"shell"},  # whose completions are asked for
    "plugins/kit/dovetail_kit/mutants/trial.py": {"exec", "compile"},  # a module that is imported already, altered
    "plugins/reward/dovetail_reward/_sandbox/inside.py": {"exec", "compile"},
    "plugins/reward/dovetail_reward/_sandbox/cells.py": {"exec", "compile", "eval"},
}
CHECKS = "plugins/kit/dovetail_kit/conformance/suites/"
"""They try whether components survive it."""


def doings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield what a module does that it should not, with its line."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [(node.module or "").partition(".")[0]]
        elif isinstance(node, ast.Call):
            names = [*called(node)]
        elif isinstance(node, ast.Constant) and node.value == "0.0.0.0":
            names = ["0.0.0.0"]
        yield from ((name, node.lineno) for name in names)


def called(node: ast.Call) -> Iterator[str]:
    if isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec", "compile"):
        yield node.func.id
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("system", "popen"):
        yield f"os.{node.func.attr}"
    for keyword in node.keywords:
        on = not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
        if keyword.arg in ("shell", "allow_pickle", "trust_remote_code") and on:
            yield keyword.arg


FORBIDDEN = UNPICKLING | ARCHIVES | {"eval", "exec", "compile", "os.system", "os.popen"}
FORBIDDEN |= {"shell", "allow_pickle", "trust_remote_code", "0.0.0.0"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", "pickle"),
        ("from dill import loads", "dill"),
        ("np.load(f, allow_pickle=True)", "allow_pickle"),
        ("subprocess.run('x', shell=True)", "shell"),
        ("eval('1')", "eval"),
        ("import os; os.system('x')", "os.system"),
        ("server(('0.0.0.0', 1))", "0.0.0.0"),
    ],
)
def test_it_would_be_seen(source, found):
    assert found in [name for name, _ in doings(ast.parse(source))]


def test_no_source_does_it():
    seen = []
    for path in SOURCES:
        place = path.relative_to(ROOT).as_posix()
        allowed = UNPICKLING | {"compile"} if place.startswith(CHECKS) else ALLOWED.get(place, set())
        for name, line in doings(ast.parse(path.read_text(encoding="utf-8"))):
            if name in FORBIDDEN - allowed:
                seen.append(f"{place}:{line}: {name}")
    assert seen == []
