"""Advantage `rae`: the score less a running mean of what its role has scored so far."""

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
    """Role-conditioned advantage: each score less a baseline that its role keeps over the whole run.

        A_it = s_i - b_p,   p the role of completion i
        b_p ← α^n·b_p + (1 - α^n)·mean_p(s),   n the completions of role p in this step

    Liu et al. 2025, *SPIRAL: self-play on zero-sum games incentivizes reasoning via multi-agent multi-turn
    reinforcement learning*, equation 2 and algorithm 1. Where one model plays both sides of a game, one side's gain is
    the other's loss: a mean over both is zero whatever the policy does, and moving first may be worth something that no
    move has earned. A baseline for each side removes exactly that.

    Deltas against `reinforce`:

    1. a baseline, from the steps before and not from this one; prompts need not be sampled more than once.

    b is kept in `state`, an array over roles that is saved in checkpoints. A role's number comes from the dataset's
    column `train.role_column` ('role' unless set), whose values are texts or whole numbers and may name the game as
    well, since the paper keeps a baseline for each game and role. A task without the column has one role.

    Reads:
        state: b, and how many completions of each role there were.
        scores: s, one per completion, in units of reward.
        role_ids: p.
        mask: policy tokens. A row without any belongs to no role and moves no baseline.

    Attributes:
        decay: α, the fraction of b that is kept.
        per: what decays b: each "completion", as in the paper, where a role with many completions in a step all but
            replaces b; or each "step", whatever n (α for α^n), so that b looks back over some 1/(1-α) steps.

    Returns:
        A, in units of reward, the same at every policy token of a completion and zero elsewhere; and the metric
        `baseline`, b averaged over the completions of the step.

    Departures:
        The paper goes through the completions one by one, and adds each to b before taking its own advantage, which
        shrinks the advantage by the factor α; its code takes the advantage first. Here all completions of a step are
        judged by the b before it and enter it by their mean, so that their order does not matter. The paper's b
        begins at zero; here, as in prime-rl, at the role's mean in the step in which it is first seen, and the first
        advantages are against that. prime-rl moves b by the mean of each group, in turn; `per="step"` is that for one
        group.

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
        """Return the state before the first step."""
        return {"baseline": jnp.zeros(roles), "seen": jnp.zeros(roles)}

    def __call__(
        self,
        state: State,
        scores: Float[Array, "seq"],
        role_ids: Int[Array, "seq"],
        mask: Bool[Array, "seq token"],
    ) -> Estimate:
        """Return the advantages against the baselines before this step."""
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
        """Return the state with this step's scores in it."""
        baseline, seen = state["baseline"], state["seen"]
        live = jnp.any(mask, axis=-1)

        def per_role(x: Float[Array, "seq"]) -> Float[Array, "role"]:
            return jax.ops.segment_sum(masked(x, live).astype(baseline.dtype), role_ids, num_segments=len(baseline))

        count = per_role(jnp.ones(live.shape))
        mean = per_role(scores) / jnp.maximum(count, 1.0)
        stays = jnp.power(self.decay, count if self.per == "completion" else jnp.minimum(count, 1.0))
        moved = jnp.where(seen > 0, stays * baseline + (1.0 - stays) * mean, mean)
        return {"baseline": jnp.where(count > 0, moved, baseline), "seen": seen + count}
