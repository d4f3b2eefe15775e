"""Claims about followers: how the weights of a model role that is not trained move."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject, allows

STEPS = 1000
LATE = 1_024_000
"""A step that bfloat16 has, and that every small number divides but those with a 3 or a 7."""


def _moved(subject: Subject, step: Any) -> tuple[Any, Any]:
    """Return the weights of a small model before and after a step."""
    weights = {"kernel": jnp.linspace(-1, 1, 6).reshape(3, 2), "bias": jnp.ones(2, jnp.bfloat16)}
    policy = jax.tree.map(lambda value: value * 0.5, weights)
    given = {"weights": weights, "policy": policy, "step": step}
    reads, follower = subject.component.reads, subject.bind()
    return weights, jax.jit(follower)(*(given[name] for name in reads))


@check("follower", fix="Use jnp.where instead of if, and cast the result to the type of the weights.")
def same_shapes(subject: Subject) -> None:
    """It can be compiled, and the next weights have the shapes and types of the weights.

    They replace the weights in the model of the role, in checkpoints, and in a step that is compiled once.
    """
    for step in (1, 100):
        before, after = _moved(subject, jnp.int32(step))
        shapes = [jax.tree.map(lambda value: (value.shape, value.dtype.name), tree) for tree in (before, after)]
        if shapes[0] != shapes[1]:
            raise Failed(f"after step {step} the weights are {shapes[1]} instead of {shapes[0]}")
        for name, value in after.items():
            finite(value, f"after step {step} the weight '{name}'")


@check("follower", claim="constant", fix="Drop the claim.")
def constant_weights(subject: Subject) -> None:
    """The weights never change, so checkpoints need not include them.

    A checkpoint without them would lose how they had changed when a run is resumed.
    """
    before, after = _moved(subject, jnp.int32(1))
    for name, value in after.items():
        same(value, before[name], f"after a step the weight '{name}'", within=0.0)


@check("follower", unless="constant", fix="Declare constant=True, or check the formula and the defaults.")
def moves(subject: Subject) -> None:
    """If the policy's weights differ, the weights change at some of the first 1,000 steps.

    Weights that change are written to every checkpoint; a follower that never changes them should declare it.
    """

    def change(step: Any) -> Any:
        before, after = _moved(subject, step)
        return jnp.any(after["kernel"] != before["kernel"])

    if not jax.lax.map(change, jnp.arange(1, STEPS + 1, dtype=jnp.int32)).any():
        raise Failed(f"no weight has changed in {STEPS:,} steps")


@check("follower", fix="Move by the difference: w + rate * (policy - w).")
def stays_with_the_policy(subject: Subject) -> None:
    """Weights that equal the policy's do not change.

    A role starts as the policy: if it drifted by itself, the policy would be compared with weights it never had.
    """
    weights = {"kernel": jnp.linspace(-1, 1, 6).reshape(3, 2), "bias": jnp.ones(2, jnp.bfloat16)}
    given = {"weights": weights, "policy": weights, "step": jnp.int32(1)}
    after = jax.jit(subject.bind())(*(given[name] for name in subject.component.reads))
    for name, value in after.items():
        same(value, weights[name], f"with a policy that has not moved, the weight '{name}'", within=1e-6)


def _distance(subject: Subject, follower: Any, step: int = 1) -> float:
    """Return how far weights go at a step towards those of a policy, which are at most 0.5 away."""
    weights = jnp.linspace(-1, 1, 6)
    given = {"weights": {"kernel": weights}, "policy": {"kernel": 0.5 * weights}, "step": jnp.int32(step)}
    after = follower(*(given[name] for name in subject.component.reads))
    return float(jnp.abs(after["kernel"] - weights).max())


@check(
    "follower",
    when=lambda component: "decay" in component.params,
    fix="Keep `decay` of the weights and take 1 - decay of the policy's: d·w + (1 - d)·θ.",
)
def a_larger_decay_moves_less(subject: Subject) -> None:
    """The larger a number called `decay` is, the less the weights move; with 1, where its range has it, not at all.

    With the two shares exchanged, a reference that should lag by a hundred steps is the policy of the step before.
    """
    moved = {}
    for decay in (0.2, 0.9, 1.0):
        if allows(subject.component, "decay", decay):
            moved[decay] = _distance(subject, subject.bind(decay=decay))
    if 1.0 in moved and moved[1.0] > 1e-6:
        raise Failed(f"with 'decay' = 1 the weights move by {moved[1.0]:.6g}")
    sizes = [moved[decay] for decay in sorted(moved)]
    if sizes != sorted(sizes, reverse=True):
        told = ", ".join(f"{size:.6g} with {decay:g}" for decay, size in moved.items())
        raise Failed(f"towards a policy that is 0.5 away the weights move by {told}")


@check(
    "follower",
    when=lambda component: "every" in component.params,
    fix="Take the policy's weights where step % every == 0, and the role's own otherwise.",
)
def every_so_many_steps(subject: Subject) -> None:
    """With a number called `every`, the weights move in as many steps as it says: with 5, in 8 of 40, and in 8 of the
    40 steps after 1,024,000 if in any.

    With the branches exchanged, weights that should rest are those of the policy in all other steps. In too few digits
    a late step is a multiple of everything.
    """
    follower = subject.bind(every=5)
    for begin in (0, LATE):
        moved = sum(_distance(subject, follower, step) > 0 for step in range(begin + 1, begin + 41))
        if not 7 <= moved <= 9 and (moved or not begin):
            raise Failed(f"with 'every' = 5 the weights move in {moved} of the 40 steps from {begin + 1:,} on")


@check(
    "follower",
    when=lambda component: "rate" in component.params,
    fix="Move by `rate` of the difference: w + rate * (policy - w).",
)
def a_larger_rate_moves_more(subject: Subject) -> None:
    """The larger a number called `rate` is, the more the weights move; with 0, where its range has it, not at all.

    With the two shares exchanged, a reference that should lag by a hundred steps is the policy of the step before.
    """
    moved = {}
    for rate in (0.0, 0.1, 0.8):
        if allows(subject.component, "rate", rate):
            moved[rate] = _distance(subject, subject.bind(rate=rate))
    sizes = list(moved.values())
    if sizes != sorted(sizes) or moved.get(0.0):
        told = ", ".join(f"{size:.6g} with {rate:g}" for rate, size in moved.items())
        raise Failed(f"towards a policy that is 0.5 away the weights move by {told}")
