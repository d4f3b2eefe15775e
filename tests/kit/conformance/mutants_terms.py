"""Broken loss terms and followers."""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_losses import clean

import dovetail


@caught_by("loss_term", "garbage")
def squares_before_the_mask(demo_logps, demo_mask):
    """The value is right, and the gradient NaN."""
    return jnp.where(demo_mask, 0.5 * jnp.square(demo_logps.astype(jnp.float32)), 0.0)


@caught_by("loss_term", "zero_outside_the_mask")
def learns_from_padding_of_demonstrations(demo_logps, demo_mask):
    return -jnp.where(jnp.isfinite(demo_logps), demo_logps.astype(jnp.float32), 0.0)


@caught_by("loss_term", "shapes")
def a_number_for_each_demonstration(demo_logps, demo_mask):
    return -jnp.sum(clean(demo_logps, demo_mask), axis=-1)


@caught_by("loss_term", "learns_from_policy_tokens")
def moves_the_teacher(logps, teacher_logps, mask):
    return jax.lax.stop_gradient(clean(logps, mask)) - clean(teacher_logps, mask)


@caught_by("loss_term", "finite_differences")
def an_undeclared_stop_gradient(logps, teacher_logps, mask):
    x = clean(logps, mask) - clean(teacher_logps, mask)
    return jax.lax.stop_gradient(x) * clean(logps, mask)


@caught_by("loss_term", "extremes")
def an_unbounded_ratio_to_the_teacher(logps, teacher_logps, mask):
    return jnp.where(mask, jnp.exp(clean(teacher_logps, mask) - clean(logps, mask)), 0.0)


def against(others, logps, scores, mask):
    """The loss of completions against those with a lower score among others."""
    total = jnp.sum(clean(logps, mask), axis=-1)
    live = jnp.any(mask, axis=-1)
    scores = jnp.where(live, scores.astype(jnp.float32), 0.0)
    better = others & live[:, None] & live[None, :] & (scores[:, None] > scores[None, :])
    losses = jnp.where(better, jax.nn.softplus(total[None, :] - total[:, None]), 0.0)
    return jnp.where(mask, jnp.sum(losses, axis=1)[:, None], 0.0)


@caught_by("loss_term", "micro_batches")
def compares_a_group_and_does_not_say_so(logps, scores, group_ids, mask):
    return against(group_ids[:, None] == group_ids[None, :], logps, scores, mask)


@caught_by("loss_term", "groups_alone")
@dovetail.declares(whole_groups=True)
def compares_all_completions_of_the_batch(logps, scores, group_ids, mask):
    return against(jnp.ones((len(group_ids), len(group_ids)), bool), logps, scores, mask)


@caught_by("loss_term", "groups_alone")
@dovetail.declares(whole_groups=True)
def divides_by_the_number_of_groups(logps, scores, group_ids, mask):
    loss = against(group_ids[:, None] == group_ids[None, :], logps, scores, mask)
    labels = jnp.unique(group_ids, size=len(group_ids), fill_value=group_ids[0])
    return loss / jnp.sum(jnp.diff(jnp.sort(labels)) != 0, dtype=jnp.float32, initial=1.0)


@caught_by("follower", "moves")
@attrs.frozen(kw_only=True)
class CopiesItself:
    def __call__(self, weights: Any, policy: Any) -> Any:
        return jax.tree.map(lambda w, theta: w, weights, policy)


@caught_by("follower", "stays_with_the_policy")
@attrs.frozen(kw_only=True)
class Decays:
    """An average whose weights do not add up to one."""

    def __call__(self, weights: Any, policy: Any) -> Any:
        return jax.tree.map(lambda w, theta: (0.9 * w + 0.05 * theta).astype(w.dtype), weights, policy)
