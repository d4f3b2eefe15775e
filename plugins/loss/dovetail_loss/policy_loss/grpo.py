"""Policy loss `grpo`: PPO's clipped surrogate on group-relative advantages."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import Level
from dovetail.registry import declares
from dovetail_loss.policy_loss.ppo import ppo


@declares(on_policy_gradient=True, pessimistic=True)
def grpo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.2,
    epsilon_high: Annotated[float, Ge(0)] = 0.2,
    clip_c: Annotated[float, Gt(1)] | None = None,
    level: Level = "token",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Group relative policy optimisation: per token, the loss of `ppo`.

        L = max(-A·r, -A·clip(r, 1-ε_low, 1+ε_high)),  r = π(a|s) / π_old(a|s)

    Shao et al. 2024, *DeepSeekMath*, equation 3.

    Deltas against `ppo`, all of which are in other components:

    1. the advantage is that of the whole completion relative to its group (`train.advantage = 'grpo'`), so there
       is no critic;
    2. the paper's KL penalty is added by the engine (`train.kl = 'k3'`, `train.kl_coef = 0.04`), not here;
    3. the paper averages over tokens and then over completions (`train.loss_agg =
       'sequence_mean_token_mean'`).

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A, the same on all tokens of a completion in the paper; any values work.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high; 0.28 is DAPO's clip-higher.
        clip_c: upper bound of the ratio where A < 0, or None (TRL's `delta`, tunix's `epsilon_c`).
        level: 'sequence' for the completion's geometric-mean ratio (TRL's `importance_sampling_level`).

    Returns:
        The loss per token, and the metrics of `ppo`.

    Departures:
        As in `ppo`.

    >>> import jax.numpy as jnp
    >>> loss, _ = grpo(jnp.zeros((1, 1)), jnp.zeros((1, 1)), 2 * jnp.ones((1, 1)), jnp.ones((1, 1), bool))
    >>> loss.tolist()
    [[-2.0]]
    """
    return ppo(
        logps,
        old_logps,
        advantages,
        mask,
        epsilon_low=epsilon_low,
        epsilon_high=epsilon_high,
        clip_c=clip_c,
        level=level,
    )
