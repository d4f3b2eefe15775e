"""The gated feed-forward layer."""

from __future__ import annotations

import functools
from typing import Literal

import jax
from flax import nnx
from jaxtyping import Array, Float, Key

from dovetail_model.layers.linear import Linear

Activation = Literal["silu", "gelu_tanh"]
ACTIVATIONS = {"silu": jax.nn.silu, "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True)}


class GLU(nnx.Module):
    """A gated feed-forward layer: y = (act(x W_gate) ⊙ x W_up) W_down.

    Shazeer 2020, "GLU Variants Improve Transformer", equation 6: SwiGLU with `silu`, GEGLU with `gelu_tanh`, the tanh
    approximation of the Gaussian error linear unit. `std` is the standard deviation of the initial weights and
    `out_std` that of `down`, which writes to the residual stream. With `bias`, each product has a bias.

    >>> sizes = {"std": 0.02, "out_std": 0.01, "param_dtype": "float32"}
    >>> layer = GLU(4, 8, activation="silu", bias=False, **sizes, rngs=nnx.Rngs(0))
    >>> layer(jax.numpy.ones((3, 4))).shape
    (3, 4)
    """

    def __init__(
        self,
        width: int,
        ffn: int,
        *,
        activation: Activation,
        bias: bool,
        std: float,
        out_std: float,
        param_dtype: str,
        rngs: nnx.Rngs,
    ) -> None:
        self.activation = activation
        linear = functools.partial(Linear, bias=bias, param_dtype=param_dtype, rngs=rngs)
        self.gate = linear(width, ffn, axes=("width", "ffn"), std=std)
        self.up = linear(width, ffn, axes=("width", "ffn"), std=std)
        self.down = linear(ffn, width, axes=("ffn", "width"), std=out_std)

    def __call__(
        self, x: Float[Array, "row width"], keys: Key[Array, "row"] | None = None
    ) -> Float[Array, "row width"]:
        """Return the layer's contribution to the residual stream; `keys` are for dropout."""
        return self.down(ACTIVATIONS[self.activation](self.gate(x, keys)) * self.up(x, keys), keys)
