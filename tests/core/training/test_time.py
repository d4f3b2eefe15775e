"""How a run spends its time: no compilation in later steps, and the shares in the summary."""

import json
import re
import threading

import jax
import numpy as np
import pytest
from jax._src.array import ArrayImpl
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.hookspecs import hookimpl
from dovetail.registry import plugin_manager
from dovetail.training.learner import Learner
from dovetail.training.loop import train
from dovetail.training.metrics import Clock
from dovetail_lab.summary import summarise


class Compilations:
    """Counts the compilations up to the end of each step."""

    def __init__(self):
        self.count, self.by_step = 0, {}

    def heard(self, event, seconds, **_):
        self.count += event == "/jax/core/compile/backend_compile_duration"

    @hookimpl
    def dovetail_step_end(self, step, metrics):
        if "time/rollout" in metrics:
            self.by_step[step] = self.count


class Fetches:
    """Counts the main thread's transfers from a device during updates, by step and function.

    `_value` is behind `float`, `int`, `bool`, `tolist` and `device_get`.
    """

    def __init__(self, patch):
        self.seen, self.learning, self.fetching = [], False, False
        learn, value = Learner.learn, ArrayImpl._value.fget

        def watched(*arguments):
            self.learning = True
            try:
                return learn(*arguments)
            finally:
                self.learning = False
                self.seen.append([])

        patch.setattr(Learner, "learn", watched)
        patch.setattr(ArrayImpl, "_value", property(self._spied("_value", value)))
        self.seen.append([])
        for module, name in ((jax, "device_get"), (jax, "block_until_ready"), (np, "asarray"), (np, "array")):
            patch.setattr(module, name, self._spied(name, getattr(module, name)))

    def _spied(self, name, function):
        def spied(first, *rest, **options):
            here = self.learning and threading.current_thread() is threading.main_thread() and not self.fetching
            if not here or (name in ("asarray", "array") and not isinstance(first, jax.Array)):
                return function(first, *rest, **options)
            self.seen[-1].append(name)
            self.fetching = True
            try:
                return function(first, *rest, **options)
            finally:
                self.fetching = False

        return spied


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """A run of four steps with mini-batches."""
    folder, seen = tmp_path_factory.mktemp("runs") / "observed", Compilations()
    overrides = ("sft.steps=1", "train.epochs=2", "train.mini_batch_size=8", "train.kl_coef=0.1", "eval.every=10")
    jax.monitoring.register_event_duration_secs_listener(seen.heard)
    plugin_manager().register(seen)
    try:
        with pytest.MonkeyPatch.context() as patch:
            fetches = Fetches(patch)
            train(load(None, [*TINY, *overrides]), folder)
    finally:
        plugin_manager().unregister(seen)
        jax.monitoring.unregister_event_duration_listener(seen.heard)
    return folder, seen, fetches


@pytest.mark.slow
def test_a_step_waits_for_the_devices_once(observed):
    *_, fetches = observed
    assert fetches.seen == [["device_get"]] * 4 + [[]]


@pytest.mark.slow
def test_nothing_is_compiled_after_the_second_step(observed):
    _, seen, _ = observed
    assert seen.by_step[1] > 0
    assert seen.by_step[4] == seen.by_step[2]


@pytest.mark.slow
def test_the_summary_says_where_the_time_went(observed):
    folder, *_ = observed
    text = summarise(folder)
    seconds = json.loads((folder / "summary.json").read_text())["seconds"]
    assert {"rollout", "reward", "scoring", "update", "sync", "waiting"} <= seconds.keys()
    compiled = json.loads((folder / "summary.json").read_text())["compiled"]
    assert compiled["programs"] > 0
    assert re.search(r"compiled     \d+ programs in \d+ s, the last in step \d", text)
    assert all(name in text for name in ("rollout", "scoring", "update"))


def test_a_clock_counts_from_mark_to_mark():
    clock = Clock()
    clock.mark("waiting")
    clock.mark_when_ready("scoring", jax.numpy.zeros(3))
    for watcher in clock._watchers:
        watcher.join()
    clock.mark("update")
    clock.mark("waiting")
    timings = {name: value for name, value in clock.timings(tokens=0).items() if name.startswith("time/")}
    assert list(timings) == ["time/waiting", "time/scoring", "time/update", "time/step"]
    assert sum(timings.values()) - timings["time/step"] <= timings["time/step"]
