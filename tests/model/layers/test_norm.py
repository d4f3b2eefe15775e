import jax
import jax.numpy as jnp
import numpy as np

from dovetail_model.layers.norm import RMSNorm, rms_norm


def test_by_hand():
    # mean of squares of (1, 7) is 25
    np.testing.assert_allclose(
        rms_norm(jnp.array([1.0, 7.0]), jnp.array([1.0, 2.0]), epsilon=0.0), [0.2, 2.8], rtol=1e-6
    )


def test_scaling_the_input_changes_nothing():
    x = jax.random.normal(jax.random.key(0), (5, 8))
    scale = jnp.ones(8)
    np.testing.assert_allclose(rms_norm(x, scale, epsilon=0.0), rms_norm(100 * x, scale, epsilon=0.0), rtol=1e-5)


def test_arithmetic_is_float32_and_the_dtype_is_kept():
    x = jnp.full((1, 4), 300.0, jnp.bfloat16)  # squares sum to 360,000, which bfloat16 cannot hold to 1%
    y = RMSNorm(4, axis="width", epsilon=0.0, offset=0.0, param_dtype="bfloat16")(x)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype(jnp.float32), 1.0, rtol=1e-2)


def test_a_row_of_zeros_has_finite_value_and_gradient():
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(rms_norm(x, jnp.ones(4), epsilon=1e-6)))(jnp.zeros(4))
    assert value == 0
    assert jnp.all(jnp.isfinite(gradient))


def test_an_offset_is_added_to_what_is_stored():
    norm = RMSNorm(2, axis="width", epsilon=0.0, offset=1.0, param_dtype="bfloat16")
    assert norm.scale.axes == ("width",)
    x = jnp.array([[1.0, 7.0]])
    np.testing.assert_allclose(norm(x), [[0.2, 1.4]], rtol=1e-6)
    norm.scale[...] = jnp.array([0.0, 2**-9], jnp.bfloat16)  # 1 + 2⁻⁹ is not a bfloat16
    np.testing.assert_allclose(norm(x), [[0.2, 1.4 * (1 + 2**-9)]], rtol=1e-6)
