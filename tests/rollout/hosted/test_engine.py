"""The rollout protocol over a host."""

import jax
import numpy as np

from dovetail_rollout.hosted.engine import seeds_of, stopped


def test_seeds_are_a_function_of_the_key_alone():
    keys = jax.random.split(jax.random.key(0), (40, 50))
    seeds = seeds_of(keys)
    assert len(set(seeds.ravel().tolist())) == 2000
    assert seeds.min() >= 0
    assert seeds.max() > 2**62, "all 63 bits are in use"
    np.testing.assert_array_equal(seeds_of(keys[3:5, 7:9]), seeds[3:5, 7:9])


def test_seeds_of_another_kind_of_key():
    keys = jax.random.split(jax.random.key(0, impl="rbg"), (2, 3))
    assert len(set(seeds_of(keys).ravel().tolist())) == 6


def test_a_stop_string_ends_with_the_token_that_completes_it():
    first = stopped(("cd", "zz"), lambda tokens: "".join("abcdefgh"[2 * t : 2 * t + 2] for t in tokens))
    assert first([0, 1, 2]) == 2
    assert first([0, 2]) is None
    assert first([]) is None
