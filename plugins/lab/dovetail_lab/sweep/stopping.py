"""Early stopping: a rule is asked about a running trial whenever it has been evaluated again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from dovetail.config import Choice
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.trial import Trial

Curve = list[tuple[int, float]]
"""(step, value) pairs in the order in which they were recorded; higher is better."""


@attrs.define(kw_only=True)
class Stopping:
    """A rule of kind `early_stopping` with what it is asked about.

    The rule reads `curve`, that of the trial, and `others`, those of all other trials that have one, ended or not. It
    returns whether to stop. It may also read `total_steps`, the trial's; `steps` has them by trial id.
    """

    rule: Choice
    metric: str
    goal: str
    steps: Mapping[str, int]
    _seen: dict[str, int] = attrs.field(factory=dict)

    def judge(self, store: Store, running: Sequence[Trial], trials: Sequence[Trial]) -> Iterator[tuple[Trial, str]]:
        """Yield the running trials to be stopped, and why."""
        lengths = {trial.id: len(store.curve(trial, self.metric)) for trial in running}
        due = [trial for trial in running if lengths[trial.id] > self._seen.get(trial.id, 0)]
        if not due:
            return
        self._seen |= lengths
        curves = {trial.id: self._curve(store, trial) for trial in trials}
        for trial in due:
            others = [curve for key, curve in curves.items() if key != trial.id and curve]
            if self._stops(curves[trial.id], others, self.steps[trial.id]):
                step, value = curves[trial.id][-1]
                shown = value if self.goal == "max" else -value
                yield trial, f"{self.rule.component.name} at step {step}, {self.metric} {shown:.4g}"

    def _curve(self, store: Store, trial: Trial) -> Curve:
        """The curve by step, the last value of each, signed so that higher is better."""
        sign = 1.0 if self.goal == "max" else -1.0
        return sorted((step, sign * value) for step, value in dict(store.curve(trial, self.metric)).items())

    def _stops(self, curve: Curve, others: list[Curve], total_steps: int) -> bool:
        offered = {"curve": curve, "others": others, "total_steps": total_steps}
        arguments = [offered[name] for name in self.rule.component.reads]
        return bool(self.rule.bind()(*arguments))
