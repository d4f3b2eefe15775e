"""Policy loss `rloo`: the clipped surrogate of the whole completion's ratio."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import bounded, log_ratio
from dovetail_loss.policy_loss._clipped import clipped_surrogate, ratio_metrics


def rloo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.2,
    epsilon_high: Annotated[float, Ge(0)] = 0.2,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """The completion as a single action: its probability ratio, clipped as a token's would be in `ppo`.

        r_i  = π(y_i|x) / π_old(y_i|x) = exp( ∑_t [log π - log π_old] )
        L_it = max(-A_it·r_i, -A_it·clip(r_i, 1-ε_low, 1+ε_high))

    Ahmadian et al. 2024, *Back to basics: revisiting REINFORCE style optimization for learning from human feedback in
    LLMs*, section 3.2, treats a completion as one action; the clip is that of TRL's `RLOOTrainer`, whose objective is
    this loss under `sequence_mean_token_mean` with `train.advantage = 'rloo'`. On policy, where r is 1, the gradient is
    that of `reinforce` summed over the completion.

    Deltas against `gspo`:

    1. the ratio is the product over the tokens, not the geometric mean: it is exact, but its variance grows with the
       length;
    2. the gradient of each token's loss reaches every token of its completion.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A, one per completion in the sources; any values work.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high.

    Returns:
        The loss per token, and per-token metrics as in `ppo`; `ratio` is the completion's.

    Departures:
        The log of r is bounded to ±20 (gradient zero beyond).

    >>> old = jnp.zeros((1, 2))
    >>> loss, metrics = rloo(jnp.array([[0.3, -0.2]]), old, jnp.ones((1, 2)), old == 0)
    >>> bool(jnp.allclose(loss, -jnp.exp(0.1)))
    True
    """
    x = log_ratio(logps, old_logps, mask)
    ratio = jnp.broadcast_to(jnp.exp(bounded(jnp.sum(x, axis=-1, keepdims=True))), x.shape)
    loss, metrics = clipped_surrogate(ratio, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    return loss, metrics | ratio_metrics(x, ratio, mask)
