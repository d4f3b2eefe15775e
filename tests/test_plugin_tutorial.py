"""The tutorial for plugin authors, executed word for word in an environment of its own."""

import os
import re
import shlex
import site
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.training.tiny import TINY
from tests.programs import shared

PAGE = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text()
SMALLER = [part for override in (*TINY, "train.steps=2", "sft.steps=2") for part in ("--set", override)]
SEEDS = {"8": "2"}


def blocks():
    """Return the page's shell commands and files, in order."""
    return re.findall(r"```(sh|python|gin)\n(.*?)```", PAGE, re.S)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment that sees the packages of this one, so that nothing large is installed."""
    place = tmp_path_factory.mktemp("author")
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    (packages / "these.pth").write_text(
        "".join(f"import site; site.addsitedir({p!r})\n" for p in site.getsitepackages())
    )
    # scripts of ours that must run on this environment's python
    for name in ("dovetail", "pytest"):
        script = place / "venv" / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{place}/venv/bin/python" -m {name} "$@"\n')
        script.chmod(0o755)
    variables = {
        "PATH": f"{place}/venv/bin{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place),
        "JAX_PLATFORMS": "cpu",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return place, os.environ | shared() | variables


@pytest.mark.slow
def test_the_tutorial_runs_word_for_word(environment):
    place, variables = environment
    here, said = place, {}
    for language, text in blocks():
        if language != "sh":
            put(here, text, language)
            continue
        for line in text.strip().splitlines():
            words = shlex.split(line)
            if words[0] == "cd":
                here = here / words[1]
                continue
            if words[:2] in (["dovetail", "train"], ["dovetail", "ab"]):
                words = [SEEDS.get(word, word) for word in words] + SMALLER
            command = line if words[0] == "eval" else shlex.join(words)
            done = subprocess.run(
                ["bash", "-c", command], cwd=here, env=variables, capture_output=True, text=True, check=False
            )
            expected = (0, 3) if words[:2] == ["dovetail", "ab"] else (0,)
            assert done.returncode in expected, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            said[" ".join(words[:3])] = done.stdout
    assert "conforms to dovetail" in said["pytest --dovetail-dist=acme-rl"]
    assert "acme-rl: 3 notes" in said["dovetail plugin doctor"]
    assert re.search(r"acme-rl 0.1.0: 3 components; .*checks passed", said["dovetail plugins"])
    assert "train.advantage = acme-rl/uncertain" in said["dovetail explain quickstart"]
    assert said["dovetail steps runs/first"] == "runs/first 2\n"
    assert "acme_rl/configs/recipe.gin:3" in said["dovetail config show"]
    resolved = (here / "runs" / "first" / "config.gin").read_text()
    assert "train.policy_loss = 'acme-rl/soft_clip'" in resolved
    assert list((here / "dist").glob("acme_rl-0.1.0-*.whl"))


def put(here, text, language, package="acme_rl"):
    """Write a file that the page shows, or add to the registrations."""
    named = re.match(r"# (\S+\.(py|gin))\n", text)
    if named:
        (here / named[1]).parent.mkdir(exist_ok=True)
        (here / named[1]).write_text(text.partition("\n")[2])
    elif language == "python":
        init = here / package / "__init__.py"
        init.write_text(init.read_text() + text)


def test_the_tree_that_it_shows_is_what_is_written(tmp_path):
    from dovetail.registry import current
    from dovetail_kit.scaffold import NewPackage

    files = NewPackage.of("acme-rl", "policy_loss", "soft_clip", current()).files()
    (tree,) = re.findall(r"```text\nacme-rl/\n(.*?)```", PAGE, re.S)
    shown = {word for word in tree.split() if re.fullmatch(r"[\w./]*(\.\w+|LICENSE)", word) and word in files}
    assert {"pyproject.toml", "README.md", "LICENSE", "acme_rl/__init__.py", "acme_rl/soft_clip.py"} < shown
    assert set(files) - shown == {".gitignore", "acme_rl/py.typed"}
