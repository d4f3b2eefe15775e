"""The aggregations by hand, and what they have in common."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import dovetail

MASK = jnp.array([[True, True, True, True], [True, False, True, False], [False] * 4])

BY_HAND = {
    "token_mean": ({}, [1 / 6, 1 / 6]),
    "token_sum": ({}, [1.0, 1.0]),
    "sequence_mean_token_mean": ({}, [1 / 8, 1 / 4]),
    "sequence_mean_token_sum": ({}, [1 / 2, 1 / 2]),
    "sequence_mean_token_scale": ({"normalizer": 10.0}, [1 / 20, 1 / 20]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name: str) -> None:
    params, (first, second) = BY_HAND[name]
    weights = dovetail.get("loss_agg", name).bind(**params)(MASK)
    expected = np.where(MASK, np.array([[first], [second], [0.0]]), 0.0)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["token_mean", "sequence_mean_token_mean"])
def test_weights_of_a_mean_sum_to_one(name: str) -> None:
    np.testing.assert_allclose(dovetail.get("loss_agg", name)(MASK).sum(), 1.0, rtol=1e-6)


def test_completions_of_one_length_make_the_means_equal() -> None:
    mask = jnp.array([[True, True, False], [False, True, True]])
    expected = dovetail.get("loss_agg", "token_mean")(mask)
    np.testing.assert_allclose(dovetail.get("loss_agg", "sequence_mean_token_mean")(mask), expected)
    np.testing.assert_allclose(dovetail.get("loss_agg", "sequence_mean_token_scale")(mask, normalizer=2.0), expected)


def test_the_sum_takes_a_constant() -> None:
    summed = dovetail.get("loss_agg", "token_sum")
    np.testing.assert_allclose(summed(MASK, normalizer=4.0), 0.25 * summed(MASK))


def test_a_constant_length_must_be_given() -> None:
    with pytest.raises(TypeError, match="normalizer"):
        dovetail.get("loss_agg", "sequence_mean_token_scale")(MASK)
