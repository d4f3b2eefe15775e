"""The product with the table of tokens and its gradients, as accelerators compute them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_model.layers.head import scores

ROWS, VOCABULARY, WIDTH = 64, 37, 16


@pytest.fixture
def arrays():
    """Rows in bfloat16, a table in float32, and what each score counts."""
    one, two, three = jax.random.split(jax.random.key(0), 3)
    rows = jax.random.normal(one, (ROWS, WIDTH)).astype(jnp.bfloat16)
    return rows, jax.random.normal(two, (VOCABULARY, WIDTH)), jax.random.normal(three, (ROWS, VOCABULARY))


def run(rows, table, weights):
    """The scores, and the gradients of their weighted sum."""
    value, pull = jax.vjp(scores, rows, table)
    return value, *pull(weights)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_values_and_gradients_are_those_of_float32_up_to_the_rounding_of_the_factors(backend, arrays, monkeypatch):
    rows, table, weights = arrays
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    value, of_rows, of_table = run(rows, table, weights)
    assert [value.dtype, of_rows.dtype, of_table.dtype] == [jnp.float32, jnp.bfloat16, jnp.float32]
    wide = np.asarray(rows, np.float32)
    for found, expected in ((value, wide @ table.T), (of_rows, weights @ table), (of_table, weights.T @ wide)):
        apart = np.asarray(found, np.float32) - expected
        assert np.linalg.norm(apart) < 4e-3 * np.linalg.norm(expected)


def test_the_gradient_of_a_table_in_float32_is_not_rounded_to_bfloat16(arrays, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    *_, of_table = run(*arrays)
    assert np.any(of_table != of_table.astype(jnp.bfloat16).astype(jnp.float32))
