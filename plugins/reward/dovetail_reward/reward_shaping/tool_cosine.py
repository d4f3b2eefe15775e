"""Reward shaping `tool_cosine`: scale rewards down if an episode uses more tool calls than its prompt needs."""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, full_precision, masked


def tool_cosine(
    token_rewards: Float[Array, "seq token"],
    scores: Float[Array, "seq"],
    tool_calls: Int[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    best: Literal["zero", "group"] = "group",
    smoothing: Annotated[float, Gt(0)] = 4.0,
    success_at: float = 1.0,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """Multiply the rewards of an episode by a factor that depends on its number of tool calls.

        r'_it = c_i·r_it
        c_i = cos(π·m / (2m + a))   if n = 0, which is 1 if m = 0 too
        c_i = sin(π·f / (2n)),  f = 2nm / (m + n)   else

    with m the number of tool calls in episode i, and n the smallest number with which an episode of the same prompt
    succeeded: c is 1 at m = n, and decreases on both sides. Since c is a factor, saving calls cannot make up for a
    wrong answer. Wang et al. 2025, *Acting less is reasoning more! Teaching model to act efficiently* (OTC-PO): with n
    = 0 for all prompts it is OTC-PPO, otherwise OTC-GRPO.

    Args:
        token_rewards: r; cast to float32, unless float64.
        scores: the score of each episode, which determines whether it succeeded.
        tool_calls: m, the calls that were run.
        group_ids: equal labels form a group.
        mask: policy tokens. A row without any belongs to no group.
        best: the definition of n. "group": as above, with c = 1 if no episode has succeeded; "zero": 0 for every
            prompt.
        smoothing: a, in calls; the larger, the less a call costs.
        success_at: the score from which an episode succeeds.

    Returns:
        The rewards, zero outside the mask, and `factor`, c of each episode.

    Departures:
        In the paper, scores are 0 or 1, and n is the smallest over all steps so far. Negative rewards are also
        multiplied, so that calls would reduce a penalty: rewards should not be negative.

    >>> rewards, ids, calls = jnp.ones((3, 1)), jnp.array([3, 3, 3]), jnp.array([1, 3, 0])
    >>> _, metrics = tool_cosine(rewards, jnp.array([1.0, 1.0, 0.0]), calls, ids, jnp.ones((3, 1), bool))
    >>> import numpy as np
    >>> np.asarray(metrics["factor"], float).round(3).tolist()
    [1.0, 0.707, 0.0]
    """
    rewards, groups = masked(token_rewards, mask), Groups.of(group_ids, mask)
    calls = masked(tool_calls.astype(rewards.dtype), groups.live)
    fewest = jnp.zeros_like(calls)
    if best == "group":
        succeeded = groups.live & (masked(full_precision(scores), groups.live) >= success_at)
        with_success = jnp.where(succeeded, calls, jnp.inf)
        fewest = jax.ops.segment_min(with_success, groups.segments, num_segments=len(calls))[groups.segments]
    factors = masked(_worth(calls, fewest, smoothing), groups.live)
    return rewards * factors[:, None], {"factor": factors}


def _worth(calls: Float[Array, "seq"], fewest: Float[Array, "seq"], smoothing: float) -> Float[Array, "seq"]:
    """Return c for m and n; n is infinite if no episode has succeeded."""
    some = (fewest > 0) & jnp.isfinite(fewest)
    n = jnp.where(some, fewest, 1.0)
    near = jnp.sin(jnp.pi * calls / (calls + n))  # f / (2n) = m / (m + n)
    none = jnp.cos(jnp.pi * calls / (2.0 * calls + smoothing))
    return jnp.where(some, near, jnp.where(jnp.isfinite(fewest), none, 1.0))
