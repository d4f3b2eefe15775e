"""Policy loss `luspo`: GSPO, for aggregations that sum over a completion's tokens."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.registry import declares
from dovetail_loss.policy_loss.gspo import gspo


@declares(on_policy_gradient=True, pessimistic=True, surrogate=True, averaged_by="sequence_mean_token_sum")
def luspo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 2e-3,
    epsilon_high: Annotated[float, Ge(0)] = 2.5e-3,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Length-unbiased sequence policy optimisation: per token, the loss of `gspo`.

        J = (1/N)·∑_i |y_i|·min(s_i·A_i, clip(s_i, 1-ε_low, 1+ε_high)·A_i)

    with s the ratio of `gspo`. Liu et al. 2026, *Length-unbiased sequence policy optimization* (arXiv:2602.05261).

    Deltas against `gspo`:

    1. a completion is weighted by its length |y_i|. Here the aggregation does this: the paper's objective is this loss
       under `sequence_mean_token_sum`. Under `token_mean` it is the same divided by the mean length, and under
       `sequence_mean_token_mean` it is GSPO;
    2. the clip range is wider: 2e-3 and 2.5e-3 in section 5.1 of the paper.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A, one per completion in the paper.
        mask: policy tokens; |y_i| is their number, and the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high.

    Returns:
        The loss per token, and the metrics of `gspo`.

    Departures:
        As in `gspo`. TRL's `luspo` uses a token-level ratio by default, and is then `grpo` under this aggregation.

    >>> import jax.numpy as jnp
    >>> loss, _ = luspo(jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.ones((1, 2), bool))
    >>> loss.tolist()
    [[-1.0, -1.0]]
    """
    return gspo(logps, old_logps, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
