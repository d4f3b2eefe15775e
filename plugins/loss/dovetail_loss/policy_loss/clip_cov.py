"""Policy loss `clip_cov`: PPO without the gradient of a few tokens that reduce the entropy most."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import indicator
from dovetail_loss.policy_loss.ppo import ppo


def clip_cov(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    clip_cov_tokens: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.2,
    epsilon_high: Annotated[float, Ge(0)] = 0.2,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Clip-Cov: the loss of `ppo`, but zero on a few tokens drawn from those with a high covariance.

        L = 0 where selected, else max(-A·r, -A·clip(r, 1-ε_low, 1+ε_high)),  r = π(a|s) / π_old(a|s)

    Cui et al. 2025, *The entropy mechanism of reinforcement learning for reasoning language models*
    (arXiv:2505.22617).

    Delta against `ppo`:

    1. selected tokens have neither loss nor gradient. They are the field `clip_cov_tokens`, drawn once for the
       mini-batch; how many, and from which range, is set there (`field.clip_cov_tokens.fraction`, ...).

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        clip_cov_tokens: the selection.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high.

    Returns:
        The loss per token, the metrics of `ppo`, and `cov_fraction`: tokens that the selection removed.

    Departures:
        Tokens that PPO clips keep their constant loss, as in verl. verl draws only from the others; here the draw is
        made before any token is clipped. verl reports `cov_fraction` as its clip fraction.

    >>> new, one, true = jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.ones((1, 2), bool)
    >>> clip_cov(new, new, one, true, jnp.array([[True, False]]))[0].tolist()
    [[0.0, -1.0]]
    """
    loss, metrics = ppo(logps, old_logps, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    dropped = mask & clip_cov_tokens & (metrics["clip_fraction"] == 0)
    return jnp.where(dropped, 0.0, loss), metrics | {"cov_fraction": indicator(dropped, loss)}
