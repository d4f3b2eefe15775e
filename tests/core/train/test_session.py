"""Observers can tell a training step from an evaluation."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pluggy
import pytest

from dovetail import hookimpl, hookspecs
from dovetail.config import load
from dovetail.errors import DovetailWarning, PluginError, RunError
from dovetail.registry import plugin_manager
from dovetail.run.checkpoint import Saved
from dovetail.train import session
from dovetail.train.session import RL, SFT, Run, _closing, _observed, resumption


class Observer:
    """Does what the examples of the hooks do."""

    def __init__(self):
        self.alerts, self.best, self.seen = [], [], []

    @hookimpl
    def dovetail_step_end(self, phase, step, metrics):
        self.seen.append((phase, step))
        if phase == "rl" and metrics["reward/mean"] > 2:
            self.alerts.append(step)

    @hookimpl
    def dovetail_evaluation(self, step, metrics):
        self.seen.append(("eval", step))
        if metrics["eval/accuracy"] > 0.9:
            self.best.append(step)


@pytest.fixture
def observer():
    observer = Observer()
    plugin_manager().register(observer)
    yield observer
    plugin_manager().unregister(observer)


def test_an_observer_of_steps_is_not_told_of_evaluations(observer):
    journal = SimpleNamespace(metrics=lambda *_: None, timings=lambda *_: None)
    setup = SimpleNamespace(config=load(None))
    nothing = {"setup": setup, "checkpoints": None, "resumed": None}
    run = Run(folder=SimpleNamespace(journal=journal), sinks=[], spans=deque(), **nothing)
    run.record(SFT, 1, {"sft/loss": 2.0}, {"time/step": 1.0})
    run.record(RL, 0, {"eval/accuracy": 0.25}, {"time/eval": 1.0})
    run.record(RL, 1, {"reward/mean": 2.5}, {"time/step": 1.0})
    run.record(RL, 1, {"eval/accuracy": 0.95}, {"time/eval": 1.0})
    assert observer.seen == [("sft", 1), ("eval", 0), ("rl", 1), ("eval", 1)]
    assert (observer.alerts, observer.best) == ([1], [1])


def test_a_sink_that_cannot_close_does_not_hide_what_ended_the_run():
    class Full:
        def close(self):
            raise OSError("full")

    close = _closing(Full())
    close(ZeroDivisionError, ZeroDivisionError(), None)
    with pytest.raises(OSError, match="full"):
        close(None, None, None)


from dovetail.run.checkpoint import Saved
from dovetail.train import session
from dovetail.train.session import RL, SFT, Run, _closing, _observed, resumption
