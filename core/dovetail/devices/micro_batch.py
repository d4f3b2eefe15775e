"""How many completions one forward and backward pass takes, where the config leaves it open.

A micro-batch changes nothing but rounding, time and memory. Small ones keep activations in a CPU's caches; large ones
keep an accelerator busy; either must fit in memory. The choice follows from the config, the model's shapes and the
device's size alone, never from what happens to be free, so that a resumed run makes it again.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
from flax import nnx

from dovetail.config import Config
from dovetail.plan.sizes import mini_batch_size
from dovetail.protocols import Weights

CPU_TOKENS: Final = 1536
ACCELERATOR_TOKENS: Final = 16384
"""Tokens that a device handles at a time; `docs/performance.md` has what was measured on CPUs."""

MEMORY_SHARE: Final = 0.25
"""Share of a device's memory that a micro-batch's activations may take."""


@attrs.frozen(kw_only=True)
class Work:
    """The completions of a mini-batch, `group_size` of which share a prompt, at their greatest lengths."""

    rows: int
    group_size: int
    prompt_tokens: int
    max_tokens: int
    whole_groups: bool = False

    def choose(self, graphdef: Any, weights: Weights, devices: int = 1) -> int:
        """Return a number of rows for `devices` devices, over which rows are cut."""
        device = jax.devices()[0]
        tokens = CPU_TOKENS if device.platform == "cpu" else ACCELERATOR_TOKENS
        per_token = self.per_token(graphdef, weights)
        return self.fit(min(tokens, int(MEMORY_SHARE * memory_of(device)) // per_token), devices)

    def per_token(self, graphdef: Any, weights: Weights) -> int:
        """Return the bytes that the backward pass over a decoder needs of the forward pass, for each token."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), weights)
        leaves, structure = jax.tree.flatten(shapes)
        return _bytes_per_token(graphdef, structure, tuple(leaves), self.prompt_tokens + self.max_tokens)

    def sizes(self, most: int, least: int) -> list[int]:
        """Return the numbers of rows between two that keep groups whole or cut them evenly, from the largest on.

        >>> Work(rows=32, group_size=8, prompt_tokens=64, max_tokens=64).sizes(16, 2)
        [16, 8, 4, 2]
        """
        together = math.gcd(self.group_size, self.rows)
        found = [
            n for n in range(least, most + 1) if n % together == 0 or (together % n == 0 and not self.whole_groups)
        ]
        return found[::-1]

    def fit(self, tokens: int, devices: int = 1) -> int:
        """Return the number of rows, at least one per device, that `tokens` tokens per device allow.

        Whole groups where one fits, so that prompts are shared, and about as many in every micro-batch; else a divisor
        of the group.

        >>> work = Work(rows=128, group_size=8, prompt_tokens=64, max_tokens=64)
        >>> work.fit(tokens=1536), work.fit(tokens=300), work.fit(tokens=10), work.fit(tokens=10**6)
        (16, 2, 1, 128)
        """
        together = math.gcd(self.group_size, self.rows)
        groups = self.rows // together
        at_once = tokens * devices // (self.prompt_tokens + together * self.max_tokens)
        if at_once or self.whole_groups:
            at_once = max(at_once, 1)
            return together * -(-groups // -(-groups // at_once))
        divisors = [n for n in range(1, together) if together % n == 0]
        fitting = [n for n in divisors if self.prompt_tokens + n * self.max_tokens <= tokens * devices]
        return max(fitting, default=min(devices, together))


def in_update(config: Config, *, whole_groups: bool = False) -> Work:
    """Return the work of an update; groups may be needed whole in every micro-batch."""
    train = config.train
    return Work(
        rows=mini_batch_size(config),
        group_size=train.group_size,
        prompt_tokens=train.max_prompt_tokens,
        max_tokens=config.sampling.max_tokens,
        whole_groups=whole_groups,
    )


def in_warm_start(config: Config) -> Work:
    """Return the work of a step on demonstrations, each of which has a prompt of its own."""
    return Work(
        rows=config.sft.batch_size,
        group_size=1,
        prompt_tokens=config.train.max_prompt_tokens,
        max_tokens=config.sampling.max_tokens,
    )


@functools.lru_cache(maxsize=16)
def _bytes_per_token(graphdef: Any, structure: Any, leaves: tuple[jax.ShapeDtypeStruct, ...], length: int) -> int:
    """What the backward pass over a decoder needs of the forward pass; shapes only, nothing is computed.

    The trials of a sweep ask for the same again.
    """
    weights = jax.tree.unflatten(structure, leaves)

    def kept(rows: int) -> int:
        def backward(trained: Any, frozen: Any) -> Any:
            tokens = jnp.zeros((rows, length), jnp.int32)
            visible = jnp.ones_like(tokens, dtype=bool)
            return jax.vjp(lambda t: nnx.merge(graphdef, t, frozen)(tokens, visible)[0], trained)[1]

        leaves = jax.tree.leaves(jax.eval_shape(backward, *weights))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    return max(1, (kept(2) - kept(1)) // length)


def memory_of(device: Any) -> int:
    """Return the size of a device's memory in bytes."""
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (device.memory_stats() or {}).get("bytes_limit", 16 << 30)
