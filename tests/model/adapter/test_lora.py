import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.core.training.tiny import TINY

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail.training.loop import train
from dovetail.training.models import split
from dovetail_model.adapter.lora import LoRA, linears
from dovetail_model.model.decoder import Decoder

DORA = {"weight_decomposed": True}
DORA_NF4 = DORA | {"quantise_base": "nf4"}
TOKENS = jnp.array([[3, 1, 4, 1, 5, 9, 2, 6]])


def decoder(**sizes):
    sizes = {"width": 32, "layers": 1, "heads": 4, "kv_heads": 2, "ffn": 48, "init_std": 0.2} | sizes
    return Decoder(**sizes).make(11, rngs=nnx.Rngs(0))


def compute(model):
    return model.logits(model(TOKENS, jnp.ones_like(TOKENS, bool))[0])


logits = nnx.jit(compute)


def train_once(model):
    """Move the trained parameters a little down the gradient of some loss; return the model then, and its weights."""
    graphdef, weights = split(model)

    @jax.jit
    def step(trained, frozen):
        def loss(trained):
            return -jnp.sum(jax.nn.log_softmax(compute(nnx.merge(graphdef, trained, frozen)))[..., 7])

        return jax.tree.map(lambda leaf, gradient: leaf - 0.05 * gradient, trained, jax.grad(loss)(trained))

    trained = weights.trained
    for _ in range(3):  # at B = 0 the gradient of A is zero
        trained = step(trained, weights.frozen)
    return nnx.merge(graphdef, trained, weights.frozen), trained, weights


@pytest.fixture(scope="module")
def before():
    return logits(decoder())


@pytest.fixture(scope="module")
def run():
    """The adapted model, and what `train_once` makes of it."""
    model = LoRA(rank=4, alpha=2.0).apply(decoder(), rngs=nnx.Rngs(1))
    return model, *train_once(model)


def test_computes_what_the_model_computed_and_trains_the_adapter_alone(before, run):
    model, trained, moved, weights = run
    np.testing.assert_array_equal(logits(model), before)
    names = {path[-1] for path, _ in nnx.to_flat_state(weights.trained)}
    assert names == {"a", "b"}
    assert len(jax.tree.leaves(weights.trained)) == 2 * 7 * 1
    assert all(jnp.any(new != old) for new, old in zip(*map(jax.tree.leaves, (moved, weights.trained)), strict=True))
    assert jnp.max(jnp.abs(logits(trained) - before)) > 0.1


def test_the_reference_is_the_first_adapter_over_the_same_base(before, run):
    model, _, _, weights = run
    graphdef, _ = split(model)
    np.testing.assert_array_equal(logits(nnx.merge(graphdef, *weights)), before)


def test_merging_equals_the_adapter(run):
    _, model, _, _ = run
    plain = decoder()
    there = linears(model)
    for name, linear in linears(plain).items():
        linear.kernel[...] = there[name].merged()
        change = there[name].change
        by_hand = linear.kernel[...] - there[name].kernel[...]
        np.testing.assert_allclose(by_hand, 2.0 / 4 * change.a[...] @ change.b[...], atol=1e-6)
    np.testing.assert_allclose(logits(plain), logits(model), atol=1e-4)


def test_modules_are_chosen_by_their_whole_name():
    model = LoRA(rank=2, modules=r".*\.1\.self_attn\.(q|v)_proj").apply(decoder(layers=2), rngs=nnx.Rngs(0))
    adapted = {name for name, linear in linears(model).items() if linear.change is not None}
    assert adapted == {"model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}


def test_an_expression_that_matches_nothing_is_refused_with_the_names():
    with pytest.raises(ConfigError) as error:
        LoRA(modules="q_proj").apply(decoder(), rngs=nnx.Rngs(0))
    assert str(error.value) == (
        "adapter.lora.modules = 'q_proj' matches the full name of no module; there are model.layers.N.mlp.down_proj,"
        " model.layers.N.mlp.gate_proj, model.layers.N.mlp.up_proj, model.layers.N.self_attn.k_proj,"
        " model.layers.N.self_attn.o_proj, model.layers.N.self_attn.q_proj, model.layers.N.self_attn.v_proj, where N is the"
        " layer"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"modules": "("}, r"modules = '\(' is not a regular expression"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        LoRA(**settings)


@pytest.fixture(scope="module")
def dropping():
    """A model trained a little, whose adapter drops half of its inputs where it gets keys."""
    return train_once(LoRA(rank=4, dropout=0.5).apply(decoder(), rngs=nnx.Rngs(1)))[0]


@pytest.mark.slow
def test_dropout_belongs_to_each_token_s_key(dropping):
    tokens = jnp.concatenate([TOKENS, TOKENS, TOKENS[:, ::-1]])
    visible, keys = jnp.ones_like(tokens, bool), jax.random.split(jax.random.key(3), tokens.shape)
    hidden = nnx.jit(lambda model, *inputs, keys=None: model(*inputs, keys=keys)[0])
    dropped = hidden(dropping, tokens, visible, keys=keys)
    assert dropping.has_dropout
    assert not decoder().has_dropout
    assert jnp.max(jnp.abs(dropped[0] - dropped[1])) > 0.05
    alone = hidden(dropping, tokens[1:2], visible[1:2], keys=keys[1:2])
    np.testing.assert_allclose(alone[0], dropped[1], atol=1e-5)


def test_what_is_left_is_scaled_up(dropping):
    change = linears(dropping)["model.layers.0.mlp.up_proj"].change
    x = jnp.ones((1, 32))
    many = jax.vmap(lambda key: change(x, key[None]))(jax.random.split(jax.random.key(0), 4000))
    error = 5 * jnp.std(many, axis=0) / 4000**0.5
    assert jnp.all(jnp.abs(jnp.mean(many, axis=0) - change(x)) < error)
    assert jnp.all(jnp.std(many, axis=0) > 0)


def test_another_package_s_model_is_refused():
    with pytest.raises(ConfigError, match="Linear is not a decoder of dovetail_model"):
        LoRA().apply(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))


@pytest.mark.slow
@pytest.mark.parametrize(("quantised", "error"), [("int8", 0.02), ("nf4", 0.25)])
def test_a_quantised_base_is_near_and_trains(quantised, error, before):
    model = LoRA(rank=4, quantise_base=quantised).apply(decoder(), rngs=nnx.Rngs(1))
    near = logits(model)
    assert jnp.mean(jnp.abs(near - before)) < error * jnp.mean(jnp.abs(before))
    trained, moved, weights = train_once(model)
    assert all(jnp.any(new != old) for new, old in zip(*map(jax.tree.leaves, (moved, weights.trained)), strict=True))
    assert jnp.max(jnp.abs(logits(trained) - near)) > 0.1
    merged = [linear.merged() for linear in linears(trained).values()]
    assert all(matrix.dtype == jnp.float32 for matrix in merged)


@pytest.mark.parametrize("settings", [{}, {"quantise_base": "int8"}, {"quantise_base": "nf4"}, DORA, DORA_NF4], ids=str)
def test_an_abstract_model_can_be_adapted(settings):
    adapter, maker = LoRA(rank=4, **settings), Decoder(width=32, layers=1, heads=4, kv_heads=2)
    abstract = nnx.eval_shape(lambda model: adapter.apply(model, rngs=nnx.Rngs(0)), maker.abstract(11))
    made = adapter.apply(maker.make(11, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), split(each)[1]) for each in (abstract, made)]
    assert shapes[0] == shapes[1]


def test_axes_are_those_of_the_matrix():
    model = LoRA(rank=2, **DORA_NF4).apply(decoder(), rngs=nnx.Rngs(0))
    for path, parameter in nnx.to_flat_state(nnx.state(model)):
        assert len(parameter.axes) == parameter.ndim, path
    down = model.blocks[0].ffn.down
    assert (down.change.a.axes, down.change.b.axes, down.kernel.codes.axes) == (
        ("ffn", None),
        (None, "width"),
        ("ffn", "width"),
    )
    assert (down.change.growth.axes, model.blocks[0].ffn.up.change.growth.axes) == (("width",), ("ffn",))


def test_is_registered():
    component = dovetail.get("adapter", "lora")
    same = {"rank": 64, "alpha": 64.0, "modules": ".*", "quantise_base": None, "dropout": 0.0}
    assert component.params == same | {"rank_stabilized": False, "weight_decomposed": False}
    assert component.bind(rank=8) == LoRA(rank=8)


@pytest.mark.parametrize(("stabilized", "scale"), [(False, 0.5), (True, 1.0)])
def test_the_scale_is_alpha_over_the_rank_or_its_root(stabilized, scale):
    model = LoRA(rank=4, alpha=2.0, rank_stabilized=stabilized).apply(decoder(), rngs=nnx.Rngs(0))
    assert {linear.change.scale for linear in linears(model).values()} == {scale}


@pytest.fixture(scope="module")
def decomposed():
    """A model with magnitudes, and what `train_once` makes of it."""
    model = LoRA(rank=4, alpha=2.0, weight_decomposed=True).apply(decoder(), rngs=nnx.Rngs(1))
    return model, *train_once(model)


def test_magnitudes_are_trained_beside_the_factors(before, decomposed):
    model, trained, moved, weights = decomposed
    np.testing.assert_array_equal(logits(model), before)
    assert {path[-1] for path, _ in nnx.to_flat_state(weights.trained)} == {"a", "b", "growth"}
    assert all(jnp.any(new != old) for new, old in zip(*map(jax.tree.leaves, (moved, weights.trained)), strict=True))
    assert jnp.max(jnp.abs(logits(trained) - before)) > 0.1


def test_the_reference_of_magnitudes_is_the_base(before, decomposed):
    model, _, _, weights = decomposed
    graphdef, _ = split(model)
    np.testing.assert_array_equal(logits(nnx.merge(graphdef, *weights)), before)


def test_merged_magnitudes_compute_the_same(decomposed):
    _, model, _, _ = decomposed
    plain = decoder()
    for name, linear in linears(plain).items():
        linear.kernel[...] = linears(model)[name].merged()
    np.testing.assert_allclose(logits(plain), logits(model), atol=1e-4)


def test_without_moving_magnitudes_and_factors_nothing_is_lost_in_merging():
    model = LoRA(rank=4, weight_decomposed=True).apply(decoder(), rngs=nnx.Rngs(1))
    for linear in linears(model).values():
        np.testing.assert_array_equal(linear.merged(), linear.kernel[...])
        assert linear.rounding() == (0, 0)


@pytest.mark.parametrize("quantised", ["int8", "nf4"])
def test_magnitudes_of_a_quantised_base_begin_as_those_of_its_quantised_weights(quantised):
    plain = LoRA(rank=4, quantise_base=quantised).apply(decoder(), rngs=nnx.Rngs(1))
    model = LoRA(rank=4, quantise_base=quantised, weight_decomposed=True).apply(decoder(), rngs=nnx.Rngs(1))
    np.testing.assert_array_equal(logits(model), logits(plain))


def test_a_critic_that_takes_the_policy_s_base_has_magnitudes_of_it():
    """`critic.init_from_policy` replaces the base of a model that is adapted already."""
    policy, critic = decoder(), LoRA(rank=4, weight_decomposed=True).apply(decoder(init_std=0.5), rngs=nnx.Rngs(1))
    nnx.update(critic, nnx.state(policy))
    np.testing.assert_array_equal(logits(critic), logits(policy))


@pytest.mark.slow
def test_a_run_with_magnitudes_learns(tmp_path):
    adapter = ("train.adapter=lora", "adapter.lora.rank=4", "adapter.lora.weight_decomposed=True")
    warm_start = ("sft.steps=60", "sft.batch_size=16", "sft.lr=1e-2", "sft.lr_schedule=constant")
    shape = ("model.decoder.init_std=0.7", "train.steps=2", "train.kl_coef=0.1", "eval.every=None")
    train(load(None, [*TINY, *adapter, *warm_start, *shape]), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = [line["sft/loss"] for line in lines if "sft/loss" in line]
    assert np.mean(losses[:5]) - np.mean(losses[-5:]) > 4
    kl = [line["kl/mean"] for line in lines if "kl/mean" in line]
    assert kl[0] == 0
    assert kl[1] > 0.01
