"""Claims about states: of estimators, controllers and optimisers, and of curves that decide."""

from __future__ import annotations

import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.errors import ConfigError
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites.invariance import ORDER
from dovetail_kit.conformance.suites.numbers import (
    CONTROLLERS,
    SCHEDULES,
    TOTAL,
    curve_of,
    descend,
    has_state,
    quadratic_params,
)

LONG = 200
START = 0.1
HUGE = 1e6
NEVER_NEGATIVE = re.compile(r"count|var|std|deviation|square|samples|visits")


def next_state(subject: Subject, state: Any, fields: batch.Fields) -> Any:
    """Return the state that an estimator makes of a state and a batch."""
    known = fields | {"state": state}
    return subject.bind(**subject.floats).update(
        **{name: jax.tree.map(jnp.asarray, known[name]) for name in subject.component.reads}
    )


def first_state(subject: Subject) -> Any:
    """Return the state that an estimator begins with."""
    return subject.bind(**subject.floats).init(batch.ROLES)


@check("advantage", when=has_state, fix="Return from update() what init() gave, moved towards the batch.")
def learns_to_remember(subject: Subject) -> None:
    """Its state changes with its inputs and stays finite and bounded; counts and variances are never negative.

    A baseline that never changes is useless, and one that diverges swamps the scores.
    """
    case = ArrayCase.of(subject)
    first = state = first_state(subject)
    for seed in range(3):
        state = next_state(subject, state, case.fields(seed))
    if not differ(state, first):
        raise Failed("after three batches it is what it was at first")

    def often(state: Any, fields: batch.Fields) -> Any:
        return jax.lax.fori_loop(0, LONG, lambda _, kept: next_state(subject, kept, fields), state)

    fields = {name: value for name, value in case.fields().items() if name != "state"}
    later = jax.jit(often)(state, fields)
    for path, leaf in jax.tree.leaves_with_path(later):
        name = jax.tree_util.keystr(path)
        finite(leaf, f"after {LONG} batches: state{name}")
        if np.abs(np.asarray(leaf, np.float64)).max(initial=0) > HUGE:
            raise Failed(f"after {LONG} times the same batch state{name} is {np.abs(np.asarray(leaf)).max():.6g}")
        if NEVER_NEGATIVE.search(name) and (np.asarray(leaf) < 0).any():
            raise Failed(f"after {LONG} batches state{name} is {np.asarray(leaf).min():.6g}")


@check("advantage", when=has_state, fix="Add up over the rows with policy tokens only, and divide by their number.")
def remembers_completions(subject: Subject) -> None:
    """Its state depends neither on the order of completions nor on those without policy tokens.

    A resumed or sharded run may have its completions in another order, and would remember something else.
    """
    case = ArrayCase.of(subject)
    fields, first = case.fields(), first_state(subject)
    expected = next_state(subject, first, fields)
    shuffled = next_state(subject, first, batch.take_rows(fields, ORDER))
    live = np.flatnonzero(fields["mask"].any(axis=1))
    fewer = next_state(subject, first, batch.take_rows(fields, live))
    for ours, what in ((shuffled, "with completions in another order"), (fewer, "without the empty completion")):
        for leaf, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            same(leaf, other, f"{what}: the state")
    empty = batch.spoilt(batch.with_mask(fields, np.zeros_like(fields["mask"])), np.nan)
    for leaf in jax.tree.leaves(next_state(subject, expected, empty)):
        finite(leaf, "after a batch without policy tokens: the state")


def differ(state: Any, other: Any) -> bool:
    """Tell whether two states differ anywhere."""
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True)
    return any(not np.array_equal(ours, theirs) for ours, theirs in pairs)


@check(*CONTROLLERS, unless="constant", fix="Compare what is observed with the target, and move the coefficient.")
def reacts(subject: Subject) -> None:
    """Its coefficient reacts: for KL it rises if the KL is high, for entropy if the entropy is low.

    It stays finite and is never negative, however long it is pushed in one direction, and comes back when it is pushed
    in the other. An inverted controller diverges.
    """
    low, high = (_pushed(subject, value) for value in (0.0, 50.0))
    for value, coefficients in ((0.0, low), (50.0, high)):
        finite(coefficients, f"where {value:g} is observed {LONG} times, the coefficient after step ")
        if (coefficients < 0).any():
            raise Failed(f"where {value:g} is observed {LONG} times, the coefficient becomes {coefficients.min():.6g}")
    if np.array_equal(low, high):
        raise Failed("the coefficient is the same, whatever is observed")
    rises = high if subject.component.kind == "kl_controller" else low
    falls = low if rises is high else high
    if (rises < falls - 1e-6 * np.abs(falls)).any():
        raise Failed(
            f"where 50 is observed the coefficient goes to {high[-1]:.6g}, where 0 is observed to {low[-1]:.6g}"
        )
    back = _pushed(subject, *((50.0, 0.0) if rises is high else (0.0, 50.0)))
    if not back[-1] < back.max():
        raise Failed(f"it never comes down again from {back.max():.6g}, whatever is observed then")


def _pushed(subject: Subject, *observed: float) -> np.ndarray:
    """Return the coefficients where the same is observed again and again, and then something else if that is given."""
    controller = subject.bind(**subject.floats)

    def step(state: Any, value: Any) -> Any:
        state = controller.update(state, value, jnp.int32(64))
        return state, controller.coef(state)

    scan = subject.once("pushed", lambda: jax.jit(lambda values: jax.lax.scan(step, controller.init(START), values)[1]))
    return np.asarray(scan(jnp.repeat(jnp.array((observed * 2)[:2], jnp.float32), LONG)))


@check(*SCHEDULES, fix="Check for a division of whole numbers, and where the curve begins and ends.")
def not_zero_throughout(subject: Subject) -> None:
    """It is not zero throughout a run.

    With a learning rate of zero throughout nothing is trained, although the metrics of the run look normal.
    """
    if not np.any(curve_of(subject, TOTAL)):
        raise Failed(f"it is 0 at every step of {TOTAL}")


@check("optimizer", fix="Keep moments and counts in the state that update() returns, in the type of float32.")
def keeps_its_state(subject: Subject) -> None:
    """It keeps all memory in its state, in full precision if the parameters are, and updates it with the gradients.

    A counter that is kept elsewhere is lost at a restart, and moments in half precision lose small gradients.
    """
    with jax.numpy_dtype_promotion("standard"):
        optimizer = subject.bind(**subject.floats)(jnp.float32(1e-2))
        begun = optimizer.init(quadratic_params())
        once, twice = (optimizer.update(quadratic_params(), begun, quadratic_params())[0] for _ in range(2))
    for name, value in once.items():
        same(twice[name], value, f"asked twice from the same state: the update of '{name}'", within=0.0)
    _, after = descend(subject, 1e-2, 3)
    leaves = [leaf for leaf in jax.tree.leaves(after) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    half = [leaf.dtype.name for leaf in leaves if leaf.dtype.itemsize < 4 and leaf.ndim]
    if half:
        raise Failed(f"its state has arrays of type {half[0]} for parameters in float32")
    if jax.tree.leaves(begun) and not differ(after, begun):
        raise Failed("after three steps its state is what it was at first")
    earlier = dict(jax.tree.leaves_with_path(begun))
    for path, leaf in jax.tree.leaves_with_path(after):
        if str(path[-1]).endswith("count") and np.array_equal(leaf, earlier[path]):
            raise Failed(f"after three steps '{jax.tree_util.keystr(path)}' in its state is {leaf}, as it was at first")


@check("early_stopping", fix="Compare with the others at the same step: higher is better.")
def spares_the_best(subject: Subject) -> None:
    """It never stops the trial that is ahead of all others, or was at the step that it has reached.

    A young trial that is compared with what old ones have come to is stopped for its age.
    """
    rule = subject.bind()
    others = [[(step, 0.001 * trial * step) for step in range(0, 100, 10)] for trial in range(1, 6)]
    for length, begin in itertools.product(range(1, 10), (1.0, 0.0, -1.0)):
        curve = [(step, 0.01 * step if step else begin) for step in range(0, 10 * length, 10)]
        if length == 1 and begin < 0:
            continue
        offered = {"curve": curve, "others": others, "total_steps": 100}
        try:
            stops = rule(*(offered[name] for name in subject.component.reads))
        except ConfigError as error:
            raise Inapplicable(f"it cannot be asked here: {error}") from error
        if stops:
            raise Failed(
                f"after {10 * length} of 100 steps it stops a trial at {curve[-1][1]:g}, which is"
                " ahead of all others at that step"
            )


@check("kl_controller", fix="Bound the estimate from below before a logarithm or a root: jnp.maximum(kl, 1e-8).")
def takes_negative_estimates(subject: Subject) -> None:
    """An estimate of zero or below leaves the coefficient finite and not negative.

    A divergence is not negative, but its estimate from samples, as k1 is, often is in the first steps.
    """
    controller = subject.bind(**subject.floats)
    state = controller.init(START)
    for value in (0.0, -0.05, 0.05, -0.5):
        state = controller.update(state, jnp.float32(value), jnp.int32(64))
        found = float(controller.coef(state))
        if not np.isfinite(found) or found < 0:
            raise Failed(f"after an estimate of {value:g} nats the coefficient is {found:.6g}")
