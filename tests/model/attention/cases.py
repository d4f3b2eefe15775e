"""What every implementation of attention is compared on with the dense one, in values and gradients."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from dovetail_model.attention import Places, Segment, Sight, by_head
from dovetail_model.attention.dense import dense
from dovetail_model.attention.sight import HIDDEN, LAST, NOWHERE

PROMPTS, SAMPLES, UNITS, SCALE = 2, 2, 8, 0.4


@attrs.frozen(kw_only=True)
class Case:
    """Rows of tokens with what they may see: their own, and a prefix of some tokens in two rows out of four."""

    tokens: int = 37
    heads: int = 4
    kv_heads: int = 4
    window: int | None = None
    cap: float | None = None
    padded: bool = False
    prefix: int = 0
    texts: bool = False

    def sights(self) -> tuple[Sight, ...]:
        """Left padding is of another length in each row, all of one row, and one token within another."""
        rows = PROMPTS * SAMPLES
        mask, held = np.ones((rows, self.tokens), bool), np.ones((PROMPTS, self.prefix), bool)
        if self.padded:
            mask &= np.arange(self.tokens) >= np.array([0, 5, self.tokens - 1, self.tokens])[:, None]
            mask[0, 3] = False
            held &= np.arange(self.prefix) >= np.array([self.prefix // 2, self.prefix])[:, None]
        before = np.repeat(held.sum(1), SAMPLES)[:, None]
        texts = (np.arange(self.tokens) >= np.array([0, 9, 20, 30])[:, None]).astype(np.int32) if self.texts else None
        at = before + np.cumsum(mask, axis=1) - 1
        if texts is not None:
            at = np.where(texts == 1, at - np.sum(texts == 0, axis=1, keepdims=True), at)
        tokens = jnp.asarray(np.where(mask, at, NOWHERE)[:, None], jnp.int32)
        keys = Places(jnp.asarray(np.where(mask, at, HIDDEN), jnp.int32), None if texts is None else jnp.asarray(texts))
        own = Sight(Places(tokens, None if texts is None else jnp.asarray(texts)[:, None]), keys, self.window)
        if not self.prefix:
            return (own,)
        seeing = jnp.full((PROMPTS, 1, 1), LAST, jnp.int32)
        if self.window is not None:
            seeing = jnp.asarray(at, jnp.int32).reshape(PROMPTS, SAMPLES, -1)
        held_at = np.where(held, np.cumsum(held, axis=1) - 1, HIDDEN)
        return Sight(Places(seeing), Places(jnp.asarray(held_at, jnp.int32)), self.window), own

    def arrays(self) -> list[jax.Array]:
        """Queries, and keys and values of every segment."""
        rng, rows = np.random.default_rng(0), PROMPTS * SAMPLES
        shapes = [(rows, self.tokens, self.heads, UNITS)]
        for sight in self.sights():
            shapes += [(*sight.keys.at.shape, self.kv_heads, UNITS)] * 2
        return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]

    def mixed(self, implementation, arrays, dtype=jnp.float32):
        """What the implementation returns."""
        queries, *held = (array.astype(dtype) for array in arrays)
        pairs = zip(held[::2], held[1::2], self.sights(), strict=True)
        segments = tuple(Segment(by_head(keys), by_head(values), sight) for keys, values, sight in pairs)
        return implementation(queries, segments, scale=SCALE, cap=self.cap)

    def compiled(self, implementation, dtype=jnp.float32):
        """A compiled function of the arrays: a number that depends on every token that sees something; its gradients."""
        live = (self.sights()[-1].tokens.at >= 0).reshape(PROMPTS * SAMPLES, self.tokens, 1, 1)

        def total(arrays):
            mixed = self.mixed(implementation, arrays, dtype)
            assert mixed.dtype == dtype
            mixed = jnp.where(live, mixed.astype(jnp.float32), 0.0)
            return jnp.sum(jnp.sin(mixed + jnp.linspace(0, 6, mixed.size).reshape(mixed.shape)))

        return jax.jit(jax.value_and_grad(total)).lower(self.arrays()).compile()

    def run(self, implementation, dtype=jnp.float32):
        """The value and the gradients."""
        return self.compiled(implementation, dtype)(self.arrays())

    def check(self, implementation, tolerance=2e-5):
        """Compare with the dense one."""
        (value, gradients), (other, others) = self.run(dense), self.run(implementation)
        np.testing.assert_allclose(other, value, rtol=tolerance)
        for here, there in zip(gradients, others, strict=True):
            np.testing.assert_allclose(there, here, atol=tolerance * max(1.0, float(jnp.abs(here).max())))


CASES = {
    "causal": Case(),
    "left-padded": Case(padded=True),
    "windowed": Case(window=6, padded=True),
    "soft-capped": Case(cap=1.5),
    "grouped": Case(kv_heads=2),
    "prefix": Case(prefix=23),
    "packed": Case(texts=True),
    "all": Case(prefix=23, padded=True, window=30, cap=1.5, kv_heads=2),
}
