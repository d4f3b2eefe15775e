"""Field `jensen_shannon`: by hand, at both ends, and against its definition."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_loss.field.full_kl import full_kl
from dovetail_loss.field.jensen_shannon import jensen_shannon

RNG = np.random.default_rng(3)
STUDENT, TEACHER = (jnp.asarray(RNG.normal(scale=2.0, size=(4, 7)).astype(np.float32)) for _ in range(2))


def defined(student: jax.Array, teacher: jax.Array, beta: float) -> jax.Array:
    """The definition, from probabilities."""
    q, p = jax.nn.softmax(student), jax.nn.softmax(teacher)
    m = beta * p + (1 - beta) * q
    return jnp.sum(beta * p * jnp.log(p / m) + (1 - beta) * q * jnp.log(q / m), axis=-1)


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9])
def test_between_the_ends_it_is_the_definition(beta: float) -> None:
    def total(function):
        return jax.value_and_grad(lambda x: jnp.sum(function(x, TEACHER, beta)))(STUDENT)

    ours = total(lambda x, y, beta: jensen_shannon(x, y, beta=beta))
    theirs = total(defined)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), ours, theirs)


@pytest.mark.parametrize(("beta", "reverse"), [(0.0, False), (1.0, True)])
def test_the_ends_are_forward_and_reverse_divergence_exactly(beta: float, reverse: bool) -> None:
    def total(function):
        return jax.value_and_grad(lambda x: jnp.sum(function(x)))(STUDENT)

    ours = total(lambda x: jensen_shannon(x, TEACHER, beta=beta))
    theirs = total(lambda x: full_kl(x, TEACHER) if reverse else full_kl(TEACHER, x))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), ours, theirs)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_a_student_that_is_its_teacher_is_left_alone(beta: float) -> None:
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(jensen_shannon(x, TEACHER, beta=beta)))(TEACHER)
    np.testing.assert_allclose(value, 0.0, atol=1e-6)
    np.testing.assert_allclose(gradient, jnp.zeros_like(TEACHER), atol=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_gradient_in_float64_against_finite_differences(beta: float) -> None:
    with jax.enable_x64(True):
        student, teacher = (jnp.asarray(np.asarray(x), jnp.float64) for x in (STUDENT, TEACHER))
        gradient = jax.grad(lambda x: jnp.sum(jensen_shannon(x, teacher, beta=beta)))(student)
        assert gradient.dtype == jnp.float64
        step = 1e-6
        for row, column in ((0, 0), (2, 5)):
            moved = [
                jnp.sum(jensen_shannon(student.at[row, column].add(sign * step), teacher, beta=beta))
                for sign in (1.0, -1.0)
            ]
            slope = (moved[0] - moved[1]) / (2 * step)
            np.testing.assert_allclose(gradient[row, column], slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_logits_of_a_sure_model_stay_finite(beta: float) -> None:
    def total(x: jax.Array) -> jax.Array:
        return jnp.sum(jensen_shannon(x, -1e4 * TEACHER, beta=beta))

    value, gradient = jax.value_and_grad(total)(1e4 * STUDENT)
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()


def test_beta_is_traced() -> None:
    """Trials that differ only in beta share one program, including beta 0 and 1."""
    traces = []

    @jax.jit
    def traced(beta: jax.Array) -> jax.Array:
        traces.append(beta)
        return jensen_shannon(STUDENT, TEACHER, beta=beta)

    for beta in (0.0, 0.25, 1.0):
        np.testing.assert_allclose(traced(jnp.float32(beta)), jensen_shannon(STUDENT, TEACHER, beta=beta), rtol=1e-5)
    assert len(traces) == 1


def test_what_only_one_of_them_has_beyond_the_vocabulary_is_padding() -> None:
    wider = jnp.concatenate([TEACHER, jnp.full((4, 2), 5.0)], axis=1)
    for beta in (0.0, 0.5, 1.0):
        expected = jensen_shannon(STUDENT, TEACHER, beta=beta)
        np.testing.assert_array_equal(jensen_shannon(STUDENT, wider, beta=beta), expected)
        np.testing.assert_array_equal(jensen_shannon(jnp.pad(STUDENT, [(0, 0), (0, 3)]), TEACHER, beta=beta), expected)
