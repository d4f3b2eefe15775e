"""The KL estimators by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dovetail

X = np.array([[-2.0, -0.5, 0.0, 0.5, 2.0]], np.float32)
"""Log-ratios; with ref_logps zero they are the logps."""

VALUES = {
    "k1": X,
    "abs": np.abs(X),
    "k2": 0.5 * X**2,
    "k3": X + np.exp(-X) - 1,
    "k1_plus": X,
    "abs_plus": np.abs(X),
    "k3_plus": X + np.exp(-X) - 1,
}
GRADIENTS = {
    "k1": np.ones_like(X),
    "abs": np.sign(X),
    "k2": X,
    "k3": 1 - np.exp(-X),
    "k1_plus": X,
    "abs_plus": X,
    "k3_plus": X,
}


def pull(name: str, x: np.ndarray, **params: float | None) -> tuple[jax.Array, jax.Array]:
    estimator = dovetail.get("kl", name).bind(**params)
    logps = jnp.asarray(x)
    return estimator(logps, jnp.zeros_like(logps)), jax.grad(lambda x: estimator(x, jnp.zeros_like(x)).sum())(logps)


@pytest.mark.parametrize("name", VALUES)
def test_value_and_gradient_by_hand(name: str) -> None:
    value, gradient = pull(name, X)
    np.testing.assert_allclose(value, VALUES[name], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient, GRADIENTS[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["k2", "k3", "k3_plus", "abs", "abs_plus"])
def test_these_are_never_negative(name: str) -> None:
    x = np.linspace(-30, 30, 601, dtype=np.float32)[None]
    assert (pull(name, x)[0] >= 0).all()


@pytest.mark.parametrize(("name", "expected"), [("k1", [-1.0, 1.0]), ("k2", [1.0, 1.0]), ("k3", [1.0, 1.0])])
def test_a_clamp_bounds_the_value_and_stops_the_gradient(name: str, expected: list[float]) -> None:
    value, gradient = pull(name, np.array([[-3.0, 3.0]], np.float32), clamp=1.0)
    np.testing.assert_allclose(value, [expected])
    np.testing.assert_array_equal(gradient, [[0.0, 0.0]])


def test_an_estimate_exactly_on_the_clamp_keeps_its_gradient() -> None:
    _, gradient = pull("k1", np.array([[-1.0, 1.0]], np.float32), clamp=1.0)
    np.testing.assert_array_equal(gradient, [[1.0, 1.0]])


def test_the_clamp_of_k3_plus_leaves_the_gradient() -> None:
    value, gradient = pull("k3_plus", np.array([[-3.0, 3.0]], np.float32), clamp=1.0)
    np.testing.assert_allclose(value, [[1.0, 1.0]])
    np.testing.assert_allclose(gradient, [[-3.0, 3.0]])


FAR = np.array([[-25.0, -15.0, 50.0]], np.float32)
STEEPEST = np.expm1(20.0)


def test_k3_is_exact_until_the_exponent_is_bounded_and_straight_beyond() -> None:
    value, gradient = pull("k3", FAR)
    np.testing.assert_allclose(value, [[np.exp(20.0) - 21 + 5 * STEEPEST, np.exp(15.0) - 16, 49.0]], rtol=1e-6)
    np.testing.assert_allclose(gradient, [[-STEEPEST, 1 - np.exp(15.0), 1.0]], rtol=1e-6)


@pytest.mark.parametrize("name", ["k3", "k3_corrected"])
def test_the_further_a_token_is_given_up_the_stronger_it_is_pulled_back(name: str) -> None:
    """The force grows until the exponent is clipped and is constant from there on; it is never zero."""
    ref_logps = jnp.zeros((1, 6))
    logps = jnp.array([[-1.0, -3.0, -10.0, -19.0, -30.0, -1000.0]])
    fields = {"ref_logps": ref_logps, "old_logps": logps}
    component = dovetail.get("kl", name)

    def total(logps: jax.Array) -> jax.Array:
        return component(*((fields | {"logps": logps})[read] for read in component.reads)).sum()

    pulls = -np.asarray(jax.grad(total)(logps))[0]
    assert (pulls > 0.5).all()
    assert (np.diff(pulls) >= 0).all()


@pytest.mark.parametrize("name", ["k1", "k2", "k3", "k3_corrected", "k3_plus"])
def test_nothing_is_clamped_unless_it_is_asked_for(name: str) -> None:
    assert dovetail.get("kl", name).params["clamp"] is None


def test_k3_keeps_its_precision_where_the_policies_are_close() -> None:
    # e^(-x) - 1 + x in float32 would lose all digits of 5e-9.
    value, _ = pull("k3", np.array([[1e-4]], np.float32))
    assert abs(float(value[0, 0]) - 5e-9) < 5e-11
