"""A checkpoint restores exactly what was saved, bit for bit, on devices and on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dovetail.run.checkpoint import Checkpoints, Saved


@pytest.fixture
def checkpoints(tmp_path):
    opened = Checkpoints(tmp_path, keep=1)
    yield opened
    opened.close()


def test_arrays_of_the_host_come_back_as_they_were(checkpoints):
    """Examples are a curriculum's estimates and a buffer of earlier completions."""
    state = {
        "count": np.asarray(np.int64(2**40)),
        "rate": np.array([0.1, np.nan, 1 / 3]),
        "seen": np.array([[True], [False]]),
        "device": jnp.arange(3),
    }
    checkpoints.save(1, state, Saved(phase="rl", step=1, data={}, journal={}))
    found = checkpoints.restore(1, jax.tree.map(np.zeros_like, state) | {"device": jnp.zeros(3, jnp.int32)})
    for name, array in state.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert isinstance(found[name], jax.Array if name == "device" else np.ndarray)
