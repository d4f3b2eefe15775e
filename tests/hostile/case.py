"""Cases of hostile input, and how to run them. Each case is a row of a table.

    "an unknown setting": Case("explain a.gin", r"a\\.gin:1: .*Did you mean 'steps'", files={"a.gin": "train.step = 3\\n"}),

Each case runs in a folder of its own. The command must end with the given status, print one line that says what was
wrong and where, show no traceback, and leave every file of the folder unchanged.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import pytest

from dovetail.cli import main
from dovetail.errors import printable

FAILURE, USAGE = 1, 2


@attrs.frozen
class Case:
    """A folder, a command, and the expected outcome.

    Attributes:
        command: the command line without `dovetail`, split as a shell would.
        pattern: a regular expression that must occur in stderr; empty if stderr must be empty.
        status: the expected exit status.
        files: the contents of the folder's files by path; None creates a subfolder.
        prepare: a function of the folder that makes further changes before the command runs.
        environment: environment variables to set, or to remove if None.
        lines: the greatest number of lines in stderr; argparse prints the usage before its message.
        rewrites: files that the command is supposed to change.
    """

    command: str
    pattern: str
    status: int = FAILURE
    files: Mapping[str, str | bytes | None] = attrs.field(factory=dict)
    prepare: Callable[[Path], None] | None = None
    environment: Mapping[str, str | None] = attrs.field(factory=dict)
    lines: int = 1
    rewrites: tuple[str, ...] = ()


def lay_out(case: Case, folder: Path) -> None:
    """Create the files of a case in its folder."""
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if case.prepare:
        case.prepare(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def attempt(case: Case, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a case in this process and check the outcome."""
    lay_out(case, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DOVETAIL_TRACEBACK", raising=False)
    for name, value in case.environment.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    before = contents(folder)
    monkeypatch.setattr(warnings, "showwarning", show)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        try:
            status = main(shlex.split(case.command))
        except SystemExit as ended:
            status = ended.code
    shown = capsys.readouterr()
    judge(case, status, shown.out, shown.err)
    after = contents(folder)
    changed = [name for name in before if after.get(name) != before[name] and name not in case.rewrites]
    assert not changed, f"the command has changed {changed}"


def show(message, category, *where, **others) -> None:
    """Print a warning as Python does outside pytest, which collects warnings."""
    sys.stderr.write(warnings.formatwarning(message, category, "", 0))


def judge(case: Case, status: object, out: str, err: str) -> None:
    """Compare the outcome of a command with the expectations of the case."""
    assert "Traceback" not in err + out
    assert status == case.status, err
    if not case.pattern:
        assert err == ""
        return
    assert re.search(case.pattern, err), err
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", err + out), "control characters reach the terminal"
    if status == USAGE:
        assert err.splitlines()[-1].startswith("dovetail"), err
    else:
        assert err.startswith(("error: ", "warning: ")), err
        assert err.count("\n") == case.lines, err


def attempt_call(call: Callable[[], object], error: type[Exception], pattern: str) -> None:
    """Check that a call is refused in one line that matches the pattern."""
    with pytest.raises(error) as raised:
        call()
    message = printable(raised.value)
    assert "\n" not in message
    assert re.search(pattern, message), message
