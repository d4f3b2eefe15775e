import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_rollout.decoding import decode
from dovetail_rollout.decoding.decode import Fixed, begin, extend, move
from dovetail_rollout.decoding.sampling import Numbers

EOS = 3
FIXED = Fixed(max_tokens=6, top_k=None, eos_ids=(EOS,))
GREEDY = Numbers(jnp.float32(0.0), jnp.array(True))


@attrs.frozen
class Countdown:
    """A model whose greedy completion counts down from its prompt's last token to the EOS, and that logs its calls."""

    calls: list
    width: int = 1
    vocab_size: int = 12

    def __call__(self, tokens, mask, cache=None, *, prefix=None):
        jax.debug.callback(lambda *sizes: self.calls.append(tuple(map(int, sizes))), *tokens.shape)
        return tokens[..., None].astype(jnp.float32), cache

    def logits(self, hidden):
        said = hidden[..., 0].astype(jnp.int32) - 1
        logits = 50.0 * jax.nn.one_hot(said, self.vocab_size)
        return jnp.where((said == 8)[..., None], jnp.nan, logits)  # after a 9 comes nothing

    def init_cache(self, batch, length):
        return jnp.zeros((batch, length)), jnp.zeros((), jnp.int32)


def run(last_tokens, samples=1, fixed=FIXED, steps=99, enough=0):
    """Complete prompts, all in one go, each completion in the slot of its number."""
    model = Countdown([])
    prompts = jnp.array([[7, last] for last in last_tokens])
    keys = jax.random.split(jax.random.key(0), (len(last_tokens), samples))
    drawn, prefix = jax.jit(functools.partial(begin, model, fixed=fixed))(
        prompts, jnp.ones_like(prompts, bool), keys, GREEDY
    )
    drawn, _, done = jax.jit(functools.partial(extend, model, fixed=fixed))(
        drawn, prefix, model.init_cache(keys.size, 5), jnp.arange(keys.size), GREEDY,
        steps=jnp.int32(steps), enough=jnp.int32(enough),
    )  # fmt: skip
    jax.effects_barrier()
    return jax.device_get(drawn), int(done), model.calls


def test_rows_end_with_their_eos_or_at_the_limit():
    drawn, *_ = run([6, 4, 8])
    np.testing.assert_array_equal(drawn.lengths, [3, 1, 5])
    np.testing.assert_array_equal(drawn.tokens, [[5, 4, 3, 0, 0, 0], [3, 0, 0, 0, 0, 0], [7, 6, 5, 4, 3, 0]])
    assert drawn.ended.all()
    assert not drawn.failed.any()
    assert np.all(drawn.logps[drawn.tokens == 0] == 0)
    drawn, *_ = run([8, 4], fixed=attrs.evolve(FIXED, max_tokens=2))
    np.testing.assert_array_equal(drawn.tokens, [[7, 6], [3, 0]])
    assert drawn.ended.all()


def test_the_loop_ends_with_the_last_row():
    _, done, calls = run([6, 4])
    # the prompt, then one call for each token but the last: three tokens, two calls
    assert calls == [(2, 2), (2, 1), (2, 1)]
    assert done == 2


@pytest.mark.parametrize(("limits", "done"), [({"steps": 1}, 1), ({"enough": 1}, 2), ({"enough": 3}, 0)])
def test_the_loop_ends_after_so_many_steps_or_when_few_enough_go_on(limits, done):
    drawn, steps, _ = run([6, 8, 4], **limits)
    assert steps == done
    np.testing.assert_array_equal(drawn.lengths, [1 + done, 1 + done, 1])


def test_a_prompt_is_read_once_for_all_its_samples():
    drawn, _, calls = run([6, 5], samples=3)
    assert calls[0] == (2, 2)
    assert set(calls[1:]) == {(6, 1)}
    np.testing.assert_array_equal(drawn.tokens[:, 0], [5, 5, 5, 4, 4, 4])


def test_several_tokens_may_end_a_row_and_none_need_to():
    drawn, *_ = run([6, 8], fixed=attrs.evolve(FIXED, eos_ids=(4, 6)))
    np.testing.assert_array_equal(drawn.lengths, [2, 2])
    drawn, *_ = run([6, 8], fixed=attrs.evolve(FIXED, eos_ids=()))
    np.testing.assert_array_equal(drawn.lengths, [6, 6])


def test_a_row_whose_logits_are_nan_fails_alone():
    drawn, *_ = run([11, 6])
    np.testing.assert_array_equal(drawn.failed, [True, False])
    np.testing.assert_array_equal(drawn.lengths, [3, 3])


def test_many_prompts_are_read_in_pieces(monkeypatch):
    whole, _, calls = run([4, 5, 6, 7, 8, 6])
    assert calls[0] == (6, 2)
    monkeypatch.setattr(decode, "PREFILL_TOKENS", 7)
    pieces, _, calls = run([4, 5, 6, 7, 8, 6])
    assert calls[:2] == [(3, 2), (3, 2)]
    np.testing.assert_array_equal(pieces.tokens, whole.tokens)


def test_lanes_move_with_their_slots():
    keys = jnp.arange(1.0, 25.0).reshape(6, 4)  # three slots with two entries of four positions each
    count, filled = jnp.array([7, 8, 9]), jnp.int32(3)
    moved = move((count, keys, filled), 3, jnp.array([2, -1]), jnp.int32(1), axes=(None, 1, None), length=3)
    np.testing.assert_array_equal(moved[0], [9, 0])
    np.testing.assert_array_equal(moved[1], [[18, 19, 20], [22, 23, 24], [0, 0, 0], [0, 0, 0]])
    assert int(moved[2]) == 2
    longer = move((count, keys, filled), 3, jnp.array([0]), jnp.int32(0), axes=(None, 1, None), length=6)
    np.testing.assert_array_equal(longer[1][0], [1, 2, 3, 4, 0, 0])
