"""Claims about how weights move: by optimisers, followers and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dovetail_kit.conformance.check import Failed, Inapplicable, check
from dovetail_kit.conformance.subject import Subject, allows
from dovetail_kit.conformance.suites.hyperparameters import FIX, own_numbers, refuse_unseen, tries
from dovetail_kit.conformance.suites.numbers import quadratic_params, schedule_of

HIGHEST = 50.0
"""A factor of the learning rate above which something multiplies without end."""
RATE = 1e-3
OF_THE_MEAN = ("b1", "beta1", "mean_decay")
FLAT = {"w": jnp.zeros(3)}
LONG = 300
SPIKES = (1.0, 5.0, 1.0, 100.0)
LATE, TOLERANCE, SOME = 40, 0.05, 0.2
"""So many steps are looked at; of what rounding does to steep curves, so much and so often is allowed."""
LEAST = 0.01
"""What must be left of a step after 300 steps along the same gradient: AdaGrad's is 6 % of the first."""


def _walked(
    subject: Subject,
    rate: float = 1e-2,
    steps: int = 6,
    *,
    turning: bool = True,
    spikes: Sequence[float] = (),
    changed: Mapping[str, Any] = MappingProxyType({}),
) -> list[Any]:
    """Return the updates of some steps along gradients that turn and get smaller, or that stay the same; in the end
    along gradients that are that many times as large, of which the last is so in one place alone.
    """
    with jax.numpy_dtype_promotion("standard"):
        optimizer = subject.bind(**(subject.floats | dict(changed)))(jnp.float32(rate))
        update = jax.jit(optimizer.update)
        params, state = quadratic_params(), optimizer.init(quadratic_params())
        found = []
        factors = [(np.cos(step) + 0.2) * 0.3**step if turning else 1.0 for step in range(steps)]
        for number, factor in enumerate((*factors, *spikes)):
            gradient = jax.tree.map(lambda x, factor=factor: np.float32(factor) * x, quadratic_params())
            if spikes and number == len(factors) + len(spikes) - 1:
                gradient = quadratic_params() | {"b": gradient["b"]}
            updates, state = update(gradient, state, params)
            if turning:
                params = optax.apply_updates(params, updates)
            found.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(updates)]))
    return found


@check("optimizer", name="every_number_counts", fix=FIX)
def every_number_of_an_optimizer_counts(subject: Subject) -> None:
    """Another value of any float hyperparameter changes the steps.

    A momentum that is not kept, or a decay that is not applied, makes a sweep over it compare identical runs.
    """
    own = own_numbers(subject)
    expected = _walked(subject, spikes=SPIKES) if own else []
    unseen: dict[str, list[float]] = {}
    for name in own:
        tried = [other for other in tries(subject, name) if other < 1] or list(tries(subject, name))
        steps = (_walked(subject, spikes=SPIKES, changed={name: np.float32(x)}) for x in tried)
        if tried and all(np.array_equal(step, expected, equal_nan=True) for step in steps):
            unseen[name] = tried
    refuse_unseen(subject, unseen, "in ten steps along gradients of 0.001 to 200, of weights of about 1")


@check("optimizer", unless="undefined_at_rest", fix="Multiply by the learning rate once, at the end.")
def proportional_to_the_rate(subject: Subject) -> None:
    """Twice the learning rate makes the first steps about twice as large.

    A rate that is applied twice makes every schedule of it a square, and small rates train nothing.
    """
    once, twice = (np.abs(_walked(subject, rate, 4)).sum(axis=1) for rate in (1e-3, 2e-3))
    moved = once > 0
    ratio = float(twice[moved][0] / once[moved][0]) if moved.any() else 2.0
    if not 1.4 < ratio < 2.8:
        raise Failed(f"with twice the learning rate the first step is {ratio:.3g} times as large")


@check(
    "optimizer",
    unless="undefined_at_rest",
    fix="Divide both moments by 1 - decay**count, or begin them with the first gradient.",
)
def begins_with_ordinary_steps(subject: Subject) -> None:
    """If the scale of the gradients makes no difference, the first step is no longer than 20 learning rates.

    A second moment that begins at zero and is not corrected for that makes the first steps some thirty times too long.
    """
    with jax.numpy_dtype_promotion("standard"):
        optimizer, params = subject.bind(**subject.floats)(jnp.float32(RATE)), quadratic_params()
        lengths = []
        for scale in (1.0, 100.0):
            gradients = jax.tree.map(lambda x, scale=scale: jnp.float32(scale) * jnp.ones_like(x), params)
            step, _ = optimizer.update(gradients, optimizer.init(params), params)
            lengths.append(max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(step)))
    if np.isclose(*lengths, rtol=1e-2) and lengths[0] > 20 * RATE:
        raise Failed(f"at a learning rate of {RATE:g} the first step is {lengths[0]:.6g} long, whatever the gradient")


@check(
    "optimizer",
    unless="undefined_at_rest",
    when=lambda component: bool({*OF_THE_MEAN} & {*component.params}),
    fix="Give each decay to its own moment: b1 to the mean of the gradients, b2 to that of their squares.",
)
def b1_is_of_the_mean(subject: Subject) -> None:
    """With a number called `b1`, `beta1` or `mean_decay` at 0, a step goes against the gradient of the moment.

    With the two decays in each other's place, momentum lasts a thousand steps, and a run turns round too late.
    """
    name = next(name for name in OF_THE_MEAN if name in subject.component.params)
    if name not in subject.floats or not allows(subject.component, name, 0.0):
        raise Inapplicable(f"'{name}' cannot be 0")
    with jax.numpy_dtype_promotion("standard"):
        optimizer, params = subject.bind(**(subject.floats | {name: np.float32(0)}))(jnp.float32(RATE)), FLAT
        state = optimizer.init(params)
        for _ in range(10):
            _, state = optimizer.update({"w": jnp.ones(3)}, state, params)
        step, _ = optimizer.update({"w": -jnp.ones(3)}, state, params)
    if float(step["w"][0]) < 0:
        raise Failed(
            f"with '{name}' = 0, after ten gradients of 1 it steps by {float(step['w'][0]):.6g} against one of -1"
        )


@check("optimizer", unless="undefined_at_rest", fix="Subtract the decay; leave schedules to train.lr_schedule.")
def neither_swells_nor_fades(subject: Subject) -> None:
    """Without a gradient no weight grows, and along the same gradient steps do not fade away.

    A decay with the wrong sign lets weights explode; an optimizer whose steps have noise declares noisy=True. A
    schedule inside an optimizer is one nobody sees; one that belongs to the method is declared, scheduled=True.
    """
    with jax.numpy_dtype_promotion("standard"):
        optimizer = subject.bind(**subject.floats)(jnp.float32(1e-2))
        params: Any = quadratic_params()
        state = optimizer.init(params)
        for _ in range(3):
            updates, state = optimizer.update(jax.tree.map(jnp.zeros_like, params), state, params)
            params = optax.apply_updates(params, updates)
    for name, value in quadratic_params().items():
        if (np.abs(params[name]) > np.abs(value) + 1e-6).any() and not subject.declared.get("noisy"):
            told = [np.asarray(weights).tolist() for weights in (value, params[name])]
            raise Failed(f"without a gradient '{name}' grows from {told[0]} to {told[1]}")
    sizes = np.abs(_walked(subject, steps=LONG, turning=False)).sum(axis=1)
    counts = any(isinstance(part, optax.ScaleByScheduleState) for part in _parts(state))
    if counts and not subject.declared.get("scheduled"):
        raise Failed("its state counts steps for a learning-rate schedule of its own (optax.scale_by_schedule)")
    early, late = sizes[:20].max(), sizes[-20:].max()
    if late < LEAST * early:
        raise Failed(f"along the same gradient the steps shrink from {early:.6g} to {late:.6g} in {LONG} steps")


def _parts(state: Any) -> list[Any]:
    """Return the states of an optimizer and of all that it is composed of."""
    inner = [each for part in state for each in _parts(part)] if isinstance(state, tuple) else []
    return [state, *inner]


@check("optimizer", unless="undefined_at_rest", fix="Compute each update from its own gradient, in its own type.")
def every_weight_descends(subject: Subject) -> None:
    """Along the same gradients each parameter moves against its own, by updates of its own type.

    A mean, a sign or a norm over all parameters may take some of them uphill; half precision loses small updates.
    """
    if subject.declared.get("noisy"):
        raise Inapplicable("its steps are noisy")
    with jax.numpy_dtype_promotion("standard"):
        optimizer = subject.bind(**subject.floats)(jnp.float32(1e-2))
        params: Any = jax.tree.map(jnp.zeros_like, quadratic_params())
        gradient = quadratic_params() | {"w": jnp.array([-1.0, -2.0])}
        state, begin = optimizer.init(params), params
        updates: Any = gradient
        for _ in range(3):
            updates, state = optimizer.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
    for name, value in gradient.items():
        if updates[name].dtype != value.dtype:
            raise Failed(f"'{name}' has type {value.dtype}, and its update {updates[name].dtype}")
        if float(jnp.sum((params[name] - begin[name]) * value)) > 0:
            raise Failed(f"three steps along the gradient {value.tolist()} take '{name}' to {params[name].tolist()}")


@check("follower", unless="constant", fix="Move by the difference: w + rate * (policy - w).")
def approaches(subject: Subject) -> None:
    """With a policy that stays where it is, the weights come no further from it, and all nearer if any do.

    A reference or teacher that runs away from the policy turns its penalty into a force without end.
    """
    policy = {"kernel": jnp.full((3, 2), 0.25), "bias": jnp.full(2, 0.5)}
    weights = {"kernel": jnp.linspace(-1, 1, 6).reshape(3, 2), "bias": jnp.array([-1.0, 2.0])}
    follower = jax.jit(subject.bind())
    far = [_distances(weights, policy)]
    for step in range(1, 21):
        given = {"weights": weights, "policy": policy, "step": jnp.int32(step)}
        weights = follower(*(given[name] for name in subject.component.reads))
        far.append(_distances(weights, policy))
    for name, before in far[0].items():
        if not far[-1][name] <= before + 1e-5:
            raise Failed(f"in 20 steps the distance of '{name}' grows from {before:.6g} to {far[-1][name]:.6g}")
        nearer = [other for other in policy if far[-1][other] < far[0][other] - 1e-6]
        if nearer and name not in nearer:
            raise Failed(f"in 20 steps '{nearer[0]}' comes nearer to the policy's, and '{name}' does not")


def _distances(weights: Any, policy: Any) -> dict[str, float]:
    return {name: float(jnp.abs(weights[name] - policy[name]).max()) for name in policy}


@check("lr_schedule", fix="Divide by total_steps, and bound the factor.")
def bounded(subject: Subject) -> None:
    """The factor stays below 50 however long a run is: it multiplies `train.lr`.

    A factor that grows, or is in percent, destroys the weights at a rate that no config shows.
    """
    schedule = schedule_of(subject, subject.floats)
    for total in (40, 10_000):
        highest = max(float(schedule(jnp.int32(step), jnp.int32(total))) for step in (0, total // 2, total))
        if not highest < HIGHEST:
            raise Failed(f"in a run of {total} steps it reaches {highest:.6g}")


@check(
    "lr_schedule",
    "schedule",
    reads=["total_steps"],
    fix="Let the curve depend on step / total_steps, or do not read total_steps.",
)
def reads_what_it_needs(subject: Subject) -> None:
    """A curve that is not constant, and reads `total_steps`, depends on it.

    With a length of its own it ends in the middle of a longer run, or is cut off in a shorter one.
    """
    schedule = schedule_of(subject, subject.floats)
    curves = [[float(schedule(jnp.int32(step), jnp.int32(total))) for step in range(9)] for total in (10, 40, 2000)]
    # step 999 is the last of the shorter run: a curve may differ from a constant only there
    far = [[float(schedule(jnp.int32(step), jnp.int32(total))) for step in (8, 500, 999)] for total in (1000, 2000)]
    if np.ptp(curves[1] + far[1]) > 0 and np.ptp(curves, axis=0).max() == 0 and np.ptp(far, axis=0).max() == 0:
        raise Failed("it varies with the step, and is the same in runs of 10, 40, 1,000 and 2,000 steps")


@check(
    "lr_schedule",
    "schedule",
    fix="Convert the step to jnp.float32 before you multiply: a product of whole numbers wraps round at 2,147,483,648.",
)
def late_steps_do_not_overflow(subject: Subject) -> None:
    """In runs of up to a million steps its values are those that 64 bits give.

    The square of step 46,341 does not fit into 32 bits. It is negative from there on, and so may be the rate.
    """
    for total in (10_000, 1_000_000):
        steps = np.linspace(1, total, LATE).astype(int)
        here = _values(subject, steps, total)
        try:
            with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
                exactly = _values(subject, steps, total)
        except (TypeError, ValueError):  # it names types of 32 bits, which do not mix
            return
        apart = np.abs(here - exactly) > TOLERANCE * np.abs(exactly).max(initial=0)
        if np.mean(apart) > SOME:
            first = int(np.argmax(apart))
            raise Failed(
                f"at step {steps[first]:,} of {total:,} it gives {here[first]:.6g}, and {exactly[first]:.6g} in 64 bits"
            )


def _values(subject: Subject, steps: np.ndarray, total: int) -> np.ndarray:
    schedule = schedule_of(subject, subject.floats)
    return np.array([float(schedule(jnp.asarray(int(step)), jnp.asarray(total))) for step in steps])
