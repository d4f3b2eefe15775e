"""Broken losses, estimators and masks: what is taken from the wrong side, role, prompt or turn."""

from __future__ import annotations

from typing import Annotated, Any

import attrs
import jax.numpy as jnp
from annotated_types import Gt, Interval
from tests.kit.conformance.mutants import caught_by, right

import dovetail
from dovetail.arrays import (
    Groups,
    Turns,
    at_finite,
    full_precision,
    importance_ratio,
    log_ratio,
    masked,
    per_token,
    returns_to_go,
)


@caught_by("policy_loss", "clip_side")
@dovetail.declares(on_policy_gradient=True, pessimistic=True)
def by_the_sign_of_the_first(logps, old_logps, advantages, mask, *, epsilon: float = 0.2):
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    a = masked(advantages, mask)
    bound = jnp.where(a[:, :1] > 0, jnp.minimum(ratio, 1 + epsilon), jnp.maximum(ratio, 1 - epsilon))
    return masked(-a * bound, mask)


@caught_by("policy_loss", "clip_side")
@dovetail.declares(on_policy_gradient=True, pessimistic=True, regularised=True)
def goes_on_more_slowly(logps, old_logps, advantages, mask, *, epsilon: float = 0.2):
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    a = masked(advantages, mask)
    slow = jnp.clip(ratio, 1 - epsilon, 1 + epsilon)
    return masked(jnp.maximum(-a * ratio, -a * (slow + 0.1 * (ratio - slow))), mask)


@right("policy_loss")
@dovetail.declares(on_policy_gradient=True, pessimistic=True, regularised=True)
def rolls_back(logps, old_logps, advantages, mask, *, epsilon: float = 0.2):
    """max(-A r, -A F(r)), F = bound - 0.3 (r - bound) beyond 1 ± epsilon: logps, old_logps, advantages, on the mask."""
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    a = masked(advantages, mask)
    bound = jnp.clip(ratio, 1 - epsilon, 1 + epsilon)
    return masked(jnp.maximum(-a * ratio, -a * (bound - 0.3 * (ratio - bound))), mask)


@caught_by("policy_loss", "does_not_repel")
@dovetail.declares(on_policy_gradient=True, regularised=True)
def driven_away(logps, old_logps, advantages, mask, *, beta: float = 0.1):
    x, ratio = importance_ratio(logps, old_logps, mask, "token")
    return masked(-masked(advantages, mask) * ratio - beta * (jnp.expm1(x) - x), mask)


@caught_by("policy_loss", "its_correction_corrects")
@dovetail.declares(excludes=("correction",), on_policy_gradient=True)
def corrects_the_wrong_way(logps, old_logps, rollout_logps, advantages, mask):
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    weight = jnp.exp(jnp.clip(log_ratio(rollout_logps, old_logps, mask), -20.0, 20.0))
    return masked(-weight * masked(advantages, mask) * ratio, mask)


@caught_by("value_loss", "no_error_no_loss")
def the_branches_exchanged(values, returns, mask, *, delta: Annotated[float, Gt(0)] = 1.0):
    size = jnp.abs(masked(values, mask) - masked(returns, mask))
    return masked(jnp.where(size > delta, 0.5 * size**2, delta * (size - 0.5 * delta)), mask)


@right("value_loss")
def pinball(values, returns, mask, *, tau: Annotated[float, Interval(gt=0, lt=1)] = 0.7):
    """max(tau e, (tau - 1) e), e = returns - values on the mask: it has a kink where there is no error."""
    error = masked(full_precision(returns), mask) - masked(full_precision(values), mask)
    return masked(jnp.maximum(tau * error, (tau - 1) * error), mask)


@caught_by("kl", "unbiased_off_policy")
@dovetail.declares(unbiased_value=True)
def weighs_by_the_inverse(logps, ref_logps, old_logps):
    logps, ref_logps, old_logps = (full_precision(x) for x in (logps, ref_logps, old_logps))
    return jnp.exp(jnp.clip(old_logps - logps, -20.0, 20.0)) * (logps - ref_logps)


@caught_by("kl", "clamp_bounds_the_estimate")
def bounds_what_goes_in(logps, ref_logps, *, clamp: Annotated[float, Gt(0)] | None = None):
    x = full_precision(logps) - full_precision(ref_logps)
    return at_finite(lambda x: x + jnp.expm1(-jnp.clip(x, -20.0, clamp)), x)


@caught_by("loss_agg", "normaliser")
@dovetail.declares(sums_to_one=True)
def counts_in_half_precision(mask):
    count = jnp.sum(jnp.sum(mask, axis=1, dtype=jnp.bfloat16)).astype(float)
    return mask.astype(float) / jnp.maximum(count, 1.0)


@caught_by("loss_agg", "mean_or_sum")
def a_sum_over_prompts(mask, group_ids):
    return mask.astype(float) / Groups.of(group_ids, mask).sizes[:, None]


@caught_by("loss_mask", "staleness_does_not_help")
def keeps_the_stale(staleness, mask, *, bound: float = 1.0):
    return mask & (staleness >= bound)


@caught_by("loss_mask", "a_larger_share_keeps_no_fewer")
def the_other_quantile(old_entropy, mask, *, fraction: Annotated[float, Interval(ge=0, le=1)] = 0.2):
    inside = jnp.where(mask, full_precision(old_entropy), jnp.nan)
    return mask & (full_precision(old_entropy) >= jnp.nanquantile(inside, fraction))


@caught_by("advantage", "roles_apart")
@attrs.frozen(kw_only=True)
class OneMeanForAllRoles:
    decay: float = 0.9

    def init(self, roles: int) -> Any:
        return {"mean": jnp.zeros(roles)}

    def __call__(self, scores: Any, role_ids: Any, mask: Any, state: Any) -> Any:
        return per_token(masked(scores, mask.any(axis=1)) - state["mean"][role_ids], mask)

    def update(self, scores: Any, role_ids: Any, mask: Any, state: Any) -> Any:
        live = mask.any(axis=1)
        mean = jnp.sum(masked(scores, live)) / jnp.maximum(live.sum(), 1)
        return {"mean": self.decay * state["mean"] + (1 - self.decay) * mean}


@caught_by("advantage", "greedy_scores_apart")
def less_the_mean_of_all(scores, greedy_scores, mask):
    live = mask.any(axis=1)
    mean = jnp.sum(masked(greedy_scores, live)) / jnp.maximum(live.sum(), 1)
    return per_token(masked(scores, live) - mean, mask)


@caught_by("advantage", "a_turn_earns_its_reward")
def for_earlier_turns_alone(turn_rewards, turn_mask, turns, mask):
    going = returns_to_go(masked(turn_rewards, turn_mask), turn_mask, 1.0)
    after = jnp.concatenate([going[:, 1:], jnp.zeros_like(going[:, :1])], axis=1)
    return Turns.of(turns, mask, count=turn_rewards.shape[1]).per_token(after)
