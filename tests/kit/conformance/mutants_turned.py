"""Broken formulas: numbers that do something else than their names say, and branches for the wrong tokens."""

from __future__ import annotations

from statistics import median
from typing import Annotated, Any

import attrs
import jax
import jax.numpy as jnp
import optax
from annotated_types import Ge, Gt, Interval
from flax import nnx
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_batches import alive
from tests.kit.conformance.mutants_losses import clean, ratio_of
from tests.kit.conformance.mutants_manners import _adapter
from tests.kit.conformance.mutants_memory import _Controller, _Remembers

import dovetail
from dovetail.arrays import Groups, bounded, full_precision, log_ratio, masked, per_token
from dovetail_executor.sampler.random import Drawn

Share = Annotated[float, Interval(ge=0, le=1)]


def _left(step: Any, total_steps: Any) -> Any:
    return 1.0 - jnp.clip(step / jnp.maximum(total_steps, 1).astype(jnp.float32), 0.0, 1.0)


@right("reward_shaping")
@dovetail.declares(not_monotone=True)
def in_units_of_the_largest(token_rewards, mask, *, limit: Annotated[float, Gt(0)] = 1.0):
    """r·min(1, limit / max|r|) of token_rewards, the largest in the batch, on the mask."""
    r = masked(full_precision(token_rewards), mask)
    return r * jnp.minimum(1.0, limit / jnp.maximum(jnp.max(jnp.abs(r)), 1e-8))


@right("sampler")
@dovetail.declares(systematic=True)
@attrs.frozen(kw_only=True)
class EvenlySpaced:
    """Goes through each range by multiples of the golden ratio."""

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> Any:
        """Return the study; `seed` and `total_steps` make no difference."""
        steps = {key: 0.618034 * (number + 1) for number, key in enumerate(sorted(space))}
        return Drawn([{key: space[key].at((n + 1) * step % 1) for key, step in steps.items()} for n in range(draws)])


@caught_by("schedule", "reaches_its_maximum")
def to_the_power_of_all(step, total_steps, *, max_weight: Annotated[float, Gt(0)] = 1.0):
    return (max_weight * (1.0 - _left(step, total_steps))) ** 2


@caught_by("lr_schedule", "learns_to_the_end")
def ends_early(step, total_steps):
    return jnp.maximum(1.3 * _left(step, total_steps) - 0.3, 0.0)


@caught_by("lr_schedule", "every_step")
def counts_in_half_precision(step, total_steps):
    share = step.astype(jnp.float16) / jnp.maximum(total_steps, 1).astype(jnp.float16)
    return 1.0 - jnp.clip(share, 0, 1).astype(jnp.float32)


@caught_by("kl_controller", "rests_at_its_target")
@attrs.frozen(kw_only=True)
class AimsAtHalf(_Controller):
    def update(self, state: Any, observed: Any, samples: Any) -> Any:
        return super().update(state, 2.0 * observed, samples)

    def moved(self, coef: Any, gap: Any) -> Any:
        return jnp.clip(coef * (1 + gap), 1e-4, 10.0)


@caught_by("advantage", "a_larger_decay_remembers_longer")
@attrs.frozen(kw_only=True)
class ForgetsByItsDecay(_Remembers):
    decay: Share = 0.9

    def update(self, state, scores, mask):
        x, live = alive(scores.astype(jnp.float32), mask)
        mean = jnp.sum(jnp.where(live, x, 0.0)) / jnp.maximum(jnp.sum(live, dtype=jnp.float32), 1.0)
        return {"mean": (1 - self.decay) * state["mean"] + self.decay * mean, "count": state["count"] + 1.0}


@caught_by("early_stopping", "spares_what_is_alike")
def no_better_than_half(curve, others):
    there = [other[-1][1] for other in others if other[-1][0] >= curve[-1][0]]
    return bool(there) and max(v for _, v in curve) <= sorted(there)[len(there) // 2]


@caught_by("early_stopping", "bears_what_has_diverged")
def below_the_mean(curve, others):
    there = [dict(other)[curve[-1][0]] for other in others if curve[-1][0] in dict(other)]
    return len(there) > 2 and curve[-1][1] < sum(there) / len(there)


@caught_by("early_stopping", "bears_what_has_diverged")
def goes_on_rising(curve, others):
    if len(curve) < 4 or len(others) < 3:
        return False
    (before, low), (now, value) = curve[-4], curve[-1]
    reached = value + max(0.0, (value - low) / (now - before)) * (100 - now)
    return reached < median(max(v for _, v in other) for other in others)


@caught_by("early_stopping", "bears_what_has_diverged", raises="OverflowError")
def in_whole_percent(curve, others):
    there = [round(100 * dict(other)[curve[-1][0]]) for other in others if curve[-1][0] in dict(other)]
    return len(there) > 2 and 100 * curve[-1][1] < median(there)


@caught_by("early_stopping", "has_patience")
@dovetail.declares(absolute=True)
def looks_at_the_last(curve, *, patience: Annotated[int, Ge(1)] = 3):
    return len(curve) > patience and curve[-1][1] <= max(value for _, value in curve[:-patience])


@caught_by("value_loss", "a_higher_quantile_is_higher")
def the_other_expectile(values, returns, mask, *, tau: Annotated[float, Interval(gt=0, lt=1)] = 0.7):
    error = masked(full_precision(values), mask) - masked(full_precision(returns), mask)
    return jnp.where(error > 0, tau, 1 - tau) * error**2


@right("value_loss")
def smooth_in_time(values, returns, mask, *, pull: Annotated[float, Ge(0)] = 0.1):
    """L = (values - returns)² + pull·(V - V')² on the mask, V' the value of the policy token before."""
    v, r = masked(full_precision(values), mask), masked(full_precision(returns), mask)

    def step(before: Any, now: Any) -> Any:
        value, there, seen = now[0], now[1], before[1]
        difference = jnp.where(there & seen, value - before[0], 0.0)
        return (jnp.where(there, value, before[0]), seen | there), difference

    begin = (jnp.zeros(v.shape[0]), jnp.zeros(v.shape[0], bool))
    _, differences = jax.lax.scan(step, begin, (v.T, mask.T))
    return masked(0.5 * (v - r) ** 2 + 0.5 * pull * differences.T**2, mask)


@caught_by("loss_agg", "longer_is_no_heavier")
@dovetail.declares(sums_to_one=True)
def by_the_power_of_the_length(mask):
    weights = jnp.where(mask, jnp.sum(mask, axis=1, keepdims=True).astype(jnp.float32), 0.0)
    return weights / jnp.maximum(jnp.sum(weights), 1.0)


@caught_by("optimizer", "bounds_its_steps")
@attrs.frozen(kw_only=True)
class NeverBounds:
    bound: Annotated[float, Gt(0)] = 1.0

    def __call__(self, lr: Any) -> Any:
        def scale(updates: Any, params: Any = None) -> Any:
            norm = optax.global_norm(updates)
            return jax.tree.map(lambda x: x / jnp.minimum(1.0, self.bound / (norm + 1e-8)), updates)

        return optax.chain(optax.stateless(scale), optax.scale_by_learning_rate(lr))


@caught_by("loss_mask", "one_is_enough")
def one_too_few(mask, *, count: Annotated[int, Ge(1)] = 3):
    return mask & (jnp.cumsum(mask, axis=1) < count)


@caught_by("loss_mask", "weights_are_one_on_average")
def thinned_twice(key, mask, *, keep: Annotated[float, Interval(gt=0, le=1)] = 0.5):
    return jnp.where(mask & (jax.random.uniform(key, mask.shape) < keep), keep, 0.0)


@caught_by("field", "impossible_tokens_say_nothing")
def mean_over_the_vocabulary(logits):
    logps = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return -jnp.mean(jnp.exp(logps) * logps, axis=-1)


@caught_by("advantage", "the_best_is_reinforced")
@dovetail.declares(shift_invariant=True)
def below_the_best(scores, group_ids, mask):
    groups = Groups.of(group_ids, mask)
    above = jnp.where(groups.live, groups.above_lowest(scores), 0.0)
    best = jax.ops.segment_max(above, groups.segments, len(scores))[groups.segments]
    return per_token(above - best, mask)


@caught_by("correction", "a_single_token_is_corrected")
def without_its_own_ratio(old_logps, rollout_logps, mask):
    x = log_ratio(old_logps, rollout_logps, mask)
    return jnp.where(mask, jnp.minimum(jnp.exp(bounded(jnp.cumsum(x, axis=1) - x)), 2.0), 0.0), mask


@caught_by("correction", "within_its_bounds")
def compares_logarithms(
    old_logps,
    rollout_logps,
    mask,
    *,
    lower: Annotated[float, Ge(0)] = 0.5,
    upper: Annotated[float, Gt(0)] = 2.0,
):
    x = log_ratio(old_logps, rollout_logps, mask)
    kept = mask & ~((x < -lower) | (x > upper))
    return kept.astype(jnp.float32), kept


@caught_by("policy_loss", "on_policy_gradient")
@dovetail.declares(on_policy_gradient=True)
def leaves_out_what_is_rare(logps, old_logps, advantages, mask):
    lp = clean(logps, mask)
    rare = lp < -10.0
    ratio = ratio_of(logps, old_logps, mask)
    return -clean(advantages, mask) * jnp.where(rare, jax.lax.stop_gradient(ratio), ratio)


@caught_by("policy_loss", "no_advantage_of_others")
def by_the_sign_of_all(logps, old_logps, advantages, mask):
    a = clean(advantages, mask)
    bound = jnp.where(jnp.sum(a, axis=1, keepdims=True) > 0, 1.2, 3.0)
    return -a * jnp.minimum(ratio_of(logps, old_logps, mask), bound)


@caught_by("policy_loss", "learns_beside_its_regularisation")
@dovetail.declares(regularised=True)
def the_wrong_way_and_excused(logps, old_logps, advantages, mask):
    return clean(advantages, mask) * log_ratio(logps, old_logps, mask)


@caught_by("loss_term", "demonstrations_have_their_own_tokens")
def cut_by_the_completion(demo_logps, demo_mask, mask):
    return jnp.where(demo_mask & mask, -clean(demo_logps, demo_mask), 0.0)


@caught_by("loss_term", "a_floor_is_below")
def a_ceiling(entropy, mask, *, floor: Annotated[float, Gt(0)] = 0.5):
    return jnp.where(mask, jnp.maximum(clean(entropy, mask) - floor, 0.0), 0.0)


@caught_by("follower", "every_so_many_steps")
@attrs.frozen(kw_only=True)
class RestsWhereItShouldMove:
    every: Annotated[int, Ge(1)] = 10

    def __call__(self, weights: Any, policy: Any, step: Any) -> Any:
        return jax.tree.map(lambda w, p: jnp.where(step % self.every == 0, w, p.astype(w.dtype)), weights, policy)


@caught_by("adapter", "a_larger_alpha_changes_more", slow=True)
@attrs.frozen(kw_only=True)
class DividesByAlpha:
    alpha: Annotated[float, Gt(0), dovetail.STATIC] = 2.0

    def apply(self, model: nnx.Module, *, rngs: Any) -> Any:
        return attrs.evolve(_adapter(), alpha=1.0 / self.alpha).apply(model, rngs=rngs)
