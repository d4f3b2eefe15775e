"""The driver: hands trials to workers until there are none left, whatever happens to any of them."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from dovetail.errors import RunError, WorkerLost
from dovetail_lab.sweep.state import FINAL, State, Status
from dovetail_lab.sweep.stopping import Stopping
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.terms import Source, Terms, TrialFailed, Watch
from dovetail_lab.sweep.trial import Trial

if TYPE_CHECKING:  # what it is made of imports jax
    from dovetail_lab.kinds import Executor, Worker, Workers

TICK_SECONDS = 0.1
START_SECONDS = 300.0
"""What a process may take to start before it counts as hanging."""
LOOK_SECONDS = 0.5
LOG_LINES = 8
HANGING_SECONDS = 10.0
"""A trial that somebody asked to stop and that does not look for so long is ended with its process."""

Prepare = Callable[[Trial], None]


def drive(
    store: Store,
    executor: Executor,
    terms: Terms,
    *,
    watch: Watch,
    prepare: Prepare,
    trials: Sequence[Trial] | None = None,
    stopping: Stopping | None = None,
    source: Source | None = None,
) -> Counter[Status]:
    """Run the trials of a sweep that are not at an end yet.

    Trials that another process is at, such as a worker whose driver died, are waited for, and such a process counts as
    one of the jobs. What a trial's folder holds and cannot be read is set aside and begun again.

    Args:
        store: the sweep.
        executor: where workers run.
        terms: how many at a time, and what failure means.
        watch: shows it.
        prepare: makes the folder of a trial anew, after the old one was set aside.
        trials: which trials, in their order; by default all.
        stopping: a rule by which trials are stopped early.
        source: what chooses the trials, in place of `trials`; workers are kept while it may choose more.

    Returns:
        How many trials there are of each status.

    Raises:
        RunError: if the sweep is driven by another process, or its folder cannot be written, as on a full disk.
        KeyboardInterrupt: if somebody asks for the end of the sweep; workers are ended before.
    """
    try:
        with store.drive():
            if source:
                source.resume()
            workers = executor.open(store.path, terms.jobs)
            driver = _Driver(
                store=store,
                workers=workers,
                terms=terms,
                watch=watch,
                stopping=stopping,
                trials=list(trials or store.trials),
                source=source,
            )
            try:
                driver.run(prepare)
            finally:
                driver.end()
                workers.close()
            return Counter(state.status for state in driver.states.values())
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise RunError(
            f"sweep '{store.path}' ends here: {error.strerror or error}{where}. Nothing is lost: the same command goes"
            " on once that is mended"
        ) from error


@attrs.define(eq=False)
class _Seat:
    """A place for a worker, and what it is at."""

    number: int
    worker: Worker | None = None
    group: str = ""
    job: tuple[Trial, ...] = ()
    handed_out: float = 0.0
    attempts: int = 0
    """Of the job's first trial, when it was handed out."""
    begun: float | None = None
    """When it was first seen that the worker has begun. Its host's clock may be another one, so it is not asked."""

    def dismiss(self) -> None:
        """End the worker."""
        if self.worker:
            self.worker.kill()
        self.worker, self.job = None, ()


@attrs.define(kw_only=True, eq=False)
class _Driver:
    store: Store
    workers: Workers
    terms: Terms
    watch: Watch
    stopping: Stopping | None
    trials: list[Trial]
    source: Source | None = None
    seats: list[_Seat] = attrs.field(factory=list)
    waiting: list[Trial] = attrs.field(factory=list)
    elsewhere: list[Trial] = attrs.field(factory=list)
    failures: Counter[str] = attrs.field(factory=Counter)
    asked: dict[str, float] = attrs.field(factory=dict)
    """When a stop of a trial was first seen."""
    states: dict[Trial, State] = attrs.field(factory=dict)
    """How each trial stood when it was last looked at."""

    def run(self, prepare: Prepare) -> None:
        """Drive to the end."""
        self.seats = [_Seat(number) for number in range(self.terms.jobs)]
        for trial in self.trials:
            if self.source:
                self._read(trial)
            else:
                self._sort_in(trial, prepare)
        for tick in itertools.count():
            if self.store.all_asked_to_stop:
                raise KeyboardInterrupt
            for seat in self.seats:
                self._attend(seat, prepare)
            self._look_elsewhere(prepare)
            if tick % round(LOOK_SECONDS / TICK_SECONDS) == 0:
                self._prune()
                self._look()
            if not self.waiting and not self.elsewhere and not any(seat.job for seat in self.seats):
                return
            time.sleep(TICK_SECONDS)

    def end(self) -> None:
        """End all workers. Trials that they were at go on from their checkpoints, the next time."""
        for seat in self.seats:
            at_hand = seat.job
            seat.dismiss()
            for trial in at_hand:
                self._read(trial)
        for trial in [trial for trial, state in self.states.items() if state.status == "paused"]:
            self._read(trial)  # the source has ended what it has replaced
        self.watch.look(self.states)

    def _read(self, trial: Trial) -> State:
        self.states[trial] = self.store.state(trial)
        return self.states[trial]

    def _look(self) -> None:
        for trial in (*(trial for seat in self.seats for trial in seat.job), *self.elsewhere):
            self._read(trial)
        self.watch.look(self.states)

    def _sort_in(self, trial: Trial, prepare: Prepare) -> None:
        state = self._read(trial)
        if state.status == "running":
            self.watch.say(f"{trial.label} is being run by another process ({state.host} {state.pid}); waiting")
            self.elsewhere.append(trial)
        elif state.status == "corrupt":
            self._begin_anew(trial, state, prepare)
        elif state.status not in FINAL:
            self.waiting.append(trial)

    def _begin_anew(self, trial: Trial, state: State, prepare: Prepare) -> None:
        aside = self.store.set_aside(trial)
        self.watch.say(f"{trial.label}: its folder cannot be read ({state.reason}); kept in '{aside}', begun again")
        prepare(trial)
        self._read(trial)
        self.waiting.append(trial)

    def _look_elsewhere(self, prepare: Prepare) -> None:
        for trial in [t for t in self.elsewhere if self.store.state(t).status != "running"]:
            self.elsewhere.remove(trial)
            self._sort_in(trial, prepare)

    def _refill(self, prepare: Prepare) -> None:
        """Ask the source for trials if a worker could take more than are waiting."""
        at_hand = [*self.waiting, *self.elsewhere, *(trial for seat in self.seats for trial in seat.job)]
        free = sum(not seat.job for seat in self.seats) * self.terms.population - len(self.waiting)
        if self.source and free > 0:
            for trial in dict.fromkeys(self.source.more(at_hand, free)):
                self.trials += [trial] if trial not in self.trials else []
                self._sort_in(trial, prepare)

    def _attend(self, seat: _Seat, prepare: Prepare) -> None:
        """See to one worker: what it has finished, whether it hangs, what to do next."""
        if seat.job and seat.worker:
            try:
                if seat.worker.finished():
                    self._settle(seat)
                elif self._is_late(seat):
                    self._give_up(seat, "timeout", f"it took longer than {self.terms.timeout:g} s")
                elif self._ignores_request(seat):
                    self._end_as_asked(seat)
            except WorkerLost as lost:
                self._give_up(seat, "failed", str(lost))
        if not seat.job:
            self._refill(prepare)
        if not seat.job and self.waiting and self._has_place():
            self._hand_out(seat, prepare)
        elif not seat.job and not (self.source and any(other.job for other in self.seats)):
            seat.dismiss()  # what it holds, another worker may be waiting for

    def _has_place(self) -> bool:
        """Whether a worker may begin a job: those that a dead driver has left count, each process once."""
        others = {(self.states[trial].host, self.states[trial].pid) for trial in self.elsewhere}
        return len(others) + sum(bool(seat.job) for seat in self.seats) < self.terms.jobs

    def _hand_out(self, seat: _Seat, prepare: Prepare) -> None:
        job = self._choose(seat)
        if killed := [trial for trial in job if self._read(trial).status in FINAL]:
            self.waiting = [trial for trial in self.waiting if trial not in killed]
            return  # the others get their turn at the next look
        seat.job = job
        if not self.source:  # a source decides itself where its trials go on
            self.store.level(job, prepare)
        for trial in job:
            self.waiting.remove(trial)
        seat.group = job[0].group
        seat.worker = seat.worker or self.workers.open_worker(seat.number)
        seat.attempts, seat.begun = self._read(job[0]).attempts, None
        seat.worker.start([trial.id for trial in job])
        seat.handed_out = time.monotonic()

    def _choose(self, seat: _Seat) -> tuple[Trial, ...]:
        """Prefer what the worker has compiled already, then what no other worker has."""
        taken = {other.group for other in self.seats if other is not seat and other.job}
        order = list(self.waiting)
        if not self.terms.in_order:
            order.sort(key=lambda trial: (trial.group != seat.group, trial.group in taken))
        alike = [trial for trial in order if trial.group == order[0].group]
        return tuple(alike[: self.terms.population])

    def _settle(self, seat: _Seat) -> None:
        """Take note of how the trials of a finished job ended."""
        job, seat.job = seat.job, ()
        good = True
        for trial in job:
            state = self._read(trial)
            self.asked.pop(trial.id, None)
            if state.status in FINAL or state.status == "paused":
                self.watch.say(f"{trial.label}: {state.status}{f', {state.reason}' if state.reason else ''}")
            else:
                good = False
                reason = state.reason or f"it ended without a result ({state.status})"
                self._failed(trial, "timeout" if state.status == "timeout" else "failed", reason)
        if not good:
            seat.dismiss()

    def _give_up(self, seat: _Seat, status: Status, reason: str) -> None:
        """End a worker that hangs or is gone, with what it was at."""
        job = seat.job
        seat.dismiss()
        for trial in job:
            if self._read(trial).status not in FINAL and not self._ended_as_asked(trial):
                self.states[trial] = self.store.settle(trial, status, reason)
                self._failed(trial, status, reason)

    def _failed(self, trial: Trial, status: Status, reason: str) -> None:
        self.failures[trial.id] += 1
        left = self.terms.retry + 1 - self.failures[trial.id]
        what, log = f"{trial.label}: {status}, {reason}", self.store.last_words(trial, LOG_LINES)
        if left > 0:
            self.watch.say(f"{what}; {left} more {'try' if left == 1 else 'tries'}", log)
            self.waiting.append(trial)
            return
        self.watch.say(what, log)
        if self.terms.fail_fast:
            raise TrialFailed(f"{what}. The sweep ends here (--fail-fast); the same command continues with the rest")

    def _is_late(self, seat: _Seat) -> bool:
        """Whether a job takes too long, from when its trial was claimed; before that its process is starting."""
        now = time.monotonic()
        if seat.begun is None:
            if self.states[seat.job[0]].attempts == seat.attempts:
                return now - seat.handed_out > self.terms.timeout + START_SECONDS
            seat.begun = now
        return now - seat.begun > self.terms.timeout

    def _ignores_request(self, seat: _Seat) -> bool:
        now = time.monotonic()
        for trial in seat.job:
            if self.store.asked_to_stop(trial) and self._read(trial).status not in FINAL:
                self.asked.setdefault(trial.id, now)
            else:  # it has obeyed, or had ended before; the others of its population go on
                self.asked.pop(trial.id, None)
        return any(now - self.asked.get(trial.id, now) > HANGING_SECONDS for trial in seat.job)

    def _end_as_asked(self, seat: _Seat) -> None:
        job = seat.job
        seat.dismiss()
        for trial in job:
            if self._read(trial).status not in FINAL and not self._ended_as_asked(trial):
                self.waiting.append(trial)

    def _ended_as_asked(self, trial: Trial) -> bool:
        """Settle a trial whose worker is ended as somebody asked, if anybody has; return whether."""
        self.asked.pop(trial.id, None)
        if asked := self.store.asked_to_stop(trial):
            self.states[trial] = self.store.settle(trial, *asked)
            self.watch.say(f"{trial.label}: {asked[0]}, {asked[1]}")
        return asked is not None

    def _prune(self) -> None:
        """Ask for the end of trials that the stopping rule gives up."""
        if self.stopping is None:
            return
        running = [*(trial for seat in self.seats for trial in seat.job), *self.elsewhere]
        for trial, reason in self.stopping.judge(self.store, running, self.trials):
            self.store.ask_to_stop(trial, "pruned", reason)
