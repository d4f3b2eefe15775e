"""KL estimator `abs`: the absolute log-ratio."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from dovetail.arrays import at_finite
from dovetail.registry import declares
from dovetail_loss.kl._log_ratio import log_ratio


@declares(non_negative=True)
def absolute(logps: Float[Array, "seq token"], ref_logps: Float[Array, "seq token"]) -> Float[Array, "seq token"]:
    """The absolute log-ratio: a robust distance, not an estimate of the KL divergence.

        abs = |x|,  x = log π(a|s) - log π_ref(a|s),  a ~ π

    *Biased in value*: E|x| ≥ KL. *Biased in gradient*: it is sign(x)·∇ log π, however large |x| is, and zero where
    x = 0. Found in TRL's PPO and in verl.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.

    Returns:
        A distance at every position, unmasked.

    >>> absolute(jnp.array([[-1.5]]), jnp.array([[-1.0]])).tolist()
    [[0.5]]
    """
    # jnp.abs is not used, because its derivative at zero is one.
    return at_finite(lambda x: jnp.sign(x) * x, log_ratio(logps, ref_logps))
