"""What a run that was extended has from its earlier number of steps: the first part of its curves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from dovetail.run.extended import changes
from dovetail.step.algorithm import Algorithm
from dovetail.step.parts import Part


def told(folder: Path, algorithm: Algorithm) -> str:
    """Return a line about the components that depend on the number of steps; empty if a run in one piece is equal.

    Args:
        folder: the run's folder, whose `run.json` says whether the run was extended.
        algorithm: its components and their hyperparameters.
    """
    found = [each for each in changes(folder / "run.json") if each["after"]]
    if not found:
        return ""
    last = found[-1]
    before, total, done = last["from"], last["to"], last["after"]
    if not (names := [*_other_curves(algorithm, before, total, done), *_readers(algorithm)]):
        return ""
    follow = "follows" if len(names) == 1 else "follow"
    return (
        f"{', '.join(names)} {follow} the number of steps, which is {total} since step {done} and was {before} before:"
        f" the result is not that of {total} steps in one piece"
    )


def _other_curves(algorithm: Algorithm, before: int, total: int, done: int) -> Iterator[str]:
    """Yield the schedules whose values in the steps that are done would have been others in a run of `total` steps."""
    parts = [optimiser.schedule for optimiser in algorithm.optimisers.values()]
    parts += [algorithm.schedule] if algorithm.schedule else []
    for part in parts:
        first, second = (_curve(part, algorithm, steps, done) for steps in (before, total))
        if not np.array_equal(first, second):
            yield part.component.label


def _curve(part: Part, algorithm: Algorithm, total: int, done: int) -> np.ndarray:
    """Return a schedule's values in the first `done` steps."""

    def value(step: jax.Array) -> jax.Array:
        return part({"step": step, "total_steps": jnp.int32(total)}, algorithm.hyper)[0]

    return np.asarray(jax.vmap(value)(jnp.arange(done, dtype=jnp.int32)))


def _readers(algorithm: Algorithm) -> list[str]:
    """Return the components that read the share of the steps that are done."""
    return [reader for entry in algorithm.plan.entries if entry.field == "progress" for reader in entry.readers]
