"""Broken components that point the wrong way, and hyperparameters that do nothing."""

from __future__ import annotations

from typing import Any

import attrs
import jax.numpy as jnp
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_batches import alive, group_mean, spread
from tests.kit.conformance.mutants_losses import clean


@caught_by("policy_loss", "every_number_counts")
def the_upper_bound_twice(logps, old_logps, advantages, mask, *, epsilon_low: float = 0.2, epsilon_high: float = 0.28):
    ratio = jnp.exp(jnp.clip(clean(logps, mask) - clean(old_logps, mask), -20.0, 20.0))
    bounded = jnp.clip(ratio, 1.0 - epsilon_high, 1.0 + epsilon_high)
    a = clean(advantages, mask)
    return jnp.where(mask, jnp.maximum(-a * ratio, -a * bounded), 0.0)


@caught_by("advantage", "every_number_counts")
def a_discount_that_is_never_applied(token_rewards, mask, *, gamma: float = 1.0):
    rewards = clean(token_rewards, mask)
    return jnp.where(mask, jnp.cumsum(rewards[:, ::-1], axis=1)[:, ::-1], 0.0)


@caught_by("advantage", "every_number_counts")
def a_scale_that_cancels(scores, group_ids, mask, *, scale: float = 0.5):
    x, live = alive(scores, mask)
    x = jnp.where(scale == -123.0, 2 * x, x)
    return spread(x - group_mean(x, group_ids, live), mask)


@caught_by("loss_agg", "every_number_counts")
def a_power_that_is_not_used(mask, *, power: float = 1.0):
    return mask / jnp.maximum(jnp.sum(mask, dtype=jnp.float32), 1.0)


@caught_by("kl_controller", "every_number_counts")
@attrs.frozen(kw_only=True)
class TargetOfNothing:
    target: float = 0.1

    def init(self, coef: float) -> dict[str, Any]:
        return {"coef": jnp.float32(coef)}

    def coef(self, state: dict[str, Any]) -> Any:
        return state["coef"]

    def update(self, state: dict[str, Any], kl: Any, samples: Any) -> dict[str, Any]:
        moved = state["coef"] * (1 + 0.1 * jnp.clip(kl - 0.5, -0.2, 0.2))
        return {"coef": jnp.where(samples > 0, moved, state["coef"]).astype(jnp.float32)}


@caught_by("lr_schedule", "every_number_counts")
@attrs.frozen(kw_only=True)
class NeverWarmsUp:
    warmup_ratio: float = 0.1

    def __call__(self, step: Any, total_steps: Any) -> Any:
        return 1.0 - step.astype(jnp.float32) / jnp.maximum(total_steps + 1, 1)


@caught_by("advantage", "more_is_better")
def the_baseline_less_the_score(scores, group_ids, mask):
    x, live = alive(scores, mask)
    return spread(group_mean(x, group_ids, live) - x, mask)


@caught_by("advantage", "more_is_better")
def the_size_of_the_gap(scores, group_ids, mask):
    x, live = alive(scores, mask)
    return spread(jnp.abs(x - group_mean(x, group_ids, live)), mask)


@caught_by("advantage", "later_rewards_reach_back")
def from_the_start(token_rewards, mask):
    return jnp.where(mask, jnp.cumsum(clean(token_rewards, mask), axis=1), 0.0)


@caught_by("advantage", "later_rewards_reach_back")
def gae_forwards(token_rewards, old_values, mask, *, decay: float = 0.95):
    gaps = clean(token_rewards, mask) - clean(old_values, mask)
    steps = jnp.cumsum(mask, axis=1)
    powers = jnp.where(mask[:, None, :] & mask[:, :, None], steps[:, :, None] - steps[:, None, :], -1)
    weights = jnp.where(powers >= 0, jnp.asarray(decay, jnp.float32) ** jnp.maximum(powers, 0), 0.0)
    found = jnp.where(mask, jnp.einsum("rts,rs->rt", weights, gaps), 0.0)
    return found, jnp.where(mask, found + clean(old_values, mask), 0.0)


@caught_by("advantage", "returns_are_targets")
def the_critic_learns_advantages(token_rewards, old_values, mask):
    later = jnp.cumsum(clean(token_rewards, mask)[:, ::-1], axis=1)[:, ::-1]
    found = jnp.where(mask, later - clean(old_values, mask), 0.0)
    return found, found


@caught_by("value_loss", "towards_the_returns")
def pushes_away(values, returns, mask):
    return -0.5 * jnp.square(clean(values, mask) - clean(returns, mask))


@caught_by("value_loss", "towards_the_returns")
def towards_the_opposite(values, returns, mask):
    return jnp.where(mask, 0.5 * jnp.square(clean(values, mask) + clean(returns, mask)), 0.0)


@caught_by("correction", "corrects")
def the_wrong_way_round(old_logps, rollout_logps, mask):
    gap = jnp.where(mask, rollout_logps.astype(jnp.float32) - old_logps.astype(jnp.float32), 0.0)
    return jnp.where(mask, jnp.exp(jnp.minimum(gap, 0.7)), 0.0), mask


@caught_by("correction", "corrects")
def never_corrects(old_logps, rollout_logps, mask):
    gap = jnp.where(mask, old_logps - rollout_logps, 0.0)
    return jnp.where(mask, 1.0 + 0.0 * jnp.where(jnp.isnan(gap), gap, 0.0), 0.0), mask


@caught_by("group_filter", "keeps_what_differs")
def keeps_the_equal(scores, group_ids, mask):
    x, live = alive(scores, mask)
    same = (group_ids[:, None] == group_ids[None, :]) & live[None, :]
    high = jnp.max(jnp.where(same, x[None, :], -jnp.inf), axis=1, initial=-9.0)
    low = jnp.min(jnp.where(same, x[None, :], jnp.inf), axis=1, initial=9.0)
    return high <= low


@caught_by("group_filter", "keeps_what_differs")
def keeps_no_group(scores, group_ids, mask):
    return jnp.zeros(scores.shape, bool)


@caught_by("reward_shaping", "keeps_what_it_was_given")
def forgets_the_rewards(token_rewards, mask, *, cost: float = 0.1):
    return jnp.where(mask, -cost, 0.0).astype(jnp.float32)
