"""The product of hidden states with the table of all tokens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def scores(rows: Float[Array, "row width"], table: Float[Array, "vocab width"]) -> Float[Array, "row vocab"]:
    """Return the product of each row with each token's vector, in float32.

    On accelerators both factors have the type of the rows, and so has the gradient of the scores in its products, as in
    PyTorch: these products are a quarter of a small model's work, and GPUs multiply float32 at half the rate at most
    (`docs/performance.md`). Sums are in float32, and the table's gradient has the type of the table. CPUs multiply in
    float32, so that a narrower table would be in memory in both types.
    """
    if jax.default_backend() == "cpu":
        return _product("rw,vw->rv", rows.astype(jnp.float32), table.astype(jnp.float32))
    return _scores(rows, table)


@jax.custom_vjp
def _scores(rows: Array, table: Array) -> Array:
    return _product("rw,vw->rv", rows, table.astype(rows.dtype))


def _forward(rows: Array, table: Array) -> tuple[Array, tuple[Array, Array]]:
    return _scores(rows, table), (rows, table)


def _backward(kept: tuple[Array, Array], upstream: Array) -> tuple[Array, Array]:
    rows, table = kept
    upstream = upstream.astype(rows.dtype)
    of_rows = _product("rv,vw->rw", upstream, table.astype(rows.dtype))
    return of_rows.astype(rows.dtype), _product("rv,rw->vw", upstream, rows).astype(table.dtype)


_scores.defvjp(_forward, _backward)


def _product(formula: str, a: Array, b: Array) -> Float[Array, "..."]:
    return jnp.einsum(formula, a, b, preferred_element_type=jnp.float32)
