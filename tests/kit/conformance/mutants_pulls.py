"""Components that an independent trial got past the checks: losses, estimators, filters, optimisers and schedules."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import jax
import jax.numpy as jnp
import optax
from tests.kit.conformance.mutants import caught_by, right

import dovetail
from dovetail.arrays import (
    Groups,
    full_precision,
    gae_trace,
    importance_ratio,
    log_ratio,
    masked,
    mean_over_tokens,
    per_token,
)


@caught_by("policy_loss", "every_number_counts")
def clips_in_the_metric_alone(logps, old_logps, advantages, mask, *, epsilon: float = 0.2):
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    outside = mask & (jnp.abs(ratio - 1) > epsilon)
    return masked(-masked(advantages, mask) * ratio, mask), {"clip_fraction": outside.astype(jnp.float32)}


@caught_by("policy_loss", "every_advantage_counts")
def the_first_advantage_for_all(logps, old_logps, advantages, mask):
    _, ratio = importance_ratio(logps, old_logps, mask, "token")
    first = jnp.take_along_axis(masked(advantages, mask), jnp.argmax(mask, axis=1)[:, None], axis=1)
    return masked(-first * ratio, mask)


@caught_by("loss_term", "demonstrations_become_likelier")
def unlearns_demonstrations(demo_logps, demo_mask):
    return masked(full_precision(demo_logps), demo_mask)


@caught_by("loss_term", "towards_the_teacher")
def away_from_the_teacher(logps, teacher_logps, mask):
    return -0.5 * jnp.square(log_ratio(logps, teacher_logps, mask))


@caught_by("value_loss", "comes_back")
def the_smaller_error(values, old_values, returns, mask, *, clip: float = 0.2):
    v, old, r = (masked(full_precision(x), mask) for x in (values, old_values, returns))
    near = old + jnp.clip(v - old, -clip, clip)
    return 0.5 * jnp.minimum(jnp.square(v - r), jnp.square(near - r))


@caught_by("kl", "not_negative_on_average")
def the_other_difference(logps, ref_logps, mask):
    return -log_ratio(logps, ref_logps, mask)


def _gae(token_rewards, values, mask):
    rewards, values = (masked(full_precision(x), mask) for x in (token_rewards, values))
    return gae_trace(rewards, values, mask, 0.9, 0.8), values


@caught_by("advantage", "a_single_token")
def returns_less_values(token_rewards, values, mask):
    advantages, values = _gae(token_rewards, values, mask)
    return advantages, masked(advantages - values, mask)


@caught_by("advantage", "a_single_token")
def adds_the_critic(token_rewards, values, mask):
    advantages, values = _gae(token_rewards, -values, mask)
    return advantages, masked(advantages - values, mask)


@caught_by("advantage", "reaches_every_token")
def the_first_token_alone(scores, group_ids, mask):
    advantages = per_token(Groups.of(group_ids, mask).deviations(full_precision(scores)), mask)
    return jnp.where(jnp.cumsum(mask, axis=1) == 1, advantages, 0.0)


@attrs.frozen(kw_only=True)
class _Baseline:
    """A running mean of the scores; those below change one thing."""

    dtype: ClassVar[Any] = jnp.float32

    def init(self, roles: int) -> Any:
        return {"mean": jnp.zeros((), self.dtype)}

    def __call__(self, state: Any, scores: Any, mask: Any) -> Any:
        live = mask.any(axis=1)
        return per_token(masked(full_precision(scores) - state["mean"].astype(jnp.float32), live), mask)

    def update(self, state: Any, scores: Any, mask: Any) -> Any:
        mean, some = self.seen(scores, mask)
        return {"mean": jnp.where(some, self.moved(state["mean"], mean), state["mean"]).astype(self.dtype)}

    def seen(self, scores: Any, mask: Any) -> Any:
        live = mask.any(axis=1)
        return masked(full_precision(scores), live).sum() / jnp.maximum(live.sum(), 1), live.any()

    def moved(self, before: Any, mean: Any) -> Any:
        return 0.9 * before + 0.1 * mean


@caught_by("advantage", "a_baseline_lowers")
@attrs.frozen(kw_only=True)
class GrowsWithoutEnd(_Baseline):
    def moved(self, before: Any, mean: Any) -> Any:
        return before + 0.1 * mean


@caught_by("advantage", "a_baseline_lowers")
@attrs.frozen(kw_only=True)
class LearnsTheOpposite(_Baseline):
    def moved(self, before: Any, mean: Any) -> Any:
        return 0.9 * before - 0.1 * mean


@caught_by("advantage", "a_baseline_lowers")
@attrs.frozen(kw_only=True)
class NeverReadsIt(_Baseline):
    def __call__(self, state: Any, scores: Any, mask: Any) -> Any:
        return per_token(masked(full_precision(scores), mask.any(axis=1)), mask)


@caught_by("advantage", "keeps_what_it_knows")
@attrs.frozen(kw_only=True)
class ForgetsWithoutRows(_Baseline):
    def update(self, state: Any, scores: Any, mask: Any) -> Any:
        return {"mean": self.moved(state["mean"], self.seen(scores, mask)[0])}


@caught_by("advantage", "keeps_what_it_knows")
@attrs.frozen(kw_only=True)
class RemembersInHalfPrecision(_Baseline):
    dtype: ClassVar[Any] = jnp.bfloat16


@caught_by("group_filter", "each_group_by_itself")
def spread_of_the_whole_batch(scores, group_ids, mask):
    scores = masked(full_precision(scores), mask.any(axis=1))
    return jnp.broadcast_to(scores.max() > scores.min(), group_ids.shape)


@caught_by("group_filter", "each_group_by_itself")
def an_empty_row_is_a_zero(scores, group_ids, mask):
    scores, same = masked(full_precision(scores), mask.any(axis=1)), group_ids[:, None] == group_ids[None, :]
    return jnp.where(same, scores, -jnp.inf).max(axis=1) > jnp.where(same, scores, jnp.inf).min(axis=1)


@caught_by("reward_shaping", "every_reward_is_kept")
def a_penalty_in_place_of_the_score(token_rewards, lengths, mask):
    last = mask & (jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)
    return jnp.where(last, -0.01 * lengths[:, None], masked(full_precision(token_rewards), mask))


@caught_by("reward_shaping", "every_reward_is_kept")
def the_size_of_rewards(token_rewards, mask):
    return jnp.abs(masked(full_precision(token_rewards), mask))


@caught_by("loss_mask", "padding_for_other_numbers")
def a_share_of_the_width(entropy, mask, *, share: float = 0.9):
    flat = jnp.where(mask, full_precision(entropy), -jnp.inf).reshape(-1)
    return mask & (jnp.argsort(jnp.argsort(-flat)).reshape(mask.shape) < share * mask.size)


@caught_by("loss_mask", "never_negative")
def turns_bad_tokens_around(advantages, mask):
    return jnp.sign(masked(full_precision(advantages), mask))


@caught_by("optimizer", "every_number_counts")
def loses_its_momentum(learning_rate, *, momentum: float = 0.9):
    return optax.sgd(learning_rate)


@caught_by("optimizer", "proportional_to_the_rate")
def multiplies_by_the_rate_twice(learning_rate):
    return optax.chain(optax.sgd(learning_rate), optax.scale(learning_rate))


@caught_by("optimizer", "neither_swells_nor_fades")
def decays_upwards(learning_rate):
    return optax.chain(optax.add_decayed_weights(-0.01), optax.sgd(learning_rate))


@caught_by("optimizer", "neither_swells_nor_fades")
def counts_its_own_steps(learning_rate):
    return optax.chain(optax.sgd(learning_rate), optax.scale_by_schedule(lambda step: 1.0 / (1.0 + step)))


@caught_by("lr_schedule", "bounded")
def grows_with_every_step(step, total_steps):
    return jnp.exp(jnp.minimum(0.5 * step, 60.0)) + 0.0 * total_steps


@caught_by("lr_schedule", "reads_what_it_needs")
def a_thousand_steps(step, total_steps):
    return 1.0 - 0.9 * jnp.minimum(step / 1000.0, 1.0)


@caught_by("follower", "approaches")
@attrs.frozen(kw_only=True)
class RunsAwayFromThePolicy:
    def __call__(self, weights: Any, policy: Any) -> Any:
        return jax.tree.map(lambda w, theta: w - (0.1 * (theta - w)).astype(w.dtype), weights, policy)


@right("value_loss")
def pinball(values, returns, mask, *, tau: float = 0.7):
    """The quantile loss max(tau·e, (tau - 1)·e) of e = returns - values on mask."""
    e = masked(full_precision(returns), mask) - masked(full_precision(values), mask)
    return jnp.maximum(tau * e, (tau - 1) * e)


@right("advantage")
@attrs.frozen(kw_only=True)
class Running(_Baseline):
    """scores - b on mask, with b = 0.9·b + 0.1·mean in state."""


@right("policy_loss")
def good_completions_only(logps, advantages, mask):
    """-max(A, 0)·logps with A the advantages on mask."""
    return -jnp.maximum(masked(full_precision(advantages), mask), 0.0) * masked(full_precision(logps), mask)


@right("group_filter")
@dovetail.declares(compares=True)
def the_more_mixed_half(scores, group_ids, mask):
    """Keep groups of group_ids whose std of scores is above the mean over completions; mask."""
    groups = Groups.of(group_ids, mask)
    std = groups.std(full_precision(scores))
    return (std > 0) & (std >= masked(std, groups.live).sum() / jnp.maximum(groups.live.sum(), 1))


@right("reward_shaping")
def shared_by_all_tokens(token_rewards, mask):
    """The mean of token_rewards over the tokens of mask: r = ∑r / n."""
    return masked(mean_over_tokens(masked(full_precision(token_rewards), mask), mask) * jnp.ones(mask.shape), mask)


@right("lr_schedule")
def a_staircase(step, total_steps, *, factor: float = 0.5):
    """The factor·factor·… = factor^⌊4·step / total_steps⌋."""
    return jnp.power(jnp.float32(factor), jnp.floor(4.0 * step / jnp.maximum(total_steps, 1)))


@right("optimizer")
def descends_by_sign(learning_rate):
    """θ ← θ - learning_rate·sign(g)."""
    signs = optax.stateless(lambda updates, params: jax.tree.map(jnp.sign, updates))
    return optax.chain(signs, optax.sgd(learning_rate))
