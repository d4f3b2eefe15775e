"""KL estimator `k1`: the log-ratio."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt
from jaxtyping import Array, Float

from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import clamped, log_ratio


@declares(unbiased_value=True, zero_expected_gradient=True)
def k1(
    logps: Float[Array, "seq token"],
    ref_logps: Float[Array, "seq token"],
    *,
    clamp: Annotated[float, Gt(0)] | None = None,
) -> Float[Array, "seq token"]:
    """The log-ratio: the plain Monte Carlo estimate of KL(π || π_ref).

        k1 = x,  x = log π(a|s) - log π_ref(a|s),  a ~ π

    Schulman 2020, *Approximating KL divergence* (joschu.net/blog/kl-approx.html).

    *Unbiased in value*, with a high variance: it is often negative. *Its gradient is zero in expectation*:
    E[∇ log π] = 0, so that as a loss it only adds noise. Use it in the reward, or `k1_plus` in the loss.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.
        clamp: bound of |k1| in nats, or None. It biases the estimate wherever it takes effect.

    Returns:
        An estimate at every position, unmasked: positions are independent, and callers weight or mask them.

    >>> import jax.numpy as jnp
    >>> k1(jnp.array([[-1.0]]), jnp.array([[-1.5]])).tolist()
    [[0.5]]
    """
    return clamped(log_ratio(logps, ref_logps), clamp)
