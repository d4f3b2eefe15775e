import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dovetail.errors import ConfigError
from dovetail_model.layers.quantised import NF4, Quantised


def matrix(inputs=128, outputs=6):
    return 0.02 * jax.random.normal(jax.random.key(0), (inputs, outputs))


@pytest.mark.parametrize("inputs", [128, 96, 6])
def test_nf4_is_the_nearest_level(inputs):
    dense = Quantised(matrix(inputs), axes=(None, None), format="nf4").dense(jnp.float32)
    block = {128: 64, 96: 32, 6: 2}[inputs]
    for start in range(0, inputs, block):
        part = np.asarray(matrix(inputs))[start : start + block]
        scale = np.abs(part).max(axis=0)
        levels = np.array(NF4)[:, None, None] * scale
        nearest = np.take_along_axis(levels, np.abs(levels - part).argmin(axis=0)[None], axis=0)[0]
        np.testing.assert_allclose(dense[start : start + block], nearest, rtol=1e-6)


def test_int8_is_within_half_a_step():
    dense = Quantised(matrix(), axes=(None, None), format="int8").dense(jnp.float32)
    steps = jnp.max(jnp.abs(matrix().reshape(2, 64, 6)), axis=1, keepdims=True) / 127
    assert jnp.all(jnp.abs(dense - matrix()).reshape(2, 64, 6) <= steps * 0.501)


@pytest.mark.parametrize(("format", "bits"), [("int8", 8.5), ("nf4", 4.5)])
def test_bits_for_each_weight(format, bits):
    state = nnx.state(Quantised(matrix(), axes=(None, None), format=format))
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(state)) * 8 / matrix().size == bits


def test_zeros_stay_zero():
    dense = Quantised(jnp.zeros((64, 2)), axes=(None, None), format="nf4").dense(jnp.float32)
    np.testing.assert_array_equal(dense, 0)


def test_the_product_s_gradient_keeps_no_dense_matrix():
    quantised = Quantised(matrix(), axes=(None, None), format="nf4")
    x = jnp.ones((3, 128))
    np.testing.assert_allclose(quantised.product(x), x @ quantised.dense(jnp.float32), atol=1e-6)
    gradient = jax.grad(lambda x: jnp.sum(jnp.sin(quantised.product(x))))(x)
    plain = jax.grad(lambda x: jnp.sum(jnp.sin(x @ quantised.dense(jnp.float32))))(x)
    np.testing.assert_allclose(gradient, plain, atol=1e-6)
    _, backward = jax.vjp(quantised.product, x)
    assert max(leaf.size for leaf in jax.tree.leaves(backward)) < matrix().size


def test_an_odd_number_of_inputs_does_not_fit_into_bytes():
    with pytest.raises(ConfigError, match=r"two inputs in a byte, and a matrix has 7; choose 'int8'"):
        Quantised(matrix(7), axes=(None, None), format="nf4")
    assert Quantised(matrix(7), axes=(None, None), format="int8").dense(jnp.float32).shape == (7, 6)
