"""The outcomes of an A/B test's runs, read from its folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
from jaxtyping import Float

from dovetail.errors import RunError
from dovetail_lab.ab.design import Design
from dovetail_lab.ab.integrity import doubts
from dovetail_lab.ab.journal import Journal
from dovetail_lab.ab.registration import Registration
from dovetail_lab.recorded import digits, figures, prompts
from dovetail_lab.sweep import State, Store, Trial
from dovetail_lab.sweep.state import SETTLED

EVALUATIONS: Final = "eval.jsonl"
"""The file of values by prompt; the others have one figure for each metric."""
Curve = Mapping[int, float]
"""A metric by step."""


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a run: how it ended, and its result on the primary metric, NaN if there is none.

    Results are finite: a run with an infinite or undefined value in the window counts as lost, with the reason.
    """

    arm: str
    seed: int
    id: str
    folder: Path
    state: State
    value: float

    @property
    def settled(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self.state.status in SETTLED or self.state.status == "corrupt"

    @property
    def lost(self) -> bool:
        """Whether it has ended without a result."""
        return self.settled and math.isnan(self.value)


@attrs.frozen(kw_only=True)
class Runs:
    """All runs of an A/B test, and what they recorded."""

    registration: Registration
    outcomes: Mapping[tuple[str, int], Outcome]
    set_aside: tuple[str, ...]
    """Folders of runs that could not be read and were begun again."""
    doubts: tuple[str, ...] = ()
    """Why a verdict does not confirm what was registered; see `dovetail_lab.ab.integrity`."""
    seal: str = ""
    """Hash of the first line of the journal."""
    _records: dict[tuple[Path, str], list[dict[str, Any]]] = attrs.field(factory=dict, repr=False)

    @classmethod
    def read(cls, registration: Registration, store: Store) -> Runs:
        """Read them.

        Raises:
            RunError: if the sweep's record lacks a registered run.
        """
        trials = {trial.id: trial for trial in store.trials}
        outcomes = {}
        for arm, ids in registration.trials.items():
            for seed, id in ids.items():
                if id not in trials:
                    raise RunError(f"'{store.path}' has no run {id}, which is registered as arm {arm}, seed {seed}")
                outcomes[arm, seed] = _outcome(registration, store, trials[id], arm, seed)
        aside = sorted(path.name for path in (store.path / "set-aside").glob("*"))
        return cls(
            registration=registration,
            outcomes=outcomes,
            set_aside=tuple(aside),
            doubts=doubts(registration, store),
            seal=Journal(store.path).seal,
        )

    def pairs(self, seeds: Sequence[int]) -> int:
        """How many of these seeds all arms have finished."""
        arms = self.registration.trials
        return sum(all(not math.isnan(self.outcomes[arm, seed].value) for arm in arms) for seed in seeds)

    def look(self) -> int:
        """How many of the planned looks are due, because all runs that they wait for have ended."""
        design = self.registration.design
        ended = [all(self.outcomes[arm.name, seed].settled for arm in design.arms) for seed in design.seeds]
        return sum(all(ended[:size]) for size in design.look_sizes)

    def results(self, arm: str, seeds: Sequence[int]) -> Float[np.ndarray, "seed"]:
        """The primary metric by seed; NaN where a run has none."""
        return np.array([self.outcomes[arm, seed].value for seed in seeds])

    def table(self, arm: str, seeds: Sequence[int], figure: Callable[[Outcome], float]) -> Float[np.ndarray, "seed"]:
        """Return a figure of each run by seed; NaN where a run has no result on the primary metric either."""
        outcomes = [self.outcomes[arm, seed] for seed in seeds]
        return np.array([math.nan if math.isnan(each.value) else figure(each) for each in outcomes])

    def identical(self, arm: str, seeds: Sequence[int]) -> bool:
        """Whether an arm's run of every seed has recorded the same numbers, bit for bit, as the control's."""
        control = self.registration.design.control.name
        pairs = [(self.outcomes[arm, seed], self.outcomes[control, seed]) for seed in seeds]
        return bool(pairs) and all(not (a.lost or b.lost) and self._digits(a) == self._digits(b) for a, b in pairs)

    def _digits(self, outcome: Outcome) -> str:
        """What a run has recorded, as text, in which NaN equals NaN."""
        return digits(self.records(outcome, "metrics.jsonl"))

    def records(self, outcome: Outcome, file: str) -> list[dict[str, Any]]:
        """Return what a run has recorded of its RL phase in one of its files; read once."""
        key = (outcome.folder, file)
        if key not in self._records:
            path = outcome.folder / file
            self._records[key] = prompts(path) if file == EVALUATIONS else figures(path, "rl")
        return self._records[key]

    def curve(self, outcome: Outcome, metric: str) -> Curve:
        """Return a metric of a run by step, whatever its values."""
        return {line["step"]: line[metric] for line in self.records(outcome, "metrics.jsonl") if metric in line}

    def drawn(self, outcome: Outcome, metric: str) -> Curve:
        """Return what a picture can show of a metric of a run: its finite values."""
        return {step: value for step, value in self.curve(outcome, metric).items() if _is_finite(value)}

    def curves(self, arm: str, metric: str, seeds: Sequence[int]) -> list[Curve]:
        """Return what a picture can show of an arm's runs that have a result, in the order of the seeds."""
        outcomes = [self.outcomes[arm, seed] for seed in seeds]
        return [self.drawn(each, metric) for each in outcomes if not math.isnan(each.value)]


def _outcome(registration: Registration, store: Store, trial: Trial, arm: str, seed: int) -> Outcome:
    state = store.state(trial)
    value = math.nan
    if state.status == "done":
        curve = dict(store.curve(trial, registration.design.metric))
        value, complaint = result_of(curve, registration.design, registration.steps[arm])
        state = attrs.evolve(state, reason=complaint or state.reason)
    return Outcome(arm=arm, seed=seed, id=trial.id, folder=store.folder(trial), state=state, value=value)


def result_of(curve: Curve, design: Design, steps: int) -> tuple[float, str]:
    """Return a finished run's result, or NaN and why there is none.

    Args:
        curve: the primary metric by step.
        design: which steps count.
        steps: RL steps of the run, of which the window may be a share.
    """
    counted = design.window.steps(list(curve), steps)
    if not counted:
        return math.nan, f"it has recorded no {design.metric}"
    odd = next((step for step in counted if not _is_finite(curve[step])), None)
    if odd is not None:
        return math.nan, f"{design.metric} is {curve[odd]} at step {odd}, within the window {design.window.text}"
    return math.fsum(curve[step] for step in counted) / len(counted), ""


def _is_finite(value: float | None) -> bool:
    """Whether a recorded value is a finite number; other programs write null for one that is not."""
    return value is not None and math.isfinite(value)
