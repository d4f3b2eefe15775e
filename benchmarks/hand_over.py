"""How fast weights move between meshes, beside the memory's own speed. Prints JSON; seconds.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python benchmarks/hand_over.py [--megabytes 1000]

Needs eight devices. Parameters in bfloat16, cut over 2 x 2 of them, go to other devices with the same cut, to others
with another cut, and to overlapping ones; `copied` is a copy where they are. Best of three.
"""

from __future__ import annotations

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dovetail.config.settings import Mesh
from dovetail.devices.hand_over import HandOver
from dovetail.devices.mesh import Devices
from dovetail.protocols import Weights

MESHES = {
    "apart, the same cut": Mesh(fsdp=2, tp=2, first=4),
    "apart, another cut": Mesh(fsdp=4, tp=1, first=4),
    "apart, whole": Mesh(first=4),
    "overlapping": Mesh(fsdp=2, tp=2, first=2),
}
WIDTH, FFN, TIMES = 1024, 4096, 3


def parameters(devices: Devices, megabytes: int) -> Weights:
    """Matrices of 8 MiB."""
    count = max(1, (megabytes * 10**6) // (2 * WIDTH * FFN))
    matrix = np.ones((WIDTH, FFN), jnp.bfloat16)
    made = {str(number): nnx.Param(jnp.asarray(matrix), axes=("width", "ffn")) for number in range(count)}
    return Weights(devices.spread(nnx.State(made)), nnx.State({}))


def memory_speed(size: int) -> float:
    """GB/s of a copy by numpy into memory that is there already."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    best = float("inf")
    for _ in range(TIMES):
        began = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - began)
    return size / 1e9 / best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    megabytes = parser.parse_args().megabytes
    devices = Devices.open(Mesh(fsdp=2, tp=2), MESHES)
    hand_over, weights, found = HandOver(devices=devices), parameters(devices, megabytes), {}
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
    for role in ("copied", *MESHES):
        speeds = []
        for _ in range(TIMES):
            hand_over(weights, role)
            speeds.append(hand_over.timings()["hand_over/gb_per_second"])
        found[role] = round(max(speeds), 2)
    memory = round(memory_speed(min(size, 500 * 10**6)), 2)
    kind = jax.devices()[0].device_kind
    print(json.dumps({"device": kind, "bytes": size, "memory_gb_per_s": memory, "gb_per_s": found}, indent=2))


if __name__ == "__main__":
    main()
