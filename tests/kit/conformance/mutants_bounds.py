"""Broken components of a batch: bounds on the wrong side, selections turned round, scales between mean and sum."""

from __future__ import annotations

from statistics import median
from typing import Annotated

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, Interval, Le
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_batches import alive, group_mean, spread
from tests.kit.conformance.mutants_contrasts import ANSWER
from tests.kit.conformance.mutants_losses import clean

import dovetail
from dovetail.arrays import Groups


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


@right("group_filter")
def tells_enough_pairs_apart(scores, group_ids, mask, *, least: Annotated[float, Gt(0), Le(1)] = 0.25):
    """Whether the scores of at least a share `least` of a group's pairs differ; which share matters only among ties."""
    groups = Groups.of(group_ids, mask)
    pairs = (groups.segments[:, None] == groups.segments) & groups.live[:, None] & groups.live
    differ = jnp.sum(pairs & (scores[:, None] != scores), axis=1, dtype=jnp.float32)
    return groups.total(differ) >= least * groups.sizes * jnp.maximum(groups.sizes - 1.0, 1.0)


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


@caught_by("advantage", "bounds_both_sides")
def advantages_bounded_above(scores, group_ids, mask, *, clip: Annotated[float, Gt(0)] = 1.0):
    x, live = alive(scores.astype(jnp.float32), mask)
    return spread(jnp.minimum(x - group_mean(x, group_ids, live), clip), mask)


@right("advantage")
def advantages_bounded(scores, group_ids, mask, *, clip: Annotated[float, Gt(0)] = 1.0):
    """A = scores - mean over group_ids, at most clip and at least -clip; on the mask."""
    groups = Groups.of(group_ids, mask)
    x, live = alive(groups.above_lowest(scores), mask)
    gap = x - group_mean(x, group_ids, live)
    return spread(jnp.clip(jnp.where(jnp.abs(gap) > 1e-3 * jnp.abs(x), gap, 0.0), -clip, clip), mask)


@caught_by("curriculum", "a_larger_decay_remembers_longer")
@attrs.frozen(kw_only=True)
class ForgetsByItsDecay:
    decay: Annotated[float, Interval(ge=0, le=1)] = 0.9

    def init(self, examples):
        return {"rate": np.full(examples, 0.5)}

    def choose(self, state, count, rng):
        weight = state["rate"] * (1 - state["rate"]) + 0.05
        return rng.choice(len(weight), count, p=weight / weight.sum())

    def share(self):
        return self.decay

    def update(self, state, chosen, scores):
        rate = state["rate"].copy()
        for prompt, row in zip(chosen, scores, strict=True):
            if np.isfinite(row).any():
                rate[prompt] += self.share() * (np.clip(np.nanmean(row), 0, 1) - rate[prompt])
        return {"rate": rate}


@right("curriculum")
@attrs.frozen(kw_only=True)
class KeepsByItsDecay(ForgetsByItsDecay):
    """Draws prompts by the spread of a running mean.

    Attributes:
        decay: the share of the mean that is kept.
    """

    def share(self):
        return 1 - self.decay


@caught_by("completion_filter", "a_wider_bound_keeps_no_less")
def what_is_too_long(mask, lengths, *, max_length: Annotated[int, Ge(1)] = 5):
    return mask & (lengths > max_length)[:, None]


@right("completion_filter")
def not_too_long(mask, lengths, *, max_length: Annotated[int, Ge(1)] = 5):
    """mask, where lengths is at most max_length."""
    return mask & (lengths <= max_length)[:, None]


@caught_by("loss_mask", "a_wider_bound_keeps_no_less")
def what_is_certain(mask, entropy, *, min_entropy: Annotated[float, Ge(0)] = 1.0):
    return mask & (jnp.where(mask, entropy, 0.0).astype(jnp.float32) <= min_entropy)


@caught_by("group_filter", "a_wider_bound_keeps_no_less")
def what_varies_little(scores, group_ids, mask, *, min_spread: Annotated[float, Ge(0)] = 1.0):
    groups = Groups.of(group_ids, mask)
    x = groups.above_lowest(scores)
    highest = jax.ops.segment_max(jnp.where(groups.live, x, 0.0), groups.segments, num_segments=len(x))
    return groups.live & (highest[groups.segments] > 0) & (highest[groups.segments] <= min_spread)


@caught_by("reward", "costs_cost")
@dovetail.declares(examples=ANSWER)
def pays_for_length(completions, answer, *, penalty: Annotated[float, Ge(0)] = 0.01):
    texts = zip(completions, answer, strict=True)
    return [float(text == truth) + penalty * len(text) / (1 + len(text)) for text, truth in texts]


@right("reward")
@dovetail.declares(examples=ANSWER)
def costs_its_length(completions, answer, *, penalty: Annotated[float, Ge(0)] = 0.01):
    """Whether completions are the answer, less the penalty times n / (1 + n) for n characters."""
    texts = zip(completions, answer, strict=True)
    return [float(text == truth) - penalty * len(text) / (1 + len(text)) for text, truth in texts]


@caught_by("lr_schedule", "does_not_end_below_its_floor")
def scaled_by_its_floor(step, total_steps, *, floor: Annotated[float, Interval(ge=0, le=1)] = 0.1):
    return (1 - floor) * 0.5 * (1 + jnp.cos(jnp.pi * jnp.clip(step / total_steps, 0.0, 1.0)))


@right("lr_schedule")
def falls_to_its_floor(step, total_steps, *, floor: Annotated[float, Interval(ge=0, le=1)] = 0.1):
    """f + (1 - f)(1 + cos(π step / total_steps)) / 2, with f the floor."""
    return floor + (1 - floor) * 0.5 * (1 + jnp.cos(jnp.pi * jnp.clip(step / total_steps, 0.0, 1.0)))


@caught_by("value_loss", "clips_both_sides")
def values_bounded_above(values, returns, old_values, mask, *, clip: Annotated[float, Gt(0)] = 0.2):
    v, r, old = (jnp.where(mask, x.astype(jnp.float32), 0.0) for x in (values, returns, old_values))
    return 0.5 * jnp.maximum((v - r) ** 2, (old + jnp.minimum(v - old, clip) - r) ** 2)


@caught_by("early_stopping", "waits_for_enough_trials")
def waits_for_figures(curve, others, *, min_trials: Annotated[int, Ge(1)] = 4):
    there = [max(v for at, v in other if at <= curve[-1][0]) for other in others if other[-1][0] >= curve[-1][0]]
    return len(there) > 1 and len(curve) >= min_trials and max(v for _, v in curve) < median(there)


@right("early_stopping")
def waits_for_others(curve, others, *, min_trials: Annotated[int, Ge(1)] = 4):
    """Stop a curve below the median of the others at its step, if there are min_trials of them."""
    there = [max(v for at, v in other if at <= curve[-1][0]) for other in others if other[-1][0] >= curve[-1][0]]
    return len(there) >= min_trials and max(v for _, v in curve) < median(there)
