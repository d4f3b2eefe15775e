"""JAX's last words, as JAX 0.10.2 writes them, become one line."""

import json
import subprocess
import sys

import pytest

from dovetail_executor.hosts.aborts import KNOWN, rewritten

BEGIN = (
    "F1122 19:18:12.403934   25835 client.h:80] Terminating process because the JAX distributed service detected fatal"
    " errors. This most likely indicates that another task died; see the other task logs for more details. absl::Status:"
)
TRACE = ["*** Check failure stack trace: ***\n", "    @     0x7f5c73640634  absl::lts_20260107::Flush()\n"]
HOSTS = f"{KNOWN}{json.dumps({'hosts': ['alpha', 'beta', 'gamma'], 'coordinator': 'alpha:1234', 'index': 2})}\n"


def test_the_dead_are_named_once_and_the_stack_is_left_out():
    died = ["UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n", "1\n"]
    died += ["The tasks have crashed. Check the task logs for an earlier error.\n", "RPC: /xla/PollForError\n"]
    noise = "E1122 19:18:12.403033   25824 coordination_service.cc:1549] Use error polling to propagate the following: "
    lines = [HOSTS, "a line of the run\n", noise + died[0], *died[1:], f"{BEGIN} {died[0]}", *died[1:], *TRACE]
    kept, error = rewritten(lines)
    assert kept == "a line of the run\n"
    assert error.startswith("error: process 1 on beta has died: ")


def test_a_lost_coordinator_is_process_0():
    (error,) = rewritten([HOSTS, f"{BEGIN} UNAVAILABLE: Failed to send RPC to coordination service.\n", *TRACE])
    assert error.startswith("error: process 0 on alpha, the coordinator at alpha:1234, has died or cannot be reached")


def test_who_has_not_come_is_asked_for():
    known = f"{KNOWN}{json.dumps({'index': 0, 'count': 4, 'coordinator': 'alpha:1234'})}\n"
    (error,) = rewritten([known, f"{BEGIN} DEADLINE_EXCEEDED\n", "\n", "RPC: /xla/RegisterTask\n", *TRACE])
    assert error.startswith("error: not all of the 4 processes have come to alpha:1234 in time (--wait)")


def test_what_jax_may_say_one_day_is_passed_on():
    (error,) = rewritten([f"{BEGIN} something new\n", *TRACE])
    assert "something new" in error


def test_errors_of_the_run_itself_stay_as_they_are():
    lines = ["error: a\n", "Traceback (most recent call last):\n", "1\n", "E: not ours\n"]
    assert [*rewritten(lines)] == lines


@pytest.mark.parametrize("how", ["abort()", "threading.Thread(target=abort).start(); time.sleep(60)"])
def test_an_abort_ends_as_a_failure_does(how):
    code = "import ctypes, threading, time\nfrom dovetail_executor.hosts.aborts import translate_from_now_on\n"
    code += f"abort = ctypes.CDLL(None).abort\ntranslate_from_now_on()\n{how}"
    assert subprocess.run([sys.executable, "-c", code], timeout=240, check=False).returncode == 1
