import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dovetail_model.layers.decomposed import Decomposed
from dovetail_model.layers.kernel import dense
from dovetail_model.layers.quantised import Quantised

INPUTS, OUTPUTS, RANK, SCALE = 24, 7, 3, 0.8


def normal(seed, *shape, dtype=jnp.float32):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def made(seed=0, *, trained=True, dropout=0.0):
    """A change of a matrix, as it begins or after training."""
    change = Decomposed(INPUTS, OUTPUTS, RANK, axes=("width", "ffn"), scale=SCALE, dropout=dropout, rngs=nnx.Rngs(seed))
    if trained:
        change.b[...] = normal(seed + 1, RANK, OUTPUTS)
        change.growth[...] = 0.5 * normal(seed + 2, OUTPUTS)
    return change


def kernel(format=None, dtype=jnp.float32):
    whole = normal(9, INPUTS, OUTPUTS, dtype=dtype)
    return nnx.Param(whole) if format is None else Quantised(whole, axes=(None, None), format=format)


def by_definition(parts, matrix, x, magnitude, read=None):
    """y = x W', as the paper writes it, with a norm that is a constant for the gradient; `read` is x after dropout."""
    a, b = parts
    changed = matrix + SCALE * a @ b
    norm = jax.lax.stop_gradient(jnp.linalg.norm(changed, axis=0))
    gain = (magnitude / norm)[None, :]
    if read is None:
        return x @ (changed * gain)
    return x @ matrix + (gain - 1) * (read @ matrix) + gain * SCALE * (read @ a @ b)


@pytest.mark.parametrize("format", [None, "int8", "nf4"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_values_and_gradients_are_those_of_the_definition(format, dropout):
    change, matrix, x = made(dropout=dropout), kernel(format), normal(4, 5, INPUTS)
    whole = dense(matrix)
    keys = jax.random.split(jax.random.key(0), 5) if dropout else None
    read = change.dropped(x, keys) if dropout else None
    graphdef, trained = nnx.split(change)

    def ours(trained, x):
        return jnp.sum(jnp.sin(nnx.merge(graphdef, trained).beside(matrix, x, keys)))

    def theirs(a, b, growth, x):
        read = change.dropped(x, keys) if dropout else None
        magnitude = jnp.linalg.norm(whole, axis=0) + growth
        return jnp.sum(jnp.sin(by_definition((a, b), whole, x, magnitude, read)))

    parts = (change.a[...], change.b[...])
    expected = by_definition(parts, whole, x, jnp.linalg.norm(whole, axis=0) + change.growth[...], read)
    np.testing.assert_allclose(change.beside(matrix, x, keys), expected, atol=1e-5)
    found, of_x = jax.jit(jax.grad(ours, argnums=(0, 1)))(trained, x)
    a, b, growth, by_x = jax.grad(theirs, argnums=(0, 1, 2, 3))(*parts, change.growth[...], x)
    for one, other in ((found["a"], a), (found["b"], b), (found["growth"], growth), (of_x, by_x)):
        np.testing.assert_allclose(one[...], other, atol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("format", [None, "int8", "nf4"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_it_begins_as_the_matrix_bit_by_bit(format, dtype, dropout):
    change, matrix, x = made(trained=False, dropout=dropout), kernel(format, dtype), normal(4, 5, INPUTS, dtype=dtype)
    keys = jax.random.split(jax.random.key(0), 5) if dropout else None
    plain = matrix.product(x) if isinstance(matrix, Quantised) else x @ matrix[...]
    np.testing.assert_array_equal(jax.jit(change.beside)(matrix, x, keys), plain)
    assert not np.any(change.difference(matrix))


def test_what_is_merged_computes_the_same_and_has_the_magnitude_as_its_norm():
    change, matrix, x = made(), kernel(), normal(4, 5, INPUTS)
    merged = matrix[...] + change.difference(matrix)
    np.testing.assert_allclose(x @ merged, change.beside(matrix, x), atol=1e-5)
    np.testing.assert_allclose(jnp.linalg.norm(merged, axis=0), jnp.abs(change.magnitude(matrix)), rtol=1e-5)


def test_a_magnitude_is_of_the_matrix_that_it_is_set_for():
    change, wanted = made(), jnp.arange(1.0, OUTPUTS + 1)
    for format in (None, "nf4"):
        change.set_magnitude(kernel(format), wanted)
        np.testing.assert_allclose(change.magnitude(kernel(format)), wanted, rtol=1e-6)


def test_a_gain_that_16_bits_would_round_to_1_is_kept_where_it_counts():
    """The bfloat16 next to 1 is 1.0078; a learning rate of 1e-5 takes hundreds of steps there."""
    change, matrix = made(trained=False), kernel(dtype=jnp.bfloat16)
    change.growth[...] = 0.003 * change.magnitude(matrix)
    x = normal(4, 500, INPUTS, dtype=jnp.bfloat16)
    before, after = (np.asarray(y, "f4") for y in (x @ matrix[...], change.beside(matrix, x)))
    assert np.sum(after * before) / np.sum(before * before) == pytest.approx(1.003, abs=3e-4)


def test_an_output_without_weights_stays_one():
    change, empty = made(trained=False), nnx.Param(kernel()[...].at[:, 2].set(0))
    x = normal(4, 5, INPUTS)
    graphdef, trained = nnx.split(change)

    def total(trained):
        return jnp.sum(nnx.merge(graphdef, trained).beside(empty, x) ** 2)

    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.grad(total)(trained)))
    assert not np.any(change.beside(empty, x)[:, 2])
