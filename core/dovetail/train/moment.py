"""Where in a run a step stands: what the compiled functions are told about it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int, Key

from dovetail.train import keys
from dovetail.train.parts import Floats, Part


@struct.dataclass
class Moment:
    """The step, the steps in all, a key of its own, and the coefficients that controllers have set for it."""

    step: Int[Array, ""]
    total: Int[Array, ""]
    key: Key[Array, ""]
    kl_coef: Float[Array, ""]
    entropy_coef: Float[Array, ""]

    @property
    def progress(self) -> Float[Array, ""]:
        """Share of the steps done."""
        return self.step.astype(jnp.float32) / jnp.maximum(self.total, 1).astype(jnp.float32)

    @property
    def dropout(self) -> Key[Array, ""]:
        """The key of what is dropped in the step's updates."""
        return jax.random.fold_in(self.key, keys.DROPOUT)

    def fields(self, schedule: Part | None, hyper: dict[str, Floats]) -> dict[str, Any]:
        """Return the fields of stage `engine`; `schedule_weight` is among them where a schedule is chosen."""
        found: dict[str, Any] = {"key": self.key, "progress": self.progress}
        if schedule:
            found["schedule_weight"], _ = schedule({"step": self.step, "total_steps": self.total}, hyper)
        return found
