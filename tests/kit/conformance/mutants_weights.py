"""Broken models: wrong initial weights, wrong trainable parameters, wrong continuations of a prompt."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp
from flax import nnx
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_others import _decoder

import dovetail


@caught_by("model", "begins_at_random", slow=True)
@attrs.frozen(kw_only=True)
class OneSeedForAll:
    def make(self, vocab_size, *, rngs, place):
        return _decoder()


@caught_by("model", "begins_at_random", slow=True)
@attrs.frozen(kw_only=True)
class LayersAlike:
    def make(self, vocab_size, *, rngs, place):
        from dovetail_kit.conformance.suites.models import TINY

        model = dovetail.get("model", "decoder").bind(**TINY).make(vocab_size, rngs=rngs, place=lambda *_: None)
        twins: dict = {}
        state = jax.tree.map(lambda leaf: twins.setdefault(leaf.shape, leaf), nnx.state(model, nnx.Param))
        nnx.update(model, state)
        return model


@caught_by("model", "abstract_is_what_is_made", slow=True)
@attrs.frozen(kw_only=True)
class SaysHalfPrecision:
    def make(self, vocab_size, *, rngs, place):
        return _decoder()

    def abstract(self, vocab_size):
        model = _decoder()
        nnx.update(model, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), nnx.state(model, nnx.Param)))
        return model


@caught_by("model", "every_parameter_learns", slow=True)
@attrs.frozen(kw_only=True)
class LearnsNothingBelow:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            hidden, cache = super(type(self), self).__call__(tokens, mask, cache, prefix=prefix)
            return jax.lax.stop_gradient(hidden), cache

        return _decoder(__call__=call)


@caught_by("model", "gradients_are_slopes", slow=True)
@attrs.frozen(kw_only=True)
class HalfWithoutGradient:
    """Half of what it says lets no gradient through."""

    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            hidden, cache = super(type(self), self).__call__(tokens, mask, cache, prefix=prefix)
            return 0.5 * (hidden + jax.lax.stop_gradient(hidden)), cache

        return _decoder(__call__=call)


@caught_by("model", "prefix_and_cache", slow=True)
@attrs.frozen(kw_only=True)
class EitherPrefixOrCache:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            return super(type(self), self).__call__(
                tokens, mask, cache, prefix=prefix if tokens.shape[1] != 2 else None
            )

        return _decoder(__call__=call)


@caught_by("model", "left_padding", slow=True)
@attrs.frozen(kw_only=True)
class PaddingFades:
    """What stands in the padding still reaches the first tokens after it, a little."""

    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            hidden, cache = super(type(self), self).__call__(tokens, mask, cache, prefix=prefix)
            before = jnp.cumsum(jnp.where(mask, 0, tokens + 1), axis=1)
            after = jnp.cumsum(mask, axis=1)
            return hidden + (0.01 * before * 0.5**after)[..., None].astype(hidden.dtype), cache

        return _decoder(__call__=call)


@caught_by("model", "gaps", slow=True)
@attrs.frozen(kw_only=True)
class KnowsPaddingOnTheLeftAlone:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            begun = jax.lax.cummax(mask.astype(jnp.int32), axis=1).astype(bool)
            return super(type(self), self).__call__(tokens, begun, cache, prefix=prefix)

        return _decoder(__call__=call)


@caught_by("model", "cache", slow=True)
@attrs.frozen(kw_only=True)
class TheCacheNeverGrows:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            hidden, after = super(type(self), self).__call__(tokens, mask, cache, prefix=prefix)
            return hidden, after if cache is None else cache

        return _decoder(__call__=call)


@caught_by("model", "logits_in_full_precision", slow=True)
@attrs.frozen(kw_only=True)
class RoundsItsLogits:
    def make(self, vocab_size, *, rngs, place):
        def logits(self, hidden):
            return super(type(self), self).logits(hidden).astype(jnp.bfloat16).astype(jnp.float32)

        return _decoder(logits=logits)


@caught_by("model", "learns_through_the_prefix", slow=True)
@attrs.frozen(kw_only=True)
class TakesThePrefixAsGiven:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            return super(type(self), self).__call__(tokens, mask, cache, prefix=jax.lax.stop_gradient(prefix))

        return _decoder(__call__=call)
