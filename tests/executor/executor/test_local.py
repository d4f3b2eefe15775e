"""Workers as processes: nothing that they have started outlives them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dovetail_executor.executor.local import LocalWorkers

CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
PARENT = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE)
child.stdout.readline()
pathlib.Path(sys.argv[1], "child.new").write_text(str(child.pid))
pathlib.Path(sys.argv[1], "child.new").rename(pathlib.Path(sys.argv[1], "child"))
{{}}
"""


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(condition, what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("then", ["time.sleep(600)", ""], ids=["runs", "has ended"])
def test_a_worker_ends_with_children_that_ignore_the_signal(tmp_path, then):
    command = (sys.executable, "-c", PARENT.format(then), str(tmp_path))
    worker = LocalWorkers(sweep=tmp_path, command=command, gpus=(), shared=False).open_worker(0)
    until((tmp_path / "child").exists, "the child is there")
    child = int((tmp_path / "child").read_text())
    try:
        assert not is_gone(child)
        worker.kill()
        until(lambda: is_gone(child), "it outlives its worker")
    finally:
        subprocess.run(["kill", f"-{int(signal.SIGKILL)}", str(child)], check=False, stderr=subprocess.DEVNULL)
