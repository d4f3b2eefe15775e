import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import dovetail
from dovetail.errors import ConfigError
from dovetail_model.model.decoder import Decoder

VOCAB = 11
TINY = Decoder(width=16, layers=2, heads=4, kv_heads=2, ffn=24, init_std=0.3)


@pytest.fixture(scope="module")
def model():
    return TINY.make(VOCAB, rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def batch():
    tokens = jax.random.randint(jax.random.key(1), (3, 7), 0, VOCAB)
    return tokens, jnp.arange(7)[None, :] >= jnp.array([0, 2, 5])[:, None]


@functools.partial(jax.jit, static_argnums=0)
def forward(graphdef, params, tokens, mask):
    model = nnx.merge(graphdef, params)
    return model.logits(model(tokens, mask)[0])


def logits_of(model, tokens, mask):
    return forward(*nnx.split(model), tokens, mask)


@nnx.jit
def read(model, tokens, mask, cache):
    return model(tokens, mask, cache)


def reference(model, tokens):
    """The same decoder for one row without padding, in float64 numpy, token by token."""
    weights = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), nnx.to_pure_dict(nnx.state(model)))
    half = 2
    omega = 10_000.0 ** (-np.arange(half) / half)

    def norm(x, scale):
        return x / np.sqrt(np.mean(x**2) + 1e-6) * scale

    def turn(x, position):
        pairs = x.reshape(-1, 2, half)
        spun = (pairs[:, 0] + 1j * pairs[:, 1]) * np.exp(1j * position * omega)
        return np.stack([spun.real, spun.imag], axis=1).reshape(-1, 2 * half)

    past = [[] for _ in weights["blocks"]]
    rows = []
    for position, token in enumerate(tokens):
        x = weights["embedding"][token]
        for number, seen in enumerate(past):
            block = weights["blocks"][number]
            kernels = {name: part["kernel"] for name, part in block["attention"].items()}
            y = norm(x, block["attention_norm"]["scale"])
            seen.append((turn(y @ kernels["keys"], position), (y @ kernels["values"]).reshape(2, 4)))
            heads = []
            for head, query in enumerate(turn(y @ kernels["queries"], position)):
                scores = np.exp([key[head // 2] @ query / 2 for key, _ in seen])
                heads.append(scores / scores.sum() @ np.array([value[head // 2] for _, value in seen]))
            x = x + np.concatenate(heads) @ kernels["out"]
            y = norm(x, block["ffn_norm"]["scale"])
            gate = y @ block["ffn"]["gate"]["kernel"]
            x = x + (gate / (1 + np.exp(-gate)) * (y @ block["ffn"]["up"]["kernel"])) @ block["ffn"]["down"]["kernel"]
        rows.append(norm(x, weights["norm"]["scale"]) @ weights["embedding"].T)
    return np.array(rows)


def test_equals_a_reference_in_numpy(model, batch):
    tokens, mask = batch
    logits = logits_of(model, tokens, jnp.ones_like(mask))
    for row in range(3):
        np.testing.assert_allclose(logits[row], reference(model, tokens[row]), rtol=1e-4, atol=1e-4)


def test_later_tokens_change_nothing(model, batch):
    tokens, _ = batch
    mask = jnp.ones_like(tokens, bool)
    changed = tokens.at[:, 4:].set((tokens[:, 4:] + 1) % VOCAB)
    before, after = logits_of(model, tokens, mask), logits_of(model, changed, mask)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert jnp.max(jnp.abs(before[:, 4:] - after[:, 4:])) > 1e-3


def test_padding_changes_nothing(model, batch):
    tokens, mask = batch
    padded = logits_of(model, tokens, mask)
    for row, start in enumerate((0, 2, 5)):
        alone = logits_of(model, tokens[row : row + 1, start:], jnp.ones((1, 7 - start), bool))
        np.testing.assert_allclose(padded[row, start:], alone[0], atol=2e-5)


@pytest.mark.parametrize("chunks", [(7,), (3, 4), (4, 1, 1, 1)])
def test_cache_equals_no_cache(model, batch, chunks):
    tokens, mask = batch
    cache = model.init_cache(3, 9)
    pieces, start = [], 0
    for size in chunks:
        hidden, cache = read(model, tokens[:, start : start + size], mask[:, start : start + size], cache)
        pieces.append(hidden)
        start += size
    difference = jnp.concatenate(pieces, axis=1) - read(model, tokens, mask, None)[0]
    assert jnp.max(jnp.where(mask[:, :, None], jnp.abs(difference), 0.0)) < 2e-5
    assert cache.filled == 7


def test_a_row_without_tokens_is_finite_in_value_and_gradient(model):
    graphdef, params = nnx.split(model)
    tokens, mask = jnp.zeros((2, 3), jnp.int32), jnp.array([[False] * 3, [True] * 3])

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        return jnp.sum(forward(graphdef, params, tokens, mask))

    value, gradient = loss(params)
    assert jnp.isfinite(value)
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_models_of_one_shape_share_an_executable():
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def embeddings(graphdef, params):
        traces.append(graphdef)
        return nnx.merge(graphdef, params).embedding[...]

    first, second = (embeddings(*nnx.split(TINY.make(VOCAB, rngs=nnx.Rngs(seed)))) for seed in (0, 1))
    assert len(traces) == 1
    assert not jnp.allclose(first, second)


def test_the_same_seed_gives_the_same_weights(model):
    again = nnx.state(TINY.make(VOCAB, rngs=nnx.Rngs(0)))
    jax.tree.map(np.testing.assert_array_equal, nnx.state(model), again)


def test_graph_definition_pickles(model):
    graphdef, params = nnx.split(model)
    assert pickle.loads(pickle.dumps(graphdef)) == graphdef
    assert jax.tree.structure(pickle.loads(pickle.dumps(params))) == jax.tree.structure(params)


def test_state_is_plain_parameters_that_can_be_donated(model):
    graphdef, params, rest = nnx.split(TINY.make(VOCAB, rngs=nnx.Rngs(0)), nnx.Param, ...)
    assert not jax.tree.leaves(rest)
    step = jax.jit(lambda params: jax.tree.map(lambda leaf: leaf * 0.5, params), donate_argnums=0)
    halved = step(params)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(params))
    np.testing.assert_array_equal(nnx.merge(graphdef, halved).embedding[...], model.embedding[...] * 0.5)


def test_state_shards_on_a_mesh(model):
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    with jax.set_mesh(mesh):
        made = jax.jit(lambda: nnx.state(TINY.make(VOCAB, rngs=nnx.Rngs(0))), out_shardings=sharding)()
    assert {leaf.sharding for leaf in jax.tree.leaves(made)} == {sharding}
    jax.tree.map(lambda here, there: np.testing.assert_allclose(here, there, rtol=1e-6), nnx.state(model), made)


def test_untied_logits_have_a_table_of_their_own(batch):
    untied = Decoder(width=16, layers=1, heads=2, kv_heads=1, tied=False).make(VOCAB, rngs=nnx.Rngs(0))
    tied = Decoder(width=16, layers=1, heads=2, kv_heads=1).make(VOCAB, rngs=nnx.Rngs(0))
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model))) for model in (untied, tied)]
    assert sizes[0] - sizes[1] == VOCAB * 16
    before = logits_of(untied, *batch)
    untied.unembedding[...] = untied.unembedding[...] * 2
    np.testing.assert_allclose(logits_of(untied, *batch), 2 * before, rtol=1e-6)


@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
def test_bfloat16(batch, param_dtype):
    model = Decoder(width=16, layers=1, heads=2, kv_heads=1, dtype="bfloat16", param_dtype=param_dtype).make(
        VOCAB, rngs=nnx.Rngs(0)
    )
    hidden, cache = read(model, *batch, model.init_cache(3, 8))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(nnx.state(model))} == {param_dtype}
    assert hidden.dtype == cache.layers[0].keys.dtype == jnp.bfloat16
    assert model.logits(hidden).dtype == jnp.float32


def test_initial_scales():
    model = Decoder(width=128, layers=2, heads=4, kv_heads=2).make(64, rngs=nnx.Rngs(0))
    assert jnp.std(model.embedding[...]) == pytest.approx(0.02, rel=0.03)
    assert jnp.std(model.blocks[1].attention.out.kernel[...]) == pytest.approx(0.01, rel=0.03)
    assert jnp.std(model.blocks[1].ffn.down.kernel[...]) == pytest.approx(0.01, rel=0.03)


def test_derived_sizes():
    assert (Decoder(width=128, heads=4).head_units, Decoder(width=128).ffn_units) == (32, 384)
    assert (Decoder(width=128, head_dim=64).head_units, Decoder(ffn=100).ffn_units) == (64, 100)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"width": 30, "heads": 4}, "width = 30 is not a multiple of heads = 4; change one, or set head_dim"),
        ({"heads": 4, "kv_heads": 3}, "heads = 4 is not a multiple of kv_heads = 3"),
        ({"head_dim": 7}, "7 units per head; rotary positions rotate pairs, so it must be even"),
        ({"layers": 0}, "layers = 0; it must be at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, message):
    with pytest.raises(ConfigError, match=message):
        Decoder(**sizes)


def test_an_abstract_model_needs_a_vocabulary(model):
    shapes = [jax.tree.map(lambda leaf: leaf.shape, nnx.state(each)) for each in (model, TINY.abstract(VOCAB))]
    assert shapes[0] == shapes[1]
    with pytest.raises(ConfigError, match="has as many ids as its tokenizer, and there is no tokenizer here"):
        TINY.abstract(None)


def test_is_registered():
    component = dovetail.get("model", "decoder")
    assert component.params["width"] == 128
    assert component.reads == ()
    assert {"rope_theta", "norm_epsilon", "init_std"} <= component.static
    assert component.bind(width=16, heads=2, kv_heads=1) == Decoder(width=16, heads=2, kv_heads=1)
