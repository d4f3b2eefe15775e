"""JAX is strict in tests: silent rank or dtype promotion is an error. What a test registers is forgotten after it."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile much and compute little: without LLVM's costly passes they take little more than half of the time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(autouse=True)
def forget_what_is_registered():
    yield
    from dovetail.registry import current

    current().remove("session")
