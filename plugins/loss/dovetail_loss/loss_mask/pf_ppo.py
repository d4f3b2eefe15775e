"""Loss mask `pf_ppo`: weight completions by how reliable their reward is."""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import full_precision


def pf_ppo(
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    method: Literal["pow", "max_min", "max_random"] = "pow",
    power: Annotated[float, Ge(0)] = 2.0,
    others: Annotated[float, Ge(0)] = 0.4,
) -> Float[Array, "seq token"]:
    """Policy filtration: rewards are most reliable at the ends of their range, so those completions get more weight.

        pow:        v_i = |s_i|^p
        max_min:    v_i = 1 where s_i is the highest or the lowest of its prompt's scores, else 0
        max_random: v_i = 1 where s_i is the highest of its prompt's scores, else q
        w_i = v_i / mean(v)

    Shen and Zhang 2024, *Policy filtration for RLHF to mitigate noise in reward models* (arXiv:2409.06957); `max_min`
    and `max_random` are its best-worst and best-random. The mean is over the completions with policy tokens.

    Args:
        scores: s, the total reward of each completion.
        group_ids: which prompt a completion answers.
        mask: policy tokens.
        method: how scores become weights.
        power: p, for `pow`.
        others: q, for `max_random`.

    Returns:
        w at the policy tokens, zero elsewhere. If every v is zero, every completion has weight 1.

    Departures:
        The paper and verl resample the batch with probabilities proportional to v; this is the expectation over all
        such draws, without their variance, except that `token_mean` still divides by the number of tokens originally
        sampled. verl uses the highest and lowest score of the whole batch instead of each prompt's.

    >>> pf_ppo(jnp.array([2.0, 0.0, -2.0, 0.0]), jnp.zeros(4, int), jnp.ones((4, 1), bool))[:, 0].tolist()
    [2.0, 0.0, 2.0, 0.0]
    """
    live = jnp.any(mask, axis=-1)
    scores = jnp.where(live, full_precision(scores), 0.0)
    _, groups = jnp.unique(group_ids, return_inverse=True, size=len(scores))
    highest = jax.ops.segment_max(jnp.where(live, scores, -jnp.inf), groups, num_segments=len(scores))[groups]
    lowest = jax.ops.segment_min(jnp.where(live, scores, jnp.inf), groups, num_segments=len(scores))[groups]
    values = {
        "pow": lambda: jnp.abs(scores) ** power,
        "max_min": lambda: ((scores == highest) | (scores == lowest)).astype(scores.dtype),
        "max_random": lambda: jnp.where(scores == highest, 1.0, others).astype(scores.dtype),
    }[method]()
    values = jnp.where(live, values, 0.0)
    mean = jnp.sum(values) / jnp.maximum(jnp.sum(live, dtype=scores.dtype), 1.0)
    weights = jnp.where(mean > 0, values / jnp.where(mean > 0, mean, 1.0), 1.0)
    return jnp.where(mask, weights[:, None], 0.0)
