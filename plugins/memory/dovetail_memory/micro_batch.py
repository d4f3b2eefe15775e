"""Chooses the number of completions in a forward and backward pass if the config leaves it open.

The size of micro-batches affects only rounding, time and memory. Small ones keep activations in a CPU's caches, and
large ones keep an accelerator busy; all must fit into memory. The choice depends only on the config, the model's shapes
and the device's size, never on the memory that happens to be free, so that a resumed run makes the same choice.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
from flax import nnx

from dovetail.config import Config
from dovetail.config.settings import Mesh
from dovetail.devices.mesh import EACH, Devices
from dovetail.plan.sizes import mini_batch_size
from dovetail.protocols import Traits, Weights
from dovetail.training.models import in_mode
from dovetail_memory.device import memory_of

CPU_TOKENS: Final = 1536
ACCELERATOR_TOKENS: Final = 16384
"""The number of tokens that a device processes at a time; `docs/performance.md` has measurements on CPUs."""

MEMORY_SHARE: Final = 0.25
"""The share of a device's memory that the activations of a micro-batch may use."""


@attrs.frozen(kw_only=True)
class Work:
    """The completions of a mini-batch at their greatest lengths; each `group_size` of them share a prompt.

    If the tokens of a row are divided over devices, the numbers of tokens are those of one device.
    """

    rows: int
    group_size: int
    prompt_tokens: int
    max_tokens: int
    whole_groups: bool = False

    def choose(self, graphdef: Any, weights: Weights, devices: int = 1) -> int:
        """Return the number of rows of a micro-batch whose rows are divided over `devices` devices."""
        device = jax.devices()[0]
        tokens = CPU_TOKENS if device.platform == "cpu" else ACCELERATOR_TOKENS
        per_token = self.per_token(graphdef, weights)
        return self.fit(min(tokens, int(MEMORY_SHARE * memory_of(device)) // per_token), devices)

    def per_token(self, graphdef: Any, weights: Weights) -> int:
        """Return the bytes per token that a decoder's forward pass stores for the backward pass."""
        if modes := Traits.of(nnx.merge(graphdef, *weights)).modes:
            # what a config leaves open computes as the first mode does: in it or not yet, a model is traced once
            graphdef = in_mode(graphdef, weights, modes[0])
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), weights)
        leaves, structure = jax.tree.flatten(shapes)
        return _bytes_per_token(graphdef, structure, tuple(leaves), self.prompt_tokens + self.max_tokens)

    def sizes(self, most: int, least: int, devices: int = 1) -> list[int]:
        """Return the numbers of rows from `most` down to `least` that keep groups whole or split them evenly.

        Only those that the devices divide are returned, if there are any.

        >>> work = Work(rows=32, group_size=8, prompt_tokens=64, max_tokens=64)
        >>> work.sizes(16, 2), work.sizes(32, 2, devices=16)
        ([16, 8, 4, 2], [32, 16])
        """
        together = math.gcd(self.group_size, self.rows)
        found = [
            n for n in range(least, most + 1) if n % together == 0 or (together % n == 0 and not self.whole_groups)
        ]
        return [n for n in found if n % devices == 0][::-1] or found[::-1]

    def fit(self, tokens: int, devices: int = 1) -> int:
        """Return the number of rows, at least one per device, that `tokens` tokens per device allow.

        If a whole group fits, micro-batches have whole groups, so that prompts are shared, in about equal numbers;
        otherwise they have a divisor of the group size. Wherever that is possible, the devices divide the number: rows
        that they do not divide are computed by each of them.

        >>> work = Work(rows=128, group_size=8, prompt_tokens=64, max_tokens=64)
        >>> work.fit(tokens=1536), work.fit(tokens=300), work.fit(tokens=10), work.fit(tokens=10**6)
        (16, 2, 1, 128)
        >>> work.fit(tokens=120, devices=16), work.fit(tokens=10, devices=4)
        (16, 4)
        """
        together = math.gcd(self.group_size, self.rows)
        groups = self.rows // together
        at_once = tokens * devices // (self.prompt_tokens + together * self.max_tokens)
        unit = devices // math.gcd(devices, together)
        if unit > groups or (at_once < unit and together > devices):
            unit = 1  # the devices cannot divide the rows
        if at_once or self.whole_groups or (together <= devices and unit * together % devices == 0):
            at_once = max(at_once // unit, 1) * unit
            in_each = -(-groups // -(-groups // at_once))
            return together * unit * min(-(-in_each // unit), groups // unit)
        divisors = [n for n in range(1, together) if together % n == 0]
        divisors = [n for n in divisors if n % devices == 0] or divisors
        fitting = [n for n in divisors if self.prompt_tokens + n * self.max_tokens <= tokens * devices]
        return max(fitting, default=min(devices, together))


def in_update(config: Config, *, whole_groups: bool = False) -> Work:
    """Return the work of an update; with `whole_groups`, micro-batches must not split groups."""
    train = config.train
    return Work(
        rows=mini_batch_size(config),
        group_size=train.group_size,
        prompt_tokens=part_of(train.max_prompt_tokens, config.mesh),
        max_tokens=part_of(config.sampling.max_tokens, config.mesh),
        whole_groups=whole_groups,
    )


def in_warm_start(config: Config) -> Work:
    """Return the work of a step on demonstrations, each of which has a prompt of its own."""
    return Work(
        rows=config.sft.batch_size,
        group_size=1,
        prompt_tokens=part_of(config.train.max_prompt_tokens, config.mesh),
        max_tokens=part_of(config.sft.max_tokens or config.sampling.max_tokens, config.mesh),
    )


def shares(devices: Devices) -> int:
    """Return the number of devices among which the tokens of a batch are divided: all of a row, or parts of it."""
    return 1 if devices.mesh is None else math.prod(devices.mesh.shape[axis] for axis in EACH)


def part_of(tokens: int, mesh: Mesh) -> int:
    """Return how many of a row's tokens a device has.

    >>> part_of(1023, Mesh(cp=4))
    256
    """
    return -(-tokens // mesh.cp)


@functools.lru_cache(maxsize=16)
def _bytes_per_token(graphdef: Any, structure: Any, leaves: tuple[jax.ShapeDtypeStruct, ...], length: int) -> int:
    """Return the bytes per token that the forward pass stores for the backward pass, from shapes only.

    The result is cached, because the trials of a sweep need the same one.
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
