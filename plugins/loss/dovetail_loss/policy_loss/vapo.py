"""Policy loss `vapo`: PPO, plus imitation of successful completions."""

from __future__ import annotations

from typing import Annotated

import jax
from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked
from dovetail.registry import declares
from dovetail_loss.policy_loss.ppo import ppo


@declares(regularised=True)
def vapo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    positive_weights: Float[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 0.2,
    epsilon_high: Annotated[float, Ge(0)] = 0.28,
    clip_c: Annotated[float, Gt(1)] | None = None,
    nll_coef: Annotated[float, Ge(0)] = 0.1,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Policy loss of value-based augmented PPO: the surrogate, plus the likelihood of successful completions.

        L = max(-A·r, -A·clip(r, 1-ε_low, 1+ε_high)) - μ·p·log π(a|s),  r = π(a|s) / π_old(a|s)

    Yue et al. 2025, *VAPO: efficient and reliable reinforcement learning for advanced reasoning tasks*
    (arXiv:2504.05118); under `token_mean` the second term is μ times the paper's mean over the tokens of correct
    completions.

    Deltas against `ppo`:

    1. the imitation term. p is the field `positive_weights`: zero on failed completions, and elsewhere the reciprocal
    of
       the fraction of the mini-batch's tokens that are in successful ones. The score above which a completion counts as
       a success is set there (`field.positive_weights.threshold`);
    2. clip-higher.

    The other parts of VAPO, the critic with its pretraining and the advantage, are other components.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A.
        mask: policy tokens; the loss is zero elsewhere.
        positive_weights: p.
        epsilon_low: ε_low, in units of the ratio.
        epsilon_high: ε_high.
        clip_c: as in `ppo`.
        nll_coef: μ, in units of the advantage per nat; 0.1 in the paper.

    Returns:
        The loss per token, the metrics of `ppo`, and `positive_nll`, whose mean is over tokens of successful
        completions.

    >>> import jax.numpy as jnp
    >>> new, weights = jnp.array([[-1.0, -2.0]]), jnp.array([[2.0, 0.0]])
    >>> import numpy as np
    >>> np.asarray(vapo(new, new, jnp.ones((1, 2)), jnp.ones((1, 2), bool), weights)[0], float).round(4).tolist()
    [[-0.8, -1.0]]
    """
    loss, metrics = ppo(
        logps, old_logps, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high, clip_c=clip_c
    )
    likelihood = -masked(positive_weights, mask) * masked(logps, mask)
    return loss + nll_coef * likelihood, metrics | {"positive_nll": jax.lax.stop_gradient(likelihood)}
