"""Policy loss `kimi`: REINFORCE with a quadratic penalty on the completion's log-ratio."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio, log_ratio, masked
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import ratio_metrics


@declares(on_policy_gradient=True, regularised=True)
def kimi(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    tau: Annotated[float, Gt(0)] = 0.1,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Policy mirror descent as in Kimi k1.5 and K2, with the squared log-ratio of the whole completion.

        x_it = log π - log π_old,  X_i = ∑_t x_it
        L_it = -A_i·log π_it + ½·τ·X_i·x_it
        ∑_t L_it = -A_i·log π(y_i|x) + ½·τ·(log π(y_i|x)/π_old(y_i|x))²

    Kimi Team 2025, *Kimi k1.5: scaling reinforcement learning with LLMs* (arXiv:2501.12599), section 2.3.2. Its
    objective is this loss under `sequence_mean_token_sum`, with the reward minus its group's mean as the advantage
    (`train.advantage = 'dr_grpo'`).

    Delta against `dro`:

    1. the penalty is on the sum of a completion's log-ratios, not on each of them: opposite changes of tokens cancel,
       and long completions are constrained as tightly as short ones.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A, one per completion.
        mask: policy tokens; the loss is zero elsewhere.
        tau: τ > 0, in units of the advantage per nat.

    Returns:
        The loss per token, and per-token metrics: `penalty`, `ratio` and `approx_kl` as in `ppo`.

    >>> new, old = jnp.array([[-1.0, -1.0]]), jnp.array([[-2.0, -3.0]])
    >>> loss, _ = kimi(new, old, jnp.zeros((1, 2)), jnp.ones((1, 2), bool), tau=1.0)
    >>> loss.sum().item()
    4.5
    """
    x = log_ratio(logps, old_logps, mask)
    penalty = 0.5 * tau * jnp.sum(x, axis=-1, keepdims=True) * x
    loss = jnp.where(mask, -masked(advantages, mask) * masked(logps, mask) + penalty, 0.0)
    bounded, ratio = importance_ratio(logps, old_logps, mask)
    return loss, {"penalty": penalty} | ratio_metrics(bounded, ratio, mask)
