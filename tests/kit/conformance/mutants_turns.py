"""Components that get episodes of several turns wrong. Most are bugs that somebody has shipped."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_losses import clean

import dovetail
from dovetail.arrays import Groups, Turns, per_token, returns_to_go
from dovetail_advantage.advantage._relative import all_turns, relative


def flat(numbers, x):
    """One item for each turn, in groups by number."""
    _, segments = jnp.unique(numbers.ravel(), return_inverse=True, size=numbers.size)
    return Groups(segments, x.ravel())


@caught_by("advantage", "holes")
def stops_at_a_hole(token_rewards, mask):
    """The running return is set back to zero where a tool has answered."""
    rewards = clean(token_rewards, mask)

    def step(after, now):
        reward, policy = now
        total = reward + after
        return jnp.where(policy, total, 0.0), total

    _, found = jax.lax.scan(step, jnp.zeros(len(mask)), (rewards.T, mask.T), reverse=True)
    return jnp.where(mask, found.T, 0.0)


@caught_by("advantage", "every_reward_counts")
def reads_the_ends_of_turns_alone(token_rewards, turns, mask):
    by_turn = Turns.of(turns, mask)
    earned = by_turn.total(jnp.where(by_turn.ends, clean(token_rewards, mask), 0.0))
    return by_turn.per_token(returns_to_go(earned, by_turn.live, 1.0))


@caught_by("advantage", "numbers_outside_the_mask")
def means_over_turns_with_their_padding(token_rewards, turns, mask):
    same = turns[:, :, None] == turns[:, None, :]
    total = jnp.sum(jnp.where(same & mask[:, None, :], clean(token_rewards, mask)[:, None, :], 0.0), axis=2)
    return jnp.where(mask, total / jnp.sum(same, axis=2, dtype=jnp.float32), 0.0)


@caught_by("advantage", "no_leak")
@dovetail.declares(by_turn=True)
def takes_states_of_all_prompts_for_one(token_rewards, turns, anchor_ids, group_ids, mask):
    by_turn = Turns.of(turns, mask, anchor_ids.shape[1])
    returns = returns_to_go(by_turn.total(token_rewards), by_turn.live, 0.9)
    steps = flat(anchor_ids, by_turn.live).deviations(returns.ravel()).reshape(returns.shape)
    return by_turn.per_token(steps)


@caught_by("advantage", "empty_rows")
@dovetail.declares(by_turn=True)
def counts_turns_of_the_empty(token_rewards, turns, turn_mask, group_ids, mask):
    groups, by_turn = Groups.of(group_ids, mask), Turns.of(turns, mask, turn_mask.shape[1])
    returns = returns_to_go(by_turn.total(token_rewards), by_turn.live, 0.9)
    steps = all_turns(groups, turn_mask).deviations(returns.ravel()).reshape(returns.shape)
    return by_turn.per_token(steps)


@caught_by("advantage", "constant_group")
@dovetail.declares(by_turn=True)
def blows_up_the_rounding_of_turns(token_rewards, turns, group_ids, mask):
    groups, by_turn = Groups.of(group_ids, mask), Turns.of(turns, mask)
    returns = returns_to_go(by_turn.total(token_rewards), by_turn.live, 0.9)
    pooled = all_turns(groups, by_turn.live)
    centred = returns.ravel() - pooled.total(returns.ravel()) / pooled.sizes
    spread = jnp.sqrt(pooled.total(jnp.square(centred)) / pooled.sizes)
    return by_turn.per_token((centred / (spread + 1e-8)).reshape(returns.shape))


@caught_by("advantage", "group_of_one")
@dovetail.declares(by_turn=True)
def gives_who_is_alone_its_return(token_rewards, turns, group_ids, mask):
    groups, by_turn = Groups.of(group_ids, mask), Turns.of(turns, mask)
    returns = returns_to_go(by_turn.total(token_rewards), by_turn.live, 0.9)
    pooled = all_turns(groups, by_turn.live)
    alone = per_token(jnp.where(groups.sizes == 1, 1.0, 0.0), mask) > 0
    steps = relative(pooled, returns.ravel(), "none", 0.0).reshape(returns.shape)
    return jnp.where(alone, by_turn.per_token(returns), by_turn.per_token(steps))


@caught_by("policy_loss", "holes")
def discounts_by_position(logps, advantages, mask):
    fading = 0.9 ** jnp.arange(mask.shape[1], dtype=jnp.float32)
    return -jnp.where(mask, fading[None, :] * clean(advantages, mask) * clean(logps, mask), 0.0)


@caught_by("policy_loss", "numbers_outside_the_mask")
def means_ratios_over_turns_with_their_padding(logps, old_logps, advantages, turns, mask):
    same = turns[:, :, None] == turns[:, None, :]
    x = clean(logps, mask) - clean(old_logps, mask)
    means = jnp.sum(jnp.where(same, x[:, None, :], 0.0), axis=2) / jnp.sum(same, axis=2, dtype=jnp.float32)
    return -jnp.where(mask, clean(advantages, mask) * jnp.exp(jnp.clip(means, -20, 20)), 0.0)


@caught_by("loss_term", "zero_outside_the_mask")
def predicts_what_the_policy_wrote_too(logps, observed):
    return -jnp.where(jnp.isfinite(logps), logps, 0.0)


@caught_by("reward_shaping", "empty_rows")
def compares_with_the_turns_of_the_empty(token_rewards, turn_mask, group_ids, mask):
    counts = jnp.sum(turn_mask, axis=1, dtype=jnp.float32)
    same = group_ids[:, None] == group_ids[None, :]
    usual = jnp.sum(jnp.where(same, counts[None, :], 0.0), axis=1) / jnp.sum(same, axis=1, dtype=jnp.float32)
    return jnp.where(mask, clean(token_rewards, mask) - (counts / usual)[:, None], 0.0)


@caught_by("reward_shaping", "garbage")
def reads_the_rewards_of_turns_that_there_are_not(token_rewards, turn_rewards, mask):
    earned = jnp.sum(turn_rewards.astype(jnp.float32), axis=1)
    return jnp.where(mask, clean(token_rewards, mask) + earned[:, None], 0.0)
