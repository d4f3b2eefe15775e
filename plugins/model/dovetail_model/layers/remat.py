"""Rematerialisation: recomputing a layer in the backward pass instead of keeping its activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Policy = Callable[..., Any]


def recomputed(function: Callable[..., Any], policy: Policy | None = None) -> Callable[..., Any]:
    """Return the same function, whose backward pass recomputes the values that `policy` does not keep.

    This is `jax.checkpoint`. It uses an optimisation barrier so that XLA does not merge the recomputation with the
    first computation. On CPUs XLA removes barriers before it eliminates common subexpressions, and so keeps everything.
    Therefore, on CPUs, the backward pass is put into a branch of a conditional, which XLA does not merge with the rest.

    Args:
        function: a function of arrays and trees of arrays.
        policy: a policy like those of `jax.checkpoint_policies`; None keeps only the arguments.
    """
    checkpointed = jax.checkpoint(function, policy=policy)
    return _in_a_branch(checkpointed) if jax.default_backend() == "cpu" else checkpointed


def _in_a_branch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Put a function's backward pass into a branch of a conditional; XLA removes gradients that are not used."""

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
    """Return the same function, which does not start before all of its arguments have been computed.

    On CPUs XLA schedules operations as early as it can, and would unpack all quantised matrices before using the first.
    """
    if jax.default_backend() != "cpu":
        return function

    def call(*arguments: Any) -> Any:
        return jax.lax.cond(_true(arguments), function, functools.partial(_zeros, function), *arguments)

    return call


def times(x: Float[Array, "row inputs"], kernel: Float[Array, "inputs outputs"]) -> Float[Array, "row outputs"]:
    """Return x W in the type of x.

    On CPUs products are computed in float32: XLA converts narrower types, and keeps the float32 copies of all
    parameters while it goes through the micro-batches, and those of all inputs until the backward pass. This function
    converts both only when they are used, and again in the backward pass.
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


def times_both(
    x: Float[Array, "row inputs"], a: Float[Array, "inputs rank"], b: Float[Array, "rank outputs"]
) -> Float[Array, "row outputs"]:
    """Return (x A) B in the type of x, as `times` twice.

    On CPUs both products are in one branch of a conditional, and all five of the backward pass, which computes x A
    again, in another: each conditional of a program adds to what it costs to compile it, and to load it from the cache.
    """
    is_narrow = min(jnp.finfo(each.dtype).bits for each in (x, a, b)) < 32
    return _both_widened(x, a, b) if is_narrow and jax.default_backend() == "cpu" else times(times(x, a), b)


@jax.custom_vjp
def _both_widened(x: Array, a: Array, b: Array) -> Array:
    def products(x: Array, a: Array, b: Array) -> Array:
        inner = _product("ri,io->ro", x, a.astype(x.dtype), x.dtype)
        return _product("ri,io->ro", inner, b.astype(x.dtype), x.dtype)

    return held_back(products)(x, a, b)


def _both_forward(x: Array, a: Array, b: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    return _both_widened(x, a, b), (x, a, b)


def _both_backward(kept: tuple[Array, Array, Array], upstream: Array) -> tuple[Array, Array, Array]:
    def gradients(x: Array, a: Array, b: Array, upstream: Array) -> tuple[Array, Array, Array]:
        first, second = a.astype(x.dtype), b.astype(x.dtype)
        inner = _product("ri,io->ro", x, first, x.dtype)
        of_inner = _product("ro,io->ri", upstream, second, x.dtype)
        of_x = _product("ro,io->ri", of_inner, first, x.dtype)
        return of_x, _product("ri,ro->io", x, of_inner, a.dtype), _product("ri,ro->io", inner, upstream, b.dtype)

    return held_back(gradients)(*kept, upstream)


_both_widened.defvjp(_both_forward, _both_backward)


def _product(formula: str, a: Array, b: Array, dtype: Any) -> Array:
    """Return a product computed in float32."""
    return jnp.einsum(formula, a.astype(jnp.float32), b.astype(jnp.float32)).astype(dtype)


def _held_product(formula: str, a: Array, b: Array, dtype: Any) -> Array:
    """Return a product computed in float32, which does not start before both factors have been computed."""
    return held_back(lambda a, b: _product(formula, a, b, dtype))(a, b)


def _zeros(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return zeros with the shapes of a function's result."""
    return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(function, *arguments))


def _true(tree: Any) -> Bool[Array, ""]:
    """Return a value that is always true although the compiler cannot know it."""
    first = next(x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating))
    # the number of set bits is never negative, even for NaN
    return jax.lax.population_count(jax.lax.bitcast_convert_type(first.ravel()[0].astype(jnp.float32), jnp.int32)) >= 0
