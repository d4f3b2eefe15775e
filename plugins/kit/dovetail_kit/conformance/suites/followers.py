"""What is claimed of followers: how the weights of a model role that is not trained move."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dovetail_kit.conformance.check import Failed, check
from dovetail_kit.conformance.compare import finite, same
from dovetail_kit.conformance.subject import Subject


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

    They take their place in the model of the role, in checkpoints, and in a step that is compiled once.
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
    """The weights never change, so checkpoints need not hold them."""
    before, after = _moved(subject, jnp.int32(1))
    for name, value in after.items():
        same(value, before[name], f"after a step the weight '{name}'", within=0.0)
