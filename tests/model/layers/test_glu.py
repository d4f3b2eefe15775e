import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dovetail_model.layers.glu import GLU

layer_of = functools.partial(GLU, activation="silu", bias=False, param_dtype="float32", rngs=nnx.Rngs(0))


def silu(x):
    return x / (1 + math.exp(-x))


def gelu_tanh(x):
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(("activation", "formula"), [("silu", silu), ("gelu_tanh", gelu_tanh)])
def test_by_hand(activation, formula):
    layer = layer_of(1, 1, activation=activation, bias=True, std=1.0, out_std=1.0)
    for number, part in enumerate((layer.gate, layer.up, layer.down)):
        part.kernel[...] = jnp.full((1, 1), (2.0, 3.0, 5.0)[number])
        part.bias[...] = jnp.full(1, (0.1, 0.2, 0.3)[number])
    np.testing.assert_allclose(layer(jnp.ones((1, 1))), [[formula(2.1) * 3.2 * 5 + 0.3]], rtol=1e-6)


def test_initial_scales():
    layer = layer_of(64, 128, std=0.5, out_std=0.1)
    # 8,192 draws: the standard deviation is within 2.5% of the true one but for one in a thousand seeds
    np.testing.assert_allclose(jnp.std(layer.gate.kernel[...]), 0.5, rtol=0.025)
    np.testing.assert_allclose(jnp.std(layer.down.kernel[...]), 0.1, rtol=0.025)
    assert not jnp.any(layer.gate.kernel[...] == layer.up.kernel[...])
