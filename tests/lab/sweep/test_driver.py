"""Whatever happens to a trial, a worker or the driver, nothing else is lost, and the same command resumes the sweep."""

import errno
import fcntl
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import attrs
import pytest
from tests.lab.sweep import stub
from tests.lab.sweep.stub import CRASHES, DIES, DIES_ONCE, FAILS, GOOD, HANGS, SLOW, sweep

from dovetail.cli import main
from dovetail.errors import RunError, WorkerLost
from dovetail_lab.sweep import Store, Trial, TrialFailed, driver
from dovetail_lab.sweep import store as sweep_store
from dovetail_lab.sweep.state import State

PATIENCE_SECONDS = 300


def until(condition, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def trial(store: Store, rate: float) -> Trial:
    return next(each for each in store.trials if each.values["train.lr"] == str(rate))


def steps(store: Store, each: Trial) -> list[int]:
    return [line["step"] for line in store.metrics(each)]


def pids(store: Store) -> set[int]:
    return {line["pid"] for each in store.trials for line in store.metrics(each)}


def test_one_worker_runs_all_trials_of_a_group(tmp_path):
    store, counts = sweep(tmp_path / "s", GOOD, 0.11, 0.12)
    assert counts == {"done": 3}
    assert len(pids(store)) == 1
    assert all(steps(store, each) == [1, 2, 3, 4, 5] for each in store.trials)


def test_jobs_run_side_by_side(tmp_path):
    store, counts = sweep(tmp_path / "s", GOOD, 0.11, 1.1, 1.2, jobs=2)
    assert counts == {"done": 4}
    first = {}  # of each group; a worker that is done with its own may help with the rest
    for each in store.trials:
        first.setdefault(each.group, {line["pid"] for line in store.metrics(each)})
    assert len(set.union(*first.values())) == len(first) == 2, "a worker began with a group that another had"


def test_what_is_done_is_not_run_again(tmp_path):
    store, _ = sweep(tmp_path / "s", GOOD, 0.11)
    before = [store.state(each) for each in store.trials]
    assert sweep(tmp_path / "s", GOOD, 0.11)[1] == {"done": 2}
    assert [store.state(each) for each in store.trials] == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (FAILS, "lr=0.4 seed=0: failed, policy_loss/loss is nan at rl step 2"),
        pytest.param(CRASHES, "lr=0.7 seed=0: failed, ValueError: a bug", marks=pytest.mark.slow),
        (DIES, "lr=0.5 seed=0: failed, its process was killed by SIGKILL"),
    ],
)
def test_a_failing_trial_loses_nothing_else_and_is_told_at_once(tmp_path, rate, said):
    told: list[str] = []
    store, counts = sweep(tmp_path / "s", GOOD, rate, 0.11, say=told.append)
    assert counts == {"done": 2, "failed": 1}
    assert any(line.startswith(said) for line in told)
    assert store.state(trial(store, rate)).status == "failed"


def test_a_failure_shows_the_end_of_the_log(tmp_path):
    logs: dict[str, list[str]] = {}

    class Watch(stub.Quiet):
        def say(self, text, log=()):
            logs[text] = list(log)

    planned, about = stub.plan(CRASHES)
    store = Store.create(tmp_path / "s", planned, about)
    stub.drive(store, stub.Stub(), stub.Terms(), watch=Watch(), prepare=lambda _: None)
    ((text, log),) = logs.items()
    assert "ValueError: a bug" in text
    assert log[-1] == "ValueError: a bug"


@pytest.mark.slow
def test_a_hanging_trial_is_ended_and_counted(tmp_path, monkeypatch):
    """Once it hangs, an hour passes at once; the other trial has as long as it takes."""
    is_late, logs = driver._Driver._is_late, tmp_path / "s" / "trials"

    def later(driving, seat):
        if seat.begun is not None and "about to hang" in (logs / seat.job[0].id / "log.txt").read_text():
            seat.begun -= 3600.0
        return is_late(driving, seat)

    monkeypatch.setattr(driver._Driver, "_is_late", later)
    store, counts = sweep(tmp_path / "s", HANGS, GOOD, timeout=600.0)
    assert counts == {"timeout": 1, "done": 1}
    assert store.state(trial(store, HANGS)).reason == "it took longer than 600 s"


@pytest.mark.slow
def test_a_trial_is_tried_again_from_where_it_was(tmp_path):
    store, counts = sweep(tmp_path / "s", DIES_ONCE, GOOD, retry=1)
    assert counts == {"done": 2}
    died = trial(store, DIES_ONCE)
    assert store.state(died).attempts == 2
    assert steps(store, died) == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_retries_come_to_an_end(tmp_path):
    store, counts = sweep(tmp_path / "s", FAILS, retry=1)
    assert counts == {"failed": 1}
    assert store.state(trial(store, FAILS)).attempts == 2


def test_fail_fast_ends_the_sweep(tmp_path):
    with pytest.raises(TrialFailed, match="lr=0.4 seed=0: failed"):
        sweep(tmp_path / "s", FAILS, GOOD, fail_fast=True)
    store = Store.open(tmp_path / "s")
    assert store.state(trial(store, GOOD)).status == "waiting"
    assert not store.is_driven


@pytest.mark.slow
def test_a_corrupt_folder_is_set_aside_and_begun_again(tmp_path):
    store, _ = sweep(tmp_path / "s", GOOD, 0.11)
    (store.folder(trial(store, GOOD)) / "run.json").write_text("{")
    told: list[str] = []
    assert sweep(tmp_path / "s", GOOD, 0.11, say=told.append)[1] == {"done": 2}
    aside = tmp_path / "s" / "set-aside" / f"{trial(store, GOOD).id}-1"
    assert (aside / "run.json").read_text() == "{"
    assert told[0].startswith("lr=0.1 seed=0: its folder cannot be read (run.json: not valid JSON: Expecting")
    assert str(aside) in told[0]


def in_background(folder: Path, *rates: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, stub.__file__, "drive", str(folder), *map(str, rates)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])})


@pytest.mark.slow
def test_a_killed_driver_loses_nothing_and_its_worker_is_waited_for(tmp_path):
    folder = tmp_path / "s"
    driver = in_background(folder, SLOW, GOOD)
    until((folder / "sweep.json").exists, "the sweep begins")
    store = Store.open(folder)
    slow = trial(store, SLOW)
    until(lambda: len(steps(store, slow)) > 2, "the trial runs")
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not store.is_driven
    assert store.state(slow).status == "running", "the worker goes on with its trial"
    told: list[str] = []

    def say(text):
        told.append(text)
        (folder / stub.ENOUGH).touch()

    assert sweep(folder, SLOW, GOOD, say=say, timeout=300.0)[1] == {"done": 2}
    assert told[0].startswith("lr=0.2 seed=0 is being run by another process")
    assert steps(store, slow) == list(range(1, len(steps(store, slow)) + 1)), "no step ran twice"
    assert store.state(slow).attempts == 1


def test_one_driver_at_a_time(tmp_path):
    folder = tmp_path / "s"
    planned, about = stub.plan(GOOD)
    store = Store.create(folder, planned, about)
    with store.drive(), pytest.raises(RunError, match="in use by another process"):
        sweep(folder, GOOD)


def test_who_looks_whether_a_sweep_is_driven_is_in_nobodys_way(tmp_path, monkeypatch):
    """`sweep status` holds the lock for a moment."""
    monkeypatch.setattr(sweep_store, "CLAIM_SECONDS", 120.0)
    planned, about = stub.plan(GOOD)
    store = Store.create(tmp_path / "s", planned, about)
    with store.drive():
        pass
    looks = (store.path / "driver").open("rb")
    fcntl.flock(looks, fcntl.LOCK_SH)
    threading.Timer(0.2, looks.close).start()
    with store.drive():
        assert store.is_driven


def asked_while_running(folder: Path, rate: float, ask, *rates: float, **terms):
    """Run a sweep and, once a trial has begun, call `ask` with its folder."""

    def wait_and_ask():
        until((folder / "sweep.json").exists, "the sweep begins")
        store = Store.open(folder)
        until(lambda: steps(store, trial(store, rate)), "the trial begins")
        ask(store, trial(store, rate))

    thread = threading.Thread(target=wait_and_ask)
    thread.start()
    try:
        return sweep(folder, rate, *rates, **terms)
    finally:
        thread.join()


def test_a_trial_can_be_killed_and_stays_so(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "HANGING_SECONDS", 120.0)
    folder = tmp_path / "s"
    store, counts = asked_while_running(folder, SLOW, lambda s, t: s.ask_to_stop(t, "killed", "by hand"), GOOD)
    assert counts == {"killed": 1, "done": 1}
    assert len(pids(store)) == 1, "the worker goes on with the next trial"
    assert sweep(folder, SLOW, GOOD)[1] == {"killed": 1, "done": 1}


@pytest.mark.slow
def test_a_hanging_trial_can_be_killed_too(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "HANGING_SECONDS", 0.3)
    _, counts = asked_while_running(tmp_path / "s", HANGS, lambda s, t: s.ask_to_stop(t, "killed", "by hand"), GOOD)
    assert counts == {"killed": 1, "done": 1}


@pytest.mark.slow
def test_the_sweep_can_be_stopped_and_goes_on(tmp_path):
    folder = tmp_path / "s"
    with pytest.raises(KeyboardInterrupt):
        asked_while_running(folder, SLOW, lambda s, _: s.ask_all_to_stop(), GOOD)
    store = Store.open(folder)
    slow = trial(store, SLOW)
    assert store.state(slow).status == "interrupted"
    begun = len(steps(store, slow))
    (folder / stub.ENOUGH).touch()
    assert sweep(folder, SLOW, GOOD)[1] == {"done": 2}
    assert steps(store, slow) == list(range(1, begun + 2)), "it needed one more to see that it is enough"


def test_trials_are_taken_in_order_where_that_is_asked(tmp_path):
    started: list[str] = []

    class Recorder(stub.Stub):
        def open(self, sweep, jobs):
            return _Recording(started)

    planned, about = stub.plan(GOOD, 1.1, 0.11, 1.2)
    for in_order, expected in ((True, planned.trials), (False, [planned.trials[i] for i in (0, 2, 1, 3)])):
        started.clear()
        store = Store.create(tmp_path / str(in_order), planned, about)
        terms = stub.Terms(in_order=in_order)
        stub.drive(store, Recorder(), terms, watch=stub.Quiet(str), prepare=lambda _: None)
        assert started == [each.id for each in expected]


def test_workers_that_a_dead_driver_has_left_count_as_jobs(tmp_path):
    """The only job is held by another process (here this one), so nothing starts until it has ended."""
    started: list[str] = []
    looks: list[int] = []
    planned, about = stub.plan(GOOD, 0.11)
    store = Store.create(tmp_path / "s", planned, about)
    orphan, waiting = store.trials

    class Recorder(stub.Stub):
        def open(self, sweep, jobs):
            return _Recording(started)

    class Watch(stub.Quiet):
        def look(self, states):
            looks.append(len(started))
            if len(looks) == 3:
                store.settle(orphan, "failed", "it ended")
                held.__exit__(None, None, None)

    held = store.claim(orphan)
    held.__enter__()
    stub.drive(store, Recorder(), stub.Terms(jobs=1), watch=Watch(str), prepare=lambda _: None)
    assert looks[:3] == [0, 0, 0]
    assert waiting.id in started


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    class Lost(_Recording):
        def finished(self):
            raise WorkerLost("its process is gone")

    class Executor(stub.Stub):
        def open(self, sweep, jobs):
            return Lost([])

    planned, about = stub.plan(GOOD)
    store = Store.create(tmp_path / "s", planned, about)
    monkeypatch.setattr(sweep_store, "write_whole", full)
    with pytest.raises(RunError, match=r"No space left on device \(.*state\.json\).* the same command goes on once"):
        stub.drive(store, Executor(), stub.Terms(), watch=stub.Quiet(str), prepare=lambda _: None)
    monkeypatch.undo()
    assert sweep(tmp_path / "s", GOOD)[1] == {"done": 1}


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
def test_a_worker_whose_host_has_another_time_is_ended_when_it_takes_too_long(tmp_path, ahead):
    planned, about = stub.plan(GOOD)
    store = Store.create(tmp_path / "s", planned, about)

    class Hangs(_Recording):
        def start(self, trials):
            state = State(status="running", attempts=1, started=time.time() + ahead, host="elsewhere", pid=1)
            store.write_state(store.trials[0], state)

        def finished(self):
            return False

    class Executor(stub.Stub):
        def open(self, sweep, jobs):
            return Hangs([])

    counts = stub.drive(store, Executor(), stub.Terms(timeout=0.5), watch=stub.Quiet(str), prepare=lambda _: None)
    assert counts == {"timeout": 1}


def test_a_trial_that_is_killed_while_it_waits_does_not_run(tmp_path):
    planned, about = stub.plan(GOOD, 0.11, 0.12)
    store = Store.create(tmp_path / "s", planned, about)
    first, second, third = store.trials
    started: list[str] = []

    class Killing(_Recording):
        def start(self, trials):
            super().start(trials)
            if len(started) == 1:
                assert main(["sweep", "kill", str(store.path), second.id]) == 0

    class Executor(stub.Stub):
        def open(self, sweep, jobs):
            return Killing(started)

    counts = stub.drive(store, Executor(), stub.Terms(), watch=stub.Quiet(str), prepare=lambda _: None)
    assert started == [first.id, third.id]
    assert counts["killed"] == 1


def test_a_trial_that_was_asked_to_stop_when_its_process_died_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "HANGING_SECONDS", 0.3)
    planned, about = stub.plan(GOOD)
    store = Store.create(tmp_path / "s", planned, about)
    started: list[str] = []

    class Dies(_Recording):
        def finished(self):
            if len(self.started) > 1:
                raise AssertionError("it was tried again")
            store.ask_to_stop(store.trials[0], "killed", "by hand")
            raise WorkerLost("its process is gone")

    class Executor(stub.Stub):
        def open(self, sweep, jobs):
            return Dies(started)

    terms = stub.Terms(retry=3)
    counts = stub.drive(store, Executor(), terms, watch=stub.Quiet(str), prepare=lambda _: None)
    assert counts == {"killed": 1}
    assert store.state(store.trials[0]).reason == "by hand"
    assert started == [store.trials[0].id]


@pytest.mark.parametrize("late", [False, True])
def test_a_population_goes_on_after_a_trial_of_it_has_ended(tmp_path, monkeypatch, late):
    """Whether the trial has obeyed a request, or had been done when that came."""
    clock = Clock()
    monkeypatch.setattr(driver, "time", clock)
    planned, about = stub.plan(GOOD, 0.11)
    store = Store.create(tmp_path / "s", planned, about)
    workers = _Population([], store, clock, seconds=1.6 * driver.HANGING_SECONDS, late=late)

    class Executor(stub.Stub):
        def open(self, sweep, jobs):
            return workers

    terms = stub.Terms(population=2)
    counts = stub.drive(store, Executor(), terms, watch=stub.Quiet(str), prepare=lambda _: None)
    assert counts == ({"done": 1, "killed": 1} if late else {"killed": 2})
    assert workers.started == [each.id for each in store.trials], "no worker was ended"


@attrs.define
class Clock:
    """Stands in for the module `time` of a driver: its sleep is the only thing that takes time."""

    now: float = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@attrs.define
class _Recording:
    """Workers that fail at once and record their calls."""

    started: list[str]

    def open_worker(self, number):
        return self

    def start(self, trials):
        self.started.extend(trials)

    def finished(self):
        return True

    def kill(self):
        pass

    def close(self):
        pass


@attrs.define
class _Population(_Recording):
    """Two trials as one job, of which the first obeys a request while the second goes on for `seconds`."""

    store: Store
    clock: Clock
    seconds: float
    late: bool = False
    began: float = 0.0

    def start(self, trials):
        self.started.extend(trials)
        self.began = self.clock.monotonic()
        self.store.ask_to_stop(self.store.trials[0], "killed", "by hand")

    def finished(self):
        first, second = self.store.trials
        passed = self.clock.monotonic() - self.began
        if passed > self.seconds / 2 and self.store.state(first).status == "waiting":
            if self.late:
                self.store.write_state(first, State(status="done"))
                (self.store.folder(first) / "run.json").write_text(f'{{"run_id": "{first.id}"}}')
                (self.store.folder(first) / "metrics.jsonl").touch()
            else:
                self.store.settle(first, *self.store.asked_to_stop(first))
        if passed > self.seconds:
            self.store.settle(second, "killed")
        return passed > self.seconds


def test_no_timeout_is_no_deadline():
    assert stub.Terms().timeout == math.inf
