"""Follower `renewed`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail_model.follower.renewed import Renewed


def test_it_is_the_policy_after_every_third_step() -> None:
    """θ_k = k after step k."""
    weights, seen = jnp.float32(0), []
    for step in range(1, 8):
        weights = Renewed(every=3)(weights, jnp.float32(step), jnp.int32(step))
        seen.append(float(weights))
    assert seen == [0, 0, 3, 3, 3, 6, 6]


def test_the_step_is_traced() -> None:
    traces = []

    @jax.jit
    def move(step: jax.Array) -> jax.Array:
        traces.append(step)
        return Renewed(every=2)(jnp.zeros(1), jnp.ones(1), step)

    np.testing.assert_array_equal([move(jnp.int32(step))[0] for step in (1, 2, 3, 4)], [0, 1, 0, 1])
    assert len(traces) == 1


def test_never_is_refused() -> None:
    with pytest.raises(ConfigError, match="every"):
        Renewed(every=0)
