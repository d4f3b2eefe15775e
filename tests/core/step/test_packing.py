"""Several completions in a row: a step of a real decoder is what it is with one in each row."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.configs import step
from tests.configs.test_mixtures import SIZES, overrides
from tests.core.step.test_buckets import (
    GRADIENT,
    NAMES,
    RUNNABLE,
    SMALL,
    WHOLE_GROUPS,
    alike,
    close,
    compare,
    decoders,
)
from tests.core.step.test_update import make_adapted, moment, one_mini_batch
from tests.core.step.test_update import sampled as drawn
from tests.sampled import sampled

from dovetail.config import load
from dovetail.step.algorithm import assemble
from dovetail.step.buckets import Buckets
from dovetail.step.packing import PACKED, first_fit, laid_out, pack, positions, unpack
from dovetail.step.update import Trained, Update
from dovetail.training.metrics import means
from dovetail_kit.notices import warnings

PACKING = "train.packing=True"
WIDE = (PACKING, "train.length_buckets=2")


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "kind", "name"), sampled(NAMES, every=100, slow=10))
def test_values_and_gradients_are_those_of_whole_rows(setting, kind, name, monkeypatch):
    monkeypatch.setattr(step, "models", decoders)
    compare(setting, kind, name, how=(PACKING,))


@pytest.mark.slow
def test_a_critic_and_two_widths(monkeypatch):
    monkeypatch.setattr(step, "models", decoders)
    compare("critic.value_loss", "value_loss", "ppo", how=WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(RUNNABLE, every=100, slow=4))
def test_mixtures_are_those_of_whole_rows(seed, monkeypatch):
    monkeypatch.setattr(step, "models", decoders)
    size = 4 if any(name in each for each in overrides(seed) for name in WHOLE_GROUPS) else 5
    alike(lambda *more: load(None, [*overrides(seed), *SMALL, *more]), step.episodes(), size, how=WIDE)


def rows_of(lengths):
    """A batch in which completions have these lengths; with lengths of 0, 1 and the greatest, and equal ones."""
    batch = drawn(rows=len(lengths))
    mask = np.arange(batch["tokens"].shape[1]) < np.array(lengths)[:, None]
    advantages = jnp.where(mask, batch["scores"][:, None], 0.0)
    return batch | {"mask": jnp.asarray(mask), "advantages": advantages}


@functools.cache
def updates(dropout=0.0):
    """A packed update and one of whole rows, both compiled once: functions of a batch, to the gradient and metrics."""
    options = (*GRADIENT, "train.policy_loss=reinforce", "train.adapter=lora", "adapter.lora.rank=2")
    options += ("sampling.max_tokens=5", f"adapter.lora.dropout={dropout}")
    _, graphdef, weights = make_adapted(*options)

    def of(*more):
        algorithm, _, _ = make_adapted(*options, *more)
        update = jax.jit(Update(algorithm=algorithm, graphdefs={"policy": graphdef}).__call__)

        def gradient(batch):
            learner = Trained(weights.trained, algorithm.optimisers["train"].init(weights.trained))
            after, found = update(learner, weights.frozen, {}, one_mini_batch(batch), moment(), algorithm.hyper)
            assert update._cache_size() == 1, "lengths are values: nothing is compiled for them"
            return jax.tree.map(lambda new, old: new - old, after.params, weights.trained), means(found)

        return gradient

    return of("train.packing=True", "train.micro_batch_size=4"), of()


MIXED = [5, 1, 2, 3, 0, 1, 1, 1, 4, 4, 2, 5]


@pytest.mark.parametrize(
    "lengths",
    [[5] * 12, [0] * 12, [1, 0, 0, 1] + [2] * 4 + [0] * 4, MIXED],
    ids=["one in a row", "none", "short", "mixed"],
)
def test_the_gradient_of_an_adapter_is_that_of_whole_rows(lengths):
    packed, whole = updates()
    batch = rows_of(lengths)
    jax.tree.map(close, packed(batch)[0], whole(batch)[0])


def test_the_order_of_the_completions_changes_nothing():
    packed, _ = updates()
    batch, other = rows_of(MIXED), jnp.array([2, 0, 3, 1, 7, 6, 5, 4, 8, 11, 10, 9])
    jax.tree.map(close, packed(batch)[0], packed({name: array[other] for name, array in batch.items()})[0])


@pytest.mark.slow
def test_what_is_dropped_belongs_to_the_token_wherever_it_is_packed():
    batch = rows_of(MIXED)
    (packed, _), (whole, _) = (update(batch) for update in updates(dropout=0.5))
    jax.tree.map(close, packed, whole)
    without, _ = updates()[1](batch)
    far = jax.tree.map(lambda x, y: np.abs(x - y).max() / np.abs(y).max(), whole, without)
    assert min(jax.tree.leaves(far)) > 0.1


def test_the_share_of_the_positions_that_are_tokens_is_measured():
    """A completion of n tokens takes n - 1 of the 4 positions of a row: 4, 2 + 1; none; 4, 3 + 1 and 3 in six rows."""
    (_, packed), (_, whole) = (update(rows_of(MIXED)) for update in updates())
    assert packed["lengths/fill"] == 18 / 24
    assert whole["lengths/fill"] == pytest.approx(sum(MIXED) / 60)


def test_rows_are_filled_and_whole():
    """Every completion is in one row, rows hold what fits, and at most 11/9 of the fewest rows and one are used."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.geometric(0.06, 96), 40).astype(np.int32)
    lengths[:3] = 0, 1, 40
    taken = np.asarray(positions(jnp.asarray(lengths)))
    rows = jax.jit(first_fit, static_argnums=(1, 2, 3))(lengths, 12, 39, 6)
    completions, used = map(np.asarray, rows)
    assert sorted(completions[completions < 96]) == list(range(96))
    assert all(taken[row[row < 96]].sum() == size <= 39 for row, size in zip(completions, used, strict=True))
    assert all(len(set(row[row < 96] // 12)) <= 1 for row in completions)
    for block, sizes in zip(used.reshape(8, 12), taken.reshape(8, 12), strict=True):
        fewest = max(-(-sizes.sum() // 39), 2)
        assert np.count_nonzero(block) <= 11 / 9 * fewest + 1


def test_what_is_packed_is_unpacked():
    lengths = jnp.array([[3, 1], [0, 5]], jnp.int32)
    batch = {"tokens": jnp.arange(20).reshape(4, 5), PACKED: laid_out(lengths, 4, 5)}
    there = np.arange(5) < np.asarray(lengths).reshape(-1, 1)
    values = jnp.where(there, jnp.arange(20.0).reshape(4, 5) + 1, 0.0)
    back = unpack(batch, pack(batch, values))
    np.testing.assert_array_equal(back, values)


def test_empty_rows_cost_nothing():
    """Two prompts of three have nothing to learn from: the loop visits the micro-batches of the third one only."""
    batch = rows_of([0] * 8 + [5, 5, 2, 3])
    buckets = Buckets(widths=(4,), size=1, rows_per_prompt=4, prompts=3, segments=4)
    visited = buckets.visit(batch, jnp.int32(0), lambda count, completions, micro: count + 1)
    assert int(visited) == 3


def test_what_has_no_effect_is_said():
    def said(*more):
        return [line for line in warnings(load(None, [*SIZES, PACKING, *more])) if "packing" in line]

    assert not said()
    (alone,) = said("train.mini_batch_size=5")
    assert "no common divisor" in alone
    (together,) = said("train.loss_terms=['dpo']", "train.mini_batch_size=None")
    assert "loss_term" in together
    assert "compares the completions of a group" in together
    assert assemble(load(None, [*SIZES, PACKING])).sizes.segments == 4
    assert assemble(load(None, [*SIZES, PACKING, "train.group_size=1"])).sizes.segments == 1
