"""Follower `renewed`: a copy of the policy that is renewed every `every` steps."""

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
    """A copy of the policy after the last multiple of `every` steps: w = θ_k where k = `every` ⌊step / `every`⌋.

    As a reference it limits the change of the policy since the last copy instead of since the start. ProRL attributes
    its progress in long training runs to such resets of the reference: Liu et al. 2025, *ProRL: Prolonged Reinforcement
    Learning Expands Reasoning Boundaries in Large Language Models*, section 3.3.

    Args:
        every: steps between two copies.
    """

    every: Annotated[int, Ge(1)] = attrs.field(default=100, validator=in_range)

    def __call__(self, weights: Any, policy: Any, step: Int[Array, ""]) -> Any:
        """Return the weights after `step` steps."""
        return jax.tree.map(lambda w, theta: jnp.where(step % self.every == 0, theta, w), weights, policy)
