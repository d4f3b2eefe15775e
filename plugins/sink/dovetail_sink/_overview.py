"""The overview of a run when it begins: device, types, the sizes of a step, the planned memory, and its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from dovetail.errors import printable
from dovetail.progress import in_bytes, is_watched
from dovetail.run.files import write_whole
from dovetail.step.buckets import described
from dovetail.training.setup import Setup
from dovetail_memory.device import memory_of
from dovetail_sink.pulse import told


def show(setup: Setup, folder: Path) -> None:
    """Print the overview if somebody watches the run, and write its parameters to the folder."""
    write_parameters(setup, folder / "parameters.txt")
    if is_watched():
        print(printable("\n".join(overview(setup))), file=told())


def write_parameters(setup: Setup, path: Path) -> None:
    """Write the policy's parameters with their shapes, types and sizes as a table."""
    from clu import parameter_overview

    table = parameter_overview.get_parameter_overview(
        nnx.to_pure_dict(nnx.merge_state(*setup.weights)), include_stats=False
    )
    write_whole(path, table + "\n")


def overview(setup: Setup) -> list[str]:
    """Return a few lines; only shapes are computed."""
    config, sizes = setup.config, setup.algorithm.sizes
    device, trained = jax.devices()[0], _count(setup.weights.trained)
    everything = trained + _count(setup.weights.frozen)
    stored = Counter[str]()
    for leaf in jax.tree.leaves(setup.weights):
        stored[str(leaf.dtype)] += leaf.size
    rows, longest = config.train.prompts * config.train.group_size, config.sampling.max_tokens
    apart = [f"{role} {mesh.numbers}" for role, mesh in config.apart.items()]
    return [
        f"device    {device.device_kind} x {len(setup.devices.span)} of {jax.device_count()} ({device.platform})"
        + (f"; policy {config.mesh.numbers}, {', '.join(apart)}" if apart else ""),
        f"model     {_counted(everything)} parameters, {_counted(trained)} of them trained; stored as"
        f" {' and '.join(stored)}, computed in {_compute_dtype(setup)}",
        f"data      {len(setup.train_examples):,} prompts, each used"
        f" {config.train.steps * config.train.prompts / max(len(setup.train_examples), 1):.3g} times in"
        f" {config.train.steps:,} steps; {len(setup.eval_examples):,} in an evaluation",
        f"step      {config.train.prompts} prompts x {config.train.group_size} completions of at most"
        f" {longest} tokens; {rows} completions in mini-batches of {sizes.mini_batch_size},"
        f" micro-batches of {sizes.micro_batch_size}" + (f", {cut}" if (cut := described(sizes, longest)) else ""),
        f"memory    {in_bytes(setup.settled.planned)} planned of {in_bytes(memory_of(device))} on each device;"
        f" {setup.settled}",
    ]


def _counted(number: int) -> str:
    """Return a number of parameters with its unit.

    >>> _counted(81), _counted(20_480), _counted(1_540_000_000)
    ('81', '20.5 K', '1.54 B')
    """
    for unit, size, digits in (("B", 1e9, 2), ("M", 1e6, 1), ("K", 1e3, 1)):
        if number >= size:
            return f"{number / size:,.{digits}f} {unit}"
    return str(number)


def _compute_dtype(setup: Setup) -> str:
    """Return the type of the policy's hidden states."""

    def hidden(weights: Any) -> Any:
        tokens = jnp.zeros((1, 2), jnp.int32)
        return nnx.merge(setup.graphdef, *weights)(tokens, jnp.ones_like(tokens, dtype=bool))[0]

    return str(jax.eval_shape(hidden, setup.weights).dtype)


def _count(weights: Mapping[str, Any]) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(weights))
