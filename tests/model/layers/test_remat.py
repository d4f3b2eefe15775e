"""What is computed again in the backward pass is not kept, on CPUs neither."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dovetail_model.layers.quantised import Quantised
from dovetail_model.layers.remat import recomputed, times, times_both

LAYERS, ROWS, WIDTH, INNER = 6, 64, 8, 512
SAVE_PRODUCTS = jax.checkpoint_policies.dots_saveable


def layer(params, x, shift, key):
    """Of numbers, integers and a key, as layers are."""
    drawn = jax.random.bernoulli(key, 0.9, (INNER,)).astype(jnp.float32)
    moved = jnp.roll(x, shift, axis=0)
    return x + jnp.sin(jnp.sin(moved @ params) * drawn[None]) @ params.T, {"shift": shift + 1}


def total(wrap, params, x):
    shift = jnp.int32(1)
    for number in range(LAYERS):
        x, found = wrap(layer)(params[number], x, shift, jax.random.key(number))
        shift = found["shift"]
    return jnp.sum(jnp.sin(x))


def compiled(wrap):
    shapes = jax.ShapeDtypeStruct((LAYERS, WIDTH, INNER), "f4"), jax.ShapeDtypeStruct((ROWS, WIDTH), "f4")
    return jax.jit(jax.value_and_grad(functools.partial(total, wrap), argnums=(0, 1))).lower(*shapes).compile()


@pytest.mark.parametrize("policy", [None, SAVE_PRODUCTS], ids=["nothing", "products"])
def test_neither_value_nor_gradient_changes_and_memory_shrinks(policy):
    rng = np.random.default_rng(0)
    arguments = [jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((LAYERS, WIDTH, INNER), (ROWS, WIDTH))]
    plain, again = compiled(lambda f: f), compiled(lambda f: recomputed(f, policy))
    jax.tree.map(
        lambda here, there: np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-5),
        plain(*arguments),
        again(*arguments),
    )
    kept = {name: each.memory_analysis().temp_size_in_bytes for name, each in {"all": plain, "some": again}.items()}
    inner = 4 * ROWS * INNER
    if policy is None:
        assert kept["some"] < kept["all"] - 1.5 * (LAYERS - 2) * inner
    else:
        assert kept["some"] < kept["all"] - 0.5 * (LAYERS - 2) * inner


def test_what_is_frozen_has_no_gradient_computed():
    """Two products forward, one of them again, two for the gradient of x; two more for that of the parameters."""

    def products(argnums):
        shapes = jax.ShapeDtypeStruct((LAYERS, WIDTH, INNER), "f4"), jax.ShapeDtypeStruct((ROWS, WIDTH), "f4")
        gradient = jax.grad(functools.partial(total, recomputed), argnums=argnums)
        return jax.jit(gradient).lower(*shapes).compile().cost_analysis()["flops"]

    assert products(1) == pytest.approx(5 / 7 * products((0, 1)), rel=0.05)


def test_a_nan_in_the_gradient_is_not_hidden():
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(recomputed(jnp.sin)(x) * jnp.nan)))(jnp.ones(2))
    assert jnp.isnan(gradient).all()


def test_a_quantised_matrix_is_unpacked_again():
    """Of six matrices no more than two are dense at a time."""
    matrices = [Quantised(jnp.ones((256, 256)) * n, axes=(None, None), format="int8") for n in range(1, 7)]
    graphdef, state = nnx.split(nnx.List(matrices))

    def loss(x, state):
        for matrix in nnx.merge(graphdef, state):
            x = jnp.sin(matrix.product(x))
        return jnp.sum(x)

    memory = jax.jit(jax.grad(loss)).lower(jnp.ones((2, 256)), state).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2.5 * 4 * 256 * 256


def test_narrow_parameters_are_not_kept_in_float32():
    """Of six bfloat16 matrices that are used for every part of a batch no more than two are widened at a time."""
    kernels = jax.ShapeDtypeStruct((6, 256, 256), jnp.bfloat16)
    parts = jax.ShapeDtypeStruct((4, 2, 256), jnp.bfloat16)

    def loss(kernels, x):
        for kernel in kernels:
            x = jnp.sin(times(x, kernel))
        return jnp.sum(x.astype(jnp.float32))

    def step(kernels, parts):
        return jax.lax.map(lambda part: jax.grad(loss, argnums=1)(kernels, part), parts)

    memory = jax.jit(step).lower(kernels, parts).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2.5 * 4 * 256 * 256 + 6 * 2 * 256 * 256


def test_a_narrow_product_and_its_gradients_are_those_of_rounded_factors():
    rng = np.random.default_rng(0)
    x, kernel = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in ((5, 7), (7, 3)))

    def total(multiply, x, kernel):
        return jnp.sum(jnp.sin(multiply(x, kernel).astype(jnp.float32)))

    for function in (functools.partial(jax.grad, argnums=(0, 1)), lambda f: f):
        here = function(functools.partial(total, times))(x, kernel)
        there = function(functools.partial(total, jnp.matmul))(x, kernel)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.02, atol=0.02), here, there)


@pytest.mark.parametrize("of_change", ["float32", "bfloat16"])
def test_two_products_in_one_branch_are_those_of_two_and_so_are_their_gradients(of_change):
    rng = np.random.default_rng(0)
    x, a, b = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in ((5, 7), (7, 2), (2, 3)))
    factors = (x, a.astype(of_change), b.astype(of_change))

    def total(multiply, x, a, b):
        return jnp.sum(jnp.sin(multiply(x, a, b).astype(jnp.float32)))

    def apart(x, a, b):
        return times(times(x, a), b)

    gradients = [jax.value_and_grad(functools.partial(total, how), (0, 1, 2)) for how in (times_both, apart)]
    jax.tree.map(np.testing.assert_array_equal, *(jax.jit(gradient)(*factors) for gradient in gradients))
    branches = [str(jax.make_jaxpr(gradient)(*factors)).count("cond[") for gradient in gradients]
    assert branches == [2, 6]
