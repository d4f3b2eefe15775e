"""KL estimator `k3_corrected`: `k3` times the importance ratio."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Float

from dovetail.arrays import bounded
from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import log_ratio
from dovetail_loss.kl.k3 import k3


@declares(non_negative=True, unbiased_gradient=True, unbiased_value=True)
def k3_corrected(
    logps: Float[Array, "seq token"],
    ref_logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    *,
    clamp: Annotated[float, Gt(0)] | None = 10.0,
) -> Float[Array, "seq token"]:
    """The low-variance estimate corrected for off-policy samples: unbiased in both, whoever has sampled.

        k = r·k3,  r = π(a|s) / π_old(a|s),  a ~ π_old

    DeepSeek-AI 2025, *DeepSeek-V3.2* (arXiv:2512.02556); TRL's `use_bias_correction_kl`.

    *Unbiased in value*: the expectation over π_old is KL(π || π_ref). *Unbiased in gradient*, which flows through r
    too: the samples do not depend on π, so the gradient of the expectation is the expectation of the gradient. On
    policy the value is that of `k3`, the gradient is not.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.
        old_logps: log π_old, in nats; constant to the gradient.
        clamp: bound of k3 in nats, or None. A bound that is reached makes it biased.

    Returns:
        An estimate at every position, unmasked.

    Departures:
        The log of r is bounded to ±20 (gradient zero beyond). With a sequence-level ratio TRL multiplies by that;
        here r is always the token's, of which the above holds.

    >>> old = jnp.log(jnp.array([[0.25]]))
    >>> round(k3_corrected(jnp.log(jnp.array([[0.5]])), old, old).item(), 4)
    0.3863
    """
    x, y = log_ratio(logps, ref_logps), log_ratio(logps, old_logps)
    finite = jnp.isfinite(x) & jnp.isfinite(y)
    ratio = jnp.exp(bounded(jnp.where(finite, y, 0.0)))
    estimate = k3(jnp.where(finite, logps, 0.0), jnp.where(finite, ref_logps, 0.0), clamp=clamp)
    return jnp.where(finite, ratio * estimate, x + y)
