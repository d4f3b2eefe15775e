"""Gradients of a mini-batch, accumulated over micro-batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import PluginError
from dovetail.step.algorithm import assemble
from dovetail.step.gradients import accumulate

WIDTH = 64


def loss_fn(params, micro):
    """A weighted sum, with activations large enough to be seen in the memory of a compiled program."""
    hidden = jnp.tanh(micro["tokens"].astype(jnp.float32)[..., None] * params["up"].reshape(1, 1, -1))
    predicted = jnp.tanh(hidden) @ params["down"]
    loss = jnp.sum(micro["weights"] * predicted)
    return loss, {"loss/sum": (loss, jnp.sum(micro["weights"]))}


def params():
    rng = np.random.default_rng(0)
    return {name: jnp.asarray(rng.normal(size=WIDTH), jnp.float32) for name in ("up", "down")}


def batch(rows=12, token=5):
    rng = np.random.default_rng(1)
    return {
        "tokens": jnp.asarray(rng.integers(0, 9, (rows, token)), jnp.int32),
        "weights": jnp.asarray(rng.random((rows, token)), jnp.float32),
    }


@pytest.mark.parametrize("size", [1, 4, 5, 12, 100])
def test_the_split_changes_nothing(size):
    """This includes a ragged last micro-batch, which is padded with rows of weight zero."""
    (loss, metrics), gradient = jax.value_and_grad(loss_fn, has_aux=True)(params(), batch())
    found_gradient, found_loss, found = accumulate(loss_fn, params(), batch(), size)
    np.testing.assert_allclose(found_loss, loss, rtol=1e-5)
    for both in (zip(found["loss/sum"], metrics["loss/sum"], strict=True), ((found_gradient, gradient),)):
        for one, other in both:
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), one, other)


def test_a_sum_of_bfloat16_gradients_is_float32():
    """In bfloat16 a sum of ones ends at 256, where the next number is 258."""
    ones = {"tokens": jnp.ones((1000, 1), jnp.int32), "weights": jnp.ones((1000, 1))}

    def loss(params, micro):
        return jnp.sum(micro["weights"]) * params["w"][0].astype(jnp.float32), {}

    gradient, _, _ = jax.jit(lambda: accumulate(loss, {"w": jnp.ones(1, jnp.bfloat16)}, ones, 1))()
    assert gradient["w"].dtype == jnp.float32
    assert gradient["w"][0] == 1000


@pytest.mark.parametrize("name", ["adamw", "adafactor", "lion", "muon", "sgd"])
def test_small_steps_of_bfloat16_parameters_add_up(name):
    """A hundred clipped steps, each at most an eighth of the distance between neighbouring numbers."""
    algorithm = assemble(load(None, [f"train.optimizer={name}", "train.lr=2e-4", "train.lr_schedule=constant"]))
    optimiser, params = algorithm.optimisers["train"], {"w": jnp.ones((2, 2), jnp.bfloat16), "head": jnp.ones(2)}
    gradients = jax.tree.map(lambda x: jnp.full(x.shape, 9.0), params)

    @jax.jit
    def step(params, state):
        return optimiser.apply(params, state, gradients, jnp.int32(0), jnp.int32(100), algorithm.hyper)[:2]

    state, alone = optimiser.init(params), jax.tree.map(lambda x: x.astype(jnp.float32), params)
    plain = optimiser.init(alone)
    for _ in range(100):
        params, state = step(params, state)
        alone, plain = step(alone, plain)
    assert params["w"].dtype == jnp.bfloat16
    assert float(jnp.max(alone["w"])) < 0.999
    np.testing.assert_allclose(params["w"].astype(jnp.float32), alone["w"], rtol=2**-8)
    np.testing.assert_allclose(params["head"], alone["head"], rtol=1e-6)


def nothing(learning_rate):
    """An optimizer that forgets to return one."""


def vector(step, total_steps):
    """A schedule that does not give one number."""
    return jnp.array([1.0, 2.0])


def words(step, total_steps):
    """A schedule that does not give a number."""
    return "half"


def share_left(step, total_steps):
    """A schedule that has no answer for a run without steps."""
    return 1.0 - step / total_steps


def test_a_schedule_is_not_asked_about_a_run_without_steps():
    dovetail.register("lr_schedule", "share_left", share_left)
    algorithm = assemble(load(None, ["train.lr_schedule=share_left"]))
    for total in (0, 1, 2):
        algorithm.optimisers["train"].see_course(total, algorithm.hyper)


@pytest.mark.parametrize(
    ("kind", "target", "said"),
    [
        ("optimizer", nothing, r"returned None; return an optax\.GradientTransformation"),
        ("lr_schedule", vector, r"returned the shape \(2,\); return one number, by which train\.lr is multiplied"),
        ("lr_schedule", words, r"raised ValueError: could not convert string to float: .half."),
    ],
)
def test_what_an_author_returns_in_place_of_an_optimizer_or_a_factor_is_named(kind, target, said):
    dovetail.register(kind, target.__name__, target)
    algorithm = assemble(load(None, [f"train.{kind}={target.__name__}"]))
    optimiser, params = algorithm.optimisers["train"], {"w": jnp.ones(2)}
    place = r" \[.*test_gradients\.py:\d+\]"
    with pytest.raises(PluginError, match=rf"^{kind}\.{target.__name__} of \S+ \S+ \(\S+\) {said}{place}$"):
        optimiser.apply(params, optimiser.init(params), params, jnp.int32(0), jnp.int32(9), algorithm.hyper)


def peak(rows, size):
    shapes = {"tokens": jax.ShapeDtypeStruct((rows, 32), jnp.int32), "weights": jax.ShapeDtypeStruct((rows, 32), "f4")}
    compiled = jax.jit(lambda p, b: accumulate(loss_fn, p, b, size)).lower(params(), shapes).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_memory_grows_with_the_micro_batch_not_with_the_mini_batch():
    assert peak(rows=128, size=32) > 3 * peak(rows=128, size=8)
    assert peak(rows=512, size=8) < 1.5 * peak(rows=128, size=8) + 512 * 32 * 8  # and the batch itself
