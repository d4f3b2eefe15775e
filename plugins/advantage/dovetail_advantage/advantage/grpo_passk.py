"""Advantage `grpo_passk`: only a prompt's best completion has an advantage, its lead over the second best."""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, in_units_of, masked, per_token
from dovetail.registry import declares


@declares(shift_invariant=True)
def grpo_passk(
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    scale: Literal["group", "none"] = "group",
    epsilon: Annotated[float, Ge(0)] = 1e-6,
) -> Float[Array, "seq token"]:
    """Advantage for pass@k, where k is the size of the group: how much a completion raises its group's best score.

        A_it = (max_G(s) - max_{j ∈ G, j ≠ i} s_j) / (std_G(s) + ε),  G the completions of i's prompt

    which is the lead over the second best for the best completion, and zero for all others. The baseline, the best
    of the *other* completions, does not depend on the completion it is for. Tang et al. 2025, *Optimizing language
    models for inference time objectives using reinforcement learning*, the leave-one-out estimator of pass@k.

    Deltas against `grpo`:

    1. the objective is the group's best score, not its mean.

    Args:
        scores: s, one per completion, in units of reward.
        group_ids: equal labels form a group; groups may be interleaved and of unequal size.
        mask: policy tokens. A row without any belongs to no group.
        scale: "group" divides by the group's standard deviation (Bessel's correction); "none" does not divide, as in
            the paper.
        epsilon: ε, in units of reward; unused if `scale="none"`.

    Returns:
        A, never negative, the same at every policy token of a completion and zero elsewhere. A group of one gets
        zero, and so does one with two best completions.

    Departures:
        The division by a standard deviation is verl's. verl refuses a group of one, and counts rows without policy
        tokens as members of their group.

    >>> ids, mask = jnp.array([3, 3, 3, 8]), jnp.ones((4, 1), bool)
    >>> grpo_passk(jnp.array([0.0, 1.0, 0.25, 5.0]), ids, mask, scale="none").tolist()
    [[0.0], [0.75], [0.0], [0.0]]
    """
    groups = Groups.of(group_ids, mask)
    margins = _leads(groups, masked(scores, groups.live))
    if scale == "group":
        margins = in_units_of(margins, groups.std(scores), epsilon)
    return per_token(margins, mask)


def _leads(groups: Groups, scores: Float[Array, "seq"]) -> Float[Array, "seq"]:
    """Return the lead of each group's best completion over the second best; zero for all others."""
    rows = jnp.arange(scores.shape[0])

    def best(among: Bool[Array, "seq"]) -> Int[Array, "seq"]:
        """Return the first row with the group's highest score, or the row itself in a group without candidates."""
        highest = jax.ops.segment_max(jnp.where(among, scores, -jnp.inf), groups.segments, num_segments=len(rows))
        candidates = jnp.where(among & (scores == highest[groups.segments]), rows, len(rows))
        first = jax.ops.segment_min(candidates, groups.segments, num_segments=len(rows))[groups.segments]
        return jnp.where(first < len(rows), first, rows)

    leads = groups.live & (best(groups.live) == rows)
    second = best(groups.live & ~leads)
    return jnp.where(leads, scores - scores[second], 0.0)
