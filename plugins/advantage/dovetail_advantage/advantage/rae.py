"""Advantage `rae`: the score minus a running mean of its role's scores."""

from __future__ import annotations

from typing import Annotated, Literal

import attrs
import jax
import jax.numpy as jnp
from annotated_types import Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, full_precision, masked, per_token
from dovetail.ranges import in_range

State = dict[str, Array]
Estimate = tuple[Float[Array, "seq token"], dict[str, Array]]


@attrs.frozen(kw_only=True)
class RoleConditioned:
    """Role-conditioned advantage: each score minus a baseline that is kept for its role over the whole run.

        A_it = s_i - b_p,   p the role of completion i
        b_p ← α^n·b_p + (1 - α^n)·mean_p(s),   n the completions of role p in this step

    Liu et al. 2025, *SPIRAL: self-play on zero-sum games incentivizes reasoning via multi-agent multi-turn
    reinforcement learning*, equation 2 and algorithm 1. If one model plays both sides of a zero-sum game, the mean
    score over both sides is zero whatever the policy does, while one side may have an inherent advantage, for example
    by moving first. A baseline for each side removes exactly that advantage.

    Deltas against `reinforce`:

    1. a baseline, computed from earlier steps, not from the current one; one completion per prompt is enough.

    b is kept in `state`, an array over roles that checkpoints include. Roles are numbered from the dataset column
    `train.role_column` ('role' by default), whose values are strings or integers. They may include the name of the
    game, since the paper keeps a baseline for each game and role. A task without the column has a single role.

    Reads:
        state: b, and how many completions of each role there were.
        scores: s, one per completion, in units of reward.
        role_ids: p.
        mask: policy tokens. A row without any belongs to no role and changes no baseline.

    Args:
        decay: α, the fraction of b that is kept.
        per: how often b decays. "completion": once per completion, as in the paper, so that a step with many
            completions of a role nearly replaces b. "step": once per step, with α in place of α^n, so that b averages
            over about 1/(1-α) steps.

    Returns:
        A, in units of reward, the same at every policy token of a completion and zero elsewhere; and the metric
        `baseline`, b averaged over the completions of the step.

    Departures:
        The paper processes the completions one by one, and adds each to b before computing its advantage, which
        multiplies the advantage by α; its code computes the advantage first. Here all completions of a step use the b
        from before the step and then update it with their mean, so that their order does not matter. The paper's b
        starts at zero; here, as in prime-rl, it starts at the role's mean score in the step in which the role first
        appears, and that step's advantages are relative to this mean. prime-rl updates b with the mean of one group
        after another; with a single group this is `per="step"`.

    >>> rae, scores, mask = RoleConditioned(decay=0.5), jnp.array([1.0, -1.0, -1.0]), jnp.ones((3, 1), bool)
    >>> state = rae.update(rae.init(roles=2), scores, jnp.array([0, 0, 1]), mask)
    >>> print(state["baseline"])
    [ 0. -1.]
    >>> advantages, _ = rae(state, jnp.array([1.0, 1.0, 0.0]), jnp.array([0, 0, 1]), mask)
    >>> print(advantages[:, 0])
    [1. 1. 1.]
    """

    decay: Annotated[float, Interval(ge=0, lt=1)] = attrs.field(default=0.95, validator=in_range)
    per: Literal["completion", "step"] = "completion"

    def init(self, roles: int) -> State:
        """Return the initial state: baselines [role], and the number of completions seen so far [role]."""
        return {"baseline": jnp.zeros(roles), "seen": jnp.zeros(roles)}

    def __call__(
        self,
        state: State,
        scores: Float[Array, "seq"],
        role_ids: Int[Array, "seq"],
        mask: Bool[Array, "seq token"],
    ) -> Estimate:
        """Return the advantages relative to the baselines from before this step, and the metrics."""
        scores = full_precision(scores)
        among_themselves = Groups.of(role_ids, mask).deviations(scores)
        kept = state["baseline"].astype(scores.dtype)[role_ids]
        advantages = jnp.where(state["seen"][role_ids] > 0, scores - kept, among_themselves)
        live = jnp.any(mask, axis=-1)
        return per_token(masked(advantages, live), mask), {"baseline": masked(scores - advantages, live)}

    def update(
        self,
        state: State,
        scores: Float[Array, "seq"],
        role_ids: Int[Array, "seq"],
        mask: Bool[Array, "seq token"],
    ) -> State:
        """Return the state updated with the scores of this step."""
        baseline, seen = state["baseline"], state["seen"]
        live = jnp.any(mask, axis=-1)

        def per_role(x: Float[Array, "seq"]) -> Float[Array, "role"]:
            return jax.ops.segment_sum(masked(x, live).astype(baseline.dtype), role_ids, num_segments=len(baseline))

        count = per_role(jnp.ones(live.shape))
        mean = per_role(scores) / jnp.maximum(count, 1.0)
        stays = jnp.power(self.decay, count if self.per == "completion" else jnp.minimum(count, 1.0))
        moved = jnp.where(seen > 0, stays * baseline + (1.0 - stays) * mean, mean)
        return {"baseline": jnp.where(count > 0, moved, baseline), "seen": seen + count}
