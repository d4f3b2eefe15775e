"""KL estimator `k3_corrected`: `k3` times the importance ratio."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Float

from dovetail.arrays import bounded, full_precision
from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import log_ratio, straight_through
from dovetail_loss.kl.k3 import k3


@declares(non_negative=True, unbiased_gradient=True, unbiased_value=True)
def k3_corrected(
    logps: Float[Array, "seq token"],
    ref_logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    *,
    clamp: Annotated[float, Gt(0)] | None = None,
) -> Float[Array, "seq token"]:
    """The low-variance estimate corrected for off-policy samples: unbiased in value and gradient.

        k = r·k3,  r = π(a|s) / π_old(a|s),  a ~ π_old

    DeepSeek-AI 2025, *DeepSeek-V3.2* (arXiv:2512.02556); TRL's `use_bias_correction_kl`.

    *Unbiased in value*: the expectation over π_old is KL(π || π_ref). *Unbiased in gradient*, which flows through r
    too: the samples do not depend on π, so the gradient of the expectation is the expectation of the gradient,

        ∇k = r·(k3 + ∂k3/∂x)·∇ log π = r·x·∇ log π,  x = log π - log π_ref

    in which the exponentials of k3 cancel. On policy the value is that of `k3`, the gradient that of `k2`.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.
        old_logps: log π_old, in nats; constant for the gradient.
        clamp: bound of k3 in nats, or None. It biases the value wherever it takes effect; the gradient is never
            bounded.

    Returns:
        An estimate at every position, unmasked.

    Departures:
        The log of r is bounded to ±20. The gradient is computed as r·x, so that it has the right direction even where
        k3 is bounded and the exponentials no longer cancel. TRL uses a sequence-level ratio here if the loss has one;
        here r is always the token's, for which the identities above hold.

    >>> old = jnp.log(jnp.array([[0.25]]))
    >>> round(k3_corrected(jnp.log(jnp.array([[0.5]])), old, old).item(), 4)
    0.3863
    """
    x, y = log_ratio(logps, ref_logps), log_ratio(logps, old_logps)
    finite = jnp.isfinite(x) & jnp.isfinite(y)
    known, ref_known = (jnp.where(finite, full_precision(logps), 0.0) for logps in (logps, ref_logps))
    ratio = jnp.exp(bounded(jnp.where(finite, y, 0.0)))
    slope = jax.lax.stop_gradient(ratio * (known - ref_known))
    estimate = straight_through(ratio * k3(known, ref_known, clamp=clamp), slope * known)
    return jnp.where(finite, estimate, x + y)
