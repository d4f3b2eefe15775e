"""What holds for every registered advantage estimator; a new one joins by being registered."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.advantage.batches import (
    PER_TOKEN,
    Batch,
    random_batch,
    rows,
    stacked,
    to_the_left,
    wider,
    with_garbage,
    with_mask,
    with_scores,
)

import dovetail

NAMES = dovetail.names("advantage")
GROUP_RELATIVE = [name for name in NAMES if "group_ids" in dovetail.get("advantage", name).reads]
LOCAL: dict[str, dict[str, Any]] = {name: {"whiten": False} for name in ("gae", "decoupled_gae", "length_adaptive_gae")}
"""Settings that switch off statistics over the whole batch."""
WHITENED = ("gdpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
"""What is whitened over the batch by definition: groups meet there, and the mean that is taken off moves all alike."""
BY_POSITION = ("optimal_token_baseline", "optimal_token_baseline_corrected")
"""What compares completions position by position, tool tokens counted."""
UNMOVED: dict[str, dict[str, Any]] = {
    "tir_optimal_token_baseline": {"handle_zero_tail": False},
    "tir_optimal_token_baseline_corrected": {"handle_zero_tail": False},
}
"""Settings under which a constant added to all scores of a group changes nothing."""

Estimate = tuple[jax.Array, ...]

every = pytest.mark.parametrize("name", NAMES)
group_relative = pytest.mark.parametrize("name", GROUP_RELATIVE)


def every_but(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name in NAMES if name not in names])


def group_relative_but(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name in GROUP_RELATIVE if name not in names])


def estimator(name: str, **params: Any) -> Callable[[Batch], Estimate]:
    """Return a function from a batch to (advantages,) or (advantages, returns), metrics left out."""
    component = dovetail.get("advantage", name)
    bound = component.bind(**params)
    remembered = {"state": state_of(bound)} if "state" in component.reads else {}

    def estimate(batch: Batch) -> Estimate:
        result = bound(*(remembered[field] if field == "state" else batch[field] for field in component.reads))
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(part for part in parts if not isinstance(part, dict))

    return estimate


def fields_of(name: str) -> tuple[str, ...]:
    """Return the fields of the batch that an estimator reads."""
    return tuple(field for field in dovetail.get("advantage", name).reads if field != "state")


def state_of(bound: Any) -> Any:
    """Return what a stateful estimator remembers after a step of two roles."""
    state, batch = bound.init(2), random_batch(seed=11)
    return bound.update(state, *(batch[field] for field in list(inspect.signature(bound.update).parameters)[1:]))


@functools.cache
def _compiled(name: str, params: tuple[tuple[str, Any], ...]) -> Callable[[Batch], Estimate]:
    return jax.jit(estimator(name, **dict(params)))


def run(name: str, batch: Batch, **params: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in _compiled(name, tuple(params.items()))(_jax(batch))]


def same(actual: list[np.ndarray], expected: list[np.ndarray], **tolerance: Any) -> None:
    bounds: dict[str, Any] = {"rtol": 2e-5, "atol": 2e-6} | tolerance
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **bounds)


@every
def test_results_are_finite_float32_and_zero_outside_the_mask(name: str) -> None:
    batch = random_batch()
    for part in run(name, batch):
        assert part.shape == batch["mask"].shape
        assert part.dtype == np.float32
        assert np.isfinite(part).all()
        assert (part[~batch["mask"]] == 0).all()


@every
def test_something_is_learnt_from_scores_that_differ(name: str) -> None:
    batch = random_batch()
    assert np.abs(run(name, batch)[0]).max() > 0.1


@every
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_computed_in_float32(name: str, dtype: Any) -> None:
    halved = jax.tree.map(lambda x: x.astype(dtype) if x.dtype == jnp.float32 else x, _jax(random_batch()))
    widened = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == dtype else x, halved)
    for ours, theirs in zip(estimator(name)(halved), estimator(name)(widened), strict=True):
        assert ours.dtype == jnp.float32
        np.testing.assert_array_equal(ours, theirs)


@every
def test_float64_stays(name: str) -> None:
    with jax.enable_x64(True):
        batch = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, random_batch())
        for part in run(name, batch):
            assert part.dtype == np.float64


@every
def test_rows_may_come_in_any_order(name: str) -> None:
    batch = random_batch()
    order = np.random.default_rng(1).permutation(len(batch["group_ids"]))
    same(run(name, rows(batch, order)), [part[order] for part in run(name, batch)])


@every
def test_group_labels_carry_no_meaning(name: str) -> None:
    batch = random_batch()
    relabel = {5: 2**31 - 1, -3: 0, 40: -(2**31)}
    other = batch | {"group_ids": np.array([relabel[i] for i in batch["group_ids"].tolist()], np.int32)}
    same(run(name, other), run(name, batch))


@every_but(*WHITENED)
def test_groups_do_not_leak(name: str) -> None:
    batch = random_batch()
    changed = batch["group_ids"] == 5
    other = with_scores(batch, batch["scores"] + 3 * changed * np.arange(len(changed)))
    before = run(name, with_scores(batch, batch["scores"]), **LOCAL.get(name, {}))
    after = run(name, other, **LOCAL.get(name, {}))
    assert np.abs(after[0][changed] - before[0][changed]).max() > 0.1
    same([part[~changed] for part in after], [part[~changed] for part in before])


@every_but(*BY_POSITION)
def test_a_hole_in_the_mask_is_as_if_it_were_not_there(name: str) -> None:
    batch = random_batch()
    moved = to_the_left(batch)
    same([part[moved["mask"]] for part in run(name, moved)], [part[batch["mask"]] for part in run(name, batch)])


@every
def test_padding_changes_nothing(name: str) -> None:
    batch = random_batch()
    width = batch["mask"].shape[1]
    same([part[:, :width] for part in run(name, wider(batch, 5))], run(name, batch))


@every
@pytest.mark.parametrize("score", ["ordinary", np.nan, np.inf, -1e30])
def test_rows_without_policy_tokens_count_nowhere(name: str, score: Any) -> None:
    """Whatever they hold: NaN is the score of a completion that no reward judged."""
    batch = random_batch()
    n = len(batch["group_ids"])
    ghosts = random_batch(seed=7, group_ids=(5, 5, 40, 99))
    ghosts = with_mask(ghosts, np.zeros_like(ghosts["mask"]))
    parts = run(name, stacked(batch, ghosts if score == "ordinary" else with_garbage(ghosts, score)))
    same([part[:n] for part in parts], run(name, batch))
    assert all((part[n:] == 0).all() for part in parts)


@every
def test_a_batch_without_policy_tokens_gives_zero(name: str) -> None:
    batch = random_batch()
    for part in run(name, with_mask(batch, np.zeros_like(batch["mask"]))):
        np.testing.assert_array_equal(part, 0)


@every
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -1e30])
def test_garbage_outside_the_mask_changes_neither_value_nor_gradient(name: str, garbage: float) -> None:
    batch = random_batch()
    mask = batch["mask"].copy()
    mask[2] = False
    clean = with_garbage(with_mask(batch, mask), 0.0)
    dirty = with_garbage(clean, garbage)
    same(run(name, dirty), run(name, clean), rtol=0, atol=0)
    with_dirt = _gradients(name, dirty)
    for field, gradient in _gradients(name, clean).items():
        np.testing.assert_array_equal(with_dirt[field], gradient, err_msg=field)
        unseen = ~mask if field in PER_TOKEN else ~mask.any(axis=1)
        assert np.isfinite(gradient).all(), field
        assert (gradient[unseen] == 0).all(), field


def _gradients(name: str, batch: Batch) -> dict[str, np.ndarray]:
    """Return the gradient of a random combination of the results with respect to every float field it reads."""
    floats = [field for field in fields_of(name) if batch[field].dtype == np.float32]
    gradients = _differentiated(name)({field: jnp.asarray(batch[field]) for field in floats}, _jax(batch))
    return {field: np.asarray(gradient) for field, gradient in gradients.items()}


@functools.cache
def _differentiated(name: str) -> Callable[[Batch, Batch], dict[str, jax.Array]]:
    def combined(varied: Batch, batch: Batch) -> jax.Array:
        weights = np.random.default_rng(3).normal(size=batch["mask"].shape).astype(np.float32)
        return sum((jnp.sum(part * weights) for part in estimator(name)(batch | varied)), jnp.float32(0))

    return jax.jit(jax.grad(combined))


@every
def test_jit_is_eager_and_compiles_once(name: str) -> None:
    component = dovetail.get("advantage", name)
    floats = {key: np.float32(value) for key, value in component.params.items() if key not in component.static}
    compiled: Any = jax.jit(lambda batch, hyper: estimator(name, **hyper)(batch))
    for seed, factor in enumerate((1.0, 0.9, 0.8)):
        hyper = {key: np.float32(value * factor) for key, value in floats.items()}
        batch = random_batch(seed)
        actual = [np.asarray(part) for part in compiled(_jax(batch), hyper)]
        same(actual, [np.asarray(part) for part in estimator(name, **hyper)(_jax(batch))])
    assert compiled._cache_size() == 1


@group_relative
@pytest.mark.parametrize("score", [0.0, 0.7, -0.1, 1e6 + 0.3])
def test_constant_groups_get_exactly_zero(name: str, score: float) -> None:
    """Seven equal numbers: their sum is rounded, and their mean is not what they are."""
    batch = random_batch(group_ids=(1, 1, 8, 1, 1, 1, 8, 1, 1))
    constant = batch["group_ids"] == 1
    batch = with_scores(batch, np.where(constant, score, np.arange(len(constant)) / 4))
    advantages = run(name, batch)[0]
    flat = advantages[constant]
    assert (flat == unmoved(name, flat[batch["mask"][constant]]) * batch["mask"][constant]).all()
    assert (advantages[~constant] != 0).any()
    assert all(np.isfinite(gradient).all() for gradient in _gradients(name, batch).values())


@group_relative
def test_a_group_of_one_gets_exactly_zero(name: str) -> None:
    batch = random_batch(group_ids=(1, 2, 2, 3, 4, 4, 4, 4, 4))
    batch = with_mask(batch, np.ones_like(batch["mask"]))
    batch = with_scores(batch, np.array([1.7, 0.0, 1.0, -4.0, 2.0, 0.0, 1.0, 0.0, 0.0]))
    advantages = run(name, batch)[0]
    assert (advantages[[0, 3]] == unmoved(name, advantages[[0, 3]])).all()
    assert (advantages[2] != 0).all()


def unmoved(name: str, advantages: np.ndarray) -> float:
    """Return where no signal lies: zero, or what whitening over the batch moves it to."""
    return float(advantages.flat[0]) if name in WHITENED else 0.0


@group_relative_but("maxrl")
def test_adding_a_constant_to_a_groups_scores_changes_nothing(name: str) -> None:
    batch = random_batch()
    shift = np.where(batch["group_ids"] == 40, 2.0, -1.0)
    settings = UNMOVED.get(name, {})
    same(
        run(name, with_scores(batch, batch["scores"] + shift), **settings),
        run(name, with_scores(batch, batch["scores"]), **settings),
        rtol=1e-4,
        atol=1e-5,
    )


def _jax(batch: Batch) -> dict[str, jax.Array]:
    return jax.tree.map(jnp.asarray, batch)
