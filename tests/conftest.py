"""JAX is strict in tests: silent rank or dtype promotion is an error. What a test registers is forgotten after it."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(autouse=True)
def forget_what_is_registered():
    yield
    from dovetail.registry import current

    current().remove("session")
