"""Forward passes: a shared prompt read once, gradients in closed form, logits in chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.core.step.test_update import evaluate, make, sampled
from tests.core.step.test_update import fields as parts

import dovetail
from dovetail.config import load
from dovetail.errors import PluginError
from dovetail.field.entropy import entropy
from dovetail.field.logps import logps
from dovetail.protocols import Weights
from dovetail.step.forward import Model, ValueModel, quantities, values
from dovetail.step.parts import masked_sum
from dovetail.training.models import split

WANTED = parts("logps", "entropy", "sum_pi_squared")


def loss_and_gradient(graphdef, weights, batch, rows_per_prompt):
    def loss(trained):
        model = Weights(trained, weights.frozen)
        found = evaluate(graphdef, model, batch, WANTED, 0.7, rows_per_prompt=rows_per_prompt)
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
            return jnp.sum(weights * (logps(z, tokens) if name == "logps" else entropy(z)))

        np.testing.assert_allclose(shipped(logits), by_formula(logits), rtol=1e-12)
        np.testing.assert_allclose(jax.grad(shipped)(logits), jax.grad(by_formula)(logits), rtol=1e-9, atol=1e-12)


def test_unlikely_tokens_have_finite_gradients():
    logits = jnp.array([[0.0, -1e4, 1e4]])
    for token in range(3):
        assert jnp.isfinite(jax.grad(lambda z, t=token: logps(z, jnp.array([t]))[0])(logits)).all()
    np.testing.assert_array_equal(jax.grad(lambda z: entropy(z)[0])(logits), np.zeros((1, 3)))


def test_no_logits_of_a_whole_batch_at_a_vocabulary_of_152_000():
    """The update is only compiled: its peak memory is far below a float32 array of [seq, token, vocab]."""
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
        found = evaluate(graphdef, Weights(trained, weights.frozen), batch, WANTED, 1.0, rows_per_prompt=8)
        return sum(jnp.sum(value) for value in found.values())

    memory = jax.jit(jax.value_and_grad(loss)).lower(weights.trained, shapes).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.5 * (4 * rows * token * vocab)


# --- what components of fields are given, and what they may return


def tail_mass(logits, tokens, *, threshold: float = -1.0):
    """Share of the vocabulary whose log-probability is below a threshold, with a metric."""
    table = jax.nn.log_softmax(logits)
    return jnp.mean((table < threshold).astype(jnp.float32), axis=-1), {"threshold": threshold, "logit": logits[..., 0]}


def pooled_length(hidden_states, mask, *, factor: float = 1.0):
    """A field with one number for each completion."""
    return factor * jnp.sum(mask, axis=-1, dtype=jnp.float32), {"factor": factor}


def registered(function):
    """Register a field and return it as a part."""
    dovetail.register("field", function.__name__, function)
    return parts(function.__name__)


@pytest.mark.parametrize("threshold", [-3.3, -3.1])  # around that of even odds, -log 23
def test_hyperparameters_of_a_field_take_effect_in_the_forward_pass(threshold):
    _, graphdef, weights = make()
    batch, wanted = sampled(), registered(tail_mass)
    model = Model(graphdef=graphdef, weights=weights)
    hyper = {"field.tail_mass": {"threshold": jnp.float32(threshold)}}
    found = quantities(model, batch, wanted, jnp.float32(1), hyper)
    merged = nnx.merge(graphdef, *weights)
    tokens = jnp.concatenate([batch["prompt_tokens"], batch["tokens"]], axis=1)
    visible = jnp.concatenate([batch["prompt_mask"], jnp.ones((12, 5), bool)], axis=1)
    table = jax.nn.log_softmax(merged.logits(merged(tokens, visible)[0])[:, 2:-1])
    expected = np.mean(np.asarray(table) < threshold, axis=-1)
    assert 0 < expected.mean() < 1, "the threshold decides something"
    np.testing.assert_allclose(found["tail_mass"], expected, atol=1e-6)
    np.testing.assert_allclose(found["tail_mass/threshold"], np.full((12, 5), threshold))


def test_metrics_of_a_field_are_as_those_of_other_components():
    """A field of logits has one metric per position, also if logits are computed in chunks; other fields may have any."""
    _, graphdef, weights = make()
    wanted = registered(tail_mass) | registered(pooled_length)
    hyper = {"field.pooled_length": {"factor": jnp.float32(2)}}
    model = Model(graphdef=graphdef, weights=weights)
    found = quantities(model, sampled(), wanted, jnp.float32(1), hyper)
    assert {"tail_mass/logit", "tail_mass/threshold", "pooled_length/factor"} <= found.keys()
    assert found["tail_mass/logit"].shape == (12, 5)
    np.testing.assert_array_equal(found["pooled_length"], 2.0 * np.asarray(sampled()["mask"]).sum(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.step.forward.LOGITS_PER_CHUNK", 23 * 7)
        assert_close(quantities(model, sampled(), wanted, jnp.float32(1), hyper), found)


def test_chunks_add_up_the_gradient_of_a_bfloat16_head_in_float32(monkeypatch):
    """All rows are the same text: a bfloat16 sum of the gradients of 600 equal chunks would stop growing."""
    _, graphdef, weights = make("model.decoder.param_dtype=bfloat16", "model.decoder.init_std=0.5")
    batch = {name: jnp.repeat(array[:1], 600, axis=0) for name, array in sampled().items()}
    batch["draw_ids"] = jnp.arange(600, dtype=jnp.int32)

    def gradient(chunk):
        monkeypatch.setattr("dovetail.step.forward.LOGITS_PER_CHUNK", chunk)

        def loss(trained):
            model = Model(graphdef, Weights(trained, weights.frozen))
            found = quantities(model, batch, WANTED, jnp.float32(1), {}, dropout=jax.random.key(0))
            return jnp.sum(found["logps"])

        found = nnx.to_flat_state(jax.jit(jax.grad(loss))(weights.trained))
        return np.asarray(dict(found)["embedding",].get_value(), np.float32)

    whole, chunks = gradient(1 << 24), gradient(23 * batch["tokens"].shape[1])
    np.testing.assert_allclose(chunks, whole, atol=0.01 * np.abs(whole).max())


def distances(logits):
    """Wrong: a vector for each position."""
    return logits


def summed(logits):
    """Wrong: one number for all positions."""
    return jnp.sum(logits)


@pytest.mark.parametrize(("function", "shape"), [(distances, r"\(60, 23\)"), (summed, r"\(\)")])
def test_a_field_that_reads_logits_returns_a_number_for_each_position(function, shape):
    _, graphdef, weights = make()
    message = (
        rf"field.{function.__name__} of session 0 .* returned {shape} for \(60,\) positions; .* one number for each"
    )
    with pytest.raises(PluginError, match=message):
        evaluate(graphdef, weights, sampled(), registered(function), 1.0)


def test_the_logits_of_another_model_are_read_beside_the_policy_s():
    def gap(logits, ref_logits):
        """Difference of two models' logits."""
        return logits[..., 0] - ref_logits[..., 0]

    def first_logit(logits):
        """Quantity of one model."""
        return logits[..., 0]

    _, graphdef, weights = make()
    away = jax.tree.map(lambda x: x * 1.1, weights)
    found = evaluate(
        graphdef,
        weights,
        sampled(),
        registered(gap),
        0.7,
        beside={"ref_logits": Model(graphdef, away)},
        rows_per_prompt=4,
    )
    wanted = registered(first_logit)
    mine, theirs = (evaluate(graphdef, each, sampled(), wanted, 0.7)["first_logit"] for each in (weights, away))
    assert np.abs(mine - theirs).max() > 1e-3
    np.testing.assert_allclose(found["gap"], mine - theirs, atol=1e-5)
