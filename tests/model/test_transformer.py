"""What holds for every decoder that a `Spec` can describe."""

import functools
import subprocess
import sys
from pathlib import Path

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.devices import EIGHT

from dovetail_model.layers.rope import Rope
from dovetail_model.spec import Layer, Spec
from dovetail_model.transformer import Transformer, abstract

NEAR = Layer(Rope(theta=100.0), window=4)
FAR = Layer(Rope(theta=10_000.0, factor=2.0))
PLAIN = Spec(
    vocab_size=11,
    width=16,
    ffn=24,
    heads=4,
    kv_heads=2,
    head_dim=6,
    layers=(FAR, FAR),
    tied=True,
    init_std=0.3,
)
EVERYTHING = attrs.evolve(
    PLAIN,
    layers=(NEAR, FAR),
    tied=False,
    activation="gelu_tanh",
    norm_offset=1.0,
    qk_norm=True,
    post_norms=True,
    qkv_bias=True,
    out_bias=True,
    ffn_bias=True,
    query_scale=0.5,
    attention_cap=5.0,
    logit_cap=8.0,
    embedding_scale=4.0,
    residual_scale=1.25,
    logit_scale=0.5,
)
PROMPTS, SAMPLES, PROMPT, TOKENS = 3, 2, 6, 7
ROOT = Path(__file__).parents[2]


def made_up():
    """A model none of whose parameters is at its first value, zero or one, and a batch.

    That is left-padded prompts, and the tokens that follow them in [prompt * sample] rows; one prompt is empty.
    """
    graphdef, params = nnx.split(Transformer(EVERYTHING, rngs=nnx.Rngs(0)))
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(7), len(leaves))
    moved = [leaf + 0.1 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    first, second = jax.random.split(jax.random.key(1))
    prompts = jax.random.randint(first, (PROMPTS, PROMPT), 0, 11)
    masks = jnp.arange(PROMPT)[None, :] >= jnp.array([0, 3, PROMPT])[:, None]
    batch = prompts, masks, jax.random.randint(second, (PROMPTS * SAMPLES, TOKENS), 0, 11)
    return nnx.merge(graphdef, jax.tree.unflatten(structure, moved)), batch


@pytest.fixture(scope="module")
def model():
    return made_up()[0]


@pytest.fixture(scope="module")
def batch():
    return made_up()[1]


def weigh(hidden):
    """A number that depends on every entry, at its place."""
    return jnp.sum(jnp.sin(hidden + jnp.arange(hidden.size, dtype=jnp.float32).reshape(hidden.shape)))


@functools.partial(jax.jit, static_argnums=0)
def joined(graphdef, params, prompts, masks, tokens):
    model = nnx.merge(graphdef, params)
    prompts, masks = (jnp.repeat(x, SAMPLES, axis=0) for x in (prompts, masks))
    mask = jnp.concatenate([masks, jnp.ones(tokens.shape, bool)], axis=1)
    hidden, _ = model(jnp.concatenate([prompts, tokens], axis=1), mask)
    return hidden[:, PROMPT:]


@functools.partial(jax.jit, static_argnums=(0, 5))
def with_prefix(graphdef, params, prompts, masks, tokens, chunks):
    """Read the prompts once, and then the tokens: all at once, or in chunks through a cache of their own."""
    model = nnx.merge(graphdef, params)
    _, prefix = model(prompts, masks, model.init_cache(PROMPTS, PROMPT))
    if not chunks:
        return model(tokens, jnp.ones(tokens.shape, bool), prefix=prefix)[0]
    cache = model.init_cache(len(tokens), TOKENS + 2)
    pieces, start = [], 0
    for size in chunks:
        hidden, cache = model(
            tokens[:, start : start + size], jnp.ones((len(tokens), size), bool), cache, prefix=prefix
        )
        pieces.append(hidden)
        start += size
    return jnp.concatenate(pieces, axis=1)


@pytest.mark.parametrize("chunks", [(), (7,), (1, 5, 1)], ids=str)
def test_a_prefix_equals_repeated_prompts(model, batch, chunks):
    graphdef, params = nnx.split(model)
    np.testing.assert_allclose(
        with_prefix(graphdef, params, *batch, chunks), joined(graphdef, params, *batch), rtol=1e-5, atol=1e-5
    )


@functools.partial(jax.jit, static_argnums=(0, 5))
def in_packed_rows(graphdef, params, prompts, masks, tokens, lengths):
    """Read the first so many tokens of both rows of a prompt in one row, which has one position more than they need."""
    model = nnx.merge(graphdef, params)
    _, prefix = model(prompts, masks, model.init_cache(PROMPTS, PROMPT))
    pair, end = tokens.reshape(PROMPTS, SAMPLES, TOKENS), jnp.zeros((PROMPTS, 1), tokens.dtype)
    first, second = (pair[:, i, :n] for i, n in enumerate(lengths))
    packed = jnp.concatenate([first, second, end], axis=1)
    texts = jnp.broadcast_to(np.repeat(np.array([5, 6, -1]), [*lengths, 1]), packed.shape)
    hidden, _ = model(packed, texts >= 0, prefix=prefix, texts=texts)
    halves = jnp.split(hidden[:, :-1], [lengths[0]], axis=1)
    whole = [jnp.pad(half, ((0, 0), (0, TOKENS - half.shape[1]), (0, 0))) for half in halves]
    return jnp.stack(whole, axis=1).reshape(*tokens.shape, -1)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["dense", "blockwise"])
def test_texts_packed_in_a_row_are_read_as_they_are_alone(model, batch, attention):
    """Their hidden states, and the gradients of a function of them, among them those through the shared prefix."""
    lengths = (4, TOKENS)
    graphdef, params = nnx.split(model)
    other, _ = nnx.split(Transformer(attrs.evolve(EVERYTHING, attention=attention), rngs=nnx.Rngs(0)))
    there = np.tile(np.arange(TOKENS) < np.array(lengths)[:, None], (PROMPTS, 1))[:, :, None]
    alone = jax.value_and_grad(lambda params: weigh(jnp.where(there, joined(graphdef, params, *batch), 0.0)))
    packed = jax.value_and_grad(lambda params: weigh(in_packed_rows(other, params, *batch, lengths)))
    (value, grads), (expected, whole) = jax.jit(packed)(params), jax.jit(alone)(params)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    scale = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(whole))
    jax.tree.map(lambda here, there: np.testing.assert_allclose(here, there, atol=1e-5 * scale), grads, whole)


def test_gradients_flow_through_the_prefix(model, batch):
    graphdef, params = nnx.split(model)
    shared = jax.jit(jax.grad(lambda params: weigh(with_prefix(graphdef, params, *batch, ()))))(params)
    plain = jax.jit(jax.grad(lambda params: weigh(joined(graphdef, params, *batch))))(params)
    scale = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(plain))
    jax.tree.map(lambda here, there: np.testing.assert_allclose(here, there, atol=1e-5 * scale), shared, plain)


def test_the_prefix_is_never_repeated(model, batch):
    """No array of [prompt * sample, prompt, ...] keys or values is made, in value or gradient."""
    graphdef, params = nnx.split(model)
    text = str(jax.make_jaxpr(jax.grad(lambda params: weigh(with_prefix(graphdef, params, *batch, ()))))(params))
    kv_head, head_dim, rows = 2, 6, PROMPTS * SAMPLES
    assert f"[{PROMPTS * kv_head},{PROMPT},{head_dim}]" in text
    assert f"[{rows},{PROMPT},{kv_head},{head_dim}]" not in text
    assert f"[{rows * kv_head},{PROMPT},{head_dim}]" not in text


def test_a_cache_of_more_room_as_prefix_changes_nothing(model, batch):
    prompts, masks, tokens = batch

    @nnx.jit
    def read(model, room):
        _, prefix = model(prompts, masks, model.init_cache(PROMPTS, room.size))
        return model(tokens, jnp.ones(tokens.shape, bool), prefix=prefix)[0]

    np.testing.assert_allclose(read(model, jnp.zeros(PROMPT)), read(model, jnp.zeros(PROMPT + 5)), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["dense", "blockwise"])
def test_rows_whose_tokens_are_cut_over_devices_are_read_as_on_one(attention):
    command = [sys.executable, "-m", "tests.model.sharded_rows", attention]
    done = subprocess.run(command, env=EIGHT, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def value_and_gradient(remat):
    """Of one layer; and how many products the compiled function takes."""
    spec = attrs.evolve(PLAIN, layers=(FAR,), remat=remat)
    graphdef, params = nnx.split(Transformer(spec, rngs=nnx.Rngs(0)))
    tokens = jnp.array([[3, 1, 4, 1], [5, 9, 2, 6]])

    @jax.value_and_grad
    def loss(params):
        return weigh(nnx.merge(graphdef, params)(tokens, jnp.ones(tokens.shape, bool))[0])

    return jax.jit(loss)(params), str(jax.make_jaxpr(loss)(params)).count("dot_general")


def test_remat_recomputes_and_changes_neither_value_nor_gradient():
    (plain, none), (full, all_again) = value_and_gradient("none"), value_and_gradient("full")
    jax.tree.map(lambda here, there: np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-5), full, plain)
    assert none < all_again
    assert all(none <= value_and_gradient(remat)[1] < all_again for remat in ("dots", "dots_no_batch"))


def test_every_parameter_names_its_axes(model):
    _, state = nnx.split(model)
    for path, parameter in nnx.to_flat_state(state):
        assert len(parameter.axes) == parameter.ndim, path
        assert set(parameter.axes) <= {"vocab", "width", "ffn", "heads", "kv_heads", None}, path


def test_shapes_are_those_of_the_model_and_nobody_elses(model):
    """They are described once per spec, and a caller may change what it got."""
    first, second = abstract(EVERYTHING), abstract(EVERYTHING)
    assert nnx.graphdef(first) == nnx.graphdef(model)
    shapes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(nnx.state(each))] for each in (first, model)]
    assert shapes[0] == shapes[1]
    first.embedding.set_value(jnp.zeros((1, 1)))
    assert second.embedding.shape == abstract(EVERYTHING).embedding.shape == model.embedding.shape
