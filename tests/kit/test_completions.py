"""Completion with Tab, tested with the calls that a shell makes."""

import os
import shutil
import subprocess
import sys

import pytest

from dovetail.cli import main
from dovetail.registry import Origin, current
from dovetail_kit.commands.completion import SHELLS
from dovetail_kit.completions import component_names, configs, kinds, overrides


def ask(line: str, tmp_path) -> list[str]:
    """Return the completions that the function called by bash prints."""
    answers = tmp_path / "answers"
    environment = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answers),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    code = (
        "import atexit, os, sys; from dovetail.cli import main\n"
        "leave = os._exit\n"
        "def quit(code):\n"
        "    print('HEAVY', *sorted(set(sys.modules) & {'jax', 'flax', 'numpy', 'matplotlib'}), flush=True)\n"
        "    leave(code)\n"
        "os._exit = quit\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["HEAVY"], done.stdout + done.stderr
    return [line.strip() for line in answers.read_text().splitlines()]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dovetail plug", {"plugin", "plugins"}),
        ("dovetail describe policy_loss gs", {"gspo"}),
        ("dovetail train quick", {"quickstart"}),
    ],
)
def test_a_shell_gets_answers_without_jax(line, offered, tmp_path):
    assert offered <= set(ask(line, tmp_path))


def test_kinds_and_names():
    from argparse import Namespace

    assert kinds("policy") == ["policy_loss"]
    assert "gspo" in component_names("g", Namespace(kind="policy_loss"))
    assert component_names("g", Namespace(kind="no_such_kind")) == []


def test_a_name_with_two_owners_is_offered_with_the_owner():
    from argparse import Namespace

    current().add("policy_loss", "gspo", "acme:gspo", origin=Origin("session", "0", "acme"))
    assert component_names("gs", Namespace(kind="policy_loss")) == ["gspo_turn"]
    found = component_names("s", Namespace(kind="policy_loss"))
    assert "session/gspo" in found
    assert component_names("dovetail/gs", Namespace(kind="policy_loss")) == ["dovetail/gspo", "dovetail/gspo_turn"]


def test_overrides_go_from_sections_to_names():
    assert "train.policy_loss=" in overrides("train.pol")
    assert "policy_loss." in overrides("pol")
    assert "train.policy_loss=gspo" in overrides("train.policy_loss=gs")
    assert overrides("train.lr=") == []
    assert overrides("rollout/mesh.fi") == ["rollout/mesh.first="]
    assert overrides("policy_loss.gsp") == ["policy_loss.gspo.", "policy_loss.gspo_turn."]
    assert overrides("policy_loss.gspo.epsilon_l") == ["policy_loss.gspo.epsilon_low="]


def test_configs_are_shipped_ones_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.gin").write_text("")
    (tmp_path / "mine" / "notes.txt").write_text("")
    assert configs("quick") == ["quickstart"]
    assert configs("mi") == ["mine/"]
    assert configs("mine/") == ["mine/run.gin"]
    assert configs("absent/") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "dovetail" in capsys.readouterr().out


COMPLETE = {
    "bash": (
        'eval "$(dovetail completion bash)"; COMP_LINE="dovetail describe kl k3"; COMP_POINT=${#COMP_LINE};'
        " COMP_TYPE=9; COMP_WORDS=(dovetail describe kl k3); COMP_CWORD=3; _python_argcomplete dovetail;"
        ' echo "${COMPREPLY[@]}"'
    ),
    "fish": "dovetail completion fish | source; complete -C 'dovetail describe kl k3'",
}


@pytest.mark.parametrize("shell", COMPLETE)
def test_the_shell_itself_completes(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [shell, "-c", COMPLETE[shell]],
        env=os.environ | {"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == {"k3", "k3_corrected", "k3_plus"}
