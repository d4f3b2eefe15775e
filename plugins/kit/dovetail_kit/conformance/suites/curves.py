"""Claims about curves of the learning rate: beyond the end of a run, and what their numbers are called for."""

from __future__ import annotations

import re
from typing import Final

import jax.numpy as jnp
import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import finite
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.numbers import SCHEDULES, schedule_of

TOTAL: Final = 1000
END: Final = re.compile(r"^(end|final)(_(factor|value|ratio))?$")
DECAY: Final = re.compile(r"^decay_(ratio|fraction|share)$")
ENOUGH: Final = 1e-2


def _curve(subject: Subject, steps: range, changed: dict[str, float]) -> np.ndarray:
    floats = subject.floats | {name: np.float32(value) for name, value in changed.items()}
    schedule = schedule_of(subject, floats)
    return np.array([float(schedule(jnp.int32(step), jnp.int32(TOTAL))) for step in steps])


def _named(pattern: re.Pattern[str], component: Component) -> list[str]:
    return [name for name in component.params if pattern.search(name)]


@check(*SCHEDULES, reads=["total_steps"], fix="Bound the progress: jnp.clip(step / total_steps, 0, 1).")
def beyond_the_end(subject: Subject) -> None:
    """Beyond `total_steps` it is still finite, and not negative unless declared signed=True.

    A run that goes on after its last step is evaluated there. The power of a negative number is NaN.
    """
    for step in (TOTAL + 1, 2 * TOTAL):
        value = _curve(subject, range(step, step + 1), {})[0]
        finite(value, f"at step {step} of {TOTAL} the value")
        if value < 0 and not subject.declared.get("signed"):
            raise Failed(f"at step {step} of {TOTAL} it gives {value:.6g}")


@check(
    "lr_schedule",
    reads=["total_steps"],
    when=lambda component: bool(_named(END, component)),
    fix="Let the progress be 1 at the last step; half a cosine is cos(π p).",
)
def ends_where_it_says(subject: Subject) -> None:
    """A number called `end` or `final` is the factor of the last step.

    A config that ends at a tenth of the rate would end at all of it, where weights are to settle.
    """
    for name in _named(END, subject.component):
        for wanted in (0.1, 0.4):
            if name in subject.floats and allows(subject.component, name, wanted):
                last = _curve(subject, range(TOTAL - 1, TOTAL + 1), {name: wanted})
                if np.abs(last - wanted).min() > ENOUGH:
                    raise Failed(
                        f"with '{name}' = {wanted:g} the factor of the last of {TOTAL} steps is {last[-1]:.6g}"
                    )


@check(
    "lr_schedule",
    reads=["total_steps"],
    when=lambda component: bool(_named(DECAY, component)),
    fix="Begin to fall at (1 - decay_ratio) · total_steps.",
)
def a_longer_decay_is_no_higher(subject: Subject) -> None:
    """A larger `decay_ratio`, the share of a run in which the factor falls, raises the factor at no step.

    Taken for the point where the fall begins, it makes a long decay of a short one.
    """
    for name in _named(DECAY, subject.component):
        if name in subject.floats and all(allows(subject.component, name, value) for value in (0.1, 0.6)):
            steps = range(0, TOTAL + 1, 25)
            short, long = (_curve(subject, steps, {name: value}) for value in (0.1, 0.6))
            rise = int(np.argmax(long - short))
            if long[rise] > short[rise] + ENOUGH:
                raise Failed(
                    f"at step {steps[rise]} of {TOTAL} the factor is {short[rise]:.6g} with '{name}' = 0.1, and"
                    f" {long[rise]:.6g} with 0.6"
                )
