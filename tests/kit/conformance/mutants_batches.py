"""Broken advantage estimators, corrections, filters and quantities. Most are bugs that somebody has shipped."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp
from tests.kit.conformance.mutants import caught_by

import dovetail


def spread(x, mask):
    return jnp.where(mask, x[:, None], 0.0)


def group_mean(x, group_ids, live):
    """The mean over the group, for labels of any kind."""
    same = (group_ids[:, None] == group_ids[None, :]) & live[None, :]
    return jnp.sum(jnp.where(same, x[None, :], 0.0), axis=1) / jnp.maximum(jnp.sum(same, axis=1), 1)


def alive(scores, mask):
    live = jnp.any(mask, axis=-1)
    return jnp.where(live, scores, 0.0), live


@caught_by("advantage", "row_order")
def contiguous_groups(scores, group_ids, mask):
    groups = scores.reshape(-1, 2) if scores.shape[0] % 2 == 0 else scores[:, None]
    return spread((groups - groups.mean(axis=1, keepdims=True)).reshape(-1), mask)


@caught_by("advantage", "group_of_one")
def raw_score_of_a_group_of_one(scores, group_ids, mask):
    x, live = alive(scores, mask)
    alone = jnp.sum((group_ids[:, None] == group_ids[None, :]) & live[None, :], axis=1) == 1
    return spread(jnp.where(alone, x, x - group_mean(x, group_ids, live)), mask)


@caught_by("advantage", "group_of_one")
def nan_of_a_group_of_one(scores, group_ids, mask):
    x, live = alive(scores, mask)
    centred = jnp.where(live, x - group_mean(x, group_ids, live), 0.0)
    sizes = jnp.sum((group_ids[:, None] == group_ids[None, :]) & live[None, :], axis=1)
    variance = group_mean(jnp.square(centred), group_ids, live) * sizes / (sizes - 1)
    return spread(centred / (jnp.sqrt(variance) + 1e-6), mask)


@caught_by("advantage", "constant_group")
def rounding_blown_up(scores, group_ids, mask):
    x, live = alive(scores, mask)
    centred = x - group_mean(x, group_ids, live)
    return spread(centred / (jnp.sqrt(group_mean(jnp.square(centred), group_ids, live)) + 1e-8), mask)


@caught_by("advantage", "constant_group")
def zero_over_zero(scores, group_ids, mask):
    x, live = alive(scores, mask)
    centred = x - group_mean(x, group_ids, live)
    return spread(centred / jnp.sqrt(group_mean(jnp.square(centred), group_ids, live)), mask)


@caught_by("advantage", "no_leak")
def deviation_of_the_batch(scores, group_ids, mask):
    x, live = alive(scores, mask)
    centred = jnp.where(live, x - group_mean(x, group_ids, live), 0.0)
    return spread(centred / (jnp.std(centred) + 1e-6), mask)


@caught_by("advantage", "empty_rows")
def rejected_rows_shift_the_baseline(scores, group_ids, mask):
    """verl counts a row without policy tokens as a member of its group."""
    return spread(scores - group_mean(scores, group_ids, jnp.ones(scores.shape, bool)), mask)


@caught_by("advantage", "garbage")
def nan_of_an_empty_row(scores, group_ids, mask):
    live = jnp.any(mask, axis=-1)
    same = ((group_ids[:, None] == group_ids[None, :]) & live[None, :]).astype(jnp.float32)
    return spread(scores - jnp.sum(same * scores[None, :], axis=1) / jnp.maximum(jnp.sum(same, axis=1), 1.0), mask)


@caught_by("advantage", "group_labels")
def labels_as_indices(scores, group_ids, mask):
    x, live = alive(scores, mask)
    totals = jax.ops.segment_sum(x, group_ids, num_segments=64)
    counts = jax.ops.segment_sum(live.astype(jnp.float32), group_ids, num_segments=64)
    return spread(x - (totals / jnp.maximum(counts, 1.0))[group_ids], mask)


@caught_by("advantage", "holes")
def discounts_the_tools_tokens(token_rewards, mask):
    rewards = jnp.where(mask, token_rewards, 0.0)
    steps = jnp.arange(mask.shape[1])
    discount = jnp.where(steps[None, :] >= steps[:, None], 0.9 ** (steps[None, :] - steps[:, None]), 0.0)
    return jnp.where(mask, rewards @ discount.T.astype(jnp.float32), 0.0)


@caught_by("advantage", "padding")
def reward_in_the_last_column(token_rewards, mask):
    """The terminal reward is lost where a row ends in anything but a policy token."""
    rewards = jnp.where(mask, token_rewards, 0.0)
    return jnp.where(mask, rewards[:, -1:] + jnp.mean(rewards, axis=1, keepdims=True), 0.0)


@caught_by("advantage", "padding")
def whitens_the_padding_too(token_rewards, mask):
    x = jnp.where(mask, token_rewards, 0.0)
    return jnp.where(mask, (x - jnp.mean(x)) / (jnp.std(x) + 1e-6), 0.0)


@caught_by("advantage", "shift_invariance")
@dovetail.declares(shift_invariant=True)
def in_units_of_the_mean(scores, group_ids, mask):
    x, live = alive(scores, mask)
    mean = group_mean(x, group_ids, live)
    return spread((x - mean) / jnp.where(jnp.abs(mean) > 1e-6, mean, 1.0), mask)


@caught_by("advantage", "zero_mean")
@dovetail.declares(zero_mean=True)
def leave_one_out_of_the_largest(scores, group_ids, mask):
    x, live = alive(scores, mask)
    same = (group_ids[:, None] == group_ids[None, :]) & live[None, :]
    return spread(x - jnp.max(jnp.where(same, x[None, :], -jnp.inf), axis=1, initial=-9.0), mask)


@caught_by("advantage", "signal")
def never_anything(scores, group_ids, mask):
    return jnp.zeros(mask.shape)


@caught_by("advantage", "zero_outside_the_mask")
def on_every_position(scores, group_ids, mask):
    x, live = alive(scores, mask)
    return jnp.repeat((x - group_mean(x, group_ids, live))[:, None], mask.shape[1], axis=1)


@caught_by("advantage", "jit")
def a_loop_over_numpys_unique(scores, group_ids, mask):
    import numpy as np

    return spread(scores - sum(jnp.mean(scores[np.asarray(group_ids) == i]) for i in np.unique(group_ids)), mask)


@caught_by("correction", "keeps_within_the_mask")
def keeps_padding(old_logps, rollout_logps, mask):
    ratio = jnp.exp(jnp.where(mask, old_logps - rollout_logps, 0.0))
    return jnp.where(mask, jnp.minimum(ratio, 2.0), 0.0), ratio < 9.0


@caught_by("correction", "no_mismatch")
def a_ratio_of_logarithms(old_logps, rollout_logps, mask):
    return jnp.where(mask, jnp.minimum(old_logps / rollout_logps - 0.5, 2.0), 0.0), mask


@caught_by("correction", "extremes")
def unbounded(old_logps, rollout_logps, mask):
    return jnp.exp(jnp.where(mask, old_logps - rollout_logps, 0.0)) * mask, mask


@caught_by("correction", "nan_is_seen")
def rejects_nan(old_logps, rollout_logps, mask):
    ratio = jnp.exp(jnp.clip(jnp.where(mask, old_logps - rollout_logps, 0.0), -20.0, 20.0))
    kept = mask & (ratio < 2.0)
    return jnp.where(kept, ratio, 0.0), kept


@caught_by("loss_mask", "selects")
def selects_nothing(old_entropy, mask):
    return mask & (old_entropy > 1e9)


@caught_by("loss_mask", "garbage")
def ranks_the_padding_too(old_entropy, mask):
    return mask & (old_entropy >= jnp.quantile(old_entropy, 0.5))


@caught_by("completion_filter", "whole_completions")
def cuts_off_the_end(mask):
    return mask & (jnp.cumsum(mask, axis=1) <= 2)


@caught_by("completion_filter", "keeps_within_the_mask")
def keeps_observations(void_turns, mask):
    return jnp.broadcast_to(~jnp.any(void_turns, axis=1, keepdims=True), mask.shape)


@caught_by("group_filter", "whole_groups")
def keeps_the_good_ones(scores, group_ids, mask):
    return scores > 0.5


@caught_by("group_filter", "garbage")
def an_unscored_completion_decides(scores, group_ids, mask):
    same = group_ids[:, None] == group_ids[None, :]
    high = jnp.max(jnp.where(same, scores[None, :], -jnp.inf), axis=1)
    low = jnp.min(jnp.where(same, scores[None, :], jnp.inf), axis=1)
    return high > low


@caught_by("reward_shaping", "zero_outside_the_mask")
def pays_for_padding(token_rewards, mask):
    return jnp.where(mask, token_rewards, 0.0) + 0.1


@caught_by("field", "by_position")
def over_all_positions(logits):
    logps = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.sum(jnp.exp(logps) * logps, axis=-1) - jnp.mean(logits)


@caught_by("field", "quantity_extremes")
def logarithm_of_the_softmax(logits):
    p = jax.nn.softmax(logits, axis=-1)
    return -jnp.sum(p * jnp.log(p), axis=-1)


@caught_by("field", "finite_differences")
def half_an_entropy_learns(logits):
    logps = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return -jnp.sum(jax.lax.stop_gradient(jnp.exp(logps)) * logps, axis=-1)


@caught_by("field", "quantity_jit")
def looks_at_the_logits(logits):
    return jnp.max(logits, axis=-1) * (2.0 if float(jnp.max(logits)) > 0 else 1.0)


@caught_by("advantage", "remembered_state")
@attrs.frozen(kw_only=True)
class RemembersNan:
    def init(self, roles):
        return {"mean": jnp.zeros(())}

    def __call__(self, state, scores, mask):
        return spread(scores - state["mean"], mask)

    def update(self, state, scores, mask):
        return {"mean": jnp.mean(scores)}
