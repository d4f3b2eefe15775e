"""KL estimator `abs_plus`: the value of `abs`, the gradient of `k2`."""

from __future__ import annotations

from jaxtyping import Array, Float

from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import straight_through
from dovetail_loss.kl.abs import absolute
from dovetail_loss.kl.k2 import k2


@declares(non_negative=True, unbiased_gradient=True)
def abs_plus(logps: Float[Array, "seq token"], ref_logps: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """The absolute log-ratio, straight through to `k2`.

        abs+ = sg[abs] + k2 - sg[k2]

    with sg the stop-gradient. *Biased in value*, as `abs`. *Unbiased in gradient*, as `k2`. verl's `abs+`.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.

    Returns:
        A distance at every position, unmasked.

    >>> import jax.numpy as jnp
    >>> abs_plus(jnp.array([[-1.5]]), jnp.array([[-1.0]])).tolist()
    [[0.5]]
    """
    return straight_through(absolute(logps, ref_logps), k2(logps, ref_logps))
