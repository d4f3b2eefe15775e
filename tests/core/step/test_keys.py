"""Keys depend on counters only."""

import jax
import jax.numpy as jnp

from dovetail.step import keys


def test_a_sample_has_the_same_key_whatever_the_split():
    whole = keys.per_sample(keys.stream(3, keys.SAMPLING, 5), 6, 4)
    part = keys.per_sample(keys.stream(3, keys.SAMPLING, 5), 2, 3)
    assert jnp.array_equal(jax.random.key_data(whole)[:2, :3], jax.random.key_data(part))


def test_streams_steps_prompts_and_samples_all_differ():
    drawn = [
        keys.per_sample(keys.stream(seed, stream, step), 3, 2)
        for seed in (0, 1)
        for stream in (keys.SAMPLING, keys.EVALUATION)
        for step in (0, 1)
    ]
    data = jnp.concatenate([jax.random.key_data(k).reshape(-1, 2) for k in drawn])
    assert len({tuple(row) for row in data.tolist()}) == len(data)
