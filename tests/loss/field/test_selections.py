"""The selections of tokens: by hand, and what they have in common."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.loss.batch import SELECTIONS, make_batch

import dovetail
from dovetail_loss.field.clip_cov_tokens import clip_cov_tokens
from dovetail_loss.field.kl_cov_tokens import kl_cov_tokens
from dovetail_loss.field.second_moment_tokens import second_moment_tokens

TRUE = jnp.ones((2, 3), bool)
KEY = jax.random.key(3)

PARAMS: dict[str, dict[str, float]] = {
    "clip_cov_tokens": {"fraction": 0.3, "lower": 0.1, "upper": 3.0},
    "kl_cov_tokens": {"fraction": 0.3},
    "second_moment_tokens": {"budget": 1e-3},
}
"""Hyperparameters that select some tokens of the random batch, and not all."""

every_selection = pytest.mark.parametrize("name", SELECTIONS)


def fields() -> dict[str, Any]:
    batch = make_batch()
    return batch | {"old_entropy": batch["entropy"], "key": KEY}


def select(name: str, batch: dict[str, Any], *, jit: bool = False) -> np.ndarray:
    component = dovetail.get("field", name)
    function = functools.partial(component.load(), **PARAMS[name])
    call = jax.jit(function) if jit else function
    return np.asarray(call(*(jnp.asarray(batch[read]) for read in component.reads)))


def test_the_package_registers_these_and_no_others() -> None:
    assert {"positive_weights", "full_kl", "jensen_shannon", *SELECTIONS} == {
        name
        for name in dovetail.names("field")
        if dovetail.get("field", name).origin.module.startswith("dovetail_loss")
    }


@every_selection
def test_a_selection_is_some_of_the_policy_tokens(name: str) -> None:
    selected = select(name, fields())
    mask = fields()["mask"]
    assert selected.dtype == bool
    assert not selected[~mask].any()
    assert 0 < selected.sum() < mask.sum()


@every_selection
def test_jit_equals_eager(name: str) -> None:
    np.testing.assert_array_equal(select(name, fields(), jit=True), select(name, fields()))


@every_selection
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30, -1e30])
def test_garbage_outside_the_mask_changes_nothing(name: str, garbage: float) -> None:
    batch = fields()
    spoilt = {
        key: np.where(batch["mask"], value, np.float32(garbage)) if getattr(value, "ndim", 0) == 2 else value
        for key, value in batch.items()
        if key not in {"mask", *SELECTIONS}
    }
    np.testing.assert_array_equal(select(name, spoilt | {"mask": batch["mask"]}), select(name, batch))


@every_selection
def test_right_padding_changes_nothing(name: str) -> None:
    batch = fields()
    width = batch["mask"].shape[1]
    padded = {
        key: np.hstack([value, np.zeros((len(value), 4), value.dtype)]) if getattr(value, "ndim", 0) == 2 else value
        for key, value in batch.items()
    }
    selected = select(name, padded)
    np.testing.assert_array_equal(selected[:, :width], select(name, batch))
    assert not selected[:, width:].any()


@pytest.mark.parametrize("name", [name for name in SELECTIONS if name != "clip_cov_tokens"])
def test_rows_keep_their_tokens_in_any_order(name: str) -> None:
    batch = fields()
    order = np.array([3, 0, 5, 2, 4, 1])
    shuffled = {key: value[order] if getattr(value, "ndim", 0) else value for key, value in batch.items()}
    np.testing.assert_array_equal(select(name, shuffled), select(name, batch)[order])


@every_selection
def test_nothing_is_selected_where_the_mask_is_empty(name: str) -> None:
    batch = fields()
    assert not select(name, batch | {"mask": np.zeros_like(batch["mask"])}).any()


def test_clip_cov_draws_from_the_range() -> None:
    # means -3 and 0: covariances 2·2, 0, -2·2; 1·(-1), 0, -1·1
    logps = jnp.array([[-1.0, -3.0, -5.0], [-4.0, -3.0, -2.0]])
    advantages = jnp.array([[2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
    drawn = clip_cov_tokens(logps, advantages, TRUE, KEY, fraction=1.0, lower=1.0, upper=5.0)
    np.testing.assert_array_equal(drawn, [[True, False, True], [False, False, False]])
    assert not clip_cov_tokens(logps, advantages, TRUE, KEY, fraction=1.0, lower=1.0, upper=4.0).any()
    one = clip_cov_tokens(logps, advantages, TRUE, KEY, fraction=1e-3, lower=1.0, upper=5.0)
    assert one.sum() == 1
    assert (drawn | ~one).all()


def test_clip_cov_depends_on_the_key() -> None:
    rng = np.random.default_rng(0)
    logps, advantages = (jnp.asarray(rng.normal(size=(8, 16)).astype(np.float32)) for _ in range(2))
    mask = jnp.ones((8, 16), bool)
    draws = [
        clip_cov_tokens(logps, advantages, mask, jax.random.key(seed), fraction=0.1, lower=0.0) for seed in (0, 0, 1)
    ]
    assert all(draw.sum() == 12 for draw in draws)
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


@pytest.mark.parametrize("name", ["clip_cov_tokens", "kl_cov_tokens"])
def test_a_fraction_of_zero_selects_nothing(name: str) -> None:
    batch = fields()
    component = dovetail.get("field", name)
    reads = [jnp.asarray(batch[read]) for read in component.reads]
    bounds = {"lower": -100.0, "upper": 100.0} if name == "clip_cov_tokens" else {}
    assert not component(*reads, fraction=0.0, **bounds).any()
    assert component(*reads, fraction=1e-6, **bounds).sum() == 1  # a fraction that rounds down to nothing takes one


def test_kl_cov_takes_the_largest() -> None:
    logps = jnp.array([[-1.0, -3.0, -5.0], [-4.0, -3.0, -2.0]])
    advantages = jnp.array([[2.0, 0.0, -3.0], [1.0, 0.0, 0.0]])
    # means -3 and 0: 4, 0, 6, -1, 0, 0
    first = kl_cov_tokens(logps, advantages, TRUE)
    np.testing.assert_array_equal(first, [[False, False, True], [False] * 3])
    two = kl_cov_tokens(logps, advantages, TRUE, fraction=0.49)
    np.testing.assert_array_equal(two, [[True, False, True], [False] * 3])


def algorithm_1(log_ratio: np.ndarray, advantages: np.ndarray, mask: np.ndarray, budget: float) -> np.ndarray:
    """Algorithm 1 of the paper as it is written there: the largest goes first, until the mean is within the budget."""
    kept = mask.copy()
    outward = [tuple(at) for at in np.argwhere(mask & (log_ratio * advantages > 0))]
    while outward and np.mean([log_ratio[at] ** 2 for at in outward]) > budget:
        largest = max(outward, key=lambda at: log_ratio[at] ** 2)
        outward.remove(largest)
        kept[largest] = False
    return kept


@pytest.mark.parametrize("budget", [0.0, 0.01, 0.2, 0.6, 10.0])
def test_the_second_moment_is_that_of_the_authors_algorithm(budget: float) -> None:
    rng = np.random.default_rng(2)
    old, sampled, advantages = (rng.normal(scale=0.5, size=(4, 9)).astype(np.float32) for _ in range(3))
    advantages[1] = 0.0
    mask = rng.random((4, 9)) < 0.7
    arrays = [jnp.asarray(x) for x in (old, sampled, advantages, mask)]
    kept = np.asarray(second_moment_tokens(*arrays, budget=budget))
    np.testing.assert_array_equal(kept, algorithm_1(old - sampled, advantages, mask, budget))


def test_the_second_moment_leaves_tokens_that_come_back_alone() -> None:
    far, zero = jnp.array([[5.0, -5.0]]), jnp.zeros((1, 2))
    mask = jnp.ones((1, 2), bool)
    np.testing.assert_array_equal(second_moment_tokens(far, zero, jnp.ones((1, 2)), mask), [[False, True]])
    np.testing.assert_array_equal(second_moment_tokens(far, zero, -jnp.ones((1, 2)), mask), [[True, False]])
    assert second_moment_tokens(far, zero, zero, mask).all()


def test_the_second_moment_keeps_everything_on_policy() -> None:
    assert second_moment_tokens(jnp.zeros((2, 3)), jnp.zeros((2, 3)), jnp.ones((2, 3)), TRUE).all()
