"""Aggregation `prompt_mean`: the mean over tokens within each prompt's group, averaged over prompts."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.registry import declares


@declares(sums_to_one=True)
def prompt_mean(mask: Bool[Array, "seq token"], group_ids: Int[Array, "seq"]) -> Float[Array, "seq token"]:
    """Mean over the tokens of all completions of a prompt, then mean over prompts.

        w_it = m_it / (n_g·G),  n_g = ∑_(i in g) ∑_t m_it,  G = #{g : n_g > 0}

    Every prompt has the same weight, however long its completions; within a prompt, every token has the same weight.
    This is DAPO's objective as written, with the sums inside the expectation over prompts: Yu et al. 2025, *DAPO*,
    equation 12. Implementations that are called DAPO elsewhere, including TRL's `dapo`, are `token_mean`.

    Args:
        mask: m, policy tokens of the whole mini-batch; prompts without any are not counted.
        group_ids: g, the prompt that a completion answers; equal ids need not be adjacent.

    Returns:
        Weights that sum to one, or all zero if the mask is empty.

    >>> prompt_mean(jnp.array([[True, True], [True, True], [True, False]]), jnp.array([0, 0, 1])).tolist()
    [[0.125, 0.125], [0.125, 0.125], [0.5, 0.0]]
    """
    same = group_ids[:, None] == group_ids[None, :]
    lengths = jnp.sum(mask, axis=-1, dtype=float)
    tokens = jnp.sum(jnp.where(same, lengths[None, :], 0.0), axis=-1)
    first = ~jnp.any(jnp.tril(same, -1), axis=-1)
    prompts = jnp.sum(first & (tokens > 0), dtype=float)
    scale = jnp.maximum(tokens, 1.0) * jnp.maximum(prompts, 1.0)
    return mask.astype(float) / scale[:, None]
