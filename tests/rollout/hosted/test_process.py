"""Processes that must not outlive us."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from dovetail_rollout.hosted import process as module
from dovetail_rollout.hosted.process import GuardedProcess, first_error, free_port, last_lines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")

STRAY = (
    "import subprocess, sys, time;"
    " stray = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True);"
    " print(stray.pid, flush=True); time.sleep(60)"
)


def until(true):
    end = time.monotonic() + 120
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stray_of(process):
    assert until(lambda: len(process.log.read_text().splitlines()) > 1)
    return int(process.log.read_text().splitlines()[1])


def test_close_ends_descendants_that_left_the_family():
    process = GuardedProcess((sys.executable, "-c", STRAY), os.environ, "test")
    stray = stray_of(process)
    assert alive(stray)
    process.close()
    assert not alive(stray), "close waits for all of them"
    assert not process.log.exists()
    process.close()


def test_a_process_that_nobody_holds_is_ended():
    process = GuardedProcess((sys.executable, "-c", STRAY), os.environ, "test")
    stray = stray_of(process)
    del process
    assert until(lambda: not alive(stray))


def test_the_command_hears_of_a_killed_guard():
    process = GuardedProcess((sys.executable, "-c", "import time; time.sleep(60)"), os.environ, "test")
    guard = process._process.pid
    children = Path(f"/proc/{guard}/task/{guard}/children")
    assert until(lambda: children.read_text().strip())
    child = int(children.read_text())
    assert alive(child)
    os.kill(guard, signal.SIGKILL)
    assert until(lambda: not alive(child))
    process.close()


def test_the_status_is_the_commands_and_the_log_stays_if_somebody_has_asked():
    process = GuardedProcess(("sh", "-c", "echo last words; exit 7"), os.environ, "test")
    assert process.epitaph() == (
        f"the process ended with status 7; the end of {process.log}:\n  $ sh -c 'echo last words; exit 7'\n  last words"
    )
    process.close()
    assert process.log.exists()


def test_the_status_is_the_commands_also_if_the_guard_ends_while_we_look(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = GuardedProcess(("sh", "-c", f"read line < {fifo}; kill -9 $$"), os.environ, "test")

    class Ending:
        def poll(self):
            fifo.write_text("now\n")
            return guard.wait()

    guard, process._process = process._process, Ending()
    assert process.status == -signal.SIGKILL
    process.close()


LINGERS = (
    "import signal, subprocess, sys, time; print('ValueError: a warning of the start', flush=True);"
    " subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " print(1, flush=True); time.sleep(60)']); time.sleep(60)"
)


@pytest.mark.slow
def test_a_killed_process_is_named_as_such_while_its_children_still_run(monkeypatch):
    monkeypatch.setattr(module, "MOMENT_SECONDS", 120.0)
    process = GuardedProcess((sys.executable, "-c", LINGERS), os.environ, "test")
    process.wait_for(lambda: len(process.log.read_text().splitlines()) > 2, seconds=300)
    guard = process._process.pid
    child = int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])
    os.kill(child, signal.SIGKILL)
    said = process.epitaph()
    assert said.startswith("the process was killed (SIGKILL), as the kernel does where memory runs out; the end of ")
    assert "ValueError" not in said.partition("the end of")[0], "what went before the start has ended is not the cause"
    process.close()


def test_last_lines(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"%d \xff\n" % line for line in range(9)))
    assert last_lines(log, 2) == "  7 \ufffd\n  8 \ufffd"


def test_the_first_error_is_the_cause(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "WARNING this may end in errors like `OSError: too many files`\nTraceback:\n"
        "(Worker pid=3) ERROR [executor.py:953] ValueError: no memory \nRuntimeError: see root cause above\n"
    )
    assert first_error(log) == "ValueError: no memory"
    log.write_text("all is well\n")
    assert first_error(log) == ""


def test_a_free_port_can_be_listened_on():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))
