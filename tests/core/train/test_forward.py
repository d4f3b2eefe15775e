"""Forward passes: a shared prompt read once, gradients in closed form, logits in chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.core.train.test_update import make, sampled

import dovetail
from dovetail import fields
from dovetail.config import load
from dovetail.protocols import Weights
from dovetail.train.forward import ValueModel, quantities, values
from dovetail.train.models import split
from dovetail.train.parts import masked_sum

WANTED = {name: dovetail.get("field", name) for name in ("logps", "entropy", "sum_pi_squared")}


def loss_and_gradient(graphdef, weights, batch, rows_per_prompt):
    def loss(trained):
        found = quantities(
            graphdef, Weights(trained, weights.frozen), batch, WANTED, jnp.float32(0.7), None, rows_per_prompt
        )
        mask = batch["mask"].astype(jnp.float32)
        return sum(masked_sum(mask * factor, value) for factor, value in enumerate(found.values(), 1)), found

    return jax.jit(jax.value_and_grad(loss, has_aux=True))(weights.trained)


def assert_close(left, right, tolerance=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), left, right)


@pytest.mark.parametrize("rows_per_prompt", [2, 4])
def test_a_shared_prompt_changes_neither_loss_nor_gradient(rows_per_prompt):
    _, graphdef, weights = make("model.decoder.layers=2")
    batch = sampled()
    assert not batch["prompt_mask"].all(), "prompts are padded"
    (plain_loss, plain), plain_gradient = loss_and_gradient(graphdef, weights, batch, 1)
    (loss, found), gradient = loss_and_gradient(graphdef, weights, batch, rows_per_prompt)
    assert_close(loss, plain_loss)
    assert_close(found, plain)
    assert_close(gradient, plain_gradient)


@pytest.mark.slow
def test_the_critic_reads_a_shared_prompt_once_too():
    _, graphdef, weights = make()
    critic = ValueModel(nnx.merge(graphdef, *weights), 16)
    critic.weight[...] = jnp.linspace(-1.0, 1.0, 16)
    graphdef, weights = split(critic)
    assert_close(values(graphdef, weights, sampled(), 4), values(graphdef, weights, sampled()))


def test_completions_of_one_token():
    _, graphdef, weights = make()
    batch = sampled(token=1)
    (_, plain), plain_gradient = loss_and_gradient(graphdef, weights, batch, 1)
    (_, found), gradient = loss_and_gradient(graphdef, weights, batch, 4)
    assert_close((found, gradient), (plain, plain_gradient))


@pytest.mark.parametrize("name", ["logps", "entropy"])
def test_written_out_gradients_are_those_of_the_formula(name):
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        logits, tokens = jnp.asarray(rng.normal(size=(3, 2, 7))), jnp.asarray(rng.integers(0, 7, (3, 2)))
        weights = jnp.asarray(rng.normal(size=(3, 2)))

        def by_formula(z):
            table = jax.nn.log_softmax(z)
            if name == "logps":
                return jnp.sum(weights * jnp.take_along_axis(table, tokens[..., None], -1)[..., 0])
            return -jnp.sum(weights * jnp.sum(jnp.exp(table) * table, -1))

        def shipped(z):
            return jnp.sum(weights * (fields.logps(z, tokens) if name == "logps" else fields.entropy(z)))

        np.testing.assert_allclose(shipped(logits), by_formula(logits), rtol=1e-12)
        np.testing.assert_allclose(jax.grad(shipped)(logits), jax.grad(by_formula)(logits), rtol=1e-9, atol=1e-12)


def test_unlikely_tokens_have_finite_gradients():
    logits = jnp.array([[0.0, -1e4, 1e4]])
    for token in range(3):
        assert jnp.isfinite(jax.grad(lambda z, t=token: fields.logps(z, jnp.array([t]))[0])(logits)).all()
    np.testing.assert_array_equal(jax.grad(lambda z: fields.entropy(z)[0])(logits), np.zeros((1, 3)))


def test_no_logits_of_a_whole_batch_at_a_vocabulary_of_152_000():
    """Compiled, not run: the peak of an update is far below one [seq, token, vocab] array of float32."""
    vocab, rows, token = 152_000, 16, 64
    config = load(
        None, ["model.decoder.width=16", "model.decoder.layers=1", "model.decoder.heads=1", "model.decoder.kv_heads=1"]
    )
    maker = config.choice("train.model").bind()
    graphdef, weights = split(nnx.eval_shape(lambda: maker.make(vocab, rngs=nnx.Rngs(0))))
    shapes = {
        "prompt_tokens": jax.ShapeDtypeStruct((rows, 8), jnp.int32),
        "prompt_mask": jax.ShapeDtypeStruct((rows, 8), bool),
        "tokens": jax.ShapeDtypeStruct((rows, token), jnp.int32),
    }

    def loss(trained, batch):
        found = quantities(graphdef, Weights(trained, weights.frozen), batch, WANTED, jnp.float32(1), None, 8)
        return sum(jnp.sum(value) for value in found.values())

    memory = jax.jit(jax.value_and_grad(loss)).lower(weights.trained, shapes).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.5 * (4 * rows * token * vocab)
