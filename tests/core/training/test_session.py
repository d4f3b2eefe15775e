"""Observers can tell a training step from an evaluation."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import attrs
import pluggy
import pytest

import dovetail
from dovetail import hookimpl, hookspecs
from dovetail.config import load
from dovetail.errors import DovetailWarning, PluginError, RunError
from dovetail.registry import plugin_manager
from dovetail.run.checkpoint import Saved
from dovetail.training import session
from dovetail.training.session import RL, SFT, Run, _closing, _observed, resumption


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


def manager_of(plugin):
    """A manager of this plugin alone."""
    manager = pluggy.PluginManager("dovetail")
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name="gone:gone")
    return manager


def recording(folder, config):
    """A run whose records go nowhere."""
    journal = SimpleNamespace(metrics=lambda *_: None, timings=lambda *_: None)
    place = SimpleNamespace(journal=journal, path=folder, run_id=folder.name, config_id="c")
    nothing = {"checkpoints": None, "resumed": None}
    return Run(setup=SimpleNamespace(config=config), folder=place, sinks=[], spans=deque(), **nothing)


def test_an_observer_of_steps_is_not_told_of_evaluations(observer):
    run = recording(Path("runs/one"), load(None))
    run.record(SFT, 1, {"sft/loss": 2.0}, {"time/step": 1.0})
    run.record(RL, 0, {"eval/accuracy": 0.25}, {"time/eval": 1.0})
    run.record(RL, 1, {"reward/mean": 2.5}, {"time/step": 1.0})
    run.record(RL, 1, {"eval/accuracy": 0.95}, {"time/eval": 1.0})
    assert observer.seen == [("sft", 1), ("eval", 0), ("rl", 1), ("eval", 1)]
    assert (observer.alerts, observer.best) == ([1], [1])


class Tracker:
    """Keeps what it is told by run, as a plugin with a tracker of its own does."""

    def __init__(self):
        self.told = {}

    @hookimpl
    def dovetail_run_start(self, run, folder):
        assert run.folder == folder
        self.told[run] = [f"seed {run.config.run.seed}"]

    @hookimpl
    def dovetail_step_end(self, run, metrics):
        self.told[run].append(metrics["reward/mean"])

    @hookimpl
    def dovetail_evaluation(self, run, metrics):
        self.told[run].append(metrics["eval/accuracy"])

    @hookimpl
    def dovetail_run_end(self, run, status):
        self.told[run].append(status)


def test_an_observer_tells_two_runs_in_one_process_apart(monkeypatch):
    tracker = Tracker()
    manager = manager_of(tracker)
    monkeypatch.setattr(session, "plugin_manager", lambda: manager)
    runs = [recording(Path(f"runs/{seed}"), load(None, [f"run.seed={seed}"])) for seed in (0, 1)]
    with _observed(runs[0]), _observed(runs[1]):
        runs[1].record(RL, 1, {"reward/mean": 0.1}, {})
        runs[0].record(RL, 1, {"reward/mean": 0.2}, {})
        runs[0].record(RL, 1, {"eval/accuracy": 0.5}, {})
    assert {run.folder.name: told for run, told in tracker.told.items()} == {
        "0": ["seed 0", 0.2, 0.5, "done"],
        "1": ["seed 1", 0.1, "done"],
    }


def test_a_sink_that_cannot_close_does_not_hide_what_ended_the_run():
    class Full:
        def close(self):
            raise OSError("full")

    @attrs.frozen(kw_only=True)
    class FullMaker:
        def open(self, folder, total_steps, start_step):
            return Full()

    close = _closing(dovetail.register("sink", "full", FullMaker), Full())
    close(ZeroDivisionError, ZeroDivisionError(), None)
    with pytest.raises(PluginError, match=r"^sink\.full of .* raised OSError: full \[.*test_session\.py:\d+\]$"):
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
    manager = manager_of(Gone())
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
