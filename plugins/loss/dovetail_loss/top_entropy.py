"""Policy loss `top_entropy`: PPO on the tokens at which the policy is least sure."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail_loss._ratio import indicator
from dovetail_loss.ppo import ppo


def top_entropy(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    top_entropy_tokens: Bool[Array, "seq token"],
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.28,
    clip_c: float | None = None,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """The 80/20 rule: the loss of `ppo` on the fifth of the tokens that has the highest entropy.

        L = max(-A·r, -A·clip(r, 1-ε_low, 1+ε_high)) where selected, else 0,  r = π(a|s) / π_old(a|s)

    Wang et al. 2025, *Beyond the 80/20 rule: high-entropy minority tokens drive effective reinforcement learning for
    LLM reasoning* (arXiv:2506.01939).

    Deltas against `ppo`:

    1. tokens that are not selected have neither loss nor gradient, but still count in the aggregation's mean, as in
       the paper. The selection is the field `top_entropy_tokens`, made once for the mini-batch; its share is set
       there (`field.top_entropy_tokens.fraction`);
    2. clip-higher, as in the paper's baseline DAPO.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        top_entropy_tokens: the selection.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high.
        clip_c: as in `ppo`.

    Returns:
        The loss per token, the metrics of `ppo`, and `selected_fraction`.

    Departures:
        TRL applies the same selection to any loss.

    >>> new, one, true = jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.ones((1, 2), bool)
    >>> top_entropy(new, new, one, true, jnp.array([[True, False]]))[0]
    Array([[-1.,  0.]], dtype=float32)
    """
    loss, metrics = ppo(
        logps, old_logps, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high, clip_c=clip_c
    )
    kept = mask & top_entropy_tokens
    return jnp.where(kept, loss, 0.0), metrics | {"selected_fraction": indicator(kept, loss)}
