"""Loss term `gkd`: the field, inside the mask."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dovetail_loss.loss_term.gkd import gkd


def test_by_hand() -> None:
    divergence, mask = jnp.array([[0.3, 0.1, jnp.nan]]), jnp.array([[True, False, False]])
    np.testing.assert_array_equal(gkd(divergence, mask), jnp.array([[0.3, 0.0, 0.0]]))
    np.testing.assert_array_equal(jax.grad(lambda x: gkd(x, mask).sum())(divergence), [[1.0, 0.0, 0.0]])
