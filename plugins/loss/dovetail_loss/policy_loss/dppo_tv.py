"""Policy loss `dppo_tv`: a trust region in total variation."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.registry import declares
from dovetail_loss.policy_loss._divergence import masked_score, probability


@declares(on_policy_gradient=True, surrogate=True)
def dppo_tv(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.15,
    epsilon_high: Annotated[float, Ge(0)] = 0.15,
    max_ratio: Annotated[float, Gt(0)] = 20.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Divergence PPO with the binary total variation: a token is dropped if its probability has moved too far.

        r = π(a|s) / π_old(a|s)
        M = [π - π_old ≤ ε_high] where A > 0, [π - π_old ≥ -ε_low] elsewhere
        L = -M·sg[min(r, c)]·A·log π(a|s)

    with sg the stop-gradient. |π - π_old| is the total variation between the two policies if all tokens other than the
    sampled one are merged into one. Qi et al. 2026, *Rethinking the trust region in LLM reinforcement learning*
    (arXiv:2602.04879).

    Deltas against `ppo`:

    1. the trust region is in units of probability, not of the ratio: rare tokens, whose ratio changes easily, are kept,
       and likely tokens, whose ratio barely reflects a large change, are dropped;
    2. the ratio is a weight, a constant for the gradient and bounded by c, as in `cispo`.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        epsilon_low: ε_low, in units of probability; 0.15 in the authors' scripts.
        epsilon_high: ε_high.
        max_ratio: c; a low bound biases the gradient.

    Returns:
        The loss per token, and per-token metrics: `clip_fraction` and its parts `clip_fraction_high` (A > 0) and
        `clip_fraction_low` of dropped tokens, `truncated_fraction` (the weight met c), `ratio` and `approx_kl` as
        in `ppo`.

    Departures:
        The log-ratio is bounded to ±20, as in verl. verl's default c is that of its dual clip, 3.

    >>> import jax.numpy as jnp
    >>> new, old = jnp.log(jnp.array([[0.9, 0.002]])), jnp.log(jnp.array([[0.6, 0.001]]))
    >>> loss, metrics = dppo_tv(new, old, jnp.ones((1, 2)), jnp.ones((1, 2), bool))
    >>> metrics["clip_fraction"].tolist()
    [[1.0, 0.0]]
    """
    change = probability(logps, mask) - probability(old_logps, mask)
    return masked_score(
        logps,
        old_logps,
        advantages,
        mask,
        too_high=change > epsilon_high,
        too_low=change < -epsilon_low,
        max_ratio=max_ratio,
    )
