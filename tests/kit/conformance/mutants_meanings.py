"""Components whose numbers mean something else than their names suggest at first, and are right; and ones whose mistakes
hid behind a zero, a second field to learn through, or a narrow range.
"""

from __future__ import annotations

from typing import Annotated

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, Interval
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_losses import clean, ratio_of

import dovetail
from dovetail.arrays import returns_to_go

AT_LEAST_ZERO = Annotated[float, Ge(0)]
POSITIVE = Annotated[float, Gt(0)]


@right("policy_loss")
@dovetail.declares(surrogate=True)
def a_floor_of_weights(
    logps, old_logps, entropy, advantages, mask, *, floor: Annotated[float, Interval(ge=0, le=1)] = 0.1
):
    """-max(H / (1 + H), floor)·A·r, with H the entropy, r of logps and old_logps, A the advantages, on mask."""
    h = jax.lax.stop_gradient(clean(entropy, mask))
    weight = jnp.maximum(h / (1.0 + h), floor)
    return jnp.where(mask, -weight * clean(advantages, mask) * ratio_of(logps, old_logps, mask), 0.0)


@right("policy_loss")
@dovetail.declares(regularised=True)
def the_gap_to_the_reference(logps, old_logps, ref_logps, advantages, mask, *, beta: AT_LEAST_ZERO = 0.04):
    """-A·r + beta·(logps - ref_logps)², r of logps and old_logps, A the advantages, on mask."""
    gap = clean(logps, mask) - clean(ref_logps, mask)
    loss = -clean(advantages, mask) * ratio_of(logps, old_logps, mask) + beta * jnp.square(gap)
    return jnp.where(mask, loss, 0.0), {"ref_kl": gap}


def _with_a_bonus(logps, old_logps, entropy, advantages, mask, weight):
    loss = -clean(advantages, mask) * ratio_of(logps, old_logps, mask) - weight * clean(entropy, mask)
    return jnp.where(mask, loss, 0.0)


@right("policy_loss")
@dovetail.declares(regularised=True)
def a_bonus_that_decays(
    logps,
    old_logps,
    entropy,
    progress,
    advantages,
    mask,
    *,
    bonus: AT_LEAST_ZERO = 0.01,
    bonus_decay: AT_LEAST_ZERO = 2.0,
):
    """-A·r - bonus·exp(-bonus_decay·progress)·entropy, r of logps and old_logps, A the advantages, on mask."""
    return _with_a_bonus(logps, old_logps, entropy, advantages, mask, bonus * jnp.exp(-bonus_decay * progress))


@caught_by("policy_loss", "extremes")
@dovetail.declares(regularised=True)
def overflows_beside_a_bonus(logps, old_logps, entropy, advantages, mask, *, bonus: AT_LEAST_ZERO = 0.01):
    ratio = jnp.exp(clean(logps, mask) - clean(old_logps, mask))
    return jnp.where(mask, -clean(advantages, mask) * ratio - bonus * clean(entropy, mask), 0.0)


@right("correction")
def a_cap_in_nats(old_logps, rollout_logps, mask, *, max_log_ratio: POSITIVE = 2.0):
    """exp(min(old_logps - rollout_logps, max_log_ratio)) on mask."""
    gap = clean(old_logps, mask) - clean(rollout_logps, mask)
    return jnp.where(mask, jnp.exp(jnp.clip(gap, -20.0, max_log_ratio)), 0.0), mask


@right("correction")
def rejects_by_a_divergence(old_logps, rollout_logps, mask, *, max_kl: POSITIVE = 2.0):
    """exp(x) on mask where exp(x) - 1 - x ≤ max_kl, with x = old_logps - rollout_logps."""
    gap = jnp.clip(clean(old_logps, mask) - clean(rollout_logps, mask), -20.0, 20.0)
    kept = mask & ~(jnp.exp(gap) - 1.0 - gap > max_kl)
    return jnp.where(kept, jnp.exp(gap), 0.0), kept


def _whitened(scores, mask):
    live = mask.any(axis=1)
    count = jnp.maximum(jnp.sum(live), 1)
    centred = jnp.where(live, scores - jnp.sum(jnp.where(live, scores, 0.0)) / count, 0.0)
    white = centred / (jnp.sqrt(jnp.sum(jnp.square(centred)) / count) + 1e-4)
    return jnp.where(mask, white[:, None], 0.0)


@right("advantage")
@dovetail.declares(whitened=True, beyond_scores=True)
def remax_whitened(scores, greedy_scores, mask):
    """(x - mean x) / (std x + 10⁻⁴), with x = scores - greedy_scores, over the batch, on mask."""
    live = mask.any(axis=1)
    gap = scores.astype(jnp.float32) - greedy_scores.astype(jnp.float32)
    return _whitened(jnp.where(live, gap, 0.0), mask)


@caught_by("advantage", "the_greedy_score_is_a_baseline")
@dovetail.declares(whitened=True, beyond_scores=True)
def adds_the_greedy_score_and_whitens(scores, greedy_scores, mask):
    live = mask.any(axis=1)
    total = scores.astype(jnp.float32) + greedy_scores.astype(jnp.float32)
    return _whitened(jnp.where(live, total, 0.0), mask)


@right("advantage")
@dovetail.declares(beyond_scores=True)
def within_a_bound(
    token_rewards,
    old_values,
    mask,
    *,
    gamma: Annotated[float, Interval(gt=0.9, le=1)] = 1.0,
    bound: POSITIVE = 0.2,
):
    """clip(G - old_values, ±bound), and G = ∑ gamma^k·token_rewards from each token on, on mask."""
    returns = returns_to_go(clean(token_rewards, mask), mask, gamma)
    return jnp.where(mask, jnp.clip(returns - clean(old_values, mask), -bound, bound), 0.0), returns


@caught_by("advantage", "bounds_both_sides")
@dovetail.declares(beyond_scores=True)
def bounded_above_alone(token_rewards, old_values, mask, *, bound: POSITIVE = 0.2):
    returns = returns_to_go(clean(token_rewards, mask), mask, 1.0)
    return jnp.where(mask, jnp.minimum(returns - clean(old_values, mask), bound), 0.0), returns


@caught_by("advantage", "every_number_counts")
@dovetail.declares(beyond_scores=True)
def forgets_a_discount_of_a_narrow_range(
    token_rewards, old_values, mask, *, gamma: Annotated[float, Interval(gt=0.9, le=1)] = 1.0
):
    returns = returns_to_go(clean(token_rewards, mask), mask, 1.0)
    return jnp.where(mask, returns - clean(old_values, mask), 0.0), returns


@right("lr_schedule")
def falls_in_the_last_tenth(
    step,
    total_steps,
    *,
    warmup_steps: Annotated[int, Ge(0)] = 3,
    decay_share: Annotated[float, Interval(gt=0, le=1)] = 0.1,
):
    """min(step / warmup_steps, 1, what is left of the last decay_share of total_steps)."""
    rise = jnp.minimum((jnp.asarray(step, jnp.float32) + 1.0) / max(warmup_steps, 1), 1.0)
    left = jnp.asarray(total_steps - step, jnp.float32) / (decay_share * total_steps)
    return jnp.minimum(rise, jnp.clip(left, 0.0, 1.0))


def _clipped(logps, old_logps, advantages, mask, width):
    r, a = ratio_of(logps, old_logps, mask), clean(advantages, mask)
    return jnp.where(mask, jnp.maximum(-a * r, -a * jnp.clip(r, 1.0 - width, 1.0 + width)), 0.0)


@right("policy_loss")
def tightens_to_nothing(
    logps, old_logps, progress, advantages, mask, *, clip: POSITIVE = 0.3, clip_final: AT_LEAST_ZERO = 0.0
):
    """PPO of logps, old_logps and advantages on mask, clipped at clip + (clip_final - clip)·progress."""
    return _clipped(logps, old_logps, advantages, mask, clip + (clip_final - clip) * progress)


@caught_by("policy_loss", "begins_and_ends")
def ends_before_it_begins(
    logps, old_logps, progress, advantages, mask, *, clip: AT_LEAST_ZERO = 0.0, clip_final: AT_LEAST_ZERO = 0.0
):
    return _clipped(logps, old_logps, advantages, mask, clip_final + (clip - clip_final) * progress)


@right("reward_shaping")
def success_is_one_unless_said_otherwise(
    token_rewards, scores, mask, *, success_at: float | None = None, malus: AT_LEAST_ZERO = 0.5
):
    """token_rewards - malus / n where scores < success_at, which is 1 if it is None; n the tokens of mask."""
    failed = scores < (1.0 if success_at is None else success_at)
    share = malus / jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
    return jnp.where(mask, clean(token_rewards, mask) - jnp.where(failed[:, None], share, 0.0), 0.0)


@caught_by("reward_shaping", "reaching_it_is_success")
def success_is_above_one_unless_said_otherwise(
    token_rewards, scores, mask, *, success_at: float | None = None, malus: AT_LEAST_ZERO = 0.5
):
    failed = scores <= (1.0 if success_at is None else success_at)
    share = malus / jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
    return jnp.where(mask, clean(token_rewards, mask) - jnp.where(failed[:, None], share, 0.0), 0.0)


@right("reward_shaping")
def a_penalty_that_is_a_share(
    token_rewards, lengths, mask, *, length_penalty: Annotated[float, Interval(ge=0, le=1)] = 0.9
):
    """token_rewards·√(1 - length_penalty·min(lengths / 8, 1)) where they are positive, on mask."""
    share = jnp.minimum(lengths.astype(jnp.float32) / 8.0, 1.0)[:, None]
    rewards = clean(token_rewards, mask)
    return jnp.where(mask, jnp.where(rewards > 0, rewards * jnp.sqrt(1.0 - length_penalty * share), rewards), 0.0)


@right("curriculum")
@attrs.frozen(kw_only=True)
class HalfSolved:
    """Draws the success of each prompt from a Gaussian belief, and chooses the prompts nearest to one half.

    Args:
        noise: the standard deviation of a score.
    """

    noise: Annotated[float, Interval(ge=0.01, le=10)] = 0.5

    def init(self, examples):
        return {"mean": np.full(examples, 0.5, np.float32), "precision": np.ones(examples, np.float32)}

    def choose(self, state, count, rng):
        found: list[int] = []
        while len(found) < count:
            drawn = rng.normal(state["mean"], 1.0 / np.sqrt(state["precision"]))
            found += np.argsort(np.abs(drawn - 0.5))[: count - len(found)].tolist()
        return np.array(found)

    def update(self, state, chosen, scores):
        mean, precision = state["mean"].astype(np.float64), state["precision"].astype(np.float64)
        for prompt, own in zip(chosen, scores, strict=True):
            for score in own[np.isfinite(own)]:
                precision[prompt] += self.noise**-2
                mean[prompt] += (score - mean[prompt]) * self.noise**-2 / precision[prompt]
        learnt = {"mean": mean.astype(np.float32), "precision": precision.astype(np.float32)}
        return learnt, {"precision": float(precision.mean())}
