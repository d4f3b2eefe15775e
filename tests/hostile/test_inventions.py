"""Odd cases of several sorts that no list had: links, devices, names, plugins, environments."""

import os
import sys

import pytest
from tests.hostile.case import Case, attempt
from tests.sampled import sampled

from dovetail.registry import _discovered

EMPTY = {"a.gin": ""}
LOSS = """
import dovetail

@dovetail.hookimpl
def dovetail_components(register):
    register("policy_loss", {name!r}, "own:loss")

{body}
"""


def plugin(body: str, pattern: str, name: str = "mine", **others) -> Case:
    """Return a case of a plugin in one file whose loss is chosen."""
    text = LOSS.format(name=name, body=body)
    return Case(
        "explain a.gin --plugin own.py --set train.policy_loss=mine", pattern, files={**EMPTY, "own.py": text}, **others
    )


def linked(folder) -> None:
    (folder / "loop.gin").symlink_to("loop.gin")


def piped(folder) -> None:
    os.mkfifo(folder / "pipe.gin")


def secret(folder) -> None:
    (folder / "r").mkdir()
    (folder / "r" / "run.json").symlink_to("/dev/zero")


CASES = {
    "a config that is a pipe": Case("explain pipe.gin", r"'pipe\.gin' is not a file", prepare=piped),
    "a config that is a link to itself": Case("explain loop.gin", r"'loop\.gin' is a link to nothing", prepare=linked),
    "a config named like an option": Case("explain -- -x.gin", r"no config file '-x\.gin'", files={"-y.gin": ""}),
    "a config that ends in a backslash": Case("explain a.gin", r"a\.gin:1: ", files={"a.gin": "train.steps = \\"}),
    "a run folder below a file": Case(
        "train a.gin --set run.folder=f/x", "run folder 'f/x' cannot be written", files={**EMPTY, "f": "x"}
    ),
    "a record of a run that is a device": Case(
        "report r", r"'r' holds no run, sweep or A/B test\. Folders", prepare=secret
    ),
    "an override of a macro": Case("explain a.gin --set rate=0.1", "rate", files={"a.gin": "rate = 1\n"}),
    "an override of an include": Case(
        """explain a.gin --set "include 'b.gin'" """, "write section.field=value", files=EMPTY
    ),
    "an override with a null byte": Case("explain a.gin --set 'train.policy_loss=a\\x00b'", "policy_loss", files=EMPTY),
    "a disabled plugin of terminal codes": Case(
        "explain a.gin",
        r"DOVETAIL_DISABLE names '\\x1b\[31m'",
        files=EMPTY,
        environment={"DOVETAIL_DISABLE": "\x1b[31m"},
    ),
    "a disabled plugin of nothing but commas": Case(
        "explain a.gin", "", status=0, files=EMPTY, environment={"DOVETAIL_DISABLE": ",,"}
    ),
    "a loss that reads what it makes": plugin("def loss(mine, mask):\n    return mine", "mine"),
    "a loss of *args": plugin("def loss(*fields):\n    return 0", "mine"),
    "a task that is a function": Case(
        "explain a.gin --plugin own.py --set train.task=mine",
        r"--set train\.task=mine: task\.mine has no columns.*, which kind 'task' needs \[.*own\.py:8\]",
        files={
            **EMPTY,
            "own.py": LOSS.format(name="mine", body="def loss():\n    return None").replace("policy_loss", "task"),
        },
    ),
    "a parameter without its kind": Case(
        "explain a.gin --set gspo.high=3",
        r"unknown section 'gspo'\. Did you mean policy_loss\.gspo\.high\?",
        files=EMPTY,
    ),
    "a loss that is a number": plugin("loss = 3", "mine"),
    "a loss that is a lambda with a default": plugin("loss = lambda logps, mask=None: logps", "mine"),
    "a loss with an annotation that is not there": plugin(
        "def loss(logps, mask, *, size: 'Nowhere' = 1):\n    return logps", "Nowhere|size"
    ),
    "a loss whose name has a dot": plugin("def loss(logps, mask):\n    return logps", r"my\.ne", name="my.ne"),
    "a loss whose name is empty": plugin("def loss(logps, mask):\n    return logps", "''", name=""),
    "a loss whose name is a path": plugin("def loss(logps, mask):\n    return logps", r"\.\./x", name="../x"),
    "a loss that declares what nobody knows": plugin(
        "@dovetail.declares(unbiassed=True)\ndef loss(logps, mask):\n    return logps", "unbiassed"
    ),
    "a plugin that recurses while it is imported": plugin("def f(): f()\nf()\nloss = 1", "RecursionError"),
    "a plugin that changes the folder": plugin(
        "import os\nos.chdir('/')\ndef loss(logps, mask):\n    return logps",
        r"^warning: intrusive plugin own 0\+\w+: '.*/own\.py': while it was imported it changed the working folder \(undone\)",
        status=0,
    ),
    "a plugin that takes over signals and the environment": plugin(
        "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.environ['JAX_ODD'] = '1'\n"
        "def loss(logps, mask):\n    return logps",
        r"it changed the handler of SIGINT \(undone\) and set the environment variable 'JAX_ODD' \(left\)",
        status=0,
        environment={"JAX_ODD": None},
    ),
}


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Undo, after each case, what a plugin has done to the process and `--plugin` to the environment."""
    here = os.getcwd()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("DOVETAIL_PLUGINS", "")
    _discovered.cache_clear()
    yield
    os.chdir(here)
    sys.modules.pop("own", None)
    _discovered.cache_clear()


@pytest.mark.parametrize("case", sampled([pytest.param(case, id=name) for name, case in CASES.items()], every=4))
def test_an_invention(case, tmp_path, capsys, monkeypatch):
    attempt(case, tmp_path, capsys, monkeypatch)
