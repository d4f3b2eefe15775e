"""Claims about numbers whose names say what they do: bonuses and floors of entropy, first and last values."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.directions import EPSILON

BONUS: Final = re.compile(r"^((entropy_)?bonus(_\w+)?|entropy_(coef|coefficient|weight|bonus))$")
FLOOR: Final = re.compile(r"^(floor|entropy_floor|min_entropy)$")
LAST: Final = re.compile(r"^(?P<first>\w+)_(final|end|last)$")


def _bonuses(component: Component) -> list[str]:
    return [name for name in component.params if BONUS.search(name)]


@check(
    "policy_loss",
    "loss_term",
    reads=["entropy"],
    when=lambda component: bool(_bonuses(component)),
    fix="Subtract the bonus from the loss, which is minimised.",
)
def a_bonus_raises_entropy(subject: Subject) -> None:
    """The larger a number called `bonus` or `entropy_coef` is, the more descending raises the entropy.

    With its sign turned it is a penalty: the policy collapses the faster the more exploration is asked for.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in _bonuses(subject.component):
        if name in subject.floats and all(allows(subject.component, name, value) for value in (0.01, 0.5)):
            small, large = (
                float(case.run(fields, subject.floats | {name: np.float32(value)}).gradients["entropy"].sum())
                for value in (0.01, 0.5)
            )
            if large > small + EPSILON:
                raise Failed(
                    f"the gradients by entropy add up to {small:.6g} with '{name}' = 0.01, and to {large:.6g} with 0.5"
                )


def _ends(component: Component) -> list[tuple[str, str]]:
    found = [(match["first"], name) for name in component.params if (match := LAST.search(name))]
    names = component.params
    return [
        (next(each for each in (first, f"{first}_start") if each in names), last)
        for first, last in found
        if first in names or f"{first}_start" in names
    ]


@check(
    "policy_loss",
    "value_loss",
    "loss_term",
    "kl",
    "advantage",
    reads=["progress"],
    when=lambda component: bool(_ends(component)),
    fix="Go from the first to the last: first + (last - first) · progress.",
)
def begins_and_ends(subject: Subject) -> None:
    """Of two numbers called `x` and `x_final`, the first alone counts when the run begins, and the second when it ends.

    Turned round, a bound that is to tighten is loosened, and the config says the contrary.
    """
    case = ArrayCase.of(subject)
    for first, last in _ends(subject.component):
        if not {first, last} <= {*subject.floats}:
            continue
        for progress, name in ((1.0, first), (0.0, last)):
            fields = case.fields() | {"progress": np.float32(progress)}
            value = subject.floats[name]
            moved = next((value * by for by in (0.5, 2.0) if allows(subject.component, name, float(value * by))), value)
            before, after = (case.run(fields, subject.floats | {name: np.float32(v)}) for v in (value, moved))
            pairs = [(before.value, after.value), *((g, after.gradients[n]) for n, g in before.gradients.items())]
            if not all(np.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs):
                raise Failed(
                    f"at a progress of {progress:g}, '{name}' = {moved:.4g} gives something else than {value:.4g}"
                )


@check(
    "policy_loss",
    "loss_term",
    reads=["entropy"],
    when=lambda component: bool(_floors(component)),
    fix="Penalise what is below the floor: max(0, floor - entropy).",
)
def a_floor_is_below(subject: Subject) -> None:
    """Below a number called `floor` or `min_entropy`, descending raises the entropy, and no less than above it.

    Turned round it is a ceiling: entropy is lowered until it is there, and nothing holds it.
    """
    case = ArrayCase.of(subject)
    fields = case.fields()
    for name in _floors(subject.component):
        floor = np.float32(subject.params[name])
        pulls = [
            float(
                case.run(fields | {"entropy": np.where(fields["mask"], max(floor * by, 0.0), 0).astype(np.float32)})
                .gradients["entropy"]
                .sum()
            )
            for by in (0.25, 4.0)
        ]
        if pulls[0] > min(pulls[1], 0) - EPSILON:
            raise Failed(
                f"with '{name}' = {floor:g} the gradients by entropy add up to {pulls[0]:.6g} where it is"
                f" {floor / 4:.4g}, and to {pulls[1]:.6g} where it is {4 * floor:.4g}"
            )


def _floors(component: Component) -> list[str]:
    return [name for name in component.params if FLOOR.search(name)]
