"""Run by test_qwen3_moe.py in a process with several devices: the loss and its gradients on one of them and on all."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tests.model.folders import FIXTURES

from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail_model.model.pretrained import Pretrained

TOKENS = jnp.arange(32).reshape(4, 8)


@nnx.jit
@nnx.value_and_grad
def step(model, tokens):
    hidden, _ = model(tokens, jnp.ones_like(tokens, bool))
    return jnp.mean(jnp.sin(model.logits(hidden)))


def on(mesh):
    devices = Devices.open(mesh)
    with devices.use():
        model = Pretrained(path=str(FIXTURES / "qwen3_moe")).make(1, rngs=nnx.Rngs(0), place=devices.place)
        experts = model.blocks[0].ffn.experts.gate.kernel[...]
        assert experts.sharding.is_fully_replicated == (devices.mesh is None)
        rows = devices.rows({"tokens": np.asarray(TOKENS)})["tokens"]
        return jax.tree.map(np.asarray, step(model, rows))


if __name__ == "__main__":
    alone = on(Mesh())
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(alone[1].blocks[0].ffn.experts)) > 1e-3
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), alone, on(Mesh(fsdp=2, cp=2, tp=2))
    )
