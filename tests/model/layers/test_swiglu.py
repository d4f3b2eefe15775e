import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail_model.layers.swiglu import SwiGLU


def test_by_hand():
    layer = SwiGLU(1, 1, std=1.0, out_std=1.0, param_dtype="float32", rngs=nnx.Rngs(0))
    layer.gate.kernel[...], layer.up.kernel[...], layer.down.kernel[...] = (
        jnp.full((1, 1), w) for w in (2.0, 3.0, 5.0)
    )
    # silu(x) = x / (1 + e⁻ˣ)
    np.testing.assert_allclose(layer(jnp.ones((1, 1))), 2 / (1 + np.exp(-2)) * 15, rtol=1e-6)


def test_initial_scales():
    layer = SwiGLU(64, 128, std=0.5, out_std=0.1, param_dtype="float32", rngs=nnx.Rngs(0))
    # 8,192 draws: the standard deviation is within 2.5% of the true one but for one in a thousand seeds
    np.testing.assert_allclose(jnp.std(layer.gate.kernel[...]), 0.5, rtol=0.025)
    np.testing.assert_allclose(jnp.std(layer.down.kernel[...]), 0.1, rtol=0.025)
    assert not jnp.any(layer.gate.kernel[...] == layer.up.kernel[...])
