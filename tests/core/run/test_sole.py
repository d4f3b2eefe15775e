"""A run folder has one job, on disks whose locks do not reach other hosts, too."""

import fcntl
import json
import os
import threading
import time
import warnings

import pytest

from dovetail.errors import DovetailWarning, RunError
from dovetail.run import sole
from dovetail.run.sole import hold_alone

WHAT = "run folder 'r'"


@pytest.fixture
def hosts(monkeypatch, tmp_path):
    """Act as one of two hosts whose disk passes no lock on; return the function that says which, and the file."""
    monkeypatch.setattr(sole, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)
    at = threading.local()  # the beats of the first host go on while the second one looks
    monkeypatch.setattr(sole.platform, "node", lambda: at.host)

    def be(host):
        at.host = host

    return be, tmp_path / "lock"


def test_the_lock_is_that_of_its_host(tmp_path):
    path = tmp_path / "lock"
    held = hold_alone(path, WHAT)
    with pytest.raises(RunError, match="^run folder 'r' is in use by another process$"):
        hold_alone(path, WHAT)
    held.close()
    hold_alone(path, WHAT).close()
    assert path.read_bytes() == b""


def test_a_job_on_another_host_is_seen_where_locks_end_at_each(hosts):
    be, path = hosts
    be("node1")
    held = hold_alone(path, WHAT)
    be("node2")
    with (
        pytest.warns(DovetailWarning, match=r"^run folder 'r' was last used on host node1: waiting 0\.6 s for a sign"),
        pytest.raises(RunError, match=rf"^run folder 'r' is in use on host node1 \(process id {os.getpid()}\)$"),
    ):
        hold_alone(path, WHAT)
    held.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hold_alone(path, WHAT).close()


def test_who_stands_still_while_it_waits_for_a_sign_has_not_waited_for_it(hosts, monkeypatch):
    be, path = hosts
    be("node1")
    held = hold_alone(path, WHAT)
    be("node2")
    monkeypatch.setattr(sole.warnings, "warn", lambda *_: time.sleep(1.0))
    with pytest.raises(RunError, match="is in use on host node1"):
        hold_alone(path, WHAT)
    held.close()


def test_a_job_killed_on_another_host_keeps_nobody_out(hosts):
    be, path = hosts
    path.write_text(json.dumps({"host": "node1", "process": 7}))
    be("node2")
    with pytest.warns(DovetailWarning, match="node1"):
        held = hold_alone(path, WHAT)
    assert json.loads(path.read_text()) == {"host": "node2", "process": os.getpid()}
    before, deadline = path.stat().st_mtime_ns, time.monotonic() + 240
    while path.stat().st_mtime_ns == before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert path.stat().st_mtime_ns > before, "it is touched"
    held.close()


@pytest.mark.parametrize("left", ["", "{", "[1]", "null", '{"host": 3}'])
def test_what_something_else_has_written_is_no_job(left, hosts):
    be, path = hosts
    be("node1")
    path.write_text(left)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hold_alone(path, WHAT).close()
