"""The example with other libraries' environments is registered and formatted, and passes its own tests."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.programs import shared

from dovetail.registry import discover

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "dovetail-environments"
PROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]


def test_it_registers_what_the_readme_lists(installed):
    registry, _ = discover()
    assert registry.problems == []
    own = {(c.kind, c.name) for c in registry.components() if c.origin.distribution == PROJECT["name"]}
    assert own == set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", (EXAMPLE / "README.md").read_text(), re.M))
    assert set(PROJECT["entry-points"]["dovetail.api"]) == {kind for kind, _ in own}


def test_what_the_docs_choose_from_it_is_registered(installed):
    registry, _ = discover()
    page = (ROOT / "docs" / "coming_from.md").read_text()
    chosen = re.findall(r"the (interaction|task|tool|reward)s? `'(dovetail-environments/\w+)'`", page)
    assert len(chosen) >= 10
    for kind, name in chosen:
        assert registry.get(kind, name).origin.distribution == PROJECT["name"]


def test_ci_installs_every_library_that_it_brings_over():
    extras = PROJECT["optional-dependencies"]
    (listed,) = re.findall(r"^ENVIRONMENTS \?= (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert re.findall(r'"(\S+)"', listed) == [each for name in extras if name != "dev" for each in extras[name]]


def test_its_config_is_checked(installed):
    pytest.importorskip("gymnasium")
    from dovetail.config import load

    registry, _ = discover()
    config = load(EXAMPLE / "dovetail_environments" / "configs" / "lake.gin", registry=registry)
    assert config.train.interaction == "dovetail-environments/gymnasium"


def test_what_runs_code_of_the_users_or_calls_a_server_says_so_and_a_run_folder_may_not_name_it(installed):
    registry, _ = discover()
    own = [c for c in registry.components() if c.origin.distribution == PROJECT["name"]]
    named = {c.label: c.declares["programs"] for c in own if "programs" in c.declares}
    assert named == {
        "interaction.openenv": ("url",),
        "interaction.trl": ("factory",),
        "interaction.verl": ("path",),
        "tool.mcp": ("command",),
        "tool.verl": ("path",),
    }


def test_without_the_libraries_it_says_what_to_install(installed, monkeypatch):
    from dovetail_environments.interaction.gymnasium import Gymnasium
    from dovetail_environments.interaction.openenv import OpenEnv
    from dovetail_environments.interaction.textarena import TextArena
    from dovetail_environments.task.verifiers import Verifiers
    from dovetail_environments.tool.mcp import Mcp

    from dovetail.errors import ConfigError

    for name in ("gymnasium", "mcp", "openenv.core", "textarena", "verifiers.v1"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'dovetail-environments\[gymnasium\]'"):
        Gymnasium(id="FrozenLake-v1")
    with pytest.raises(ConfigError, match=r"pip install 'dovetail-environments\[mcp\]'"):
        Mcp(command=("server",))
    with pytest.raises(ConfigError, match=r"pip install 'dovetail-environments\[openenv\]'"):
        OpenEnv(url="http://localhost:8000")
    with pytest.raises(ConfigError, match=r"pip install 'dovetail-environments\[textarena\]'"):
        TextArena(id="GuessTheNumber-v0")
    with pytest.raises(ConfigError, match=r"pip install 'dovetail-environments\[verifiers\]'"):
        Verifiers(id="dovetail_letters").examples("train")


def test_its_code_is_formatted_and_linted():
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, str(EXAMPLE)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_its_own_tests_pass_and_it_conforms(installed, tmp_path):
    absent = [name for name in ("gymnasium", "mcp", "openenv", "textarena", "verifiers") if not find_spec(name)]
    if absent:
        pytest.skip(f"without {', '.join(absent)}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir", "."],
        cwd=EXAMPLE,
        env=os.environ | shared() | {"PYTHONPATH": f"{EXAMPLE}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert f"{PROJECT['name']} {PROJECT['version']} conforms to dovetail" in done.stdout


@pytest.mark.slow
def test_its_config_trains(installed, tmp_path):
    pytest.importorskip("gymnasium")
    import numpy as np

    from dovetail.config import load
    from dovetail.training.loop import train

    registry, _ = discover()
    lake = EXAMPLE / "dovetail_environments" / "configs" / "lake.gin"
    last = train(load(lake, ["run.sinks=()"], registry=registry), tmp_path)
    assert np.isfinite(last["optimizer/grad_norm"])
