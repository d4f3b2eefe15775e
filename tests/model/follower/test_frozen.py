"""Follower `frozen`."""

from __future__ import annotations

import jax.numpy as jnp

from dovetail_model.follower.frozen import Frozen


def test_the_weights_are_those_given() -> None:
    weights = {"a": jnp.ones(2)}
    assert Frozen()(weights) is weights


def test_it_says_that_there_is_nothing_to_save() -> None:
    assert Frozen.declares["constant"]
