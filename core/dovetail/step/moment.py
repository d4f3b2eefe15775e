"""The position of a step in a run, as an argument of the compiled functions."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int, Key

from dovetail.config import Config
from dovetail.kinds import FIELDS
from dovetail.kinds.fields import ENGINE
from dovetail.step import keys
from dovetail.step.parts import KEY, Floats, Part


@struct.dataclass
class Moment:
    """The step, the total number of steps, the step's key, and the coefficients of the loss (controllers change some).

    `update` counts the mini-batches of the step; it is 0 at collection.
    """

    step: Int[Array, ""]
    total: Int[Array, ""]
    key: Key[Array, ""]
    coefficients: dict[str, Float[Array, ""]]
    update: Int[Array, ""]

    @classmethod
    def of(cls, config: Config, step: int, coefficients: dict[str, Array]) -> Moment:
        """Return the moment at the beginning of a run's step."""
        return cls(
            step=jnp.int32(step),
            total=jnp.int32(config.train.steps),
            key=keys.stream(config.run.seed, keys.STEP, step),
            coefficients=coefficients,
            update=jnp.int32(0),
        )

    @property
    def progress(self) -> Float[Array, ""]:
        """The share of the steps that are done."""
        return self.step.astype(jnp.float32) / jnp.maximum(self.total, 1).astype(jnp.float32)

    @property
    def dropout(self) -> Key[Array, ""]:
        """The key of dropout in the step's updates."""
        return jax.random.fold_in(self.key, keys.DROPOUT)

    def at_update(self, number: int) -> Moment:
        """Return the same moment at a mini-batch of the step."""
        return dataclasses.replace(self, update=jnp.int32(number))

    def rows(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Return a key for each row, which does not depend on the split into batches."""
        numbers = batch.get("draw_ids", jnp.arange(batch["tokens"].shape[0], dtype=jnp.int32))
        key = jax.random.fold_in(self.key, keys.ROWS)
        return {"row_keys": jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)}

    def fields(self, schedule: Part | None, hyper: dict[str, Floats], *, in_update: bool = False) -> dict[str, Any]:
        """Return the fields that exist at every stage, including `schedule_weight` if a schedule is chosen."""
        # with one key for all mini-batches, the same tokens would be drawn in each of them, epoch after epoch
        key = jax.random.fold_in(jax.random.fold_in(self.key, keys.UPDATE), self.update) if in_update else self.key
        found: dict[str, Any] = {KEY: key, "progress": self.progress}
        if schedule:
            found["schedule_weight"], _ = schedule({"step": self.step, "total_steps": self.total}, hyper)
        assert all(FIELDS[name].stage == ENGINE for name in found), "the glossary says when a field is there"
        return found
