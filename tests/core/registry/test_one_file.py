"""A plugin in a single file: loaded by its path into the registry and into configs, or refused in one line."""

import os
import re
import subprocess
import sys

import pytest

from dovetail.cli import main
from dovetail.config import config_id, load
from dovetail.registry import _discovered, add_file, current
from dovetail.registry.one_file import FILES

SOURCE = """
import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("policy_loss", "mine", "acme_single:mine")


def mine(logps, advantages, mask, *, scale: float = 1.0):
    return -scale * logps * advantages
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(FILES, "")
    (tmp_path / "acme_single.py").write_text(SOURCE)
    yield tmp_path / "acme_single.py"
    _discovered.cache_clear()
    sys.modules.pop("acme_single", None)


def test_it_is_taken_in_under_its_own_name_and_the_version_of_its_text(file, capsys):
    assert main(["explain", "quickstart", "--plugin", str(file), "--set", "train.policy_loss=mine"]) == 0
    assert "train.policy_loss = acme_single/mine" in capsys.readouterr().out
    assert os.environ[FILES] == str(file), "what this process starts has it too"
    before = config_id(load(None, ["train.policy_loss=mine"]))
    assert current().get("policy_loss", "mine").origin.distribution == "acme_single"
    file.write_text(SOURCE.replace("scale: float = 1.0", "scale: float = 1.00"))
    add_file(str(file))
    assert config_id(load(None, ["train.policy_loss=mine"])) != before


@pytest.mark.parametrize("words", [("describe", "policy_loss", "mine"), ("names", "policy_loss"), ("search", "mine")])
def test_it_can_be_looked_up(file, capsys, words):
    assert main([*words, "--plugin", str(file)]) == 0
    assert "mine" in capsys.readouterr().out


def test_one_that_imports_jax_at_its_top_is_not_blamed_for_what_jax_sets(file, monkeypatch):
    """In a process of its own, since JAX sets them when it is imported for the first time."""
    file.write_text("import jax.numpy as jnp\n" + SOURCE)
    monkeypatch.setenv(FILES, str(file))
    command = [sys.executable, "-m", "dovetail", "describe", "policy_loss", "mine"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "acme_single" in done.stdout
    assert done.stderr == ""
    file.write_text("import os\nos.environ['OPENBLAS_NUM_THREADS'] = '1'\n" + SOURCE)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "it set the environment variable 'OPENBLAS_NUM_THREADS' (left)" in done.stderr


def test_a_broken_one_of_the_environment_is_named_with_its_line(file, monkeypatch):
    file.write_text("import absent_library\n")
    monkeypatch.setenv(FILES, str(file))
    _discovered.cache_clear()
    with pytest.warns(match=r"broken plugin acme_single 0: .*ModuleNotFoundError: .*acme_single.py:1\]"):
        current()


def test_a_relative_path_is_that_of_the_module_which_python_finds(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.syspath_prepend(str(file.parent))
    monkeypatch.setenv(FILES, "acme_single.py")
    _discovered.cache_clear()
    assert current().get("policy_loss", "acme_single/mine").origin.distribution == "acme_single"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import absent_library\n", r"ModuleNotFoundError: No module named 'absent_library' \[.*acme_single\.py:1\]"),
        ("def mine(logps): return logps\n", r"it has no hook, so nothing in it is registered; write @dovetail.*"),
        ("def mine(:\n", r"SyntaxError: .* \[.*acme_single\.py:1\]"),
        ("import sys\nsys.exit(0)\n", r"SystemExit: 0 \[.*acme_single\.py:2\]"),
        (
            "import dovetail\ndovetail.register('reward', 'mine', len)\n",
            r"plugins are being loaded, so .*hook dovetail_components\(register\), .* \[.*acme_single\.py:2\]",
        ),
        (
            SOURCE.replace("dovetail_components", "dovetail_component"),
            r"unknown hook 'dovetail_component'.* Did you .*\]",
        ),
        (SOURCE.replace("policy_loss", "policy_los"), r"unknown kind 'policy_los'.*acme_single\.py:\d+\]"),
        (SOURCE.replace("register(", "register(1 / 0, "), r"ZeroDivisionError: .*acme_single\.py:7\]"),
    ],
)
def test_a_broken_one_that_was_asked_for_is_refused(file, capsys, text, reason):
    file.write_text(text)
    assert main(["explain", "quickstart", "--plugin", str(file)]) == 1
    shown = capsys.readouterr().err
    assert re.fullmatch(rf"error: --plugin acme_single\.py: .*{reason}\n", shown), shown


@pytest.mark.parametrize(
    ("name", "reason"), [("absent.py", "there is no such file"), ("my-loss.py", "a plugin is a Pyth")]
)
def test_what_is_not_a_plugin_is_refused(tmp_path, monkeypatch, capsys, name, reason):
    monkeypatch.setenv(FILES, "")
    if name != "absent.py":
        (tmp_path / name).touch()
    assert main(["explain", "--plugin", str(tmp_path / name)]) == 1
    assert f"error: --plugin {tmp_path / name}: {reason}" in capsys.readouterr().err


ENGINE = """
import attrs
import dovetail


@dovetail.hookimpl
def dovetail_components(register):
    register("sink", "mine", "acme_single:Mine")


@attrs.frozen(kw_only=True)
class Mine:
    def open(self, folder, total_steps, start_step):
        return {}["key of mine"]
"""


def test_what_an_object_of_a_third_party_raises_is_said_to_be_its_own(file, tmp_path, capsys):
    file.write_text(ENGINE)
    small = ["sft.steps=0", "train.steps=1", "model.decoder.width=16", "model.decoder.layers=1", "train.prompts=2"]
    words = [
        word
        for setting in [*small, "train.micro_batch_size=None", "run.sinks=('mine',)"]
        for word in ("--set", setting)
    ]
    folder = str(tmp_path / "run")
    assert main(["train", "quickstart", "--plugin", str(file), "--folder", folder, *words]) == 1
    said = capsys.readouterr().err
    assert re.search(
        r"^error: sink\.mine of acme_single 0\S+ \(\S+\) raised KeyError: 'key of mine' \[.*acme_single\.py:14\]\n$",
        said,
    ), said
