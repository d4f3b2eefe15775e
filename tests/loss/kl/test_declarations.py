"""The declarations of the estimators, verified by expectations over a whole vocabulary instead of samples."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dovetail
from dovetail_loss.field.full_kl import full_kl

KL = dovetail.names("kl")
FACTS = {"unbiased_value", "unbiased_gradient", "zero_expected_gradient"}

LOGITS = np.array([0.3, -1.0, 0.8, 0.0, -0.4])
REF_LOGITS = np.array([-0.5, 0.2, 0.9, -1.3, 0.6])


def divergence(logits: jax.Array) -> jax.Array:
    """KL(π || π_ref), exactly."""
    logps, ref_logps = jax.nn.log_softmax(logits), jax.nn.log_softmax(jnp.asarray(REF_LOGITS))
    return jnp.sum(jnp.exp(logps) * (logps - ref_logps))


def expectation(name: str, logits: jax.Array) -> jax.Array:
    """Return E[k] over a ~ π; in its derivative the samples are fixed, and only the estimator's `logps` varies."""
    logps, ref_logps = jax.nn.log_softmax(logits), jax.nn.log_softmax(jnp.asarray(REF_LOGITS))
    component = dovetail.get("kl", name)
    fields = {
        "logps": logps,
        "ref_logps": ref_logps,
        "old_logps": jax.lax.stop_gradient(logps),
        "full_kl": jnp.broadcast_to(full_kl(logits, jnp.asarray(REF_LOGITS)), logps.shape),
    }
    estimates = component(*(fields[read][None] for read in component.reads))[0]
    return jnp.sum(jax.lax.stop_gradient(jnp.exp(logps)) * estimates)


def declared(name: str) -> dict[str, bool]:
    estimator: Any = dovetail.get("kl", name).load()
    return estimator.declares


@pytest.mark.parametrize("name", KL)
def test_declarations_hold(name: str) -> None:
    with jax.enable_x64(True):
        logits = jnp.asarray(LOGITS)
        value, gradient = jax.value_and_grad(lambda x: expectation(name, x))(logits)
        true_value, true_gradient = jax.value_and_grad(divergence)(logits)
        found = {
            "unbiased_value": np.allclose(value, true_value, rtol=1e-9),
            "unbiased_gradient": np.allclose(gradient, true_gradient, rtol=1e-9),
            "zero_expected_gradient": np.allclose(gradient, 0.0, atol=1e-12),
        }
    assert {fact for fact in FACTS if declared(name).get(fact)} == {fact for fact in FACTS if found[fact]}


def test_k3_pulls_towards_the_reverse_divergence() -> None:
    with jax.enable_x64(True):
        logits = jnp.asarray(LOGITS)
        ref = jax.nn.softmax(jnp.asarray(REF_LOGITS))
        reverse = jax.grad(lambda x: -jnp.sum(ref * jax.nn.log_softmax(x)))(logits)
        np.testing.assert_allclose(jax.grad(lambda x: expectation("k3", x))(logits), reverse, rtol=1e-9)
