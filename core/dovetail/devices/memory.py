"""How a step is computed so that it fits: the model's mode, the micro-batch and the chunk of logits, chosen together.

The choice follows from the config, from traced shapes and from the size of the device alone, never from what happens to
be free, and is kept with the run: a run that is resumed, on whatever machine, computes what it computed before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import jax
from flax import nnx

from dovetail.config import Config
from dovetail.devices.footprint import Footprint, Settled
from dovetail.devices.mesh import Devices
from dovetail.devices.micro_batch import Work, in_update, memory_of
from dovetail.errors import ConfigError, DovetailError
from dovetail.progress import in_bytes
from dovetail.run.files import write_whole
from dovetail.step.algorithm import Algorithm, assemble
from dovetail.step.forward import LOGITS_PER_CHUNK
from dovetail.train.models import Models

FILE: Final = "memory.json"
"""Where a run keeps the choice."""

SHARE: Final = 0.9
"""Share of a device's memory that a step may be planned to take, where `memory.limit` does not say."""
SURELY: Final = 0.25
"""Share of the limit below which a rough upper bound is enough, and nothing is traced."""

LEAST_TOKENS: Final = {"cpu": 384}
LEAST_TOKENS_ELSEWHERE: Final = 4096
"""Tokens of a micro-batch below which a model's more frugal mode costs less time than a smaller micro-batch."""

POSITIONS: Final = {"cpu": 512}
POSITIONS_ELSEWHERE: Final = 4096
"""Positions of a chunk of logits: each chunk adds to the gradient of the whole table, which should cost little beside
its products."""
LOGITS_SHARE: Final = 1 / 64
"""Share of the limit that a chunk of logits may take."""


def settle(
    config: Config, algorithm: Algorithm, models: Models, devices: Devices, folder: Path | None = None
) -> Settled:
    """Choose, or return what a run's folder says was chosen when it began.

    Raises:
        ConfigError: if nothing fits, with what would.
    """
    kept = folder / FILE if folder else None
    if kept and kept.exists():
        return Settled(**json.loads(kept.read_text()))
    found = _choose(Footprint(config, algorithm, models, devices))
    if found is None:
        raise _too_large(config, models, devices)
    if kept:
        write_whole(kept, json.dumps(attrs.asdict(found), indent=2) + "\n")
    return found


def limit(config: Config) -> int:
    """Return the bytes of each device that a step may take."""
    if config.memory.limit is not None:
        return int(config.memory.limit * 2**30)
    return int(SHARE * memory_of(jax.devices()[0]))


def _choose(step: Footprint) -> Settled | None:
    """Return the fastest way that fits, or None."""
    graphdef, weights = step.models.shapes()
    work, allowed = in_update(step.config, whole_groups=step.algorithm.whole_groups), limit(step.config)
    given = step.config.train.micro_batch_size
    most = min(given, work.rows) if given else work.choose(graphdef, weights, step.devices.parts)
    positions = _positions(nnx.merge(graphdef, *weights).vocab_size, allowed)
    modes = _modes(nnx.merge(graphdef, *weights))
    first = Settled(mode=modes[0], micro_batch_size=most, positions=positions)
    if step.rough(graphdef, weights, work, most) < SURELY * allowed:
        return first
    for mode in modes:
        least = most if given else _least(work, step.devices.parts, last=mode == modes[-1])
        found = _largest(step, Settled(mode=mode, micro_batch_size=most, positions=positions), least, work, allowed)
        if found:
            return found
    return None


def _largest(step: Footprint, most: Settled, least: int, work: Work, allowed: int) -> Settled | None:
    """Return the largest micro-batch that fits, from what the largest and the smallest take."""
    needed = step.peak(most)
    if needed <= allowed or most.micro_batch_size <= least:
        return attrs.evolve(most, planned=needed) if needed <= allowed else None
    smallest = attrs.evolve(most, micro_batch_size=least)
    bottom = step.peak(smallest)
    if bottom > allowed:
        return None
    slope = (needed - bottom) / (most.micro_batch_size - least)
    for rows in work.sizes(most.micro_batch_size, least):
        expected = bottom + slope * (rows - least)
        if expected <= allowed:
            return attrs.evolve(most, micro_batch_size=rows, planned=int(expected))
    return attrs.evolve(smallest, planned=bottom)


def _modes(model: Any) -> tuple[str | None, ...]:
    """Return the ways in which a model can compute, from the fastest to the most frugal."""
    return tuple(getattr(model, "modes", ())) or (None,)


def _least(work: Work, parts: int, *, last: bool) -> int:
    """Return the smallest micro-batch that is tried before a more frugal mode; in the last one, the smallest at all."""
    platform = jax.devices()[0].platform
    return work.fit(1 if last else LEAST_TOKENS.get(platform, LEAST_TOKENS_ELSEWHERE), parts)


def _positions(vocab_size: int, allowed: int) -> int | None:
    """Return how many positions' logits are alive at a time, where 64 MiB hold too few."""
    usual = LOGITS_PER_CHUNK // vocab_size
    wanted = POSITIONS.get(jax.devices()[0].platform, POSITIONS_ELSEWHERE)
    wanted = min(wanted, int(LOGITS_SHARE * allowed) // (4 * vocab_size))
    return wanted if wanted > usual else None


def _too_large(config: Config, models: Models, devices: Devices) -> ConfigError:
    """Say what a step takes at least, and which single changes of the config would make it fit."""
    algorithm, allowed = assemble(config), limit(config)
    step = Footprint(config, algorithm, models, devices)
    graphdef, weights = models.shapes()
    modes = _modes(nnx.merge(graphdef, *weights))
    rows = config.train.micro_batch_size or _least(in_update(config), devices.parts, last=True)
    least = Settled(mode=modes[-1], micro_batch_size=rows, positions=None)
    needed = step.peak(least)
    fitting = [text for text, other in _changes(config, models) if _fits(other, models, devices)]
    advice = f"; these would fit: {'; '.join(fitting)}" if fitting else "; no single change of a setting makes it fit"
    return ConfigError(
        f"a step takes {in_bytes(needed)} of each device at least ({least}), and {in_bytes(allowed)} may be used"
        f"{advice}. memory.limit, in GiB, says otherwise how much may be used"
    )


def _fits(config: Config, models: Models, devices: Devices) -> bool:
    try:
        step = Footprint(config, assemble(config), attrs.evolve(models, config=config), devices)
        return _choose(step) is not None
    except DovetailError:
        return False


def _changes(config: Config, models: Models) -> Iterator[tuple[str, Config]]:
    """Yield single changes that save memory, each with the config that it makes."""
    train, sections = config.train, dict(config.sections)
    if train.micro_batch_size is not None:
        free = sections | {"train": attrs.evolve(train, micro_batch_size=None)}
        yield "train.micro_batch_size = None", attrs.evolve(config, sections=free)
    if "train.adapter" not in config.choices:
        for name in config.registry.names("adapter"):
            named = sections | {"train": attrs.evolve(train, adapter=name)}
            chosen = {**config.choices, "train.adapter": config.component("adapter", name)}
            yield f"train.adapter = '{name}'", attrs.evolve(config, sections=named, choices=chosen)
    tokens = config.sampling.max_tokens // 2
    while tokens >= 16:
        shorter = attrs.evolve(
            config, sections=sections | {"sampling": attrs.evolve(config.sampling, max_tokens=tokens)}
        )
        if _fits(shorter, models, models.devices):
            yield f"sampling.max_tokens = {tokens}", shorter
            break
        tokens //= 2
