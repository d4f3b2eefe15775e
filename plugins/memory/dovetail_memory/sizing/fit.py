"""`fit`: the fastest way to compute a step that fits into memory.

The choice depends only on the config, on traced shapes and on the size of the device.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp
from flax import nnx

from dovetail.config import Choice, Config
from dovetail.devices.mesh import Devices
from dovetail.errors import DovetailError, DovetailWarning
from dovetail.progress import in_bytes
from dovetail.protocols import DoesNotFit, Settled, Traits, Weights
from dovetail.registry import REQUIRED
from dovetail.step.algorithm import Algorithm, assemble, sft_optimiser
from dovetail.step.forward import LOGITS_PER_CHUNK
from dovetail.training.models import Models
from dovetail_memory.device import allowed, base
from dovetail_memory.footprint import Footprint
from dovetail_memory.micro_batch import Work, in_update, in_warm_start

SURELY: Final = 0.25
"""The share of the limit below which a rough upper bound is enough, so that nothing is traced."""

LEAST_TOKENS: Final = {"cpu": 384}
LEAST_TOKENS_ELSEWHERE: Final = 4096
"""The number of tokens in a micro-batch below which a more frugal mode is faster than a smaller micro-batch."""

POSITIONS: Final = {"cpu": 512}
POSITIONS_ELSEWHERE: Final = 16_384
"""The number of positions in a chunk of logits: each chunk adds to the gradient of the whole table, which should cost
little compared with its products. On an accelerator a micro-batch is a single chunk if there is memory for it, since
the logits of several are computed twice."""
LOGITS_SHARES: Final = {"cpu": (1 / 64,)}
LOGITS_SHARES_ELSEWHERE: Final = (1 / 16, 1 / 64)
"""The shares of the limit that a chunk of logits may use; the smaller one before activations are computed twice."""


@attrs.frozen(kw_only=True)
class Fit:
    """Takes the first of the model's modes in which a step fits into memory, with the largest micro-batch that fits.

    What fits is decided by an estimate of the peak of each device: the weights, optimiser states and gradients by their
    shapes, activations by the lifetimes of the values in a trace of the update, see `dovetail_memory.liveness`. A step
    that is far below the limit is not traced. A micro-batch has at most 1,536 tokens on a CPU, whose caches should hold
    the activations, and 16,384 tokens for each accelerator; it consists of whole groups, or of a divisor of a group, so
    that prompts are computed once.

    The limit is `memory.limit`, by default nine tenths of the device's memory.
    """

    def update(self, config: Config, algorithm: Algorithm, models: Models, devices: Devices) -> Settled:
        """Return the fastest choice that fits.

        Raises:
            DoesNotFit: if no choice fits; the message says which changes would help.
        """
        step = Footprint(config, algorithm, models, devices)
        found = _choose(step)
        if found is None:
            raise _too_large(step)
        return found

    def warm_start(self, config: Config, graphdef: Any, weights: Weights, devices: Devices) -> int:
        """Return as many demonstrations as a device should process at a time, each with a prompt of its own.

        Raises:
            DoesNotFit: if parameters, gradients and optimiser alone do not fit; activations are not estimated.
        """
        state = jax.eval_shape(sft_optimiser(config)[0].init, weights.trained)
        gradients = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32), weights.trained)
        needed, may = base() + sum(map(devices.bytes, (*weights, state, gradients))), allowed(config.memory)
        if needed > may:
            raise DoesNotFit(
                f"a warm start takes {in_bytes(needed)} of each device for parameters, gradients and the optimizer"
                f" alone, and {in_bytes(may)} may be used; an adapter (train.adapter) trains fewer parameters, and"
                " mesh.fsdp or mesh.cp shards them over more devices. memory.limit, in GiB, says how much may be used"
            )
        return in_warm_start(config).choose(graphdef, weights, devices.parts)


def _choose(step: Footprint) -> Settled | None:
    """Return the fastest choice that fits, or None."""
    graphdef, weights = step.models.shapes()
    work, may = in_update(step.config, whole_groups=step.algorithm.whole_groups), allowed(step.config.memory)
    if step.least() > may:  # a trace of an update takes seconds for a large model
        return None
    given = step.config.train.micro_batch_size
    if given:
        _tell_of_repeated_work(given, step.devices.parts)
    most = min(given, work.rows) if given else work.choose(graphdef, weights, step.devices.parts)
    chunks = _positions(nnx.merge(graphdef, *weights).vocab_size, may)
    modes = _modes(nnx.merge(graphdef, *weights))
    first = Settled(mode=modes[0], micro_batch_size=most, positions=chunks[0])
    bound = step.rough(first, work)
    if bound < SURELY * may:
        return attrs.evolve(first, planned=bound)
    if step.account(first).peak > may and _frugal(step).planned > may:
        return None
    for mode, positions in itertools.product(modes, chunks):
        least = most if given else _least(work, step.devices.parts, last=mode == modes[-1])
        found = _largest(step, Settled(mode=mode, micro_batch_size=most, positions=positions), least, work, may)
        if found:
            return found
    return _frugal(step)


def _tell_of_repeated_work(rows: int, devices: int) -> None:
    """Warn of a micro-batch whose rows the devices cannot divide: each of them computes all of it."""
    if rows % devices:
        warnings.warn(
            f"train.micro_batch_size = {rows} is not a multiple of the {devices} devices that divide the rows of a"
            " batch (mesh.fsdp): each of them computes all rows, as slowly as one; leave it unset, or set it to"
            f" {-(-rows // devices) * devices}",
            DovetailWarning,
            stacklevel=2,
        )


def _largest(step: Footprint, most: Settled, least: int, work: Work, allowed: int) -> Settled | None:
    """Return the largest micro-batch that fits, interpolating the memory of the largest and the smallest one."""
    needed = step.account(most).peak
    if needed <= allowed or most.micro_batch_size <= least:
        return attrs.evolve(most, planned=needed) if needed <= allowed else None
    smallest = attrs.evolve(most, micro_batch_size=least)
    bottom = step.account(smallest).peak
    if bottom > allowed:
        return None
    slope = (needed - bottom) / (most.micro_batch_size - least)
    for rows in work.sizes(most.micro_batch_size, least, step.devices.parts):
        expected = bottom + slope * (rows - least)
        if expected <= allowed:
            return attrs.evolve(most, micro_batch_size=rows, planned=int(expected))
    return attrs.evolve(smallest, planned=bottom)


def _modes(model: Any) -> tuple[str | None, ...]:
    """Return the modes of a model, from the fastest to the most frugal."""
    return Traits.of(model).modes or (None,)


def _least(work: Work, parts: int, *, last: bool) -> int:
    """Return the smallest micro-batch to try before a more frugal mode; in the last mode, the smallest possible one."""
    platform = jax.devices()[0].platform
    return work.fit(1 if last else LEAST_TOKENS.get(platform, LEAST_TOKENS_ELSEWHERE), parts)


def _positions(vocab_size: int, allowed: int) -> list[int | None]:
    """Return numbers of positions in a chunk of logits, from the fastest to the most frugal; None means 64 MiB."""
    usual = LOGITS_PER_CHUNK // vocab_size
    platform = jax.devices()[0].platform
    most = POSITIONS.get(platform, POSITIONS_ELSEWHERE)
    shares = LOGITS_SHARES.get(platform, LOGITS_SHARES_ELSEWHERE)
    wanted = (min(most, int(share * allowed) // (4 * vocab_size)) for share in shares)
    return list(dict.fromkeys(number if number > usual else None for number in wanted))


def _frugal(step: Footprint) -> Settled:
    """Return the choice that needs least memory, and how much."""
    found = _most_frugal(step)
    return attrs.evolve(found, planned=step.account(found).peak)


def _most_frugal(step: Footprint) -> Settled:
    """Return the choice that needs least memory; nothing is traced."""
    graphdef, weights = step.models.shapes()
    work = in_update(step.config, whole_groups=step.algorithm.whole_groups)
    given = step.config.train.micro_batch_size
    rows = min(given, work.rows) if given else _least(work, step.devices.parts, last=True)
    return Settled(mode=_modes(nnx.merge(graphdef, *weights))[-1], micro_batch_size=rows, positions=None)


def _too_large(step: Footprint) -> DoesNotFit:
    """Return an error with the least memory of a step, and single changes of the config with which it would fit."""
    may, alone = allowed(step.config.memory), step.least()
    least = _frugal(step) if alone <= may else attrs.evolve(_most_frugal(step), planned=alone)
    fitting = [found for group in _changes(step.config) if (found := _first_that_fits(step, group))]
    advice = f"with one of these it fits: {'; '.join(fitting)}" if fitting else "no single change makes it fit"
    how = least if alone <= may else "for what stays throughout it alone"
    return DoesNotFit(
        f"a step takes {in_bytes(least.planned)} of each device at least ({how}), and {in_bytes(may)} may be used;"
        f" {advice}. memory.limit, in GiB, says how much may be used",
        least,
    )


def _first_that_fits(step: Footprint, changes: Iterable[tuple[str, Config]]) -> str | None:
    """Return the first change with which a step fits when it is computed as frugally as possible."""
    for text, config in changes:
        with contextlib.suppress(DovetailError):  # skips changes that are incompatible with the rest of the config
            other = Footprint(config, assemble(config), attrs.evolve(step.models, config=config), step.devices)
            may = allowed(config.memory)
            if other.least() <= may and _frugal(other).planned <= may:
                return text
    return None


def _changes(config: Config) -> Iterator[list[tuple[str, Config]]]:
    """Yield lists of single changes that save memory, each with its config; only the first that fits is suggested."""
    train, sampling = config.train, config.sampling

    def changed(choices: Mapping[str, Choice] = MappingProxyType({}), **sections: Any) -> Config:
        return attrs.evolve(config, sections={**config.sections, **sections}, choices={**config.choices, **choices})

    if train.micro_batch_size is not None:
        yield [("train.micro_batch_size = None", changed(train=attrs.evolve(train, micro_batch_size=None)))]
    if "train.adapter" not in config.choices:
        yield [
            (
                f"train.adapter = '{name}'",
                changed({"train.adapter": config.component("adapter", name)}, train=attrs.evolve(train, adapter=name)),
            )
            for name in config.registry.names("adapter")
            if REQUIRED not in config.registry.get("adapter", name).params.values()
        ]
    yield [
        (f"sampling.max_tokens = {tokens}", changed(sampling=attrs.evolve(sampling, max_tokens=tokens)))
        for tokens in (sampling.max_tokens // part for part in (2, 4, 8))
        if tokens
    ]
