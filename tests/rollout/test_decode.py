import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from dovetail_rollout.decode import Limits, decode

EOS = 3
LIMITS = Limits(max_tokens=6, top_k=None, eos_ids=(EOS,), pad_id=0)


@attrs.frozen
class Countdown:
    """A model whose greedy completion counts down from its prompt's last token to the EOS, and that logs its calls."""

    calls: list
    width: int = 1
    vocab_size: int = 12

    def __call__(self, tokens, mask, cache=None):
        jax.debug.callback(self.calls.append, tokens.shape)
        return tokens[..., None].astype(jnp.float32), cache

    def logits(self, hidden):
        return 50.0 * jax.nn.one_hot(hidden[..., 0].astype(jnp.int32) - 1, self.vocab_size)

    def init_cache(self, batch, length):
        return jnp.zeros((batch, length)), jnp.zeros((), jnp.int32)


def run(last_tokens, samples=1, limits=LIMITS):
    calls = []
    prompts = jnp.array([[7, last] for last in last_tokens])
    keys = jax.random.split(jax.random.key(0), (len(last_tokens), samples))
    jitted = jax.jit(functools.partial(decode, Countdown(calls), limits=limits))
    decoded = jitted(prompts, jnp.ones_like(prompts, bool), keys, jnp.float32(0.0), None)
    jax.effects_barrier()
    return jax.device_get(decoded), [tuple(int(size) for size in shape) for shape in calls]


def test_rows_end_with_their_eos_and_are_padded_after_it():
    decoded, _ = run([6, 4, 11])
    np.testing.assert_array_equal(decoded.tokens, [[5, 4, 3, 0, 0, 0], [3, 0, 0, 0, 0, 0], [10, 9, 8, 7, 6, 5]])
    np.testing.assert_array_equal(decoded.mask.sum(axis=1), [3, 1, 6])
    np.testing.assert_array_equal(decoded.finished, [True, True, False])
    assert np.all(decoded.logps[~decoded.mask] == 0)


def test_the_loop_ends_with_the_last_row():
    _, calls = run([6, 4])
    # the prompt, then one call for each token but the last: three tokens, two calls
    assert calls == [(2, 2), (2, 1), (2, 1)]


def test_a_prompt_is_read_once_for_all_its_samples():
    decoded, calls = run([6, 5], samples=3)
    assert calls[0] == (2, 2)
    assert set(calls[1:]) == {(6, 1)}
    np.testing.assert_array_equal(decoded.tokens[:, 0], [5, 5, 5, 4, 4, 4])


def test_without_an_eos_every_row_runs_to_the_limit():
    decoded, _ = run([6, 4], limits=attrs.evolve(LIMITS, eos_ids=()))
    assert decoded.mask.all()
    assert not decoded.finished.any()


def test_several_tokens_may_end_a_row():
    decoded, _ = run([6, 11], limits=attrs.evolve(LIMITS, eos_ids=(4, 9)))
    np.testing.assert_array_equal(decoded.mask.sum(axis=1), [2, 2])
