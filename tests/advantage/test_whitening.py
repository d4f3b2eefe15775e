"""Whitening is over the whole batch of a step: no micro-batch, mini-batch or empty row changes it.

This holds over several devices, too: tests/core/devices/test_mesh.py trains with `gae` on eight of them.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.configs.step import GROUP, PROMPTS, TOKENS, collect

from dovetail.arrays import whiten
from dovetail.config import load

WHITENED = (
    "decoupled_gae",
    "gae",
    "gdpo",
    "length_adaptive_gae",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
)
SIZES = (f"train.prompts={PROMPTS}", f"train.group_size={GROUP}", f"sampling.max_tokens={TOKENS}")
CUTS = (
    ("train.micro_batch_size=5",),
    ("train.mini_batch_size=5", "train.micro_batch_size=1", "train.epochs=2"),
)


def advantages(name: str, *overrides: str) -> tuple[np.ndarray, np.ndarray]:
    batch, _, _ = collect(load(None, [*SIZES, f"train.advantage={name}", *overrides]))
    return np.asarray(batch["advantages"]), np.asarray(batch["mask"])


@pytest.mark.parametrize("name", WHITENED)
def test_all_policy_tokens_of_the_step_have_mean_zero_and_variance_one(name):
    found, mask = advantages(name)
    assert not mask[2].any()  # a row that must not count
    np.testing.assert_allclose(found[mask].mean(), 0.0, atol=1e-6)
    np.testing.assert_allclose(found[mask].std(ddof=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", ["gae", "gdpo"])
def test_no_cut_of_the_batch_changes_it(name):
    whole, _ = advantages(name)
    for cut in CUTS:
        np.testing.assert_allclose(advantages(name, *cut)[0], whole, rtol=1e-5, atol=1e-6, err_msg=str(cut))


@pytest.mark.parametrize("value", [0.1, -1.1, 3.3, 100.3, 123456.7])
@pytest.mark.parametrize("rows", [63, 64, 1000])
def test_a_batch_of_equal_numbers_is_zero(value, rows):
    mask = jnp.arange(256)[None, :] < (37 * jnp.arange(rows)[:, None]) % 256
    assert not jnp.any(whiten(jnp.full(mask.shape, value), mask))
