import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dovetail_model.layers.mixture import Mixture, Sparsity

WIDTH, EXPERTS = 6, 5


def layer(normalised, chosen):
    sparsity = Sparsity(experts=EXPERTS, chosen=chosen, ffn=4, normalised=normalised, layers=(0,))
    sizes = {"std": 0.5, "out_std": 0.5, "param_dtype": "float32"}
    return Mixture(WIDTH, sparsity, activation="silu", **sizes, rngs=nnx.Rngs(0))


def dense(layer, x):
    """Every expert on every token, weighted by zero where it is not chosen."""
    p = jax.nn.softmax(x @ layer.router[...].T)
    cut = jnp.sort(p, axis=1)[:, -layer.sparsity.chosen, None]
    weights = jnp.where(p >= cut, p, 0.0)
    if layer.sparsity.normalised:
        weights = weights / weights.sum(axis=1, keepdims=True)
    gate, up, down = (each.kernel[...] for each in (layer.experts.gate, layer.experts.up, layer.experts.down))
    outputs = [(jax.nn.silu(x @ gate[e]) * (x @ up[e])) @ down[e] for e in range(EXPERTS)]
    return sum(weights[:, e, None] * outputs[e] for e in range(EXPERTS))


@pytest.mark.parametrize(("normalised", "chosen"), [(True, 2), (False, 2), (True, EXPERTS), (False, 1)])
def test_values_and_gradients_are_those_of_every_expert_on_every_token(normalised, chosen):
    model, x = layer(normalised, chosen), jax.random.normal(jax.random.key(1), (40, WIDTH))

    def loss(function):
        return nnx.jit(nnx.value_and_grad(lambda model, x: jnp.sum(jnp.sin(function(model, x))), argnums=(0, 1)))

    ours, theirs = loss(lambda model, x: model(x)[0])(model, x), loss(dense)(model, x)
    assert jnp.abs(theirs[1][1]).max() > 0.1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4), ours, theirs)


def test_no_token_is_dropped_when_all_choose_the_same_experts():
    model = layer(normalised=True, chosen=2)
    x = jnp.tile(jax.random.normal(jax.random.key(1), (1, WIDTH)), (33, 1))
    np.testing.assert_allclose(model(x)[0], jnp.tile(dense(model, x[:1]), (33, 1)), atol=1e-5)


@pytest.mark.parametrize(("normalised", "chosen"), [(True, 2), (False, 2)])
def test_given_experts_are_used_with_the_weights_that_the_router_gives_them(normalised, chosen):
    model, x = layer(normalised, chosen), jax.random.normal(jax.random.key(1), (9, WIDTH))
    given = jnp.array([[4, 1], [0, 2], [-1, -1]] * 3)

    def by_hand(model, x):
        p = jax.nn.softmax(x @ model.router[...].T)
        experts = jnp.where(given < 0, jax.lax.top_k(p, chosen)[1], given)
        weights = p[jnp.arange(len(x))[:, None], experts]
        if normalised:
            weights = weights / weights.sum(axis=1, keepdims=True)
        gate, up, down = (each.kernel[...] for each in (model.experts.gate, model.experts.up, model.experts.down))
        every = [(jax.nn.silu(x @ gate[e]) * (x @ up[e])) @ down[e] for e in range(EXPERTS)]
        return jnp.einsum("rc,rcw->rw", weights, jnp.stack(every, 1)[jnp.arange(len(x))[:, None], experts])

    def loss(function):
        return nnx.jit(nnx.value_and_grad(lambda model, x: jnp.sum(jnp.sin(function(model, x))), argnums=(0, 1)))

    ours, theirs = loss(lambda model, x: model(x, given)[0])(model, x), loss(by_hand)(model, x)
    assert jnp.abs(theirs[1][0]["router"][...]).max() > 0.01, "gradients reach the router through the weights"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4), ours, theirs)


def test_the_routers_own_experts_given_back_change_nothing():
    model, x = layer(normalised=True, chosen=2), jax.random.normal(jax.random.key(1), (9, WIDTH))
    y, own = model(x)
    again, agreed = model(x, own)
    np.testing.assert_array_equal(again, y)
    np.testing.assert_array_equal(agreed, own)
    other = own.at[0].set((own[0] + 1) % EXPERTS).at[1].set(own[1, ::-1]).at[2].set(-1)
    _, agreed = model(x, other)
    np.testing.assert_array_equal(agreed[0], jnp.where(jnp.isin(other[0], own[0]), other[0], -1))
    np.testing.assert_array_equal(agreed[1:], other[1:].at[1].set(own[2]))
