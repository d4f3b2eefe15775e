"""Computing a layer again in the backward pass instead of keeping what it computed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool

Policy = Callable[..., Any]


def recomputed(function: Callable[..., Any], policy: Policy | None = None) -> Callable[..., Any]:
    """Return the same function, whose backward pass keeps what `policy` says and computes the rest again.

    This is `jax.checkpoint`, which keeps XLA from merging what is computed again with what was computed first by an
    optimisation barrier. XLA removes those on CPUs before it looks for common subexpressions, and so keeps everything.
    There the backward pass is put into the branch of a condition, which nothing is merged with.

    Args:
        function: of arrays and trees of them.
        policy: as those of `jax.checkpoint_policies`; None keeps the arguments alone.
    """
    checkpointed = jax.checkpoint(function, policy=policy)
    return _in_a_branch(checkpointed) if jax.default_backend() == "cpu" else checkpointed


def _in_a_branch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Put a function's backward pass into the branch of a condition."""

    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)

        @jax.custom_vjp
        def wrapped(leaves: list[Any]) -> Any:
            return function(*jax.tree.unflatten(structure, leaves))

        def forward(leaves: list[Any]) -> Any:
            # frozen parameters have no gradient: one that is asked for in a branch would be computed
            values = {number: leaf.value for number, leaf in enumerate(leaves)}
            moving = {number: leaf.value for number, leaf in enumerate(leaves) if leaf.perturbed}

            def of_moving(moving: dict[int, Any]) -> Any:
                return function(*jax.tree.unflatten(structure, list((values | moving).values())))

            return jax.vjp(of_moving, moving)

        def backward(pull: Any, upstream: Any) -> tuple[list[Any]]:
            upstream = jax.tree.map(_made, upstream, is_leaf=_is_zero)
            found = held_back(lambda pull, upstream: pull(upstream)[0])(pull, upstream)
            return ([found.get(number) for number in range(len(leaves))],)

        wrapped.defvjp(forward, backward, symbolic_zeros=True)
        return wrapped(leaves)

    return call


def _is_zero(cotangent: Any) -> bool:
    return isinstance(cotangent, SymbolicZero)


def _made(cotangent: Any) -> Any:
    return jnp.zeros(cotangent.shape, cotangent.dtype) if _is_zero(cotangent) else cotangent


def held_back(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, which starts when all of its arguments are there.

    On CPUs XLA computes early what it can, and would unpack all quantised matrices before the first is used.
    """
    if jax.default_backend() != "cpu":
        return function

    def call(*arguments: Any) -> Any:
        return jax.lax.cond(_true(arguments), function, functools.partial(_zeros, function), *arguments)

    return call


def _zeros(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return zeros in the shapes of a function's result."""
    return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(function, *arguments))


def _true(tree: Any) -> Bool[Array, ""]:
    """Return what is true of every tree, which the compiler cannot know."""
    first = next(x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating))
    # the number of bits of something is not negative, NaN or not
    return jax.lax.population_count(jax.lax.bitcast_convert_type(first.ravel()[0].astype(jnp.float32), jnp.int32)) >= 0
