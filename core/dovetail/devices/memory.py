"""How a step is computed so that it fits: the model's mode, the micro-batch and the chunk of logits, chosen together.

The choice follows from the config, from traced shapes and from the size of the device alone, never from what happens to
be free, and is kept with the run: a run that is resumed, on whatever machine, computes what it computed before.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs
import jax
from flax import nnx

from dovetail.config import Choice, Config
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


class DoesNotFit(ConfigError):
    """A step takes more memory than there is, however it is computed.

    Attributes:
        least: the way of computing it that takes least.
    """

    def __init__(self, message: str, least: Settled) -> None:
        super().__init__(message)
        self.least = least


def settle(
    config: Config,
    algorithm: Algorithm,
    models: Models,
    devices: Devices,
    folder: Path | None = None,
    *,
    refuse: bool = True,
) -> Settled:
    """Choose, or return what a run's folder says was chosen when it began.

    Raises:
        DoesNotFit: if nothing fits, with what would; not where `refuse` is false, as there will be no such step.
    """
    kept = folder / FILE if folder else None
    if kept and kept.exists():
        return Settled(**json.loads(kept.read_text()))
    step = Footprint(config, algorithm, models, devices)
    found = _choose(step)
    if found is None and refuse:
        raise _too_large(step)
    found = found or _frugal(step)
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
    bound = step.rough(first, work)
    if bound < SURELY * allowed:
        return attrs.evolve(first, planned=bound)
    if step.account(first).peak > allowed and _frugal(step).planned > allowed:
        return None
    for mode in modes:
        least = most if given else _least(work, step.devices.parts, last=mode == modes[-1])
        found = _largest(step, Settled(mode=mode, micro_batch_size=most, positions=positions), least, work, allowed)
        if found:
            return found
    return None


def _largest(step: Footprint, most: Settled, least: int, work: Work, allowed: int) -> Settled | None:
    """Return the largest micro-batch that fits, from what the largest and the smallest take."""
    needed = step.account(most).peak
    if needed <= allowed or most.micro_batch_size <= least:
        return attrs.evolve(most, planned=needed) if needed <= allowed else None
    smallest = attrs.evolve(most, micro_batch_size=least)
    bottom = step.account(smallest).peak
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


def _frugal(step: Footprint) -> Settled:
    """Return the way of computing a step that takes least."""
    graphdef, weights = step.models.shapes()
    work = in_update(step.config, whole_groups=step.algorithm.whole_groups)
    rows = step.config.train.micro_batch_size or _least(work, step.devices.parts, last=True)
    found = Settled(mode=_modes(nnx.merge(graphdef, *weights))[-1], micro_batch_size=rows, positions=None)
    return attrs.evolve(found, planned=step.account(found).peak)


def _too_large(step: Footprint) -> DoesNotFit:
    """Say what a step takes at least, and which single changes of the config would make it fit."""
    least, allowed = _frugal(step), limit(step.config)
    fitting = [found for group in _changes(step.config) if (found := _first_that_fits(step, group))]
    advice = f"with one of these it fits: {'; '.join(fitting)}" if fitting else "no single change makes it fit"
    return DoesNotFit(
        f"a step takes {in_bytes(least.planned)} of each device at least ({least}), and {in_bytes(allowed)} may be used"
        f"; {advice}. memory.limit, in GiB, says how much may be used",
        least,
    )


def _first_that_fits(step: Footprint, changes: Iterable[tuple[str, Config]]) -> str | None:
    """Return the first change with which a step fits if it is computed as frugally as it can be."""
    for text, config in changes:
        with contextlib.suppress(DovetailError):  # advice that the rest of the config refuses is of no use
            other = Footprint(config, assemble(config), attrs.evolve(step.models, config=config), step.devices)
            if _frugal(other).planned <= limit(config):
                return text
    return None


def _changes(config: Config) -> Iterator[list[tuple[str, Config]]]:
    """Yield single changes that save memory, each with the config that it makes; of a list the first is wanted."""
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
        ]
    yield [
        (f"sampling.max_tokens = {tokens}", changed(sampling=attrs.evolve(sampling, max_tokens=tokens)))
        for tokens in (sampling.max_tokens // part for part in (2, 4, 8))
        if tokens
    ]
