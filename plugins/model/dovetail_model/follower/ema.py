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

    with θ the policy after step k + 1 and w_0 = θ_0. Computed as w + (1 - d)·(θ - w) in float32, and kept in the type
    of the weights: in bfloat16, whose numbers are 0.4 % apart, a step that is smaller than that is lost, so keep
    weights that are to be averaged in float32. As a reference it lets the policy go where it has been going and holds
    back what is sudden: Ramé et al. 2024, *WARP: On the Benefits of Weight Averaged Rewarded Policies*, section 3.1.

    Args:
        decay: d; 1 / (1 - d) steps is about how far back the average looks. 1 never moves.
    """

    decay: Annotated[float, Interval(ge=0, le=1)] = attrs.field(default=0.99, validator=in_range)

    def __call__(self, weights: Any, policy: Any) -> Any:
        """Return the average after the policy has taken a step."""

        def moved(w: jax.Array, theta: jax.Array) -> jax.Array:
            before = full_precision(w)
            # written with the difference, so that equal weights stay equal bit for bit
            return (before + (1.0 - self.decay) * (full_precision(theta) - before)).astype(w.dtype)

        return jax.tree.map(moved, weights, policy)
