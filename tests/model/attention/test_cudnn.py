"""Attention by cuDNN equals the dense one: what is prepared for the kernel, which XLA computes here, and the kernel."""

import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.model.attention.cases import CASES

from dovetail_model.attention import cudnn as module
from dovetail_model.attention.cudnn import cudnn
from dovetail_model.attention.dense import dense

PORTABLE = functools.partial(cudnn, library="xla")
MASKED = {name: attrs.evolve(case, cap=None) for name, case in CASES.items() if name != "soft-capped"}
ORDERED = {name: case for name, case in MASKED.items() if name != "packed"}


@pytest.fixture
def exact():
    """Products in float32, which GPUs otherwise compute with fewer bits."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture
def ordered(monkeypatch):
    """All rows are long enough to have no mask."""
    monkeypatch.setattr(module, "PAIRS", 0)


@pytest.mark.parametrize("name", MASKED)
def test_equals_the_dense_one_with_a_mask(name, exact):
    MASKED[name].check(PORTABLE)


@pytest.mark.parametrize("name", ORDERED)
def test_equals_the_dense_one_in_order(name, exact, ordered):
    ORDERED[name].check(PORTABLE)


def test_without_a_mask_if_that_is_asked_for(exact, monkeypatch):
    """JAX cannot batch the kernel with a mask that is the same for all heads; the values are the same in order."""
    monkeypatch.setattr(module, "_with_mask", None)
    ORDERED["prefix"].check(functools.partial(PORTABLE, in_order=True))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN needs an NVIDIA GPU; name it with JAX_PLATFORMS=cuda")
class TestTheKernel:
    """It equals the dense one up to the rounding of bfloat16."""

    @pytest.mark.parametrize("name", MASKED)
    def test_with_a_mask(self, name):
        assert_alike(MASKED[name])

    @pytest.mark.parametrize("name", ORDERED)
    def test_in_order(self, name, ordered):
        assert_alike(ORDERED[name])

    def test_of_several_runs_together(self, ordered):
        case = ORDERED["prefix"]
        compute = jax.grad(lambda arrays: jnp.sum(case.mixed(cudnn, arrays, jnp.bfloat16).astype(jnp.float32)))
        arrays = case.arrays()
        alone, together = compute(arrays), jax.vmap(compute)([jnp.stack([array] * 2) for array in arrays])
        for one, several in zip(alone, together, strict=True):
            np.testing.assert_allclose(several[1], one, atol=3e-2 * max(1.0, float(jnp.abs(one).max())))


def assert_alike(case):
    (value, gradients), (other, others) = case.run(dense), case.run(cudnn, jnp.bfloat16)
    np.testing.assert_allclose(other, value, rtol=1e-2)
    for here, there in zip(gradients, others, strict=True):
        np.testing.assert_allclose(there, here, atol=3e-2 * max(1.0, float(jnp.abs(here).max())))
