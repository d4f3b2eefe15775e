"""Attention in blocks equals the dense one, and neither its result nor its gradient stores scores."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.model.attention.cases import CASES, Case

from dovetail_model.attention.blockwise import blockwise
from dovetail_model.attention.dense import dense

SMALL = functools.partial(blockwise, query_block=40, key_block=8)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_dense_one(name):
    CASES[name].check(SMALL)


def test_one_block_equals_many():
    CASES["all"].check(blockwise)


def test_blocks_of_which_nothing_is_seen_are_not_read():
    """Late tokens are numbers whatever is in the first block of keys, which is before their window."""
    case = Case(window=4, tokens=32)
    queries, keys, values = case.arrays()
    arrays = queries, keys.at[:, :8].set(jnp.nan), values.at[:, :8].set(jnp.nan)
    mixed = case.mixed(functools.partial(blockwise, query_block=16, key_block=8), arrays)
    assert not np.isfinite(mixed[:, :8]).any()
    assert np.isfinite(mixed[:, 16:]).all()


def test_in_bfloat16_it_is_as_near_as_the_dense_one():
    exact, near, ours = CASES["grouped"].run(dense), *(CASES["grouped"].run(f, jnp.bfloat16) for f in (dense, SMALL))
    for right, here, there in zip(*(jax.tree.leaves(x) for x in (exact, near, ours)), strict=True):
        assert float(jnp.abs(there - right).max()) < 2 * float(jnp.abs(here - right).max()) + 0.02


def memory(implementation, tokens):
    """Bytes beside inputs and outputs of a value with its gradients."""
    case = Case(tokens=tokens, kv_heads=2, padded=True)
    return case.compiled(implementation).memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_memory_grows_with_the_tokens_and_not_with_their_square():
    assert memory(dense, 1024) > 8 * memory(dense, 256)
    assert memory(blockwise, 4096) < 4.2 * memory(blockwise, 1024)
