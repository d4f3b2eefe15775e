"""Loss term `reverse_kl`: what its value and its gradient estimate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_loss.kl.k1_plus import k1_plus
from dovetail_loss.loss_term.reverse_kl import reverse_kl

STUDENT, TEACHER = jnp.array([[-1.0, -3.0, 7.0]]), jnp.array([[-1.5, -1.0, 7.0]])
MASK = jnp.array([[True, True, False]])


def test_by_hand() -> None:
    np.testing.assert_allclose(reverse_kl(STUDENT, TEACHER, MASK), [[0.5, -2.0, 0.0]])
    gradient = jax.grad(lambda x: reverse_kl(x, TEACHER, MASK).sum())(STUDENT)
    np.testing.assert_allclose(gradient, [[0.5, -2.0, 0.0]])
    of_teacher = jax.grad(lambda x: reverse_kl(STUDENT, x, MASK).sum())(TEACHER)
    np.testing.assert_array_equal(of_teacher, jnp.zeros((1, 3)))


def test_over_all_tokens_value_and_gradient_are_those_of_the_divergence() -> None:
    """The expectation over the student's own tokens, summed up exactly."""
    rng = np.random.default_rng(0)
    logits, teacher = (jnp.asarray(rng.normal(size=5).astype(np.float32)) for _ in range(2))
    log_teacher = jax.nn.log_softmax(teacher)
    probabilities = jax.nn.softmax(logits)

    def divergence(logits: jax.Array) -> jax.Array:
        logps = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(logps) * (logps - log_teacher))

    def expected(logits: jax.Array) -> jax.Array:
        logps = jax.nn.log_softmax(logits)
        per_token = reverse_kl(logps[None], log_teacher[None], jnp.ones((1, 5), bool))[0]
        return jnp.sum(probabilities * per_token)  # the student samples, and no gradient goes through that

    np.testing.assert_allclose(expected(logits), divergence(logits), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(expected)(logits), jax.grad(divergence)(logits), rtol=1e-4, atol=1e-6)


def test_it_is_the_straight_through_estimator_of_the_divergence_from_a_reference() -> None:
    def both(function, x):
        return jax.value_and_grad(lambda x: jnp.sum(jnp.where(MASK, function(x), 0.0)))(x)

    ours = both(lambda x: reverse_kl(x, TEACHER, MASK), STUDENT)
    theirs = both(lambda x: k1_plus(x, TEACHER), STUDENT)
    jax.tree.map(np.testing.assert_allclose, ours, theirs)
