"""A sweep whose settings a sampler chooses as results come in: the questions, the results, and the trials between them.

    study.jsonl       every proposal as it was asked for, and every result as it was told, in order

Nothing else of a study is kept. A sweep that goes on opens the sampler anew and replays that file: the same questions
and results give the same proposals, so that a study is after `kill -9` what it was before, whatever it keeps in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TextIO

import attrs

from dovetail.config.types import literal
from dovetail.errors import ConfigError, RunError
from dovetail.run.files import records, write_whole
from dovetail_lab.kinds import Proposal, Result, Study
from dovetail_lab.sweep.space import Point
from dovetail_lab.sweep.state import FINAL
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.trial import Planned, Trial

LOG: Final = "study.jsonl"

Plan = Callable[[list[Point]], Planned]
"""Reads and plans the runs of points."""


@attrs.frozen(kw_only=True)
class Asked:
    """A proposal, and the runs that it is."""

    proposal: Proposal
    trials: tuple[Trial, ...]


@attrs.define(kw_only=True)
class Search:
    """Hands a driver the trials of a study: `more` is what the driver asks.

    Attributes:
        path: the sweep's folder.
        study: the open sampler.
        plan: plans trials.
        seeds: `run.seed` of the runs of a proposal.
        about: what is recorded of the sweep.
        metric: whose last value is the result.
        sign: 1 if higher is better, else -1.
        planned: all trials so far.
        steps: what each of them takes, by id; it grows.
    """

    path: Path
    study: Study
    plan: Plan
    seeds: tuple[int, ...]
    about: Mapping[str, Any]
    metric: str
    sign: float
    planned: Planned
    steps: dict[str, int] = attrs.field(factory=dict)
    asked: list[Asked] = attrs.field(factory=list)
    told: set[int] = attrs.field(factory=set)
    _begun: set[tuple[int, str]] = attrs.field(factory=set)
    _log: TextIO | None = None

    @property
    def store(self) -> Store:
        """The sweep's folder."""
        return Store(self.path)

    def resume(self) -> None:
        """Replay what the folder has, and open the log for more; called once the sweep is held.

        Raises:
            RunError: if the sampler answers otherwise than it did, or the folder has other trials.
        """
        kept = list(records(self.path / LOG))
        for record in kept:
            if "told" in record:
                self._tell(record["told"], Result(value=record["value"], curve=tuple(map(tuple, record["curve"]))))
            else:
                self._take(self._asked_again(record))
        Store.create(self.path, self.planned, self.about, extend=True)
        for asked in self.asked:
            self._carry_out(asked)
        # what a kill has left of a line is cut off, so that the next line is one
        write_whole(self.path / LOG, "".join(json.dumps(record) + "\n" for record in kept))
        self._log = (self.path / LOG).open("a")

    def _asked_again(self, record: Mapping[str, Any]) -> Proposal:
        proposal = self.study.ask()
        if proposal is None or _written(proposal, len(self.asked)) != dict(record):
            shown = "nothing" if proposal is None else _shown(proposal.values)
            raise RunError(
                f"{self.path / LOG}: proposal {record['ask']} was {record['values']}, and the sampler now answers"
                f" {shown}: its library is another version than then, or the file was edited. Put it back, or begin in"
                " another folder"
            )
        return proposal

    def close(self) -> None:
        """Close the log."""
        if self._log:
            self._log.close()

    def more(self, at_hand: Collection[Trial], room: int) -> list[Trial]:
        """Tell the results of what has ended, and return the next trials to run: about as many as there is room for.

        Args:
            at_hand: the trials that the driver, or another process, has.
            room: how many it could take.
        """
        self._collect(at_hand)
        found = list(self._owed(at_hand))
        while len(found) < room and (proposal := self.study.ask()) is not None:
            self._write(_written(proposal, len(self.asked)))
            asked = self._take(proposal)
            Store.create(self.path, self.planned, self.about, extend=True)
            self._carry_out(asked)
            found += self._owed([*at_hand, *found])
            self._collect([*at_hand, *found])  # a setting that there has been has its result already
        return found

    def _owed(self, at_hand: Collection[Trial]) -> Iterator[Trial]:
        """The trials of open proposals that have not been handed out by this process, and have not ended."""
        for number, asked in self._open():
            for trial in asked.trials:
                if (number, trial.id) not in self._begun and trial not in at_hand and not self._has_ended(asked, trial):
                    self._begun.add((number, trial.id))
                    yield trial

    def _open(self) -> list[tuple[int, Asked]]:
        return [(number, asked) for number, asked in enumerate(self.asked) if number not in self.told]

    def _has_ended(self, asked: Asked, trial: Trial) -> bool:
        status = self.store.state(trial).status
        return status in FINAL or (
            status == "paused" and self.store.newest_checkpoint(trial) >= self._until(asked, trial)
        )

    def _until(self, asked: Asked, trial: Trial) -> float:
        until = asked.proposal.until
        return math.inf if until is None else self.planned.configs[trial.id].sft.steps + until

    def _collect(self, at_hand: Collection[Trial]) -> None:
        """Tell the sampler of the proposals that have come to an end."""
        for number, asked in self._open():
            over = all(
                trial not in at_hand and ((number, trial.id) in self._begun or self._has_ended(asked, trial))
                for trial in asked.trials
            )
            if over:
                result = self._result(asked.trials)
                self._write({"told": number, "value": result.value, "curve": [list(pair) for pair in result.curve]})
                self._tell(number, result)

    def _tell(self, number: int, result: Result) -> None:
        self.study.tell(number, result)
        self.told.add(number)

    def _result(self, trials: tuple[Trial, ...]) -> Result:
        statuses = {self.store.state(trial).status for trial in trials}
        curves = [dict(self.store.curve(trial, self.metric)) for trial in trials]
        common = sorted(set.intersection(*map(set, curves)))
        curve = [(step, self.sign * fmean(each[step] for each in curves)) for step in common]
        finite = tuple(pair for pair in curve if math.isfinite(pair[1]))
        if statuses <= {"done", "paused"} and curve and curve[-1] in finite:
            return Result(value=curve[-1][1], curve=finite)
        return Result(value=None, curve=finite if statuses <= {"done", "paused", "pruned"} else ())

    def _take(self, proposal: Proposal) -> Asked:
        """Plan the trials of a proposal, or take those of an earlier one."""
        if proposal.goes_on_with is not None:
            trials = self.asked[proposal.goes_on_with].trials
        else:
            made = planned(proposal, self.seeds, self.plan)
            self.planned = Planned(
                base=self.planned.base,
                trials=tuple(dict.fromkeys((*self.planned.trials, *made.trials))),
                configs={**self.planned.configs, **made.configs},
                by_point={**self.planned.by_point, **made.by_point},
            )
            self.steps.update({id: config.train.steps for id, config in made.configs.items()})
            trials = made.trials
        self.asked.append(Asked(proposal=proposal, trials=trials))
        return self.asked[-1]

    def _carry_out(self, asked: Asked) -> None:
        """Do in the trials' folders what a proposal asks for; done twice, it changes nothing."""
        for trial in asked.trials:
            if asked.proposal.copies is not None:
                self._copy(asked.proposal, trial)
            until = self._until(asked, trial)
            self.store.pause_at(trial, None if math.isinf(until) else int(until))
        if asked.proposal.instead_of is not None:
            self._replace(asked)

    def _copy(self, proposal: Proposal, trial: Trial) -> None:
        assert proposal.copies is not None, "the caller has looked"
        source = self.asked[proposal.copies]
        checkpoint = int(self._until(source, source.trials[0]))
        self.store.branch(source.trials[0], trial, self.planned.configs[trial.id], checkpoint)

    def _replace(self, asked: Asked) -> None:
        """End a run that is replaced, unless it has come to an end of its own."""
        assert asked.proposal.instead_of is not None, "the caller has looked"
        ended = self.asked[asked.proposal.instead_of]
        for trial in ended.trials:
            if self.store.state(trial).status == "paused":
                self.store.settle(trial, "pruned", f"replaced at step {ended.proposal.until} by {asked.trials[0].id}")

    def prepare(self, trial: Trial) -> None:
        """Make a trial's folder anew, with the weights of the one whose copy it began as."""
        self.store.prepare(trial, self.planned.configs[trial.id])
        for asked in self.asked:
            if trial in asked.trials and asked.proposal.copies is not None:
                self._copy(asked.proposal, trial)

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self._log is not None, "resume has opened it"
        self._log.write(json.dumps(record) + "\n")
        self._log.flush()


def planned(proposal: Proposal, seeds: tuple[int, ...], plan: Plan) -> Planned:
    """Plan the runs of a proposal.

    Raises:
        ConfigError: if it is to pause where no checkpoint is made.
    """
    overrides = tuple(f"{key}={literal(value)}" for key, value in proposal.values.items())
    made = plan([Point(overrides, seed) for seed in _seeds(proposal, seeds)])
    every = next(iter(made.configs.values())).run.checkpoint_every
    if proposal.until is not None and proposal.until % every:
        raise ConfigError(
            f"the sampler looks at step {proposal.until}, where run.checkpoint_every = {every} makes no checkpoint; let"
            " its interval be a multiple of that"
        )
    return made


def _seeds(proposal: Proposal, seeds: tuple[int, ...]) -> tuple[int, ...]:
    return seeds if proposal.seed is None else (seeds[0] + proposal.seed,)


def _written(proposal: Proposal, number: int) -> dict[str, Any]:
    """Return a proposal as its line says it."""
    others = attrs.asdict(proposal, filter=lambda field, value: field.name != "values" and value is not None)
    return {"ask": number, "values": _shown(proposal.values), **others}


def _shown(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: literal(value) for key, value in values.items()}
