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


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose disk is full, and whose observer cannot tell anybody that it ends."""

    class Gone:
        @hookimpl
        def dovetail_run_end(self, status):
            raise ValueError(f"nobody hears of {status}")

    def save(number, *_):
        raise RunError(f"checkpoint {number} cannot be written: the disk is full")

    journal = SimpleNamespace(position={}, sync=lambda: None)
    folder = SimpleNamespace(path=tmp_path, config_id="a", run_id="b", journal=journal)
    setup = SimpleNamespace(config=load(None), devices=SimpleNamespace(mesh=None))
    manager = pluggy.PluginManager("dovetail")
    manager.add_hookspecs(hookspecs)
    manager.register(Gone(), name="gone:gone")
    monkeypatch.setattr(session, "plugin_manager", lambda: manager)
    checkpoints = SimpleNamespace(save=save)
    return Run(setup=setup, folder=folder, checkpoints=checkpoints, resumed=None, sinks=[], spans=deque())


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_what_goes_wrong_at_the_end_does_not_hide_what_ended_the_run(run, error):
    run.keep(RL, 3, {}, {})
    with pytest.warns(DovetailWarning) as told, pytest.raises(error), _observed(run):
        raise error
    status = "stopped" if error is KeyboardInterrupt else "failed"
    number = 3 + run.config.sft.steps
    assert [str(each.message).partition(" [")[0] for each in told] == [
        f"the state after rl step 3 is not saved: checkpoint {number} cannot be written: the disk is full",
        f"an observer failed, too: dovetail_run_end of gone raised ValueError: nobody hears of {status}",
    ]


def test_an_observer_that_fails_when_a_run_is_done_is_an_error(run):
    with (
        pytest.raises(PluginError, match="dovetail_run_end of gone raised ValueError: nobody hears of done"),
        _observed(run),
    ):
        pass


@pytest.mark.parametrize(
    ("phase", "step", "only_sft", "said"),
    [
        ("sft", 3, False, "resuming after sft step 3 of 4"),
        ("sft", 4, False, "resuming after sft step 4 of 4"),
        ("rl", 35, False, "resuming after rl step 35 of 100"),
        ("rl", 100, False, "this run is finished; nothing is trained, its records are in 'there'"),
        ("sft", 4, True, "the warm start of this run is finished; nothing is trained"),
        ("rl", 35, True, "the warm start of this run is finished; nothing is trained"),
        ("sft", 3, True, "resuming after sft step 3 of 4"),
    ],
)
def test_a_command_says_whether_it_resumes_a_run_or_finds_it_finished(phase, step, only_sft, said):
    saved = Saved(phase=phase, step=step, data={}, journal={})
    config = load(None, ["sft.steps=4", "train.steps=100"])
    assert resumption(config, saved, Path("there"), only_sft=only_sft).startswith(said)
