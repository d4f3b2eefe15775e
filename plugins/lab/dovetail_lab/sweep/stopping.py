"""Early stopping: a rule is asked about a running trial whenever it has been evaluated again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from dovetail.config import Choice
from dovetail_lab.sweep.store import Store
from dovetail_lab.sweep.trial import Trial

Curve = list[tuple[int, float]]
"""(step, value) pairs in the order in which they were recorded; higher is better, and what is not finite is -inf."""


@attrs.frozen(kw_only=True)
class Stopping:
    """A rule of kind `early_stopping` with what it is asked about.

    The rule reads `curve`, that of the trial, and `others`, those of all other trials that have one, ended or not. It
    returns whether to stop. It may also read `total_steps`, the trial's; `steps` has them by trial id.
    """

    rule: Choice
    metric: str
    goal: str
    steps: Mapping[str, int]

    def judge(self, store: Store, running: Sequence[Trial], trials: Sequence[Trial]) -> Iterator[tuple[Trial, str]]:
        """Yield the running trials to be stopped, and why.

        A trial is judged at each of its values once, by the curve up to there: a rule that acts on some step alone has
        its say also if a later value is there already, or came while no driver ran. How far each trial was judged is
        kept in its folder.
        """
        judged = {trial.id: store.judged(trial) for trial in running}
        due = {
            trial: curve
            for trial in running
            if (curve := self._curve(store, trial)) and curve[-1][0] > judged[trial.id]
        }
        curves = {trial.id: self._curve(store, trial) for trial in trials} if due else {}
        for trial, curve in due.items():
            others = [other for key, other in curves.items() if key != trial.id and other]
            for end, (step, value) in enumerate(curve, 1):
                if step > judged[trial.id] and self._stops(curve[:end], others, self.steps[trial.id]):
                    shown = value if self.goal == "max" else -value
                    yield trial, f"{self.rule.component.name} at step {step}, {self.metric} {shown:.4g}"
                    break
            store.note_judged(trial, curve[-1][0])  # once a decision is carried out, so that no kill loses it

    def _curve(self, store: Store, trial: Trial) -> Curve:
        """The curve by step, the last value of each, signed so that higher is better.

        Every comparison with NaN is false: to a rule, a trial that has diverged would never be worse than another.
        """
        sign = 1.0 if self.goal == "max" else -1.0
        signed = ((step, sign * value) for step, value in dict(store.curve(trial, self.metric)).items())
        return sorted((step, value if math.isfinite(value) else -math.inf) for step, value in signed)

    def _stops(self, curve: Curve, others: list[Curve], total_steps: int) -> bool:
        offered = {"curve": curve, "others": others, "total_steps": total_steps}
        component = self.rule.component
        arguments = [offered[name] for name in component.reads]
        with component.named():
            answer = np.asarray(self.rule.bind()(*arguments))
        if answer.shape != () or answer.dtype != bool:
            raise component.wrong(f"returned {answer!s:.80}; return whether to stop the trial, a bool")
        return bool(answer)
