import attrs
import jax
import numpy as np
from flax import nnx
from tests.rollout.tiny import VOCAB, Ids

from dovetail.protocols import Sampling
from dovetail_model.decoder import Decoder
from dovetail_rollout.vanilla import Vanilla, _generate

TINY = Decoder(width=8, layers=1, heads=1, kv_heads=1, ffn=8)
TOKENS = np.full((2, 3), 5)
SAMPLING = Sampling(temperature=0.9, top_p=0.9, max_tokens=2)


def engine(seed=0):
    graphdef, params = nnx.split(TINY.make(VOCAB, rngs=nnx.Rngs(seed)))
    return Vanilla().open(graphdef, params, Ids()), params


def generate(engine, sampling=SAMPLING, seed=0):
    keys = jax.random.split(jax.random.key(seed), (2, 2))
    return engine.generate(TOKENS, np.ones_like(TOKENS, bool), keys, sampling)


def test_nothing_compiles_twice():
    first, _ = engine()
    before = _generate._cache_size()
    generate(first)
    assert _generate._cache_size() == before + 1
    generate(first, seed=1)
    for change in ({"temperature": 0.0}, {"temperature": 1.3, "top_p": 0.5}, {"temperature": 2, "top_p": 1}):
        generate(first, attrs.evolve(SAMPLING, **change))
    second, params = engine(seed=1)
    generate(second)
    first.sync(params, version=1)
    generate(first)
    assert _generate._cache_size() == before + 1
    generate(first, attrs.evolve(SAMPLING, max_tokens=3))
    assert _generate._cache_size() == before + 2


def test_weights_are_shared_and_let_go():
    opened, params = engine()
    assert opened.params is params
    opened.close()
    assert opened.params is None
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(params))
