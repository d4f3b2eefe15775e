"""Broken components of a batch: bounds on the wrong side, selections turned round, scales between mean and sum."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_batches import alive, group_mean, spread
from tests.kit.conformance.mutants_losses import clean


@caught_by("policy_loss", "bounds_of_one_side")
def bounds_exchanged(logps, old_logps, advantages, mask, *, epsilon_low: float = 0.2, epsilon_high: float = 0.28):
    ratio = jnp.exp(jnp.clip(clean(logps, mask) - clean(old_logps, mask), -20.0, 20.0))
    a = clean(advantages, mask)
    bounded = jnp.clip(ratio, 1.0 - epsilon_high, 1.0 + epsilon_low)
    return jnp.where(mask, jnp.maximum(-a * ratio, -a * bounded), 0.0)


@caught_by("policy_loss", "every_number_counts")
def a_temperature_that_cancels(logps, old_logps, advantages, mask, *, temperature: float = 0.7):
    gap = clean(logps, mask) - clean(old_logps, mask)
    return jnp.where(mask, -clean(advantages, mask) * (temperature * gap) / temperature, 0.0)


@caught_by("value_loss", "every_value_is_pulled")
def the_first_tokens(values, returns, mask):
    early = mask & (jnp.cumsum(mask, axis=-1) < 3)
    return jnp.where(early, 0.5 * jnp.square(clean(values, mask) - clean(returns, mask)), 0.0)


@caught_by("loss_agg", "mean_or_sum")
def one_more_than_there_are(mask):
    return mask / (jnp.sum(mask, dtype=jnp.float32) + 1.0)


@caught_by("loss_agg", "mean_or_sum")
def one_more_in_each(mask):
    lengths = jnp.sum(mask, axis=-1, keepdims=True, dtype=jnp.float32)
    return mask / (lengths + 1.0) / jnp.maximum(jnp.sum(lengths > 0, dtype=jnp.float32), 1.0)


@caught_by("correction", "corrects")
def either_way_more(old_logps, rollout_logps, mask):
    gap = jnp.abs(clean(old_logps, mask) - clean(rollout_logps, mask))
    return jnp.where(mask, jnp.exp(jnp.minimum(gap, 0.7)), 0.0), mask


@caught_by("advantage", "every_column_counts")
def the_first_reward_alone(score_table, group_ids, mask):
    x, live = alive(score_table[:, 0], mask)
    return spread(x - group_mean(x, group_ids, live), mask)


@caught_by("advantage", "abstentions")
def sums_abstentions(score_table, group_ids, mask):
    x, live = alive(jnp.sum(score_table, axis=1), mask)
    return spread(x - group_mean(x, group_ids, live), mask)


@caught_by("group_filter", "keeps_what_differs")
def keeps_all(scores, group_ids, mask):
    return jnp.ones(scores.shape, bool)


@caught_by("group_filter", "whole_groups")
def off_the_mean(scores, group_ids, mask):
    x, live = alive(scores, mask)
    return jnp.abs(x - group_mean(x, group_ids, live)) > 1e-6


@caught_by("completion_filter", "flaws_do_not_help")
def what_was_cut_off(truncated, mask):
    return mask & truncated[:, None]


@caught_by("loss_mask", "flaws_do_not_help")
def only_void_turns(void_turns, mask):
    return mask & jnp.any(void_turns, axis=1, keepdims=True)


@caught_by("completion_filter", "every_number_counts")
def at_least_two(mask, *, least: Annotated[int, Ge(0)] = 2):
    return mask & (jnp.sum(jax.lax.stop_gradient(mask), axis=1, keepdims=True) >= 2)
