"""Claims about schedules, controllers, optimisers and early stopping."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dovetail.registry import Component
from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject

SCHEDULES = ("lr_schedule", "schedule")
CONTROLLERS = ("entropy_controller", "kl_controller")
FIRST = re.compile(r"(first|initial|start)(_|$)")
TOTAL = 40
LONG = 200_000
MIDDLE, COARSE, STAIRS = 2048, 16, 20
"""From this step to twice that bfloat16 has every sixteenth one, and so many of them are looked at, twice over."""


@check(*SCHEDULES, fix="Compute with jnp on float32 scalars, and guard divisions by a number of steps.")
def every_step(subject: Subject) -> None:
    """At every step, also of a run of one step and late in a long one, it gives a finite float32 number.

    It is not negative, unless declared signed=True.
    """
    for total in (TOTAL, 1):
        for step, value in enumerate(curve_of(subject, total)):
            finite(value, f"at step {step} of {total} the value")
            if value.shape != () or value.dtype != np.float32:
                raise Failed(
                    f"at step {step} of {total} it gives {value.dtype}{list(value.shape)}, not a float32 scalar"
                )
            if value < 0 and not subject.declared.get("signed"):
                raise Failed(f"at step {step} of {total} it gives {value:.6g}")
    for step in (0, LONG // 2, LONG):
        late = schedule_of(subject, subject.floats)(jnp.int32(step), jnp.int32(LONG))
        finite(late, f"at step {step} of {LONG} the value")


@check(*SCHEDULES, fix="Convert the step to jnp.float32, which tells 16,777,216 steps apart; bfloat16 does 256.")
def tells_steps_apart(subject: Subject) -> None:
    """Where a curve changes from step to step, it does so late in a long run too, not only at every sixteenth step.

    A step that is held in half precision is rounded, so that the curve of a long run has stairs.
    """
    schedule, total = schedule_of(subject, subject.floats), jnp.int32(LONG)
    late = np.asarray(jax.vmap(lambda step: schedule(step, total))(jnp.arange(MIDDLE, MIDDLE + 2 * COARSE * STAIRS)))
    changes = MIDDLE + 1 + np.flatnonzero(np.diff(late))
    # halfway between two multiples, of which the even one is the nearest
    if len(changes) >= STAIRS and set(changes % COARSE) <= {COARSE // 2, COARSE // 2 + 1}:
        raise Failed(f"of {len(late)} steps from {MIDDLE} on it changes at {changes[:3].tolist()} and so on alone")


@check(*SCHEDULES, fix="Use jnp.where instead of if; steps and hyperparameters are traced.")
def schedule_jit(subject: Subject) -> None:
    """It can be compiled, once for all steps and hyperparameters, and then gives the same values.

    It is part of the compiled step: it would be compiled again at each step, or be refused.
    """
    traces = []

    @jax.jit
    def compiled(step: Any, total: Any, floats: Any) -> Any:
        traces.append(step)
        return schedule_of(subject, floats)(step, total)

    curve = curve_of(subject, TOTAL)
    try:
        for step in (0, 7, TOTAL):
            value = compiled(jnp.int32(step), jnp.int32(TOTAL), subject.floats)
            same(value, curve[step], f"compiled, at step {step}: the value", within=1e-6)
        compiled(jnp.int32(1), jnp.int32(90), {name: value * np.float32(0.9) for name, value in subject.floats.items()})
    except jax.errors.JAXTypeError as error:
        raise Failed(f"it cannot be traced: {str(error).strip().splitlines()[0]}") from None
    if len(traces) != 1:
        raise Failed(f"it was traced {len(traces)} times")


def schedule_of(subject: Subject, floats: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    """Return a schedule as a function of step and length, whichever of the two it reads, and in which order."""
    schedule = subject.bind(**floats)
    reads = subject.component.reads
    return lambda step, total: schedule(*({"step": step, "total_steps": total}[name] for name in reads))


def curve_of(subject: Subject, total: int) -> list[np.ndarray]:
    """Return the values of a schedule at every step, computed once."""

    def curve() -> list[np.ndarray]:
        schedule = schedule_of(subject, subject.floats)
        return [np.asarray(schedule(jnp.int32(step), jnp.int32(total))) for step in range(total + 1)]

    return subject.once(("curve", total), curve)


@check(
    *CONTROLLERS,
    fix="Make coef(init(c)) return c. One that is to begin elsewhere, as with a slow start from 0, declares"
    " expected_failures={'starts_at_the_coefficient': 'a slow start'}, and its docstring says so.",
)
def starts_at_the_coefficient(subject: Subject) -> None:
    """The first coefficient is the one in the config.

    The config would say one coefficient, and the first steps would use another.
    """
    controller = subject.bind(**subject.floats)
    same(controller.coef(controller.init(0.25)), 0.25, "the first coefficient", within=1e-7)


@check(*CONTROLLERS, fix="Keep the state in a dict of arrays whose shapes and types never change; use jnp.where.")
def state_under_scan(subject: Subject) -> None:
    """The state is a dict of arrays with fixed shapes and types, and updates are the same compiled or not.

    It is saved in checkpoints and carried through compiled loops; a change of type would compile every step again.
    """
    observed = jnp.array([0.0, 0.5, 0.1, 5.0])

    @jax.jit
    def scanned(floats: Any) -> Any:
        controller = subject.bind(**floats)

        def step(state: Any, value: Any) -> Any:
            state = controller.update(state, value, jnp.int32(64))
            return state, controller.coef(state)

        return jax.lax.scan(step, controller.init(0.1), observed)[1]

    try:
        found = scanned(subject.floats)
    except (TypeError, jax.errors.JAXTypeError) as error:
        raise Failed(f"a compiled loop cannot carry the state: {str(error).strip().splitlines()[0]}") from None
    states = _states(subject, observed)
    controller = subject.bind(**subject.floats)
    for number, state in enumerate(states[1:]):
        same(found[number], controller.coef(state), f"compiled, after {number + 1} updates: the coefficient")
    if not isinstance(states[0], dict) or not all(isinstance(value, jax.Array) for value in states[0].values()):
        raise Failed(f"the state is {states[0]!r}, not a dict of arrays")


@check(*CONTROLLERS, fix="Set it once: jnp.where(state['first'] > 0, state['first'], observed).")
def what_is_first_stays(subject: Subject) -> None:
    """A number of its state that is called `first`, `initial` or `start` is the same after all later observations.

    As a running maximum, or a mean, it is another thing than its name says, and so is what is compared with it.
    """
    _, first, *later = _states(subject, jnp.array([0.5, 0.3, 0.9, 0.1, 2.0]))
    for name in filter(FIRST.match, first):
        for state in later:
            same(state[name], first[name], f"after later observations '{name}'", within=1e-6)


@check(*CONTROLLERS, fix="Keep everything that is remembered in the state, and nothing on the instance.")
def state_through_a_checkpoint(subject: Subject) -> None:
    """A state that is saved and loaded again gives the same coefficients from then on.

    Otherwise a resumed run would continue with another coefficient.
    """
    observed = jnp.array([0.3, 0.0, 0.9, 0.2])
    expected = _states(subject, observed)
    saved = pickle.dumps(jax.device_get(expected[2]))
    controller = subject.bind(**subject.floats)
    state = jax.tree.map(jnp.asarray, pickle.loads(saved))
    for number in (2, 3):
        state = controller.update(state, observed[number], jnp.int32(64))
        for name, value in state.items():
            same(
                value, expected[number + 1][name], f"after {number + 1} updates and a checkpoint: '{name}'", within=0.0
            )


@check(*CONTROLLERS, fix="Keep the old state where samples is zero: jnp.where(samples > 0, new, old).")
def nothing_observed(subject: Subject) -> None:
    """A step without samples, because every completion was filtered out, leaves the coefficient as it is, and those of
    later steps, unless it declares scheduled=True: then finite.

    One step without completions would turn the coefficient, and then the weights, into NaN; or the mean of nothing,
    which is zero, is taken for what was observed.
    """
    controller = subject.bind(**subject.floats)

    def later(state: Any) -> list[Any]:
        coefficients = [controller.coef(state)]
        for observed in (0.3, 2.0):
            state = controller.update(state, jnp.float32(observed), jnp.int32(64))
            coefficients.append(controller.coef(state))
        return coefficients

    for before in (controller.init(0.25), controller.update(controller.init(0.25), jnp.float32(0.3), jnp.int32(64))):
        expected = later(before)
        for observed in (np.nan, 0.0):
            found = later(controller.update(before, jnp.float32(observed), jnp.int32(0)))
            for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
                what = f"after a step without samples{f' and {number} with them' * bool(number)}: the coefficient"
                finite(ours, what)
                if not subject.declared.get("scheduled"):
                    same(ours, theirs, what, within=1e-6)


@check(*CONTROLLERS, claim="constant", fix="Drop the claim.")
def constant(subject: Subject) -> None:
    """The coefficient never changes.

    The plan leaves out what a constant coefficient does not need; one that changes would be computed wrongly.
    """
    controller = subject.bind(**subject.floats)
    for state in _states(subject, jnp.array([0.0, 9.0, 0.1])):
        same(controller.coef(state), 0.1, "the coefficient", within=1e-7)


@check(*CONTROLLERS, claim="keeps_zero", fix="Drop the claim.")
def keeps_zero(subject: Subject) -> None:
    """A coefficient of 0 stays 0, whatever is observed.

    The plan leaves out a term whose coefficient stays 0, and one that came to count later would be missing.
    """
    controller = subject.bind(**subject.floats)
    state = controller.init(0.0)
    for observed in (0.0, 9.0, 0.1):
        state = controller.update(state, jnp.float32(observed), jnp.int32(64))
        same(controller.coef(state), 0.0, f"after {observed:g} nats the coefficient", within=0.0)


def _states(subject: Subject, observed: Any) -> list[Any]:
    controller = subject.bind(**subject.floats)
    states = [controller.init(0.1)]
    for value in observed:
        states.append(controller.update(states[-1], value, jnp.int32(64)))
    return states


def has_state(component: Component) -> bool:
    """Tell whether an estimator remembers something from batch to batch."""
    return "state" in component.reads


@check("advantage", when=has_state, fix="Return arrays of the same shapes and types from init() and update().")
def remembered_state(subject: Subject) -> None:
    """Its state keeps its shapes and types, and completions without policy tokens do not move it.

    A state that changes its type compiles each step again and cannot be restored from a checkpoint.
    """
    from dovetail_kit.conformance import batch
    from dovetail_kit.conformance.case import ArrayCase

    case = ArrayCase.of(subject)
    bound = subject.bind(**subject.floats)
    fields = case.fields()
    first = bound.init(batch.ROLES)

    def update(fields: batch.Fields) -> Any:
        return bound.update(**{name: jax.tree.map(jnp.asarray, fields[name]) for name in subject.component.reads})

    following = update(fields | {"state": first})
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype.name), state) for state in (first, following)]
    if shapes[0] != shapes[1]:
        raise Failed(f"init() gives {shapes[0]}, update() {shapes[1]}")
    spoilt = update(batch.spoilt(fields, np.nan) | {"state": first})
    for ours, theirs in zip(jax.tree.leaves(spoilt), jax.tree.leaves(following), strict=True):
        same(ours, theirs, "with NaN as the score of an empty row: the state")


Tree = dict[str, Any]
STEPS = 60


@check("optimizer", fix="Return an optax.GradientTransformation that scales its update by the learning rate.")
def optimises(subject: Subject) -> None:
    """In some steps it lowers a quadratic loss.

    Some optimisers need several steps before they move, or a rate of 1 that they scale themselves.
    """
    params = quadratic_params()
    after = [descend(subject, rate, STEPS) for rate in (1e-2, 1.0)]
    for state, _ in after[:1]:
        for name, value in state.items():
            finite(value, f"after {STEPS} steps: '{name}'")
    still = [name for name, value in params.items() if all(np.array_equal(found[name], value) for found, _ in after)]
    if still:
        raise Failed(f"in {STEPS} steps '{still[0]}' does not move")
    losses = [_loss(found) for found, _ in after]
    if not min(losses) < _loss(params):  # one that is not finite is below nothing
        raise Failed(f"{STEPS} steps along the gradient take the loss from {_loss(params):.6g} to {losses[0]:.6g}")


@check(
    "optimizer",
    unless="undefined_at_rest",
    fix="Multiply the update by the learning rate last, and guard divisions by norms of gradients.",
)
def at_rest(subject: Subject) -> None:
    """It does nothing at a learning rate of zero, and stays finite where the gradient is zero.

    A schedule may begin at zero, and a step in which every completion was filtered out has no gradient.
    """
    params = quadratic_params()
    for name, value in descend(subject, 0.0, 1)[0].items():
        same(value, params[name], f"with learning rate 0: '{name}'", within=1e-7)
    for name, value in descend(subject, 1e-2, 2, scale=0.0)[0].items():
        finite(value, f"with a zero gradient: '{name}'")


def quadratic_params() -> Tree:
    """Return parameters of several shapes, for a loss that is the sum of their squares."""
    return {"kernel": jnp.array([[1.0, 0.5], [-0.5, 2.0]]), "w": jnp.array([1.0, -2.0]), "b": jnp.array(0.5)}


def _loss(params: Tree) -> float:
    return float(sum(jnp.sum(x**2) for x in jax.tree.leaves(params)))


def descend(subject: Subject, rate: float, steps: int, scale: float = 1.0) -> tuple[Tree, Any]:
    """Return parameters and state after some steps along the gradient of half the loss, times a factor."""

    def make() -> Any:
        @jax.jit
        def descend(rate: Any, steps: Any, scale: Any) -> Any:
            optimizer = subject.bind(**subject.floats)(rate)
            if not isinstance(optimizer, optax.GradientTransformation):
                raise Failed(f"it returns {type(optimizer).__name__}, not an optax.GradientTransformation")

            def step(_: Any, reached: Any) -> Any:
                params, state = reached
                gradient = jax.tree.map(lambda x: scale * x, params)
                updates, state = optimizer.update(gradient, state, params)
                return optax.apply_updates(params, updates), state

            begin = (quadratic_params(), optimizer.init(quadratic_params()))
            return jax.lax.fori_loop(0, steps, step, begin)

        return descend

    with jax.numpy_dtype_promotion("standard"):  # optax mixes its step count with floats
        return subject.once("descend", make)(jnp.float32(rate), jnp.int32(steps), jnp.float32(scale))
