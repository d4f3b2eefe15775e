"""Run by `test_vanilla.py` with eight devices: completions with and without a mesh, written to a file."""

import sys

import jax
import numpy as np
from flax import nnx

from dovetail.config.settings import Mesh
from dovetail.devices.mesh import Devices
from dovetail.protocols import Sampling, Weights
from dovetail_kit.rollout import Numbers
from dovetail_model.model.decoder import Decoder
from dovetail_rollout.rollout.vanilla import Vanilla

SPEC = Decoder(width=16, layers=2, heads=4, kv_heads=2, ffn=24, init_std=0.4)
PROMPTS, SAMPLES, LENGTH = 8, 6, 5


def main(path: str) -> None:
    found = {}
    tokens = np.random.default_rng(0).integers(2, Numbers().vocab_size, (PROMPTS, LENGTH))
    keys = jax.random.split(jax.random.key(0), (PROMPTS, SAMPLES))
    for fsdp, cp, tp in ((1, 1, 1), (2, 2, 2)):
        devices = Devices.open(Mesh(fsdp=fsdp, cp=cp, tp=tp))
        with devices.use():
            graphdef, trained, rest = nnx.split(SPEC.make(Numbers().vocab_size, rngs=nnx.Rngs(0)), nnx.Param, ...)
            engine = Vanilla().open(graphdef, Weights(devices.spread(trained), rest), Numbers())
            drawn = engine.generate(tokens, np.ones_like(tokens, bool), keys, Sampling(max_tokens=12))
        found |= {f"{fsdp}x{cp}x{tp}:{name}": getattr(drawn, name) for name in ("tokens", "logps", "finish")}
    np.savez(path, **found)


if __name__ == "__main__":
    main(sys.argv[1])
