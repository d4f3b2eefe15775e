"""KL estimator `k3_corrected`, on samples of another policy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_loss.kl.k3 import k3
from dovetail_loss.kl.k3_corrected import k3_corrected

LOGITS = np.array([0.3, -1.0, 0.8, 0.0, -0.4])
OLD_LOGITS = np.array([1.0, 0.2, -0.5, 0.3, -1.0])
REF_LOGITS = np.array([-0.5, 0.2, 0.9, -1.3, 0.6])


def test_off_policy_value_and_gradient_are_those_of_the_divergence() -> None:
    with jax.enable_x64(True):
        old, ref = jax.nn.log_softmax(jnp.asarray(OLD_LOGITS)), jax.nn.log_softmax(jnp.asarray(REF_LOGITS))

        def divergence(logits: jax.Array) -> jax.Array:
            logps = jax.nn.log_softmax(logits)
            return jnp.sum(jnp.exp(logps) * (logps - ref))

        def expectation(logits: jax.Array, *, corrected: bool) -> jax.Array:
            logps = jax.nn.log_softmax(logits)[None]
            estimate = k3_corrected(logps, ref[None], old[None]) if corrected else k3(logps, ref[None])
            return jnp.sum(jnp.exp(old) * estimate[0])

        expected = jax.value_and_grad(divergence)(jnp.asarray(LOGITS))
        for found, exact in zip(
            jax.value_and_grad(lambda x: expectation(x, corrected=True))(jnp.asarray(LOGITS)), expected, strict=True
        ):
            np.testing.assert_allclose(found, exact, rtol=1e-9)
        assert not np.isclose(expectation(jnp.asarray(LOGITS), corrected=False), expected[0], rtol=0.05)


def test_on_policy_the_value_is_that_of_k3() -> None:
    logps, ref = jnp.array([[-1.0, -2.0]]), jnp.array([[-1.5, -0.5]])
    np.testing.assert_array_equal(k3_corrected(logps, ref, logps), k3(logps, ref))
