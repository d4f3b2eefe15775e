"""Completion filter `void_turns`: exclude episodes with a turn without usable text."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def void_turns(
    void_turns: Bool[Array, "seq turn"], mask: Bool[Array, "seq token"]
) -> tuple[Bool[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """SimpleTIR: an episode with a void turn is excluded from the loss and from the baseline of its group.

        kept_it = m_it   if no turn of episode i is void, else false

    A turn is void if it has a call that cannot be parsed, has no text, or was cut off. Such turns arise when the policy
    samples very unlikely tokens after unfamiliar tool output; their gradients explode, and their low scores would teach
    the policy not to call tools at all. Xue et al. 2025, *SimpleTIR: End-to-End Reinforcement Learning for Multi-Turn
    Tool-Integrated Reasoning* (arXiv:2509.02479).

    Args:
        void_turns: true on void turns.
        mask: m, policy tokens.

    Returns:
        The mask without those episodes, and the metric `dropped`, 1 for each episode that is excluded.

    Departures:
        In SimpleTIR a turn is void if it has neither a complete code block nor a boxed answer. Here any text may be an
        answer, because the agent loop does not know what the task accepts.

    >>> void = jnp.array([[False, True], [False, False]])
    >>> void_turns(void, jnp.ones((2, 3), bool))[0][:, 0].tolist()
    [False, True]
    """
    dropped = jnp.any(void_turns, axis=1)
    return mask & ~dropped[:, None], {"dropped": dropped.astype(float)}
