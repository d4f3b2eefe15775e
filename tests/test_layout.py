"""Each plugin folder is packaged, has its entry points and is typed; no other folder is registered as a plugin."""

import tomllib
from pathlib import Path

import pytest

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


NOT_YET_MOVED = ("dovetail_executor", "dovetail_model", "dovetail_rollout", "dovetail_sink", "dovetail_task")
"""Packages whose components are defined elsewhere."""
BUILT_IN = [
    component
    for component in current().components()
    if component.origin.module.startswith("dovetail_")
    and component.origin.distribution == "dovetail"
    and not component.origin.module.startswith(NOT_YET_MOVED)
]


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
    import ast

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
