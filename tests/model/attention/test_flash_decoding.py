"""The kernel for single tokens equals the dense attention; it is interpreted here, and runs where there is a GPU."""

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_model.attention import Places, Segment, Sight
from dovetail_model.attention import flash_decoding as module
from dovetail_model.attention.dense import dense
from dovetail_model.attention.flash_decoding import flash_decoding
from dovetail_model.attention.sight import HIDDEN, LAST, NOWHERE

PROMPTS, SAMPLES = 2, 3
SCALE = 0.3


@attrs.frozen(kw_only=True)
class Case:
    """One token in each of six rows, of which three share a prefix; the last row's token sees nothing of its own."""

    own: int = 100
    prefix: int = 70
    heads: int = 14
    kv_heads: int = 2
    units: int = 16
    window: int | None = None
    cap: float | None = None

    def arguments(self, dtype=jnp.float32):
        """Queries and segments; keys are hidden at both ends and in between, as after turns of several lengths."""
        rng, rows = np.random.default_rng(0), PROMPTS * SAMPLES
        held = np.arange(self.prefix) >= np.array([self.prefix // 2, 3])[:, None]
        valid = rng.random((rows, self.own)) < 0.8
        valid[:, -self.own // 4 :] = False
        valid[2] &= np.arange(self.own) >= self.own // 2
        valid[:, self.own // 2] = True
        before = np.repeat(held.sum(1), SAMPLES)[:, None]
        at = before + np.cumsum(valid, axis=1) - 1
        tokens = at[:, -1].copy()
        tokens[-1] = NOWHERE
        hidden = jnp.asarray(np.where(valid, at, HIDDEN), jnp.int32)
        own = Sight(Places(jnp.asarray(tokens[:, None, None], jnp.int32)), Places(hidden), self.window)

        def random(*shape):
            return jnp.asarray(rng.normal(size=shape), dtype)

        def segment(sight):
            count, keys = sight.keys.at.shape
            shape = (count * self.kv_heads, keys, self.units)
            return Segment(random(*shape), random(*shape), sight)

        queries, segments = random(rows, 1, self.heads, self.units), (segment(own),)
        if self.prefix:
            seeing = np.full((PROMPTS, 1, 1), LAST) if self.window is None else tokens.reshape(PROMPTS, SAMPLES, 1)
            places = Places(jnp.asarray(np.where(held, np.cumsum(held, axis=1) - 1, HIDDEN), jnp.int32))
            segments = (segment(Sight(Places(jnp.asarray(seeing, jnp.int32)), places, self.window)), *segments)
        return queries, segments


CASES = {
    "with a prefix": Case(),
    "without": Case(prefix=0),
    "whole blocks": Case(own=128, prefix=64),
    "windowed": Case(window=40),
    "soft-capped": Case(cap=1.5),
    "one query per key": Case(heads=2),
    "many queries per key": Case(heads=40),
    "less than a block": Case(own=5, prefix=3),
}


@pytest.mark.parametrize("programs", [1, 30, 1000])
@pytest.mark.parametrize("name", CASES)
def test_equals_the_dense_one(name, programs, monkeypatch):
    """Whether one program reads all keys of a row, two do, or one for each block."""
    monkeypatch.setattr(module, "PROGRAMS", programs)
    case = CASES[name]
    queries, segments = case.arguments()
    expected = dense(queries, segments, scale=SCALE, cap=case.cap)
    found = flash_decoding(queries, segments, scale=SCALE, cap=case.cap, interpret=True)
    np.testing.assert_allclose(found[:-1], expected[:-1], atol=3e-6)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("programs", [1, 1000])
def test_a_token_that_sees_nothing_is_mixed_to_zero(programs, monkeypatch):
    monkeypatch.setattr(module, "PROGRAMS", programs)
    queries, segments = Case(prefix=0).arguments()
    found = flash_decoding(queries, segments, scale=SCALE, interpret=True)
    np.testing.assert_array_equal(found[-1], 0.0)


def test_hidden_keys_are_of_no_meaning():
    """NaN at either end, where blocks are not read; finite numbers anywhere."""
    queries, (segment,) = Case(prefix=0, own=192).arguments()
    hidden = np.asarray(segment.sight.keys.at) == HIDDEN
    other = np.repeat(hidden, 2, axis=0)[..., None]
    changed = Segment(jnp.where(other, 99.0, segment.keys), jnp.where(other, -99.0, segment.values), segment.sight)
    one, two = (flash_decoding(queries, (each,), scale=SCALE, interpret=True) for each in (segment, changed))
    np.testing.assert_array_equal(one, two)


def test_rows_do_not_depend_on_each_other():
    """The same row among others has the same values to the last bit."""
    queries, (segment,) = Case(prefix=0).arguments()
    whole = flash_decoding(queries, (segment,), scale=SCALE, interpret=True)
    at = segment.sight.keys.at[2:4], segment.sight.tokens.at[2:4]
    few = Segment(segment.keys[4:8], segment.values[4:8], Sight(Places(at[1]), Places(at[0])))
    np.testing.assert_array_equal(flash_decoding(queries[2:4], (few,), scale=SCALE, interpret=True), whole[2:4])


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernel needs a GPU; name it with JAX_PLATFORMS=cuda")
@pytest.mark.parametrize("programs", [1, 1000])
@pytest.mark.parametrize("units", [64, 128])
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_equals_the_dense_one(name, units, programs, monkeypatch):
    """Up to the rounding of bfloat16."""
    monkeypatch.setattr(module, "PROGRAMS", programs)
    case = attrs.evolve(CASES[name], units=units)
    queries, segments = case.arguments(jnp.bfloat16)
    wide = tuple(Segment(s.keys.astype(jnp.float32), s.values.astype(jnp.float32), s.sight) for s in segments)
    scale = units**-0.5
    with jax.default_matmul_precision("highest"):
        expected = dense(queries.astype(jnp.float32), wide, scale=scale, cap=case.cap)
    found = jax.jit(lambda q, s: flash_decoding(q, s, scale=scale, cap=case.cap))(queries, segments)
    np.testing.assert_allclose(found[:-1].astype(jnp.float32), expected[:-1], atol=2e-2)
    assert np.isfinite(found.astype(jnp.float32)).all()
