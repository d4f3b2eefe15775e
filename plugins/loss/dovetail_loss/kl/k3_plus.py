"""KL estimator `k3_plus`: the value of `k3`, the gradient of `k2`."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt
from jaxtyping import Array, Float

from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import straight_through
from dovetail_loss.kl.k2 import k2
from dovetail_loss.kl.k3 import k3


@declares(non_negative=True, unbiased_gradient=True, unbiased_value=True)
def k3_plus(
    logps: Float[Array, "seq token"],
    ref_logps: Float[Array, "seq token"],
    *,
    clamp: Annotated[float, Gt(0)] | None = None,
) -> Float[Array, "seq token"]:
    """The low-variance estimate, straight through to `k2`: unbiased in both.

        k3+ = sg[k3] + k2 - sg[k2]

    with sg the stop-gradient. *Unbiased in value*, as `k3`. *Unbiased in gradient*, as `k2`. verl's `k3+` and
    `low_var_kl+`.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.
        clamp: bound of the value in nats, or None; verl's is 10. The gradient is never bounded.

    Returns:
        An estimate at every position, unmasked.

    >>> import jax.numpy as jnp
    >>> round(k3_plus(jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))).item(), 4)
    0.1931
    """
    return straight_through(k3(logps, ref_logps, clamp=clamp), k2(logps, ref_logps))
