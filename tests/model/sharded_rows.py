"""Run by test_transformer.py in a process with eight devices: rows whose tokens are cut over several of them.

Its argument is the implementation of attention. Rows are whole, continue a shared prompt (at once, or in chunks through
a cache), or pack several texts; no number of tokens is a multiple of the devices.
"""

import functools
import sys

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tests.model.test_transformer import EVERYTHING, TOKENS, in_packed_rows, joined, made_up, weigh, with_prefix

from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail_model.transformer import Transformer

MESHES = {"dense": Mesh(fsdp=2, cp=2, tp=2), "blockwise": Mesh(cp=4)}
LENGTHS = (4, TOKENS)
WAYS = {
    "whole": joined,
    "after a prompt": functools.partial(with_prefix, chunks=()),
    "in chunks": functools.partial(with_prefix, chunks=(1, 5, 1)),
    "packed": functools.partial(in_packed_rows, lengths=LENGTHS),
}


def found(way, graphdef, params, batch):
    """The sum of a function of the hidden states of tokens that are there, and its gradients."""
    there = np.tile(np.arange(TOKENS) < np.array(LENGTHS)[:, None], (3, 1))[:, :, None]
    loss = jax.value_and_grad(lambda params: weigh(jnp.where(there, way(graphdef, params, *batch), 0.0)))
    return jax.tree.map(np.asarray, jax.jit(loss)(params))


def check(attention):
    """Compare each way on a mesh with whole rows on one device."""
    model, batch = made_up()
    _, params = nnx.split(model)
    graphdef, _ = nnx.split(Transformer(attrs.evolve(EVERYTHING, attention=attention), rngs=nnx.Rngs(0)))
    expected, whole = found(joined, graphdef, params, batch)
    far = 1e-5 * max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(whole))
    devices = Devices.open(MESHES[attention])
    with devices.use():
        for name, way in WAYS.items():
            value, gradients = found(way, graphdef, devices.spread(params), batch)
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4, err_msg=name)
            for here, there in zip(*map(jax.tree.leaves, (gradients, whole)), strict=True):
                np.testing.assert_allclose(here, there, atol=far, err_msg=name)


if __name__ == "__main__":
    assert jax.device_count() == 8, jax.devices()
    check(sys.argv[1])
