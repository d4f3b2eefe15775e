"""Follower `ema`: an exponential moving average of the policy."""

from __future__ import annotations

from typing import Annotated, Any

import attrs
import jax
from annotated_types import Interval

from dovetail.arrays import full_precision
from dovetail.ranges import in_range


@attrs.frozen(kw_only=True)
class Ema:
    """An exponential moving average of the policy's weights, moved after every step.

        w_(k+1) = d·w_k + (1 - d)·θ_(k+1)

    where θ_k is the policy after step k, and w_0 = θ_0. The average is computed as w + (1 - d)·(θ - w) in float32, and
    stored in the type of the weights. Adjacent bfloat16 numbers differ by 0.4 %, and smaller changes are lost, so keep
    weights that are to be averaged in float32. As a reference, the average permits gradual changes of the policy and
    penalises sudden ones: Ramé et al. 2024, *WARP: On the Benefits of Weight Averaged Rewarded Policies*, section 3.1.

    Args:
        decay: d. The average covers about the last 1 / (1 - d) steps; with 1 the weights never change.
    """

    decay: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.99, validator=in_range)

    def __call__(self, weights: Any, policy: Any) -> Any:
        """Return the average after a step of the policy."""

        def moved(w: jax.Array, theta: jax.Array) -> jax.Array:
            before = full_precision(w)
            # this form of the equation keeps equal weights equal bit for bit
            return (before + (1.0 - self.decay) * (full_precision(theta) - before)).astype(w.dtype)

        return jax.tree.map(moved, weights, policy)
