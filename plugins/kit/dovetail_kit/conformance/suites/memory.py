"""Claims about states: of estimators, controllers and optimisers, and of curves that decide."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.registry import Component
from dovetail_kit.conformance import batch
from dovetail_kit.conformance.case import ArrayCase
from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject, allows
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
OBSERVED = (0.5, 0.0, 9.0, 0.01, 0.2, 0.0, 40.0, 0.05, 0.3, 1.0, 0.02, 0.4, 2.0)
START = 0.1
ORDINARY = 1.0
FEW, LITTLE = 20, 0.02
"""Updates at the target, and the share by which they may move a coefficient."""
DECAY = "decay"
DELAY = re.compile(r"\b(every|interval|period|patience|window|delay|warmup)")
"""Names of numbers by which a controller may act later than it observes."""
RAMP = re.compile(r"(^|_)(ramp|warm_?up|anneal\w*|grow\w*|rises?|over|steps|updates)(_|$)")
"""Names of numbers of updates over which a target grows."""
HUGE = 1e6
NEVER_NEGATIVE = re.compile(r"count|var|std|deviation|square|samples|visits")


def next_state(subject: Subject, state: Any, fields: batch.Fields, **changed: Any) -> Any:
    """Return the state that an estimator makes of a state and a batch, with some hyperparameters replaced."""
    known = fields | {"state": state}
    return subject.bind(**(subject.floats | changed)).update(
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


@check(*CONTROLLERS, unless="constant", fix='Return it with the others: {**state, "integral": integral}.')
def keeps_what_it_adds_up(subject: Subject) -> None:
    """Each number of its state either changes in some steps, or comes from the coefficient that it began with.

    An integral or a mean that is computed and not returned begins again in each step: it is what was just observed.
    """
    controller, other = subject.bind(**subject.floats), subject.bind(**subject.floats)
    first, elsewhere = controller.init(0.1), other.init(0.7)
    if not isinstance(first, dict):
        raise Inapplicable("its state is not a dict: see the check 'state_under_scan'")
    state, moved = first, set()
    for value in OBSERVED:
        state = controller.update(state, jnp.float32(value), jnp.int32(64))
        moved |= {name for name in first if not np.array_equal(state[name], first[name])}
    fixed = {name for name in first if np.array_equal(first[name], elsewhere[name])}
    for name in sorted(fixed - moved):
        raise Failed(f"in {len(OBSERVED)} steps state['{name}'] stays {np.asarray(first[name]).tolist()}")


@check(*CONTROLLERS, fix="Keep numbers in jnp.float32, and counts in jnp.int32.")
def keeps_every_digit(subject: Subject) -> None:
    """Its state is in full precision, and in 300 steps no count in it wraps round.

    In half precision a coefficient of 1 that is to rise by 0.1 % stays what it is, and a count stays at 256; one of
    eight bits is negative from step 128 on.
    """
    controller = subject.bind(**subject.floats)
    state = controller.init(START)
    if not isinstance(state, dict):
        raise Inapplicable("its state is not a dict: see the check 'state_under_scan'")
    half = [name for name, value in state.items() if value.dtype.name in ("bfloat16", "float16")]
    if half:
        raise Failed(f"state['{half[0]}'] is in {state[half[0]].dtype}")
    update = jax.jit(controller.update)
    for step in range(LONG + LONG // 2):
        after = update(state, jnp.float32(OBSERVED[step % len(OBSERVED)]), jnp.int32(64))
        for name, value in after.items():
            if jnp.issubdtype(value.dtype, jnp.integer):
                leap = np.abs(np.asarray(value).astype(object) - np.asarray(state[name]).astype(object))
                if np.any(leap >= 2 ** (8 * value.dtype.itemsize - 1)):
                    raise Failed(f"in step {step + 1} state['{name}'] goes from {state[name]} to {value}")
        state = after


def differ(state: Any, other: Any) -> bool:
    """Tell whether two states differ anywhere."""
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True)
    return any(not np.array_equal(ours, theirs) for ours, theirs in pairs)


@check(
    *CONTROLLERS,
    unless="constant",
    when=lambda component: not component.declares.get("scheduled"),
    fix="Compare what is observed with the target, and move the coefficient; bound it where it is multiplied.",
)
def reacts(subject: Subject) -> None:
    """Its coefficient reacts: for KL it rises if the KL is high, for entropy if the entropy is low.

    It stays finite and is never negative, however long it is pushed in one direction, and comes back when it is pushed
    in the other. An inverted controller diverges, and one without a bound does where its observation cannot follow.
    """
    low, high = (_pushed(subject, value, after=ORDINARY) for value in (0.0, 50.0))
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
    back = _pushed(subject, *((50.0, 0.0) if rises is high else (0.0, 50.0)), after=ORDINARY)
    if not back[-1] < back.max():
        raise Failed(f"it never comes down again from {back.max():.6g}, whatever is observed then")


def _pushed(subject: Subject, *observed: float, after: float | None = None) -> np.ndarray:
    """Return the coefficients where the same is observed again and again, and then something else if that is given.

    If `after` is given it is observed once before: what is measured from the first observation has one to begin with.
    """
    controller = subject.bind(**subject.floats)
    first = controller.init(START)
    if after is not None:
        first = controller.update(first, jnp.float32(after), jnp.int32(64))

    def step(state: Any, value: Any) -> Any:
        state = controller.update(state, value, jnp.int32(64))
        return state, controller.coef(state)

    scan = subject.once("pushed", lambda: jax.jit(lambda begun, values: jax.lax.scan(step, begun, values)[1]))
    return np.asarray(scan(first, jnp.repeat(jnp.array((observed * 2)[:2], jnp.float32), LONG)))


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
        if path and str(path[-1]).endswith("count") and np.array_equal(leaf, earlier[path]):
            raise Failed(f"after three steps '{jax.tree_util.keystr(path)}' in its state is {leaf}, as it was at first")


@check(*CONTROLLERS, unless="constant", fix="Bound what a step may do to the coefficient from both sides.")
def takes_large_steps(subject: Subject) -> None:
    """A step of 4,096 completions leaves the coefficient finite and not negative, whatever it observed.

    A change in proportion to the number of completions that is bounded on one side turns a penalty into a reward.
    """
    controller = subject.bind(**subject.floats)
    for value in (0.0, 50.0):
        found = float(controller.coef(controller.update(controller.init(START), jnp.float32(value), jnp.int32(4096))))
        if not np.isfinite(found) or found < 0:
            raise Failed(f"after a step of 4,096 completions with {value:g} nats the coefficient is {found:.6g}")


@check(
    *CONTROLLERS,
    unless="constant",
    when=lambda component: not component.declares.get("scheduled") and not DELAY.search(" ".join(component.params)),
    fix="Compute the coefficient from the new mean, not from that of the state.",
)
def what_was_just_observed_counts(subject: Subject) -> None:
    """What a step observed makes a difference to the coefficient of the next one.

    One that is set from the state before acts a step late, and at first on what nobody has observed.
    """
    controller = subject.bind(**subject.floats)
    state, coefficients = controller.init(START), []
    for _ in range(3):
        low, least, high = (controller.update(state, jnp.float32(value), jnp.int32(64)) for value in (0.01, 0.0, 5.0))
        coefficients += [(float(controller.coef(each)), float(controller.coef(high))) for each in (least, low)]
        state = controller.update(state, jnp.float32(0.3), jnp.int32(64))
    if all(low == high for low, high in coefficients):
        raise Failed(f"after 0.01 nats and after 5 the coefficient is {coefficients[-1][0]:.6g}")


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


@check(
    *CONTROLLERS,
    when=lambda component: "target" in component.params and not component.declares.get("scheduled"),
    fix="Move by how far the observation is from the target; begin a running mean with the first observation.",
)
def rests_at_its_target(subject: Subject) -> None:
    """If what is observed is 1 % above its `target`, and if 1 % below, the coefficient does not move the same way.

    A controller that moves at its target cannot hold it: a band that lies beside it, or a mean that begins at zero,
    drives the policy from where it should be. Of a target that grows over some updates, as a number called `ramp` or
    `warmup` may say, it is what it grows to.
    """
    target, tried = float(subject.params["target"] or 0.0), _without_ramps(subject)
    below, above = (_pushed(tried, target * by) for by in (0.99, 1.01))
    starts = (
        (START, START) if tried is subject else (float(below[1]), float(above[1]))
    )  # what is left of a ramp is over
    moved = [float(curve[FEW - 1]) / start for curve, start in zip((below, above), starts, strict=True)]
    if min(moved) > 1 + LITTLE or max(moved) < 1 - LITTLE:
        raise Failed(
            f"where the target, {target:g}, is missed by 1 % in {FEW} steps, the coefficient goes from {starts[0]:.6g}"
            f" to {below[FEW - 1]:.6g} if it is from below, and from {starts[1]:.6g} to {above[FEW - 1]:.6g} if it is"
            " from above"
        )


def _without_ramps(subject: Subject) -> Subject:
    """Return a controller whose target is there at once: what says over how many updates it grows is 0, or 1."""
    component = subject.component
    least = {
        name: next((value for value in (0, 1) if allows(component, name, value)), None)
        for name, value in subject.params.items()
        if RAMP.search(name) and isinstance(value, int | float)
    }
    changed = {name: type(subject.params[name])(value) for name, value in least.items() if value is not None}
    return Subject(component, {**subject.given, **changed}) if changed else subject


def _decays(component: Component) -> bool:
    return has_state(component) and DECAY in component.params


@check("advantage", when=_decays, fix="Keep `decay` of the state, and take 1 - decay of what is new.")
def a_larger_decay_remembers_longer(subject: Subject) -> None:
    """The larger a number called `decay` is, the less what is learnt of one batch moves the advantages.

    With the two shares exchanged, a baseline over a hundred steps is that of the step before.
    """
    if DECAY not in subject.floats or not all(allows(subject.component, DECAY, value) for value in (0.2, 0.95)):
        raise Inapplicable(f"its '{DECAY}' is not a number that can be 0.2 or 0.95")
    case = ArrayCase.of(subject)
    fields, other = case.fields(), batch.with_scores(case.fields(), np.full(batch.ROWS, 3.0))
    moved = {}
    for decay in (0.2, 0.95):
        states = [first_state(subject)]
        for each in (*[fields] * 20, other):
            states.append(next_state(subject, states[-1], each, **{DECAY: np.float32(decay)}))
        before, after = (
            case.run(fields | {"state": jax.tree.map(np.asarray, state)}, subject.floats | {DECAY: np.float32(decay)})
            for state in states[-2:]
        )
        moved[decay] = float(np.abs(np.where(fields["mask"], after.value - before.value, 0)).sum())
    if moved[0.95] > moved[0.2] + 1e-6:
        raise Failed(
            f"after many equal batches another one moves the advantages by {moved[0.2]:.6g} with '{DECAY}' = 0.2, and"
            f" by {moved[0.95]:.6g} with 0.95"
        )
