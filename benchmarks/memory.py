"""Compare planned with measured peak memory: `python benchmarks/memory.py plan > memory.json`.

`plan` runs two training steps of each of six configurations and compares the maximum resident size of the process
with the estimate of `dovetail plan`. `length` runs one step of one small model with rows of 512 to 8,192 tokens; with
`--allocated` it only compiles the update and reports the memory that XLA allocates. `mesh` runs on eight devices of one
host, whose memory a process holds together. Every run and every plan has a
process of its own, without a persistent compilation cache.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from step import machine
from workloads import COMMON, LONG, SHAPES, SMALL, VOCAB, register

from dovetail.config import load
from dovetail.devices.mesh import Devices
from dovetail.protocols import Settled
from dovetail.step.algorithm import assemble
from dovetail.training.loop import train
from dovetail.training.models import Models
from dovetail_memory.cost import estimate
from dovetail_memory.footprint import Footprint

SMOLLM2 = (
    *COMMON,
    *SHAPES["SmolLM2-135M"],
    "train.prompts=2",
    "train.group_size=8",
    "sampling.max_tokens=32",
)
LORA = ("train.adapter=lora", "model.decoder.dtype=bfloat16", "model.decoder.param_dtype=bfloat16")
PLANS: dict[str, tuple[str, ...]] = {
    "W1": (*COMMON, *SMALL),
    "critic": (*COMMON, *SMALL, "train.advantage=gae", "train.kl_coef=0"),
    "W3": (*COMMON, *LONG, "train.micro_batch_size=16"),
    "long, recomputed": (*COMMON, *LONG, "train.micro_batch_size=64", "model.decoder.remat=full"),
    "SmolLM2": (*SMOLLM2, "train.kl_coef=0"),
    "SmolLM2, LoRA, bfloat16": (*SMOLLM2, *LORA),
}
LENGTHS = {
    str(n): (
        *COMMON,
        "train.kl_coef=0",
        "train.prompts=1",
        "train.group_size=2",
        "train.micro_batch_size=2",
        "eval.every=None",
        f"train.max_prompt_tokens={n // 2}",
        f"sampling.max_tokens={n // 2}",
    )
    for n in (512, 1024, 2048, 4096, 8192)
}
MESHES = {
    "W1, fsdp 8": (*PLANS["W1"], "mesh.fsdp=8"),
    "W1, fsdp 4, tp 2": (*PLANS["W1"], "mesh.fsdp=4", "mesh.tp=2"),
    "W1, fsdp 8, recomputed": (*PLANS["W1"], "mesh.fsdp=8", "model.decoder.remat=full"),
}
RUNS = {"plan": (PLANS, 2), "length": (LENGTHS, 1), "mesh": (MESHES, 2)}
EIGHT = "--xla_force_host_platform_device_count=8"
OF_PROCESS = ("the process itself", "compiled programs")
"""Purposes of memory that the devices of one host share."""


def one(kind: str, name: str, *, planned: bool) -> dict[str, Any]:
    """Plan or run a configuration in this process."""
    configs, steps = RUNS[kind]
    config = load(None, [*configs[name], f"train.steps={steps}"])
    if planned:
        cost = estimate(config)
        shared = sum(cost.memory.get(name, 0) for name in OF_PROCESS)
        planned = shared + len(config.mesh.span) * (cost.peak - shared)
        return {"choice": cost.choice, "planned_mib": planned // 2**20}
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder))
    return {"measured_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**10}


def allocated(name: str, attention: str) -> dict[str, Any]:
    """Compile the update of a configuration, and return the memory that XLA allocates for it."""
    config, devices = load(None, [*LENGTHS[name], f"model.decoder.attention={attention}"]), Devices(None)
    models = Models(config=config, devices=devices, vocab_size=VOCAB)
    settled = Settled(mode=f"remat none, attention {attention}", micro_batch_size=2, positions=None)
    function, shapes = Footprint(config, assemble(config), models, devices).update("policy", settled)
    found: Any = jax.jit(function, donate_argnums=0).lower(*shapes).compile().memory_analysis()
    size = found.argument_size_in_bytes + found.temp_size_in_bytes
    size += found.output_size_in_bytes - found.alias_size_in_bytes
    return {"tokens": int(name), "attention": attention, "allocated_mib": size // 2**20}


def compared(kind: str, name: str) -> dict[str, Any]:
    """Plan a configuration and run it, each in a process of its own."""
    found: dict[str, Any] = {"name": name} | _in_child(kind, name, "--planned") | _in_child(kind, name, "--measured")
    return found | {"ratio": round(found["planned_mib"] / found["measured_mib"], 3)}


def _in_child(kind: str, name: str, what: str) -> dict[str, Any]:
    command = [sys.executable, __file__, kind, name, what]
    flags = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), EIGHT if kind == "mesh" else None)))
    environment = os.environ | {"XLA_FLAGS": flags}
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    return json.loads(printed.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=list(RUNS))
    parser.add_argument("names", nargs="*", help="configurations (default: all)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--planned", action="store_true", help="plan one, in this process")
    what.add_argument("--measured", action="store_true", help="run one, in this process")
    what.add_argument("--allocated", action="store_true", help="for `length`: only compile the update")
    options = parser.parse_args(arguments)
    configs = RUNS[options.kind][0]
    names = options.names or list(configs)
    if unknown := set(names) - set(configs):
        parser.error(f"unknown configuration {min(unknown)!r}; there are {', '.join(configs)}")
    register()
    if options.allocated:
        found = [allocated(name, how) for name in names if name in LENGTHS for how in ("auto", "dense")]
        print(json.dumps(found, indent=2))
        return
    if options.planned or options.measured:
        print(json.dumps(one(options.kind, names[0], planned=options.planned)))
        return
    print(json.dumps({"runs": [compared(options.kind, name) for name in names]} | machine(), indent=2))


if __name__ == "__main__":
    main()
