"""Completion filter `void_turns`: no episode in which a turn came to nothing."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def void_turns(
    void_turns: Bool[Array, "seq turn"], mask: Bool[Array, "seq token"]
) -> tuple[Bool[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """SimpleTIR: an episode with a void turn is neither learnt from nor in the baseline of its group.

        kept_it = m_it   where no turn of episode i is void

    A turn is void that has a call that cannot be read, no text, or no end. Such turns begin where the policy writes
    tokens that it hardly ever would, behind results of tools that it has seen little of; their gradients are the ones
    that explode, and their low scores would teach it not to call at all. Xue et al. 2025, *SimpleTIR: End-to-End
    Reinforcement Learning for Multi-Turn Tool-Integrated Reasoning* (arXiv:2509.02479).

    Args:
        void_turns: which turns are void.
        mask: m, policy tokens.

    Returns:
        The mask without those episodes, and for each episode `dropped`, 1 where it is left out.

    Departures:
        In SimpleTIR a turn is void without a complete block of code and without an answer in a box. Here any text may
        be an answer, as the agent loop cannot know what the task takes for one.

    >>> void = jnp.array([[False, True], [False, False]])
    >>> void_turns(void, jnp.ones((2, 3), bool))[0][:, 0]
    Array([False,  True], dtype=bool)
    """
    dropped = jnp.any(void_turns, axis=1)
    return mask & ~dropped[:, None], {"dropped": dropped.astype(float)}
