import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail_model.layers import grouped
from dovetail_model.layers.grouped import grouped_dot

INPUTS, OUTPUTS = 5, 3


def in_a_loop(x, kernels, sizes):
    """Every row with the matrix of its group, one group after the other."""
    ends = np.cumsum(sizes)
    parts = [x[end - size : end] @ kernel for end, size, kernel in zip(ends, sizes, kernels, strict=True)]
    return jnp.concatenate(parts)


@pytest.mark.parametrize(
    "sizes",
    [[3, 0, 9, 1], [0, 0, 40, 0], [8, 8, 8, 8], [1, 17, 0, 0], [0, 0, 0, 0], [200, 1, 300, 0]],
    ids=str,
)
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_values_and_gradients_are_those_of_a_loop_over_groups(sizes, backend, monkeypatch):
    monkeypatch.setattr(grouped.jax, "default_backend", lambda: backend)  # the other way runs on CPUs too
    draw = np.random.default_rng(0)
    x, upstream = (jnp.asarray(draw.normal(size=(sum(sizes), n)), jnp.float32) for n in (INPUTS, OUTPUTS))
    kernels = jnp.asarray(draw.normal(size=(len(sizes), INPUTS, OUTPUTS)), jnp.float32)
    expected, pull = jax.vjp(lambda x, kernels: in_a_loop(x, kernels, sizes), x, kernels)

    @jax.jit
    def found(x, kernels, sizes):
        y, pull = jax.vjp(lambda x, kernels: grouped_dot(x, kernels, sizes), x, kernels)
        return y, *pull(upstream)

    for ours, theirs in zip(found(x, kernels, jnp.array(sizes)), (expected, *pull(upstream)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=1e-5)


def test_types_are_kept():
    x, kernels = jnp.ones((2, 2), jnp.bfloat16), jnp.ones((1, 2, 2), jnp.float32)
    y, pull = jax.vjp(lambda x, kernels: grouped_dot(x, kernels, jnp.array([2])), x, kernels)
    assert [array.dtype for array in (y, *pull(y))] == [jnp.bfloat16, jnp.bfloat16, jnp.float32]
