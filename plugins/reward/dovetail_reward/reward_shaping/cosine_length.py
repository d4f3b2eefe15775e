"""Reward shaping `cosine_length`: short right answers and long wrong ones are rewarded, along a cosine."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import full_precision, masked
from dovetail_reward.reward_shaping._last import at_last


def cosine_length(
    token_rewards: Float[Array, "seq token"],
    scores: Float[Array, "seq"],
    lengths: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    max_tokens: Annotated[int, Ge(1)],
    right_short: float = 1.0,
    right_long: float = 0.0,
    wrong_short: float = -10.0,
    wrong_long: float = 0.0,
    exceeded: float | None = -10.0,
    success_at: float = 1.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """Add a reward at the last policy token that depends on the length and on whether the completion is right.

        R_i = r_L + ½·(r_0 - r_L)·(1 + cos(π·|y_i| / L))   if |y_i| < L,   else r_e

    with L the limit, and r_0 and r_L the values of the shortest and the longest completion, others for right and for
    wrong ones. With a score of 1 for a right answer and 0 for a wrong one, the sum is the reward of Yeo et al. 2025,
    *Demystifying long chain-of-thought reasoning in LLMs*, section 4.2 and appendix C.1, with their values: 2 to 1 for
    right and -10 to 0 for wrong completions, and -10 at the limit, here -9 for a right one. A wrong answer gets less
    for stopping early, so that the policy thinks longer where it fails, and shorter where it does not.

    Args:
        token_rewards: rewards per token, to which it is added; cast to float32, unless float64.
        scores: the score of each completion, which determines whether it is right.
        lengths: |y|, policy tokens of each completion.
        mask: policy tokens; a completion without any gets nothing.
        max_tokens: L, in tokens; normally the value of `sampling.max_tokens`.
        right_short, right_long: r_0 and r_L of right completions, in units of reward.
        wrong_short, wrong_long: the same for wrong ones.
        exceeded: r_e, of completions that have as many tokens as the limit, right or wrong; None is r_L.
        success_at: the score from which a completion is right.

    Returns:
        The rewards, zero outside the mask, and per completion `added`, R.

    Departures:
        The paper and `get_cosine_scaled_reward` of TRL and Open R1 put R in the place of the score; here other rewards
        add up with it. Those functions have no r_e, and go from 1 to 0.5 for right and from -1 to -0.5 for wrong
        completions: with scores of 1 and 0, `right_short` = 0, `right_long` = -0.5, `wrong_short` = -1, `wrong_long` =
        -0.5. Open R1 counts characters.

    >>> mask = jnp.arange(4)[None] < jnp.array([[2], [2], [4]])
    >>> _, metrics = cosine_length(jnp.zeros((3, 4)), jnp.array([1.0, 0.0, 1.0]), mask.sum(1), mask, max_tokens=4)
    >>> import numpy as np
    >>> np.asarray(metrics["added"], float).round(4).tolist()
    [0.5, -5.0, -10.0]
    """
    rewards, live = masked(token_rewards, mask), jnp.any(mask, axis=-1)
    is_right = masked(full_precision(scores), live) >= success_at
    short, long = jnp.where(is_right, right_short, wrong_short), jnp.where(is_right, right_long, wrong_long)
    share = jnp.clip(lengths.astype(rewards.dtype) / max_tokens, 0.0, 1.0)
    along = long + 0.5 * (short - long) * (1.0 + jnp.cos(jnp.pi * share))
    at_limit = long if exceeded is None else exceeded
    added = masked(jnp.where(lengths >= max_tokens, at_limit, along).astype(rewards.dtype), live)
    return rewards + at_last(added, mask), {"added": added}
