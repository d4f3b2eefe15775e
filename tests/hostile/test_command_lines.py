"""Command lines with mistakes, and broken environments."""

import argparse
import errno
import os
import re
import sys

import pytest
from tests.hostile.case import USAGE, Case, attempt

from dovetail.cli import main
from dovetail.registry import _discovered

EMPTY = {"a.gin": ""}


def sets(override: str, pattern: str) -> Case:
    """Return a case of one `--set`, which the message must quote."""
    return Case(f"explain a.gin --set {override}", pattern, files=EMPTY)


def plugin(text: str | bytes, pattern: str, **others) -> Case:
    """Return a case of a broken plugin in one file; it was requested explicitly, so the command must fail."""
    return Case(
        "explain a.gin --plugin mine.py",
        f"^error: --plugin mine.py: .*{pattern}",
        files={**EMPTY, "mine.py": text},
        **others,
    )


CASES = {
    # usage
    "nothing": Case("", "the following arguments are required: COMMAND", USAGE),
    "an unknown command": Case("trian", "invalid choice: 'trian'.* Did you mean 'train'", USAGE),
    "an unknown option": Case("explain --sett a=1", "unrecognized arguments|ambiguous|--sett", USAGE),
    "an option without its value": Case("explain --set", "expected one argument", USAGE),
    "an argument too many": Case("explain quickstart grpo", "unrecognized arguments: grpo", USAGE),
    "an option of another command": Case("explain --folder x", "unrecognized arguments", USAGE),
    "an option misspelt": Case(
        "plugin doctor --plugni x", "dovetail plugin doctor: error: .*: --plugni. Did you mean '--plugin'", USAGE
    ),
    "a word for a number": Case("eval quickstart -n many", "invalid .*'many'", USAGE),
    "a choice that is none": Case("report x --goal best", "invalid choice: 'best'", USAGE),
    "a shell that is none": Case("completion tcsh", "invalid choice: 'tcsh'", USAGE),
    "an escape sequence": Case("'\x1b[31mtrain'", "invalid choice", USAGE),
    "a choice that is nearly one": Case("sweep export d --format cvs", "Did you mean 'csv'", USAGE),
    "an empty folder": Case("train quickstart --folder ''", "--folder: it is empty", USAGE),
    "an empty file for a result": Case("generate quickstart --out ''", "--out: it is empty", USAGE),
    # overrides
    "an override without a value": sets("train.steps", "--set train.steps: write section.field=value"),
    "an override of nothing": sets("=3", "--set =3: write section.field=value"),
    "an empty override": sets("''", "write section.field=value"),
    "an override with a word too many": sets("'train.steps=1 2'", "--set train.steps=1 2: syntax error"),
    "an override of code": sets("train.lr=@f", "'@f' is refused"),
    "an override with a line break": sets("'train.steps=3\nimport os'", "--set train.steps=3 import os: "),
    "an override with an escape sequence": sets("'train.policy_loss=\x1b[31mx'", r"\\x1b\[31mx"),
    "an override with brackets 10,000 deep": sets("train.rewards=" + "[" * 10_000, "syntax error"),
    "an override twice": Case("explain a.gin --set train.steps=1 --set train.steps=2", "", 0, files=EMPTY),
    # names
    "an unknown kind": Case("names lossy", "unknown kind 'lossy'"),
    "an unknown component": Case("describe policy_loss gpso", "Did you mean 'gspo'"),
    "a component that is a path": Case("describe policy_loss ../../etc/passwd", "unknown policy_loss"),
    "an empty component": Case("describe policy_loss ''", "unknown policy_loss ''"),
    # plugins
    "a plugin that is missing": Case("explain a.gin --plugin mine.py", "there is no such file", files=EMPTY),
    "a plugin that is a folder": Case("explain a.gin --plugin d", "there is no such file", files={**EMPTY, "d": None}),
    "a plugin by another ending": Case(
        "explain a.gin --plugin m.txt", "a plugin is a Python file", files={**EMPTY, "m.txt": ""}
    ),
    "a plugin that cannot be imported by name": Case(
        "explain a.gin --plugin my-loss.py", "a plugin is a Python file", files={**EMPTY, "my-loss.py": ""}
    ),
    "a plugin that hides a module": Case(
        "explain a.gin --plugin json.py", "there is a module 'json' already", files={**EMPTY, "json.py": ""}
    ),
    "a plugin that raises": plugin("raise RuntimeError('on\\npurpose')\n", r"mine.*RuntimeError: on.purpose"),
    "a plugin that exits": plugin("import sys\nsys.exit(0)\n", r"mine.*SystemExit"),
    "a plugin that is not Python": plugin("def (:\n", r"mine.*SyntaxError"),
    "a plugin of bytes": plugin(b"\xff\xfe\x00", r"mine.*(SyntaxError|codec|null)"),
    "a plugin that imports what is missing": plugin("import no_such_module_here\n", r"mine.*no_such_module_here"),
    "a plugin that registers an unknown kind": plugin(
        "import dovetail\n@dovetail.hookimpl\ndef dovetail_components(register):\n    register('los', 'x', 'mine:f')\n",
        r"mine.*'los'",
    ),
    "a plugin that registers a number": plugin(
        "import dovetail\n@dovetail.hookimpl\ndef dovetail_components(register):\n    register('kl', 3, 4)\n", "mine"
    ),
    "a plugin that registers what is not there": Case(
        "explain a.gin --plugin mine.py --set train.policy_loss=mine",
        "mine",
        files={
            **EMPTY,
            "mine.py": "import dovetail\n@dovetail.hookimpl\ndef dovetail_components(register):\n"
            "    register('policy_loss', 'mine', 'mine:nothing')\n",
        },
    ),
    "a plugin whose name is taken": Case(
        "explain a.gin --plugin mine.py --set train.policy_loss=gspo",
        "gspo.*mine|mine.*gspo",
        files={
            **EMPTY,
            "mine.py": "import dovetail\n@dovetail.hookimpl\ndef dovetail_components(register):\n"
            "    register('policy_loss', 'gspo', 'mine:f')\ndef f(logps):\n    return logps\n",
        },
    ),
    "a plugin with a hook misspelt": plugin(
        "import dovetail\n@dovetail.hookimpl\ndef dovetail_component(register):\n    pass\n",
        r"mine.*dovetail_component.*Did you mean 'dovetail_components'",
    ),
    # numbers and times
    "seeds without end": Case("sweep run a.gin --dry-run --seeds 1000000000", "more than 1,000,000", files=EMPTY),
    "seeds from here to there": Case("sweep run a.gin --dry-run --seeds 0:99999999999", "more than", files=EMPTY),
    "a seed in superscript": Case("sweep run a.gin --dry-run --seeds ²", "seeds '²': write a number", files=EMPTY),
    "a seed of 5,000 digits": Case(f"sweep run a.gin --dry-run --seeds {'9' * 5000}", "write a number", files=EMPTY),
    "draws in superscript": Case(
        "sweep run a.gin --dry-run --random ² 'train.lr=uniform(0,1)'", "write a number of draws", files=EMPTY
    ),
    "a time that is none": Case(
        "sweep run a.gin --dry-run --grid train.lr=1e-3 --timeout 5x", "'5x' is not a time", files=EMPTY
    ),
    # settings of others
    "YAML whose aliases multiply": Case(
        "import-config verl e.yaml",
        r"e\.yaml: with its aliases written out it has more than 10,000 values",
        files={
            "e.yaml": "a0: &a0 [x, x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))
        },
    ),
    "YAML that contains itself": Case(
        "import-config verl e.yaml", "aliases written out", files={"e.yaml": "a: &a [*a]\n"}
    ),
    "JSON 100,000 deep": Case("import-config tunix e.json", "nested too deeply", files={"e.json": "[" * 100_000}),
    "JSON that is a list": Case("import-config tunix e.json", "settings are an object", files={"e.json": "[1]"}),
    "an infinity for a whole number": Case(
        "import-config verl e.yaml", "", 0, files={"e.yaml": "data:\n  max_response_length: .inf\n"}
    ),
    # results
    "results into a file": Case(
        "eval a.gin --out f", "folder 'f' cannot be written: File exists", files={**EMPTY, "f": ""}
    ),
    "pages into a file": Case("docs dovetail --out f", "folder 'f' cannot be written: File exists", files={"f": ""}),
    "prompts that are not there": Case("generate a.gin --prompts p.jsonl --out o", "there is no file '", files=EMPTY),
    # folders
    "a report of nothing": Case("report missing", "missing"),
    "a report of an empty folder": Case("report d", "'?d'?", files={"d": None}),
    "an export of nothing": Case("export missing --out x", "missing"),
    "a replay of nothing": Case("replay missing", "'missing' is not the folder of a run"),
    "a replay in itself": Case(
        "replay r --folder r/../r", "cannot be replayed into itself", files={"r/config.gin": ""}
    ),
    "the status of no sweep": Case("sweep status missing", "missing"),
    "a run of nothing": Case("eval --run missing", "missing"),
    "a window that is none": Case("train quickstart --profile steps=9:2", "9:2"),
    "a window of nothing": Case("train quickstart --profile ''", "--profile  is not a window of steps"),
    "examples below zero": Case("eval a.gin --examples -5", "--examples -5: it must be at least 1", files=EMPTY),
    "no examples": Case("eval a.gin --examples 0", "--examples 0: it must be at least 1", files=EMPTY),
    "a port beyond all": Case(
        "report r --watch --port 99999", "port 99999 cannot be had: .*0-65535", files={"r/run.json": "{}"}
    ),
    "a port below zero": Case("report r --watch --port -1", "port -1 cannot be had", files={"r/run.json": "{}"}),
    "an axis twice": Case(
        "sweep run a.gin --dry-run --grid train.lr=1e-3 --grid train.lr=1e-4",
        r"--grid train\.lr=1e-4: train\.lr is there twice",
        files=EMPTY,
    ),
    "looks without end": Case(
        "ab a.gin --arm a --arm b:train.lr=1e-3 --seeds 1000 --sequential pocock:1000 --dry-run",
        "1000 looks: at most 100",
        files=EMPTY,
    ),
    "a window of words": Case("train quickstart --profile now", "steps=5:7"),
}


@pytest.fixture(autouse=True)
def forget_plugins(monkeypatch):
    """Remove, after each case, what `--plugin` has added to the environment and to the modules."""
    monkeypatch.setenv("DOVETAIL_PLUGINS", "")
    yield
    sys.modules.pop("mine", None)
    _discovered.cache_clear()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_command_line(case, tmp_path, capsys, monkeypatch):
    attempt(case, tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize("leave", [lambda: sys.exit(0), lambda: os._exit(0)], ids=["sys.exit", "os._exit"])
def test_an_exit_in_the_midst_of_a_command_is_not_a_success(leave, monkeypatch, capsys):
    monkeypatch.setattr("os._exit", lambda status: pytest.fail("the process has ended"))
    options = argparse.Namespace(run=lambda options: leave())
    monkeypatch.setattr("dovetail.cli.parse", lambda given: options)
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("error: a plugin has called sys.exit()")


def test_what_is_no_exception_is_one_line_all_the_same(monkeypatch, capsys):
    """Libraries in Rust panic with what derives from BaseException alone."""

    class PanicException(BaseException):
        pass

    def panics(options):
        raise PanicException("index out of bounds\nnote: run with")

    monkeypatch.setattr("dovetail.cli.parse", lambda given: argparse.Namespace(run=panics))
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("error: unforeseen, PanicException: index out of bounds note: run with;")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            r"a file \(--traceback shows which\) cannot be written: No sp",
        ),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), "'a/b' cannot be written: Read-only file system"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "a"), "'a' cannot be written: Disk quota exceeded"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "unforeseen, BrokenPipeError: .* Broken pipe"),
    ],
)
def test_a_disk_is_not_an_unforeseen_error_and_a_broken_pipe_no_success(error, said, monkeypatch, capsys):
    def fails(options):
        raise error

    monkeypatch.setattr("dovetail.cli.parse", lambda given: argparse.Namespace(run=fails))
    assert main([]) == 1
    assert re.match(f"error: {said}.*\n$", capsys.readouterr().err)
