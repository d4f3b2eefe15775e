"""Computing a layer again in the backward pass instead of keeping what it computed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

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
    """Put a function's backward pass into the branch of a condition; XLA leaves out gradients that nobody uses."""

    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        is_smooth = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
        smooth = [leaf for leaf, own in zip(leaves, is_smooth, strict=True) if own]
        fixed = [leaf for leaf, own in zip(leaves, is_smooth, strict=True) if not own]

        def joined(smooth: list[Any], fixed: list[Any]) -> Any:
            parts = {True: iter(smooth), False: iter(fixed)}
            return function(*jax.tree.unflatten(structure, [next(parts[own]) for own in is_smooth]))

        @jax.custom_vjp
        def wrapped(smooth: list[Any], fixed: list[Any]) -> Any:
            return joined(smooth, fixed)

        def forward(smooth: list[Any], fixed: list[Any]) -> Any:
            return jax.vjp(lambda smooth: joined(smooth, fixed), smooth)

        def backward(pull: Any, upstream: Any) -> tuple[Any, None]:
            return held_back(lambda pull, upstream: pull(upstream)[0])(pull, upstream), None

        wrapped.defvjp(forward, backward)
        return wrapped(smooth, fixed)

    return call


def held_back(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, which starts when all of its arguments are there.

    On CPUs XLA computes early what it can, and would unpack all quantised matrices before the first is used.
    """
    if jax.default_backend() != "cpu":
        return function

    def call(*arguments: Any) -> Any:
        return jax.lax.cond(_true(arguments), function, functools.partial(_zeros, function), *arguments)

    return call


def times(x: Float[Array, "row inputs"], kernel: Float[Array, "inputs outputs"]) -> Float[Array, "row outputs"]:
    """Return x W in the type of x.

    CPUs multiply float32 numbers: XLA widens whatever has fewer bits, and keeps float32 copies of all parameters while
    it goes through micro-batches, and of all inputs until the backward pass. Here both are widened when they are used,
    and again in the backward pass.
    """
    is_narrow = min(jnp.finfo(x.dtype).bits, jnp.finfo(kernel.dtype).bits) < 32
    return _widened(x, kernel) if is_narrow and jax.default_backend() == "cpu" else x @ kernel.astype(x.dtype)


@jax.custom_vjp
def _widened(x: Float[Array, "row inputs"], kernel: Float[Array, "inputs outputs"]) -> Float[Array, "row outputs"]:
    return _held_product("ri,io->ro", x, kernel.astype(x.dtype), x.dtype)


def _widened_forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _widened(x, kernel), (x, kernel)


def _widened_backward(kept: tuple[Array, Array], upstream: Array) -> tuple[Array, Array]:
    x, kernel = kept
    of_x = _held_product("ro,io->ri", upstream, kernel.astype(x.dtype), x.dtype)
    return of_x, _held_product("ri,ro->io", x, upstream, kernel.dtype)


_widened.defvjp(_widened_forward, _widened_backward)


def _held_product(formula: str, a: Array, b: Array, dtype: Any) -> Array:
    """Return a product that is computed in float32, when both factors are there."""

    def product(a: Array, b: Array) -> Array:
        return jnp.einsum(formula, a.astype(jnp.float32), b.astype(jnp.float32)).astype(dtype)

    return held_back(product)(a, b)


def _zeros(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return zeros in the shapes of a function's result."""
    return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(function, *arguments))


def _true(tree: Any) -> Bool[Array, ""]:
    """Return what is true of every tree, which the compiler cannot know."""
    first = next(x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating))
    # the number of bits of something is not negative, NaN or not
    return jax.lax.population_count(jax.lax.bitcast_convert_type(first.ravel()[0].astype(jnp.float32), jnp.int32)) >= 0
