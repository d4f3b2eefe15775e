"""Broken components whose mistake is in a branch that a setting turns on, which is off by default."""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt
from tests.kit.conformance.mutants import caught_by, right

import dovetail
from dovetail.arrays import Groups, importance_ratio, masked, per_token


@caught_by("policy_loss", "holds_with_every_setting")
@dovetail.declares(on_policy_gradient=True)
def bounds_the_wrong_sign(logps, old_logps, advantages, mask, *, ceiling: Annotated[float, Gt(1)] | None = None):
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    a = masked(advantages, mask)
    loss = -a * ratio
    return masked(loss if ceiling is None else jnp.where(a > 0, jnp.minimum(loss, -a * ceiling), loss), mask)


@caught_by("policy_loss", "holds_with_every_setting")
@dovetail.declares(on_policy_gradient=True, surrogate=True)
def at_least_the_largest(logps, old_logps, advantages, mask, *, max_ratio: Annotated[float, Gt(0)] | None = None):
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    weight = jax.lax.stop_gradient(ratio if max_ratio is None else jnp.maximum(ratio, max_ratio))
    return -weight * masked(advantages, mask) * masked(logps, mask)


@caught_by("advantage", "holds_with_every_setting")
@dovetail.declares(shift_invariant=True)
def over_the_padded_width(scores, group_ids, mask, *, over: Literal["completion", "token"] = "completion"):
    advantages = per_token(Groups.of(group_ids, mask).deviations(scores), mask)
    return advantages if over == "completion" else advantages / mask.shape[1]


@caught_by("advantage", "holds_with_every_setting")
def keeps_what_is_masked(scores, mask, *, plain: bool = False):
    advantages = jnp.broadcast_to(jnp.where(mask.any(axis=1), scores, 0.0)[:, None], mask.shape)
    return advantages if plain else masked(advantages, mask)


@caught_by("advantage", "holds_with_every_setting")
def less_by_the_padded_width_at_a_cost(scores, mask, *, cost: Annotated[float, Ge(0)] = 0.0):
    return masked(jnp.where(mask.any(axis=1), scores, 0.0)[:, None] - cost * mask.shape[1], mask)


@caught_by("advantage", "holds_with_every_setting")
@dovetail.declares(settings={"whole": False})
def over_the_padded_width_by_default(scores, mask, *, whole: bool = True):
    values = masked(jnp.where(mask.any(axis=1), scores, 0.0)[:, None] + jnp.zeros(mask.shape), mask)
    return values / mask.shape[1] if whole else values


@right("policy_loss")
@dovetail.declares(on_policy_gradient=True, surrogate=True)
def within_optional_bounds(
    logps,
    old_logps,
    advantages,
    mask,
    *,
    least: Annotated[float, Gt(0)] | None = None,
    clip: Annotated[float, Gt(0)] | None = None,
):
    """-sg[clip(r, least, clip)] A log π, from logps, old_logps and advantages on the mask."""
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    weight = jax.lax.stop_gradient(jnp.clip(ratio, least, clip))
    return -weight * masked(advantages, mask) * masked(logps, mask)
