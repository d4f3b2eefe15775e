"""Broken metrics, and components that hide what is not a number."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_batches import alive, group_mean, spread
from tests.kit.conformance.mutants_losses import clean


@caught_by("policy_loss", "metrics_of_tokens")
def a_share_of_the_padding(logps, old_logps, advantages, mask):
    ratio = jnp.exp(jnp.clip(clean(logps, mask) - clean(old_logps, mask), -20.0, 20.0))
    loss = jnp.where(mask, -clean(advantages, mask) * ratio, 0.0)
    return loss, {"clipped": jnp.mean((jnp.abs(ratio - 1) > 0.2) & mask)}


@caught_by("advantage", "metrics_of_tokens")
def a_mean_over_empty_rows(scores, group_ids, mask):
    x, live = alive(scores.astype(jnp.float32), mask)
    return spread(x - group_mean(x, group_ids, live), mask), {"score": jnp.mean(x)}


@caught_by("policy_loss", "nan_of_the_model_is_seen")
def hides_nan(logps, advantages, mask):
    loss = -clean(advantages, mask) * clean(logps, mask)
    return jnp.where(mask & jnp.isfinite(loss), jnp.where(jnp.isfinite(loss), loss, 0.0), 0.0)


@caught_by("value_loss", "nan_of_the_model_is_seen")
def hides_nan_in_values(values, returns, mask):
    return jnp.where(mask, 0.5 * jnp.square(jnp.nan_to_num(clean(values, mask)) - clean(returns, mask)), 0.0)


@caught_by("kl", "pulls")
def stops_the_gradient(logps, ref_logps, mask):
    gap = jax.lax.stop_gradient(logps.astype(jnp.float32)) - ref_logps.astype(jnp.float32)
    return 0.5 * jnp.square(gap)


@caught_by("field", "one_for_each_position")
def the_two_largest(logits):
    return jnp.sort(logits, axis=-1)[..., -2:]


@caught_by("field", "one_for_each_position")
def a_part_of_the_hidden_state(hidden_states):
    return hidden_states[..., :3].astype(jnp.float32)


@caught_by("loss_agg", "finite_results")
def nan_of_an_empty_row(mask):
    lengths = jnp.sum(mask, axis=-1, keepdims=True, dtype=jnp.float32)
    return jnp.cumsum(mask, axis=-1, dtype=jnp.float32) / lengths


@caught_by("loss_mask", "zero_outside_the_mask")
def keeps_what_is_uncertain_in_padding(old_entropy, mask):
    return jnp.where(jnp.isfinite(old_entropy), 1.0, 0.0).astype(jnp.float32)


@caught_by("early_stopping", "judges")
def sorts_the_others(curve, others):
    others.sort(key=lambda other: -other[-1][1])
    return bool(others) and curve[-1][1] < others[-1][-1][1]


@caught_by("policy_loss", "nothing_is_clipped_at_rest")
def counts_what_is_within(logps, old_logps, advantages, mask, *, epsilon: float = 0.2):
    ratio = jnp.exp(jnp.clip(clean(logps, mask) - clean(old_logps, mask), -20.0, 20.0))
    a = clean(advantages, mask)
    loss = jnp.maximum(-a * ratio, -a * jnp.clip(ratio, 1 - epsilon, 1 + epsilon))
    return jnp.where(mask, loss, 0.0), {"clip_fraction": jnp.where(mask, jnp.abs(ratio - 1) < epsilon, False) * 1.0}


@caught_by("correction", "nothing_is_clipped_at_rest")
def counts_what_is_below(old_logps, rollout_logps, mask, *, upper: float = 2.0):
    ratio = jnp.exp(jnp.clip(clean(old_logps, mask) - clean(rollout_logps, mask), -20.0, 20.0))
    return (
        jnp.where(mask, jnp.minimum(ratio, upper), 0.0),
        mask,
        {"truncated": jnp.where(mask, ratio < upper, False) * 1.0},
    )
