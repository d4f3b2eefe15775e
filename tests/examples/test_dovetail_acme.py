"""The example, installed like a third party's package from its own pyproject into a clean environment, conforms and trains."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.programs import shared

from dovetail.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "dovetail-acme"
PROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
CONFIG = EXAMPLE / "dovetail_acme" / "configs" / "acme.gin"
README = (EXAMPLE / "README.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.replace("\\\n", " ").splitlines()
]


SHORT = ("--set", "sft.steps=50", "--set", "train.steps=4")
"""What shortens the runs of the README's commands."""


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Return a function that runs a command in a copy of the example, in an environment with wheels of both packages."""
    place = tmp_path_factory.mktemp("clean")
    project = place / "dovetail-acme"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))
    binaries = place / "venv" / "bin"
    environment = (
        os.environ
        | shared()
        | {
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(place / "cache"),
            "JAX_PLATFORMS": "cpu",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",  # the commands compile what they import, a small part of what is installed
        }
    )
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)

    def run(*command: str, expected: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in expected, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    run(sys.executable, "-m", "venv", str(place / "venv"))
    run("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place / "wheels"), str(ROOT))
    (wheel,) = (place / "wheels").iterdir()
    run("pip", "install", "--quiet", str(wheel), "pytest", "ruff")
    run("pip", "install", "--quiet", f"{project}[wandb]")
    run("python", "-c", f"import dovetail; assert {str(ROOT)!r} not in dovetail.__file__")
    return run


@pytest.mark.slow
def test_in_a_clean_environment_the_readmes_commands_run(clean):
    said = {}
    for words in COMMANDS:
        if words[0] != "pip":  # installed as wheels, which is stricter
            short = SHORT if words[1:2] in (["train"], ["ab"]) else ()
            said[words[1] if words[0] == "dovetail" else words[0]] = clean(*words, *short, expected=(0, 3))
    assert f"dovetail-acme {PROJECT['version']} conforms to dovetail" in said["pytest"]
    assert "dovetail-acme: nothing found" in said["plugin"]
    assert re.search(r"old_top_probability +passes +forward pass: policy .*dovetail-acme", said["explain"])
    assert "reward/near_miss" in said["ab"] or "near_miss" in said["ab"]
    assert re.search(r"0\.\d+ +acme-[\w-]+, step \d+", said["leaderboard"])


@pytest.mark.slow
def test_its_task_and_its_sink_train_too(clean):
    sets = ["--set", "train.task=dovetail-acme/sequences", "--set", "run.sinks=['team_wandb']"]
    clean("dovetail", "train", "dovetail-acme/acme", "--folder", "runs/own", *sets, "--set", "train.steps=2")
    assert clean("find", "runs/own/wandb", "-name", "*.wandb").strip()


@pytest.mark.slow
def test_a_new_package_is_formatted_linted_and_conforms_in_a_clean_environment(clean):
    clean("dovetail", "plugin", "new", "acme-rl", "policy_loss", "gspo_plus", "--out", "../acme-rl")
    clean("pip", "install", "--quiet", "--no-deps", "-e", "../acme-rl")
    assert "acme-rl 0.1.0 conforms" in clean("pytest", "--rootdir=../acme-rl", "-c", "../acme-rl/pyproject.toml")
    clean("ruff", "check", "../acme-rl")
    clean("ruff", "format", "--check", "../acme-rl")
    assert "acme-rl: 1 note" in clean("dovetail", "plugin", "doctor", "acme-rl")


def test_it_registers_what_the_readme_lists(installed):
    from dovetail.registry import discover

    registry, _ = discover()
    assert registry.problems == []
    own = {(c.kind, c.name) for c in registry.components() if c.origin.distribution == PROJECT["name"]}
    assert own == set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", README, re.M))
    assert set(PROJECT["entry-points"]["dovetail.api"]) == {kind for kind, _ in own}


def test_its_config_is_checked_with_every_commit(installed, monkeypatch):
    from dovetail.config import load
    from dovetail.registry import discover
    from dovetail.shipped import find

    registry, _ = discover()
    config = load(CONFIG, registry=registry)
    assert find(f"{PROJECT['name']}/acme") == CONFIG
    assert config.train.policy_loss == "dovetail-acme/soft_clip"
    assert config.sft.steps == 200, "the file beside it is included"
    assert "old_top_probability" in {entry.field for entry in config.plan.entries}


def test_its_command_runs(installed, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"phase": "rl", "step": 7, "reward/mean": 0.5}\n')
    assert main(["leaderboard", str(tmp_path), "--metric", "reward/mean"]) == 0
    assert capsys.readouterr().out.split() == ["0.5", "run,", "step", "7"]


def test_its_code_is_formatted_and_linted():
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, str(EXAMPLE)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_the_readmes_commands_parse(installed):
    from dovetail.cli import parse

    for words in COMMANDS:
        if words[0] == "dovetail":
            assert parse(words[1:]).run


def test_nothing_of_it_is_in_our_wheel():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert not any("examples" in package for package in wheel["packages"])


def test_without_it_a_config_that_needs_it_says_so(capsys):
    assert main(["explain", str(CONFIG)]) == 1
    assert "No plugin 'dovetail-acme' is installed" in capsys.readouterr().err
