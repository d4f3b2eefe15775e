"""Run by `test_turns.py` with eight devices: episodes with and without a mesh, cached and by rounds, to a file."""

import sys

import numpy as np
from flax import nnx
from tests.rollout.decoding.test_turns import Again, adapted, play
from tests.rollout.sharded import SPEC

from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail.protocols import Weights
from dovetail_kit.rollout import Numbers
from dovetail_rollout.rollout.vanilla import Vanilla


def main(path: str) -> None:
    found = {}
    for fsdp, cp, tp in ((1, 1, 1), (2, 2, 2)):
        devices = Devices.open(Mesh(fsdp=fsdp, cp=cp, tp=tp))
        with devices.use():
            graphdef, trained, rest = nnx.split(SPEC.make(Numbers().vocab_size, rngs=nnx.Rngs(0)), nnx.Param, ...)
            lora, weights = adapted(1, SPEC)
            policies = {
                "": (graphdef, Weights(devices.spread(trained), rest)),
                "adapted": (lora, Weights(devices.spread(weights.trained), devices.spread(weights.frozen))),
            }
            for name, policy in policies.items():
                engine = Vanilla().open(*policy, Numbers())
                ways = {name or "cached": engine, f"{name}_by_rounds".strip("_"): Again(engine)}
                if fsdp * cp * tp == 1:
                    ways.pop("adapted", None)  # `test_turns.py` has it in its own process
                for way, each in ways.items():
                    tape, _ = play(each, samples=8, prompts=2)
                    columns = ("tokens", "mask", "turns", "finish", "logps")
                    found |= {f"{fsdp}x{cp}x{tp}:{way}:{column}": getattr(tape, column) for column in columns}
    np.savez(path, **found)


if __name__ == "__main__":
    main(sys.argv[1])
