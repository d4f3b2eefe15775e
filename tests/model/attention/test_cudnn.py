"""Attention by cuDNN equals the dense one: what is put in order for the kernel, which XLA computes here, and the kernel."""

import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.model.attention.cases import CASES

from dovetail_model.attention.cudnn import cudnn
from dovetail_model.attention.dense import dense

PORTABLE = functools.partial(cudnn, library="xla")
APPLIES = [name for name in CASES if name not in ("soft-capped", "packed", "all")]


@pytest.fixture
def exact():
    """Products in float32, which GPUs otherwise compute with fewer bits."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.mark.parametrize("name", APPLIES)
def test_equals_the_dense_one(name, exact):
    CASES[name].check(PORTABLE)


def test_all_but_a_soft_cap(exact):
    attrs.evolve(CASES["all"], cap=None).check(PORTABLE)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN needs an NVIDIA GPU; name it with JAX_PLATFORMS=cuda")
@pytest.mark.parametrize("name", APPLIES)
def test_the_kernel_equals_the_dense_one_up_to_the_rounding_of_bfloat16(name):
    (value, gradients), (other, others) = CASES[name].run(dense), CASES[name].run(cudnn, jnp.bfloat16)
    np.testing.assert_allclose(other, value, rtol=1e-2)
    for here, there in zip(gradients, others, strict=True):
        np.testing.assert_allclose(there, here, atol=3e-2 * max(1.0, float(jnp.abs(here).max())))
