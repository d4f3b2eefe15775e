"""Follower `renewed`: a copy of the policy, taken anew every so many steps."""

from __future__ import annotations

from typing import Annotated, Any

import attrs
import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Int

from dovetail.ranges import in_range


@attrs.frozen(kw_only=True)
class Renewed:
    """The policy as it was after the last multiple of `every` steps: w = θ_k where `every` divides k.

    A reference of this kind bounds how far the policy moves in so many steps instead of how far it moves in all; resets
    of the reference are what ProRL credits for training on and on: Liu et al. 2025, *ProRL: Prolonged Reinforcement
    Learning Expands Reasoning Boundaries in Large Language Models*, section 3.3.

    Args:
        every: steps between two copies.
    """

    every: Annotated[int, Ge(1)] = attrs.field(default=100, validator=in_range)

    def __call__(self, weights: Any, policy: Any, step: Int[Array, ""]) -> Any:
        """Return the weights after `step` steps."""
        return jax.tree.map(lambda w, theta: jnp.where(step % self.every == 0, theta, w), weights, policy)
