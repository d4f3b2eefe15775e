"""Each plugin folder is packaged, has its entry points and is typed; no other folder is registered as a plugin."""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest
from tests.core.training.tiny import TINY
from tests.programs import shared

from dovetail.registry import Component, current

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
FOLDERS = sorted(p for p in (ROOT / "plugins").iterdir() if p.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_plugin_folder_is_shipped_announced_and_typed(folder):
    name = f"dovetail_{folder.name}"
    assert f"plugins/{folder.name}/{name}" in PACKAGES
    assert PROJECT["project"]["entry-points"]["dovetail"][folder.name] == name
    assert (folder / name / "py.typed").exists()
    assert name in PROJECT["tool"]["ruff"]["lint"]["isort"]["known-first-party"]
    assert f"plugins/{folder.name}" in PROJECT["tool"]["basedpyright"]["extraPaths"]


BUILT_IN = [component for component in current().components() if component.origin.distribution == "dovetail"]


@pytest.mark.parametrize("component", BUILT_IN, ids=lambda component: component.label)
def test_a_component_is_in_the_file_of_its_kind_and_name(component: Component):
    package = component.origin.module.split(".")[0]
    assert component.origin.module == f"{package}.{component.kind}.{component.name}"


def test_everything_shipped_exists_and_is_typed():
    for package in PACKAGES:
        assert (ROOT / package / "__init__.py").exists(), package
        assert (ROOT / package / "py.typed").exists(), package


def test_the_readme_draws_every_folder():
    tree = (ROOT / "README.md").read_text()
    for package in PACKAGES:
        assert package in tree, package


def test_the_core_names_no_component():
    """The engine knows only kinds and fields; a component's name in it would mean that the core knows an algorithm."""
    import dovetail
    from dovetail.registry import current

    algorithmic = ("advantage", "policy_loss", "value_loss", "loss_agg", "kl", "correction", "reward")
    names = {name for kind in algorithmic for name in dovetail.names(kind)} - set(current().kinds)
    settings = ROOT / "core" / "dovetail" / "config" / "settings.py"
    for path in sorted((ROOT / "core").rglob("*.py")):
        tree = ast.parse(path.read_text())
        # what a setting holds by default, which any config replaces
        defaults = {
            node
            for keyword in ast.walk(tree)
            if isinstance(keyword, ast.keyword) and keyword.arg == "default" and path.parent.name == "kinds"
            for node in ast.walk(keyword.value)
        }
        # words of a closed list, which its annotation spells out
        for choice in ast.walk(tree):
            if isinstance(choice, ast.AnnAssign) and ast.unparse(choice.annotation).startswith("Literal["):
                defaults |= set(ast.walk(choice))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and path != settings:
                assert node in defaults or node.value not in names, f"{path}:{node.lineno} names {node.value!r}"


LIMIT = 12_340
"""The most lines of code that the engine may have; see `docs/decisions.md` before you raise it."""
EMPTY = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(text: str) -> int:
    """Return the number of lines with code: neither blank, nor only a comment, nor part of a docstring."""
    strings = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    read = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for token in read if token.type not in EMPTY for line in range(token.start[0], token.end[0] + 1)}
    return len(code - {line for string in strings for line in range(string.lineno, (string.end_lineno or 0) + 1)})


def test_lines_of_code_are_without_docstrings_comments_and_blanks():
    text = (
        '"""One\n\ntwo."""\n\n# why\nx = (  # here\n    """a\nb""",\n)\n\n\ndef f():\n    """Three."""\n    return x\n'
    )
    assert lines_of_code(text) == 6


def test_the_core_does_not_grow_unnoticed():
    texts = [path.read_text() for path in (ROOT / "core").rglob("*.py")]
    code, raw = sum(map(lines_of_code, texts)), sum(len(text.splitlines()) for text in texts)
    assert code <= LIMIT, (
        "move what is not the engine into a plugin, or raise the limit and say why in docs/decisions.md"
    )
    found = re.search(
        r"`core/` has ([\d,]+) lines. ([\d,]+) of them are code", (ROOT / "docs/decisions.md").read_text()
    )
    assert found
    said = [int(number.replace(",", "")) for number in found.groups()]
    assert said == pytest.approx([raw, code], rel=0.02), f"docs/decisions.md says {said}; there are {raw} and {code}"


HARMLESS = {"all", "any", "callable", "isinstance", "len", "set"}
"""What an assertion may call: functions without an effect."""
CHECKS = [ROOT / "plugins" / "kit" / "dovetail_kit" / folder for folder in ("conformance", "rollout")]
"""Checks that only tests run, under a pytest that keeps assertions."""
SOURCES = sorted(
    path
    for folder in ("core", "plugins")
    for path in (ROOT / folder).rglob("*.py")
    if not any(path.is_relative_to(checks) for checks in CHECKS)
)


def effects(assertion: ast.Assert) -> list[str]:
    """Calls and assignments within an assertion that `python -O` would leave out."""
    return [
        ast.unparse(node)
        for node in ast.walk(assertion.test)
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) not in HARMLESS)
    ]


@pytest.mark.parametrize("text", ["assert set_up(rewards)", "assert (made := make)", "assert len(log.pop())"])
def test_an_assertion_that_does_something_is_found(text):
    (assertion,) = ast.parse(text).body
    assert isinstance(assertion, ast.Assert)
    assert effects(assertion)


def test_no_assertion_does_anything():
    """`python -O` leaves assertions out, so a run may not need what is in them."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {each}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
        for each in effects(node)
    ]
    assert found == []


@pytest.mark.slow
def test_a_run_without_assertions_is_the_same(tmp_path):
    sets = [part for setting in (*TINY, "sft.steps=2", "train.steps=2") for part in ("--set", setting)]
    environment = os.environ | shared() | {"PYTHONPATH": "", "JAX_PLATFORMS": "cpu"}
    for name, options in (("usual", []), ("optimised", ["-O"])):
        command = [sys.executable, *options, "-m", "dovetail", "train", "quickstart"]
        done = subprocess.run(
            [*command, "--folder", str(tmp_path / name), *sets],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    for records in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        usual = (tmp_path / "usual" / records).read_bytes()
        assert usual
        assert usual == (tmp_path / "optimised" / records).read_bytes(), records
