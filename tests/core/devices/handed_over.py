"""Run by test_placement.py in a process with eight devices: weights between meshes that are apart, the same, overlap."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.config.settings import Mesh
from dovetail.devices.hand_over import HandOver, copied_to_host
from dovetail.devices.mesh import Devices
from dovetail.protocols import Weights

MESHES = {
    "apart": Mesh(fsdp=2, tp=2, first=4),
    "within": Mesh(fsdp=2, first=1),
    "beyond": Mesh(fsdp=4, tp=2),
    "transposed": Mesh(fsdp=1, tp=4),
}


def weights(devices: Devices) -> Weights:
    """Parameters that are cut in both ways, in one, and not at all; the last is not trained."""
    numbers = np.arange(64, dtype=np.float32)
    state = nnx.State(
        {
            "table": nnx.Param(jnp.asarray(numbers.reshape(8, 8)), axes=("vocab", "width")),
            "kernel": nnx.Param(jnp.asarray(numbers[:32].reshape(8, 4), jnp.bfloat16), axes=("width", "ffn")),
            "scale": nnx.Param(jnp.asarray(numbers[:3]), axes=(None,)),
        }
    )
    frozen = nnx.State({"base": nnx.Param(jnp.asarray(numbers), axes=("width",))})
    return Weights(devices.spread(state), devices.spread(frozen))


def check(first: Devices) -> None:
    """Hand over to each mesh; then let an update reuse the memory of what was handed over."""
    hand_over, given = HandOver(devices=first), weights(first)
    expected = jax.tree.map(np.array, weights(first))  # others, since JAX may keep what numpy has seen
    made = {role: hand_over(given, role) for role in (*first.apart, "nobody")}
    again = hand_over(given, "apart")
    assert again.frozen is made["apart"].frozen, "what is not trained moves once"
    assert made["nobody"].frozen is given.frozen, "and not at all where the devices are the same"
    taken = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)(given.trained)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given.trained)), "the memory is reused"
    jax.block_until_ready(taken)
    for role, moved in made.items():
        devices = first.of(role)
        for each, wanted in zip(jax.tree.leaves(moved), jax.tree.leaves(expected), strict=True):
            assert {device.id for device in each.sharding.device_set} == {*devices.span}, role
            np.testing.assert_array_equal(np.asarray(each), wanted, err_msg=role)
    table = made["apart"].trained["table"].get_value()
    assert table.addressable_shards[0].data.shape == (4, 4), "it is cut as the role's mesh says"
    timings = hand_over.timings()
    assert timings["hand_over/seconds"] > 0
    assert timings["hand_over/gb_per_second"] > 0
    assert hand_over.timings() == {}


def check_on_host(devices: Devices) -> None:
    """Copy to host memory; an update that reuses the memory of the weights does not change the copies."""
    hand_over, given = HandOver(devices=devices, on_host=("elsewhere",)), weights(devices)
    expected, key = jax.tree.map(np.array, given), jax.random.key(0)
    made, again = hand_over(given, "elsewhere"), hand_over(given, "elsewhere")
    assert again.frozen is made.frozen, "what is not trained is copied once"
    assert hand_over.lend(given, "elsewhere") is given
    jax.block_until_ready(jax.jit(lambda tree: jax.tree.map(lambda x: x * 0, tree), donate_argnums=0)(given.trained))
    for each, wanted in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
        assert isinstance(each, np.ndarray)
        np.testing.assert_array_equal(each, wanted)
    assert copied_to_host(key) is key


if __name__ == "__main__":
    assert jax.device_count() == 8, jax.devices()
    devices = Devices.open(Mesh(fsdp=2, tp=2), MESHES)
    check(devices)
    for each in (devices, Devices.open(Mesh())):
        check_on_host(each)
    assert devices.first.span == range(1)
    assert devices.of("apart").first.mesh.devices.ravel().tolist() == [jax.devices()[4]]
