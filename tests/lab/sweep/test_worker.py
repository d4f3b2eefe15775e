"""Real trials in one process compile once, and each has the same result as alone."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import jax.monitoring
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.training.loop import train
from dovetail_lab.sweep import Point, Quiet, Store, Terms, drive, plan_trials, population, run_job, worker

SETS = [*TINY, "sft.steps=2", "train.steps=2", "train.kl_coef=0.1"]
RATES = (1e-2, 1e-3, 1e-4)
POINTS = [
    Point((f"train.lr={lr}", f"sampling.temperature={t}"), 0) for lr, t in zip(RATES, (1.0, 0.9, 0.8), strict=True)
]


class Here:
    """An executor whose workers run in this process."""

    def __init__(self):
        self.jobs = []

    def open(self, sweep, jobs):
        self.sweep = sweep
        return self

    def open_worker(self, number):
        return self

    def start(self, trials):
        self.jobs.append((tuple(trials), compiled_by(lambda: run_job(self.sweep, trials))))

    def finished(self):
        return True

    def kill(self):
        pass

    def close(self):
        pass


def compiled_by(work) -> list[str]:
    """Return the programs that XLA compiles, or reads from its cache, during a call of `work`."""
    found = []

    def listen(event, duration, **about):
        if event.endswith("backend_compile_duration"):
            found.append(about.get("fun_name", "?"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        work()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    planned = plan_trials(None, SETS, POINTS)
    store, executor = Store.create(folder, planned, {}), Here()
    drive(store, executor, Terms(), watch=Quiet(str), prepare=lambda _: None)
    return store, executor


@pytest.mark.slow
def test_trials_that_differ_in_numbers_compile_once(swept):
    store, executor = swept
    assert {store.state(trial).status for trial in store.trials} == {"done"}, store.last_words(store.trials[0], 40)
    first, *others = [compiled for _, compiled in executor.jobs]
    assert first
    assert others == [[], []]


@pytest.mark.slow
def test_a_trial_comes_out_as_it_does_alone(swept, tmp_path):
    store, _ = swept
    trial = store.trials[-1]
    train(load(None, [*SETS, *trial.overrides]), tmp_path / "alone")
    for name in ("metrics.jsonl", "samples.jsonl"):
        assert (tmp_path / "alone" / name).read_bytes() == (store.folder(trial) / name).read_bytes()


def test_what_a_trial_prints_is_in_its_log(swept):
    store, _ = swept
    words = store.last_words(store.trials[0], 100)
    assert words[0].startswith("--- lr=0.01 temperature=1.0 seed=0: attempt 1")
    assert any(line.startswith("folder ") for line in words)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("last", [0, 1])
def test_a_population_that_is_asked_to_end_waits_for_all(tmp_path, monkeypatch, last):
    store = Store.create(tmp_path, plan_trials(None, SETS, POINTS[:2]), {})
    asked, saved, begun = threading.Event(), [], threading.Barrier(3)

    def save(store, trial, end_step):
        begun.wait(120)
        asked.wait(120)
        if trial == store.trials[last]:
            time.sleep(0.5)
        saved.append(trial)

    def ask():
        begun.wait(120)
        os.kill(os.getpid(), signal.SIGTERM)
        asked.set()

    monkeypatch.setattr(worker, "run_trial", save)
    asks = threading.Thread(target=ask)
    asks.start()
    with pytest.raises(KeyboardInterrupt):
        worker.run_population(store, store.trials)
    asks.join()
    assert sorted(saved, key=store.trials.index) == list(store.trials)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("together", [1, 2])
def test_a_worker_that_is_asked_to_end_writes_the_checkpoints_of_its_trials(tmp_path, together):
    planned = plan_trials(None, [*SETS, "train.steps=100000", "run.checkpoint_every=100000"], POINTS[:together])
    store = Store.create(tmp_path, planned, {})
    command = [sys.executable, "-m", "dovetail_lab.sweep.worker", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        process.stdin.write(json.dumps([trial.id for trial in store.trials]) + "\n")
        process.stdin.flush()
        while process.poll() is None and not all(len(store.metrics(trial)) > 4 for trial in store.trials):
            time.sleep(0.05)
        process.terminate()
        assert process.wait(240) == 128 + signal.SIGTERM, store.last_words(store.trials[0], 20)
    for trial in store.trials:
        assert store.newest_checkpoint(trial) == 2 + store.metrics(trial)[-1]["step"] < 100000, (
            "after two of the warm start"
        )
        assert store.state(trial).status == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("train.adapter=lora", "sft.steps=0")], ids=["full", "lora"])
def test_a_population_comes_out_as_its_trials_do_alone(tmp_path, monkeypatch, more):
    programs = []
    made = population._vectorised
    monkeypatch.setattr(population, "_vectorised", lambda program: programs.append(program) or made(program))
    planned = plan_trials(None, [*SETS, *more], POINTS)
    stores = {}
    for size in (1, 3):
        stores[size], executor = Store.create(tmp_path / str(size), planned, {}), Here()
        counts = drive(stores[size], executor, Terms(population=size), watch=Quiet(str), prepare=lambda _: None)
        assert counts == {"done": 3}, [stores[size].last_words(trial, 40) for trial in stores[size].trials]
        assert [len(ids) for ids, _ in executor.jobs] == [size] * (3 // size)
    updates = [program for program in programs if "Update(algorithm=" in str(program.function.function)]
    assert updates
    assert all(("common" in program.kinds) == bool(more) for program in updates), "the frozen base is one"
    for trial in planned.trials:
        for mine, theirs in zip(stores[3].metrics(trial), stores[1].metrics(trial), strict=True):
            assert mine.pop("phase") == theirs.pop("phase")
            assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-5)
