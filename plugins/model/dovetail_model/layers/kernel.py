"""What is computed with a matrix, whether it is stored whole or in four or eight bits."""

from __future__ import annotations

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from dovetail_model.layers.quantised import Quantised
from dovetail_model.layers.remat import times

Kernel = nnx.Param[Array] | Quantised


def product(kernel: Kernel, x: Float[Array, "row inputs"]) -> Float[Array, "row outputs"]:
    """Return x W in the type of x."""
    return kernel.product(x) if isinstance(kernel, Quantised) else times(x, kernel[...])


def dense(kernel: Kernel) -> Float[Array, "*group inputs outputs"]:
    """Return W, in float32 if it is quantised."""
    return kernel.dense(jnp.float32) if isinstance(kernel, Quantised) else kernel[...]


def squared_norms(kernel: Kernel) -> Float[Array, "outputs"]:
    """Return the sum over the inputs of the squared weights of each output, in float32.

    >>> squared_norms(nnx.Param(jnp.array([[1.0, 2.0], [3.0, 0.0]])))
    Array([10.,  4.], dtype=float32)
    """
    if isinstance(kernel, Quantised):
        return kernel.squared_norms()
    return jnp.sum(jnp.square(jnp.asarray(kernel[...]).astype(jnp.float32)), axis=0)
