"""How far a command is, in a log."""

import functools
import io
import sys
import threading

import pytest

from dovetail.progress import LOADING, begin
from dovetail_lab.cli.progress import progress
from dovetail_sink import pulse


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still, and what has been said with an event for the next line."""
    found = {"now": 0.0, "said": [], "more": threading.Event()}

    def say(line):
        found["said"].append(line)
        found["more"].set()

    monkeypatch.setattr(pulse, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(pulse, "Pulse", functools.partial(pulse.Pulse, say, lambda: found["now"]))
    return found


def test_a_log_is_not_silent_for_minutes(clock):
    with progress() as watch:
        begin(LOADING, "policy, 1.0 GB")
        clock["now"] = 6.0
        assert clock["more"].wait(60)
        clock["more"].clear()
        watch("evaluation", 0, 1319)
        watch("evaluation", 128, 1319)
        clock["now"] = 30.0
        assert clock["more"].wait(60)
    assert clock["said"][:2] == ["[6 s] loading policy, 1.0 GB (6 s)", "[30 s] evaluation 128 / 1319 (24 s)"]


def test_what_is_quick_says_nothing(clock):
    with progress() as watch:
        watch("evaluation", 0, 5)
        watch("evaluation", 5, 5)
    assert clock["said"] == []


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_what_is_counted_and_what_is_not(monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress() as watch:
        begin(LOADING, "policy, 1.0 GB")
        watch("evaluation", 0, 1319)
        watch("evaluation", 128, 1319)
        begin("writing", "out")
    last = [line for line in shown.getvalue().splitlines() if "loading policy, 1.0 GB" in line]
    assert last
    assert "evaluation 128 / 1319" in shown.getvalue()
    assert "writing out" in shown.getvalue()
