"""Policy loss `kl_cov`: importance sampling, with a penalty on the few tokens that reduce the entropy most."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import indicator, log_ratio
from dovetail.registry import declares
from dovetail_loss.policy_loss.importance_sampling import importance_sampling


@declares(on_policy_gradient=True, regularised=True)
def kl_cov(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    kl_cov_tokens: Bool[Array, "seq token"],
    *,
    kl_coef: Annotated[float, Ge(0)] = 1.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """KL-Cov: the tokens with the highest covariance are penalised for moving away from the old policy.

        x = log π(a|s) - log π_old(a|s)
        L = -A·e^x + β·|x| where selected, else -A·e^x

    Cui et al. 2025, *The entropy mechanism of reinforcement learning for reasoning language models*
    (arXiv:2505.22617).

    Deltas against `ppo`:

    1. no clipping;
    2. a penalty on selected tokens. They are given by the field `kl_cov_tokens`, computed once for the mini-batch;
    their
       number is set there (`field.kl_cov_tokens.fraction`).

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        kl_cov_tokens: the selection.
        kl_coef: β, in units of the advantage per nat.

    Returns:
        The loss per token, the metrics of `importance_sampling`, and `cov_fraction`: tokens with the penalty.

    Departures:
        The log-ratio in the exponent is bounded to ±20. β is 1, as in the paper; verl's default is 0.1.

    >>> new, one, true = jnp.full((1, 2), -0.5), jnp.ones((1, 2)), jnp.ones((1, 2), bool)
    >>> loss, _ = kl_cov(new, 0 * new, one, true, jnp.array([[True, False]]))
    >>> (loss[0, 0] - loss[0, 1]).item()
    0.5
    """
    loss, metrics = importance_sampling(logps, old_logps, advantages, mask)
    x = log_ratio(logps, old_logps, mask)
    held = mask & kl_cov_tokens
    # jnp.abs is not used, because its derivative at zero is one.
    penalty = kl_coef * jnp.sign(x) * x
    return jnp.where(held, loss + penalty, loss), metrics | {"cov_fraction": indicator(held, loss)}
