"""KL estimator `k3`: the log-ratio with a control variate."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Float

from dovetail.arrays import LOG_RATIO_BOUND, at_finite, clip
from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import clamped, log_ratio


@declares(non_negative=True, unbiased_value=True)
def k3(
    logps: Float[Array, "seq token"],
    ref_logps: Float[Array, "seq token"],
    *,
    clamp: Annotated[float, Gt(0)] | None = None,
) -> Float[Array, "seq token"]:
    """The log-ratio plus a control variate of mean zero: never negative, and of low variance.

        k3 = x + (e^(-x) - 1),  x = log π(a|s) - log π_ref(a|s),  a ~ π

    Schulman 2020, *Approximating KL divergence* (joschu.net/blog/kl-approx.html); Shao et al. 2024,
    *DeepSeekMath*, equation 4.

    *Unbiased in value*: E[e^(-x)] = 1. *Biased in gradient*: ∇k3 = (1 - e^(-x))·∇ log π, whose expectation is
    the gradient of the other divergence, KL(π_ref || π). `k3_plus` has this value with an unbiased gradient.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.
        clamp: bound of k3 in nats, or None; verl's is 10. It keeps a single token from dominating a batch, but the
            gradient beyond it is zero: a token that is likely under the reference, and that the policy has almost
            abandoned, is no longer pulled back. It biases the value, too, wherever it takes effect.

    Returns:
        An estimate at every position, unmasked.

    Departures:
        verl always clamps; here that is a setting. Below x = -20, k3 continues as its tangent, so that it does not
        overflow and its gradient keeps its size. verl bounds x to ±20 (gradient zero beyond); tunix's `low_var_kl` goes
        to infinity.

    >>> round(k3(jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))).item(), 4)
    0.1931
    """
    return clamped(at_finite(_k3, log_ratio(logps, ref_logps)), clamp)


def _k3(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    near = clip(x, -LOG_RATIO_BOUND, jnp.inf)
    # If it were constant beyond the bound, the tokens that have moved furthest would have no gradient.
    beyond = (jnp.minimum(x, -LOG_RATIO_BOUND) + LOG_RATIO_BOUND) * -jnp.expm1(LOG_RATIO_BOUND)
    return near + jnp.expm1(-near) + beyond
