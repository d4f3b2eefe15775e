"""KL estimator `k1_plus`: the value of `k1`, the gradient of `k2`."""

from __future__ import annotations

from jaxtyping import Array, Float

from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import straight_through
from dovetail_loss.kl.k1 import k1
from dovetail_loss.kl.k2 import k2


@declares(unbiased_value=True, unbiased_gradient=True)
def k1_plus(logps: Float[Array, "seq token"], ref_logps: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """The log-ratio with a useful gradient: straight through to `k2`.

        k1+ = sg[k1] + k2 - sg[k2]

    with sg the stop-gradient. *Unbiased in value*, as `k1`. *Unbiased in gradient*, as `k2`. verl's `kl+` and
    `k1+`.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.

    Returns:
        An estimate at every position, unmasked.

    >>> import jax.numpy as jnp
    >>> k1_plus(jnp.array([[-1.0]]), jnp.array([[-1.5]])).tolist()
    [[0.5]]
    """
    return straight_through(k1(logps, ref_logps), k2(logps, ref_logps))
