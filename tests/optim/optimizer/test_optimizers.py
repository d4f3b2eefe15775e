"""What every optimizer does with the parameters of a model: matrices, vectors, tables, factors of an adapter."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dovetail
from dovetail.config import load
from dovetail.devices.mesh import Devices

NAMES = dovetail.names("optimizer")
DECAYING = tuple(name for name in NAMES if "weight_decay" in dovetail.get("optimizer", name).params)
MATRICES = {"embedding", "kernel", "experts", "a", "b"}
VECTORS = {"bias", "scale", "stacked_norm", "stacked_bias"}


class Norm(nnx.Module):
    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.ones(width))


class Model(nnx.Module):
    """One parameter of each sort."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        def normal(*shape: int) -> jax.Array:
            return jax.random.normal(rngs.params(), shape)

        self.embedding = nnx.Param(normal(8, 4), axes=("vocab", "width"))
        self.kernel = nnx.Param(normal(4, 6), axes=("width", "ffn"))
        self.experts = nnx.Param(normal(3, 4, 6))
        self.bias = nnx.Param(normal(6))
        self.norm = Norm(4)
        self.stacked_norm = nnx.Param(normal(2, 4))
        self.stacked = nnx.Dict(bias=nnx.Param(normal(2, 6)))
        self.a, self.b = nnx.LoRAParam(normal(4, 2)), nnx.LoRAParam(normal(2, 6))


def parameters() -> nnx.State:
    return nnx.state(Model(nnx.Rngs(0)))


def named(state: Any) -> dict[str, np.ndarray]:
    """Return arrays by the name that this file gives them."""
    found = {}
    for path, array in jax.tree_util.tree_leaves_with_path(state):
        words = jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value").split("/")
        found["stacked_bias" if words[0] == "stacked" else words[-1]] = np.asarray(array)
    assert set(found) == MATRICES | VECTORS
    return found


def bound(name: str, rate: Any, **params: Any) -> optax.GradientTransformation:
    return dovetail.get("optimizer", name).bind(**params)(rate)


def updated(name: str, params: Any, gradient: Any, rate: float = 0.1, **settings: Any) -> Any:
    optimizer = bound(name, rate, **settings)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    return optax.apply_updates(params, updates)


def test_these_are_there() -> None:
    assert set(NAMES) >= {"adafactor", "adamw", "lion", "muon", "sgd"}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_trained_with_one_executable_for_all_numbers(name: str) -> None:
    component, params = dovetail.get("optimizer", name), parameters()
    floats = {key: value for key, value in component.params.items() if isinstance(value, float)}
    traced = []

    @jax.jit
    def train(params: Any, rate: Any, floats: Any) -> Any:
        traced.append(rate)
        optimizer = component.bind(**floats)(rate)

        def step(carry: Any, _: None) -> Any:
            params, state = carry
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimizer.update(jax.grad(loss)(params), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), None, length=40)[0]

    def loss(params: Any) -> jax.Array:
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(params))

    trained, state = train(params, jnp.float32(0.02), jax.tree.map(jnp.float32, floats))
    train(params, jnp.float32(0.01), jax.tree.map(lambda x: jnp.float32(0.9 * x), floats))
    assert len(traced) == 1
    assert jax.tree.structure(trained) == jax.tree.structure(params)
    for key, before in named(params).items():
        assert np.sum(named(trained)[key] ** 2) < np.sum(before**2), key
    assert all(isinstance(x, jax.Array) and jnp.isfinite(x).all() for x in jax.tree.leaves(state))


@pytest.mark.parametrize("name", NAMES)
def test_no_learning_rate_no_update(name: str) -> None:
    params = parameters()
    settings = {"weight_decay": 0.1} if name in DECAYING else {}
    after = updated(name, params, params, rate=0.0, **settings)
    for key, before in named(params).items():
        np.testing.assert_array_equal(named(after)[key], before, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_its_state_can_be_measured_and_put_back(name: str) -> None:
    """A planner counts its bytes without allocating it; a checkpoint is made of its arrays."""
    params = parameters()
    optimizer = bound(name, 0.1)
    shapes = jax.eval_shape(optimizer.init, params)
    config = load(None, ["train.steps=1"])
    assert Devices.abstract(config.mesh).bytes(shapes) == sum(
        math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(shapes)
    )
    with jax.numpy_dtype_promotion("standard"):
        _, state = optimizer.update(params, optimizer.init(params), params)
        leaves, structure = jax.tree.flatten(state)
        again = jax.tree.unflatten(structure, [jnp.asarray(np.asarray(x)) for x in leaves])
        expected, _ = optimizer.update(params, state, params)
        found, _ = optimizer.update(params, again, params)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_all_but_plain_descent_decay_weights() -> None:
    assert set(NAMES) - set(DECAYING) == {"sgd"}


@pytest.mark.parametrize("name", DECAYING)
@pytest.mark.parametrize("decay", ["matrices", "all"])
def test_only_matrices_decay_unless_all_are_to(name: str, decay: str) -> None:
    params = parameters()
    nothing = jax.tree.map(jnp.zeros_like, params)
    settings = {} if decay == "matrices" else {"decay": decay}
    after = named(updated(name, params, nothing, weight_decay=0.5, **settings))
    for key, before in named(params).items():
        decayed = key in MATRICES or decay == "all"
        np.testing.assert_allclose(after[key], (1 - 0.1 * 0.5 * decayed) * before, rtol=1e-6, atol=1e-6, err_msg=key)


def test_nothing_decays_by_default() -> None:
    assert {dovetail.get("optimizer", name).params["weight_decay"] for name in DECAYING} == {0.0}


@pytest.mark.parametrize("name", ["adamw", "lion", "muon"])
def test_the_mean_of_the_gradient_can_be_kept_in_half_precision(name: str) -> None:
    def held(**settings: Any) -> int:
        state = jax.eval_shape(bound(name, 0.1, **settings).init, parameters())
        return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(state))

    elements = sum(x.size for x in jax.tree.leaves(parameters()))
    assert held() - held(mu_dtype="bfloat16") == 2 * elements
    after, exact = (
        named(updated(name, parameters(), parameters(), **settings)) for settings in ({"mu_dtype": "bfloat16"}, {})
    )
    for key, expected in exact.items():
        np.testing.assert_allclose(after[key], expected, atol=0.05, err_msg=key)


def test_lion_steps_by_the_sign() -> None:
    params = parameters()
    before, after = named(params), named(updated("lion", params, params))
    for key in before:
        np.testing.assert_allclose(after[key], before[key] - 0.1 * np.sign(before[key]), rtol=1e-6, atol=1e-6)


def test_adafactor_keeps_rows_and_columns_in_place_of_matrices() -> None:
    params = {"kernel": jnp.ones((200, 300)), "bias": jnp.ones(300), "small": jnp.ones((20, 30))}
    sizes = [x.size for x in jax.tree.leaves(bound("adafactor", 0.1).init(params))]
    assert sum(sizes) < 200 + 300 + 300 + 20 * 30 + 10
    assert sum(x.size for x in jax.tree.leaves(bound("adafactor", 0.1, momentum=0.9).init(params))) > 200 * 300


def test_adafactor_moves_by_the_learning_rate_whatever_the_size_of_the_parameters() -> None:
    params = {"w": 1e-3 * jnp.ones((4, 4))}
    np.testing.assert_allclose(updated("adafactor", params, params)["w"], params["w"] - 0.1, rtol=1e-5)
    relative = updated("adafactor", params, params, scale_by_parameter=True)["w"]
    np.testing.assert_allclose(relative, params["w"] * (1 - 0.1), rtol=1e-5)


def test_muon_makes_the_updates_of_matrices_nearly_orthogonal() -> None:
    params = parameters()
    before, after = named(params), named(updated("muon", params, params, consistent_rms=None))
    for key in ("kernel", "a", "b", "experts"):
        moved = (before[key] - after[key]).reshape(-1, *before[key].shape[-2:])
        for matrix in moved / (0.1 * math.sqrt(max(1, moved.shape[2] / moved.shape[1]))):
            values = np.linalg.svd(matrix, compute_uv=False)
            assert (values > 0.5).all(), (key, values)
            assert (values < 1.5).all(), (key, values)


def test_muon_gives_everything_else_to_adam() -> None:
    params = parameters()
    muon, adamw = named(updated("muon", params, params)), named(updated("adamw", params, params))
    for key in {"embedding"} | VECTORS:
        np.testing.assert_allclose(muon[key], adamw[key], rtol=1e-6, err_msg=key)
    assert not np.allclose(muon["kernel"], adamw["kernel"], rtol=1e-2)


@pytest.mark.parametrize("shape", [(64, 64), (64, 256), (512, 64)])
def test_a_step_of_muon_is_as_long_as_one_of_adam(shape: tuple[int, int]) -> None:
    """So that both parts of a model, and configs written for adamw, may have one learning rate."""
    params = {"kernel": jax.random.normal(jax.random.key(0), shape)}
    moved = (updated("muon", params, params)["kernel"] - params["kernel"]) / 0.1
    assert 0.12 < float(jnp.sqrt(jnp.mean(moved**2))) < 0.28
