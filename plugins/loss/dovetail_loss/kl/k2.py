"""KL estimator `k2`: half the squared log-ratio."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Float

from dovetail.arrays import at_finite
from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import clamped, log_ratio


@declares(non_negative=True, unbiased_gradient=True)
def k2(
    logps: Float[Array, "seq token"],
    ref_logps: Float[Array, "seq token"],
    *,
    clamp: Annotated[float, Gt(0)] | None = None,
) -> Float[Array, "seq token"]:
    """Half the squared log-ratio: the estimator to use as a loss.

        k2 = ½·x²,  x = log π(a|s) - log π_ref(a|s),  a ~ π

    Schulman 2020, *Approximating KL divergence* (joschu.net/blog/kl-approx.html).

    *Biased in value*, only slightly if the policies are close. *Unbiased in gradient*, on policy: ∇k2 = x·∇ log π,
    whose expectation is ∇KL(π || π_ref). verl's `k2+` is the same function.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.
        clamp: bound of k2 in nats, or None. It biases the gradient, which is zero wherever it takes effect.

    Returns:
        An estimate at every position, unmasked.

    >>> k2(jnp.array([[-1.0]]), jnp.array([[-3.0]])).tolist()
    [[2.0]]
    """
    return clamped(at_finite(lambda x: 0.5 * jnp.square(x), log_ratio(logps, ref_logps)), clamp)
