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
WARMUP: Final = re.compile(r"^warm_?up(_(ratio|fraction|share))?$")
ENOUGH: Final = 1e-2
PEAK: Final = "max_weight"


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


def _bounds_it(component: Component) -> bool:
    return PEAK in component.params


@check(*SCHEDULES, when=_bounds_it, fix="Multiply by max_weight once, last: w_max · p**k, where p reaches 1.")
def reaches_its_maximum(subject: Subject) -> None:
    """With a number called `max_weight`, that is its largest value in a run.

    A weight that stays below what the config says trains less than it says; one that enters a power is another one.
    """
    for wanted in (0.1, 0.6):
        if PEAK in subject.floats and allows(subject.component, PEAK, wanted):
            highest = _curve(subject, range(0, TOTAL + 1, 5), {PEAK: wanted}).max()
            if abs(highest - wanted) > ENOUGH * wanted:
                raise Failed(f"with '{PEAK}' = {wanted:g} its largest value in {TOTAL} steps is {highest:.6g}")


@check(
    "lr_schedule",
    reads=["total_steps"],
    when=lambda component: bool(_named(WARMUP, component)),
    fix="Multiply the share by the number of steps: warmup * total_steps.",
)
def warms_up(subject: Subject) -> None:
    """The larger a share called `warmup` is, the lower the rate is in the first tenth of a run.

    A share that is taken for a number of steps warms up for less than one, and the first updates are the longest.
    """
    for name in _named(WARMUP, subject.component):
        if name in subject.floats and not allows(subject.component, name, 2.0):
            short, long = (_curve(subject, range(0, TOTAL // 10, 10), {name: share}).mean() for share in (0.05, 0.5))
            if long > 0.9 * short:
                raise Failed(f"in the first tenth of a run it is {short:.6g} with '{name}' = 0.05, {long:.6g} with 0.5")


@check("lr_schedule", fix="Count the warm-up once: (step - warmup) / (total_steps - warmup) is 1 at the last step.")
def learns_to_the_end(subject: Subject) -> None:
    """In no more than 5 % of the steps of a run is it zero.

    Steps at a rate of zero cost as much as others, and train nothing.
    """
    idle = sum(not value for value in _curve(subject, range(1, TOTAL), {}))
    if idle > TOTAL // 20:
        raise Failed(f"it is 0 in {idle} of {TOTAL} steps")
