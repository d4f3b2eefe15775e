"""A matrix in four or eight bits."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, UInt8

from dovetail.errors import ConfigError
from dovetail_model.layers.remat import held_back, recomputed

Format = Literal["int8", "nf4"]

BLOCK = 64
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""The levels of NF4: quantiles of a normal distribution, scaled to [-1, 1] (Dettmers et al. 2023, appendix E)."""


class Quantised(nnx.Module):
    """A frozen matrix W in blocks of at most 64 inputs, each with a scale: Wᵢⱼ ≈ level(qᵢⱼ) · scale.

    `nf4`: four bits, the nearest of the sixteen `NF4` levels, two in a byte (Dettmers et al. 2023, "QLoRA", section 3).
    `int8`: eight bits, level(q) = q / 127. The float32 scale is the greatest magnitude in the block.

    Raises:
        ConfigError: for `nf4` with an odd number of inputs.

    *Departures* from QLoRA: the scales themselves are not quantised, which costs half a bit per weight.

    >>> matrix = Quantised(jnp.array([[1.0], [-0.5], [0.25], [0.0]]), axes=(None, None), format="int8")
    >>> matrix.dense(jnp.float32).round(2).ravel()
    Array([ 1.  , -0.5 ,  0.25,  0.  ], dtype=float32)
    """

    def __init__(self, matrix: Float[Array, "inputs outputs"], *, axes: Any, format: Format) -> None:
        self.format: Format = format
        inputs, outputs = matrix.shape
        if format == "nf4" and inputs % 2:
            raise ConfigError(
                f"quantise_base = 'nf4' stores two inputs in a byte, and a matrix has {inputs:,}; choose 'int8', or"
                " leave such matrices out"
            )
        blocks = matrix.astype(jnp.float32).reshape(inputs // block_of(inputs), -1, outputs)
        scales = jnp.max(jnp.abs(blocks), axis=1)
        relative = (blocks / jnp.where(scales > 0, scales, 1.0)[:, None, :]).reshape(inputs, outputs)
        self.codes = nnx.Param(_encode_nf4(relative) if format == "nf4" else _encode_int8(relative), axes=axes)
        self.scales = nnx.Param(scales, axes=axes)

    def dense(self, dtype: Any) -> Float[Array, "inputs outputs"]:
        """Return the matrix."""
        return _dense(jnp.asarray(self.codes[...]), jnp.asarray(self.scales[...]), self.format, dtype)

    def product(self, x: Float[Array, "row inputs"]) -> Float[Array, "row outputs"]:
        """Return x W. The backward pass unpacks W again, because keeping it would use the memory that was saved."""

        def product(x: Array, codes: Array, scales: Array) -> Array:
            return x @ _dense(codes, scales, self.format, x.dtype)

        return recomputed(held_back(product))(x, self.codes[...], self.scales[...])

    def squared_norms(self) -> Float[Array, "outputs"]:
        """Return the sum over the inputs of the squared weights of each output, in float32."""

        def squared(codes: Array, scales: Array) -> Array:
            return jnp.sum(jnp.square(_dense(codes, scales, self.format, jnp.float32)), axis=0)

        return held_back(squared)(self.codes[...], self.scales[...])


def block_of(inputs: int) -> int:
    """Return the size of a block: the greatest power of two, up to 64, that divides the inputs.

    >>> block_of(896), block_of(96), block_of(7)
    (64, 32, 1)
    """
    return math.gcd(inputs, BLOCK)


def _dense(codes: Array, scales: Array, format: Format, dtype: Any) -> Float[Array, "inputs outputs"]:
    levels = _decode_nf4(codes) if format == "nf4" else codes.astype(jnp.float32) / 127
    blocks = levels.reshape(scales.shape[0], -1, scales.shape[1])
    return (blocks * scales[:, None, :]).reshape(levels.shape).astype(dtype)


def _encode_int8(relative: Float[Array, "inputs outputs"]) -> Array:
    return jnp.round(relative * 127).astype(jnp.int8)


def _encode_nf4(relative: Float[Array, "inputs outputs"]) -> UInt8[Array, "half outputs"]:
    levels = jnp.array(NF4, jnp.float32)
    middles = (levels[1:] + levels[:-1]) / 2
    codes = jnp.searchsorted(middles, relative).astype(jnp.uint8)
    return codes[0::2] | (codes[1::2] << 4)


def _decode_nf4(codes: UInt8[Array, "half outputs"]) -> Float[Array, "inputs outputs"]:
    halves = jnp.stack([codes & 15, codes >> 4], axis=1)
    return jnp.array(NF4, jnp.float32)[halves.reshape(-1, codes.shape[1]).astype(jnp.int32)]
