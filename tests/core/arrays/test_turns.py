"""Sums and positions by turn agree with a loop over episodes and turns."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dovetail.arrays import Turns, carried, gae_trace

RNG = np.random.default_rng(1)
TURNS = np.array([[0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 2, 2, 0]])
MASK = np.array([[1, 1, 0, 1, 0, 1, 1], [1, 0, 1, 1, 0, 1, 0], [0] * 7, [1, 0, 0, 0, 0, 1, 0]]) == 1
"""Observations after turns, padding numbered 0, an empty row, and a turn without remaining policy tokens."""
X = np.where(MASK, RNG.normal(size=MASK.shape), np.nan).astype(np.float32)


@pytest.mark.parametrize("count", [3, None])
def test_what_is_said_by_turn_is_that_of_a_loop(count: int | None) -> None:
    turns = Turns.of(jnp.asarray(TURNS), jnp.asarray(MASK), count)
    found = {name: np.asarray(getattr(turns, name)(jnp.asarray(X))) for name in ("total", "mean", "first")}
    shape = (len(MASK), count or MASK.shape[1])
    assert all(array.shape == shape for array in found.values())
    starts, ends, last = np.zeros_like(MASK), np.zeros_like(MASK), RNG.normal(size=shape).astype(np.float32)
    spread = np.zeros(MASK.shape, np.float32)
    for row, turn in np.ndindex(shape):
        own = np.flatnonzero(MASK[row] & (TURNS[row] == turn))
        values = X[row, own]
        np.testing.assert_allclose(found["total"][row, turn], values.sum(), rtol=1e-6)
        np.testing.assert_allclose(found["mean"][row, turn], values.mean() if len(own) else 0, rtol=1e-6)
        np.testing.assert_allclose(found["first"][row, turn], values[0] if len(own) else 0, rtol=1e-6)
        assert turns.live[row, turn] == bool(len(own))
        starts[row, own[:1]], ends[row, own[-1:]], spread[row, own] = True, True, last[row, turn]
    np.testing.assert_array_equal(turns.starts, starts)
    np.testing.assert_array_equal(turns.ends, ends)
    np.testing.assert_array_equal(turns.per_token(jnp.asarray(last)), spread)
    np.testing.assert_array_equal(turns.at_ends(jnp.asarray(last)), np.where(ends, spread, 0))


def test_what_is_carried_is_never_lost() -> None:
    x = jnp.asarray(RNG.normal(size=MASK.shape).astype(np.float32))
    found = np.asarray(carried(x, jnp.asarray(MASK)))
    assert not found[~MASK].any()
    live = MASK.any(axis=1)
    np.testing.assert_allclose(found.sum(axis=1)[live], np.asarray(x).sum(axis=1)[live], rtol=1e-5)
    # the rewards from each policy token on include everything except those before the first one
    for row in np.flatnonzero(live):
        for place in np.flatnonzero(MASK[row])[1:]:
            np.testing.assert_allclose(found[row, place:].sum(), np.asarray(x)[row, place:].sum(), rtol=1e-4)


def test_a_trace_begins_anew_behind_an_end() -> None:
    rewards, values = (jnp.asarray(RNG.normal(size=(1, 5)).astype(np.float32)) for _ in range(2))
    mask, ends = jnp.array([[1, 1, 0, 1, 1]]) == 1, jnp.array([[0, 1, 0, 0, 0]]) == 1
    found = gae_trace(rewards, values, mask, 0.9, 0.8, ends)
    for part in (slice(0, 2), slice(3, 5)):
        alone = gae_trace(rewards[:, part], values[:, part], mask[:, part], 0.9, 0.8)
        np.testing.assert_allclose(found[:, part], alone, rtol=1e-6)
