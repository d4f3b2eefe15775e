"""The end of a process in which a plugin has left a thread running."""

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """\
import atexit, threading, time

def poll():
    while time.sleep(0.05) is None and {goes_on}:
        pass

began = time.monotonic()
threading.Thread(target=poll, name="poller").start()
atexit.register(print, "closed")

import dovetail

@dovetail.hookimpl
def dovetail_components(register): ...
"""
COMMAND = """\
import sys
from dovetail.cli import ending, main

ending.SOON, ending.LATE = {soon}, {soon} + 0.5
sys.exit(main())
"""


def ended(folder: Path, goes_on: str, *command: str, soon: float) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(PLUGIN.format(goes_on=goes_on))
    words = [sys.executable, "-c", COMMAND.format(soon=soon), *command, "--plugin", "mine.py"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "status"), [(["explain", "quickstart"], 0), (["explain", "absent"], 1)])
def test_a_thread_that_never_ends_is_named_and_left(tmp_path, command, status):
    found = ended(tmp_path, "True", *command, soon=0.5)
    assert found.returncode == status
    *_, warning = found.stderr.splitlines()
    named = f"threads still run: poller [{tmp_path}/mine.py:4]; waiting for 0.5 s at most"
    assert warning == f"warning: everything is done, but {named}"
    assert found.stdout.endswith("closed\n"), "what is registered for the end must run"


def test_a_thread_that_ends_with_the_work_is_not_mentioned(tmp_path):
    found = ended(tmp_path, "threading.main_thread().is_alive()", "explain", "quickstart", soon=120.0)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.endswith("closed\n")
