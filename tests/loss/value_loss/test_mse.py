"""Value loss `mse`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_loss.value_loss.mse import mse

VALUES, RETURNS = jnp.array([[1.0, 4.0, 7.0]]), jnp.array([[2.0, 1.0, 0.0]])
MASK = jnp.array([[True, True, False]])


def test_by_hand() -> None:
    np.testing.assert_allclose(mse(VALUES, RETURNS, MASK), [[0.5, 4.5, 0.0]])


def test_the_gradient_is_the_error() -> None:
    gradient = jax.grad(lambda values: mse(values, RETURNS, MASK).sum())(VALUES)
    np.testing.assert_allclose(gradient, [[-1.0, 3.0, 0.0]])
