"""Value loss `ppo`: the squared error, clipped around the critic at collection."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import clip, masked


def ppo(
    values: Float[Array, "seq token"],
    old_values: Float[Array, "seq token"],
    returns: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    clip_value: Annotated[float, Ge(0)] = 0.5,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Half the squared error, with the critic's change since collection clipped to a range.

        V_clip = clip(V, V_old - ε, V_old + ε)
        L      = ½·max((V - R)², (V_clip - R)²)

    Not in the PPO paper but in its reference code; described by Engstrom et al. 2020, *Implementation matters
    in deep policy gradients*, section 3. The factor ½ is in the loss, as in verl and tunix, so that the
    unclipped gradient is V - R.

    Args:
        values: V, the critic now, differentiable.
        old_values: V_old, the critic at collection.
        returns: R, the regression target.
        mask: policy tokens; the loss is zero elsewhere.
        clip_value: ε, in units of the value.

    Returns:
        The loss per token, and the per-token metric `clip_fraction`: 1 where the clipped error is the larger one.

    >>> loss, metrics = ppo(jnp.array([[2.0]]), jnp.array([[0.0]]), jnp.array([[1.5]]), jnp.array([[True]]))
    >>> loss.tolist(), metrics["clip_fraction"].tolist()
    ([[0.5]], [[1.0]])
    """
    values, old_values, returns = masked(values, mask), masked(old_values, mask), masked(returns, mask)
    unclipped = jnp.square(values - returns)
    clipped = jnp.square(clip(values, old_values - clip_value, old_values + clip_value) - returns)
    worse = mask & (clipped > unclipped)
    loss = jnp.where(mask, 0.5 * jnp.where(worse, clipped, unclipped), 0.0)
    return loss, {"clip_fraction": worse.astype(loss.dtype)}
