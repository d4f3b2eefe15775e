"""Components that bound one side, another quantity or nothing, or that are not what their docstring announces."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Bool, Float
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_losses import clean, ratio_of
from tests.kit.conformance.mutants_memory import _Controller

import dovetail
from dovetail.arrays import Groups, at_finite, bounded, full_precision, log_ratio, masked, per_token, returns_to_go

Positive = Annotated[float, Gt(0)]


def _last(mask):
    return mask & (jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)


@caught_by("kl", "bounds_both_sides")
def bounded_above_alone(logps, ref_logps, *, clamp: Positive = 5.0):
    return at_finite(lambda x: jnp.minimum(x, clamp), full_precision(logps) - full_precision(ref_logps))


@caught_by("reward_shaping", "bounds_both_sides")
def clipped_above_alone(token_rewards, mask, *, bound: Positive = 1.0):
    return jnp.minimum(masked(token_rewards, mask), bound)


@right("reward_shaping")
def clipped(token_rewards, mask, *, bound: Positive = 1.0):
    """clip(token_rewards, -bound, bound) at the policy tokens."""
    return jnp.clip(masked(token_rewards, mask), -bound, bound)


@right("kl")
def never_below_zero(logps, ref_logps, *, clamp: Positive = 5.0):
    """min(½·(logps - ref_logps)², clamp)."""
    return at_finite(
        lambda x: jnp.minimum(0.5 * jnp.square(x), clamp), full_precision(logps) - full_precision(ref_logps)
    )


@caught_by("value_loss", "far_errors_pull_alike")
def robust_on_one_side(values, returns, mask, *, delta: Positive = 1.0):
    error = clean(values, mask) - clean(returns, mask)
    return jnp.where(error <= delta, 0.5 * error**2, delta * (jnp.abs(error) - 0.5 * delta))


@caught_by("policy_loss", "of_its_sign_alone")
def chosen_by_the_ratio(
    logps, old_logps, advantages, mask, *, tau_positive: Positive = 1.0, tau_negative: Positive = 2.0
):
    ratio = ratio_of(logps, old_logps, mask)
    tau = jnp.where(ratio > 1.0, tau_positive, tau_negative)
    return clean(-masked(advantages, mask) * 4.0 / tau * jax.nn.sigmoid(tau * (ratio - 1.0)), mask)


@caught_by("reward_shaping", "acts_within_the_limit")
@dovetail.declares(settings={"max_tokens": 6, "buffer": 3})
def begins_at_the_limit(token_rewards, lengths, mask, *, max_tokens: Annotated[int, Ge(1)], buffer: int = 4):
    over = jnp.maximum(lengths - max_tokens, 0) / buffer
    return masked(token_rewards, mask) - jnp.where(_last(mask), jnp.minimum(over, 1.0)[:, None], 0.0)


@right("reward_shaping")
def begins_before_a_far_limit(
    token_rewards, lengths, mask, *, max_tokens: Annotated[int, Ge(1)] = 1024, buffer: Annotated[int, Ge(1)] = 64
):
    """token_rewards less min(max(lengths - (max_tokens - buffer), 0) / buffer, 1) at the last policy token."""
    over = jnp.maximum(lengths - (max_tokens - buffer), 0) / buffer
    return masked(token_rewards, mask) - jnp.where(_last(mask), jnp.minimum(over, 1.0)[:, None], 0.0)


begins_before_a_far_limit.declares = {"idle": ("max_tokens", "buffer")}


@caught_by("reward_shaping", "a_score_counts_once")
def a_bonus_at_every_token(token_rewards, scores, mask, *, bonus: Annotated[float, Ge(0)] = 0.5):
    return masked(token_rewards, mask) + per_token(jnp.where(full_precision(scores) >= 1.0, bonus, 0.0), mask)


@caught_by("optimizer", "bounds_the_gradient")
def clipped_behind_adam(learning_rate, *, max_norm: Positive = 1.0):
    return optax.chain(
        optax.scale_by_adam(), optax.clip_by_global_norm(max_norm), optax.scale_by_learning_rate(learning_rate)
    )


@right("optimizer")
def clipped_before_adam(learning_rate, *, max_norm: Positive = 1.0):
    """Adam on gradients whose norm is at most max_norm."""
    return optax.chain(
        optax.clip_by_global_norm(max_norm), optax.scale_by_adam(), optax.scale_by_learning_rate(learning_rate)
    )


@caught_by("correction", "every_number_counts")
def one_end_of_a_band(
    old_logps, rollout_logps, mask, *, low: Annotated[float, Ge(0)] = 0.5, high: Annotated[float, Gt(0)] = 5.0
):
    ratio = jnp.exp(bounded(log_ratio(old_logps, rollout_logps, mask)))
    return jnp.where(mask & (~(ratio > high) | (ratio < low)), ratio, 0.0), mask


@caught_by("lr_schedule", "every_number_counts")
def a_choice_that_is_never_taken(
    step,
    total_steps,
    *,
    warmup_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.05,
    warmup_steps: Annotated[int, Ge(0)] | None = None,
):
    length = warmup_ratio * total_steps
    if warmup_steps is None:
        length = warmup_ratio * total_steps
    rise = jnp.minimum((step + 1.0) / jnp.maximum(length, 1.0), 1.0)
    return rise * (1.0 - jnp.clip((step - length) / jnp.maximum(total_steps - length, 1.0), 0.0, 1.0))


@caught_by("policy_loss", "every_number_counts")
def an_upper_bound_that_is_never_taken(logps, old_logps, advantages, mask, *, cap: Positive | None = None):
    ratio = ratio_of(logps, old_logps, mask)
    if cap is not None:
        jnp.minimum(ratio, cap)
    return clean(-masked(advantages, mask) * ratio, mask)


@caught_by("field", "returns_what_it_announces")
def reduced_along_the_wrong_axis(
    hidden_states: Float[Array, "seq token width"], mask: Bool[Array, "seq token"]
) -> Float[Array, "seq width"]:
    return jnp.mean(jnp.where(mask[..., None], full_precision(hidden_states), 0.0), axis=-1)


@caught_by("field", "keeps_its_word")
def a_variance_below_zero(logits):
    """∑_v π_v·(log π_v)² - H².

    Args:
        logits: of the next token.

    Returns:
        A number for each position, not negative.
    """
    logps = jax.nn.log_softmax(full_precision(logits), axis=-1)
    entropy = -jnp.sum(jnp.exp(logps) * logps, axis=-1)
    return jnp.sum(jnp.exp(logps) * jnp.square(logps), axis=-1) - entropy


@caught_by("correction", "keeps_its_word")
def a_share_above_one(old_logps, rollout_logps, mask, *, upper: Positive = 3.0):
    """min(ρ, upper) / (1 + ρ), with ρ the ratio.

    Returns:
        Weights between 0 and 1, and the mask.
    """
    ratio = jnp.exp(bounded(log_ratio(old_logps, rollout_logps, mask)))
    return jnp.where(mask, 2 * jnp.minimum(ratio, upper) / (1 + ratio), 0.0), mask


@caught_by("loss_mask", "other_groups_decide_nothing")
def best_and_worst_of_all(scores, group_ids, mask):
    live = Groups.of(group_ids, mask).live
    known = masked(scores, live)
    best, worst = jnp.max(jnp.where(live, known, -jnp.inf)), jnp.min(jnp.where(live, known, jnp.inf))
    return mask & ((known == best) | (known == worst))[:, None]


@right("loss_mask")
def best_of_each_group(scores, group_ids, mask):
    """Whether scores are the highest of those with equal group_ids."""
    groups = Groups.of(group_ids, mask)
    above = groups.above_lowest(scores)
    return mask & (above == jax.ops.segment_max(above, groups.segments, len(above))[groups.segments])[:, None]


@caught_by("loss_term", "what_is_called_a_bonus_raises_entropy")
def a_bonus_that_is_minimised(entropy, mask, *, enough: Positive = 2.0):
    """An entropy bonus, until it is high enough."""
    return clean(jnp.minimum(masked(entropy, mask), enough), mask)


@caught_by("advantage", "turns_have_no_first")
@dovetail.declares(by_turn=True)
def discounted_from_the_first_turn(token_rewards, turns, mask, *, gamma: Annotated[float, Interval(ge=0, le=1)] = 0.8):
    number = jnp.where(mask, turns, 0).astype(jnp.float32)
    return returns_to_go(masked(token_rewards, mask) * jnp.float32(gamma) ** number, mask, 1.0)


@caught_by("kl_controller", "keeps_what_it_adds_up")
@attrs.frozen(kw_only=True)
class AnIntegralOfOneStep(_Controller):
    """β_0·exp(0.1·(e + ∑e))."""

    def init(self, coef):
        return {"coef": jnp.float32(coef), "start": jnp.float32(coef), "sum": jnp.float32(0)}

    def update(self, state, kl, samples):
        error = jnp.clip(kl - self.target, -0.2, 0.2)
        coef = state["start"] * jnp.exp(0.1 * error + 0.1 * jnp.clip(state["sum"] + error, -10.0, 10.0))
        return {**state, "coef": jnp.where(samples > 0, coef, state["coef"]).astype(jnp.float32)}


TAGGED = re.compile(r"<answer>\s*(-?\d+(?:\.\d+)?)\s*</answer>")


@caught_by("reward", "zero_is_an_answer")
@dovetail.declares(
    range=(0, 1),
    abstains=True,
    examples=[
        ({"completions": "<answer>42</answer>", "answer": 42}, {"completions": "<answer>7</answer>", "answer": 42})
    ],
)
def zero_is_missing(completions, answer):
    return [
        float(any(float(found) == float(truth) for found in TAGGED.findall(text)[-1:])) if truth else None
        for text, truth in zip(completions, answer, strict=True)
    ]


@caught_by("reward", "relative_to_the_answer")
@dovetail.declares(
    range=(0, 1),
    examples=[
        (
            {"completions": "<answer>42</answer>", "answer": "42"},
            {"completions": "<answer>7</answer>", "answer": "42"},
        )
    ],
)
def a_difference_for_a_share(completions, answer, *, tolerance: Annotated[float, Ge(0)] = 0.05):
    """1 if the number in the last tags is within a relative tolerance of the answer."""
    return [
        float(any(abs(float(found) - float(truth)) <= tolerance for found in TAGGED.findall(text)[-1:]))
        for text, truth in zip(completions, answer, strict=True)
    ]


@caught_by("task", "answers_of_their_own")
@attrs.frozen(kw_only=True)
class AnswersOfSomebody:
    """Differences, with demonstrations that were shuffled by themselves."""

    columns: tuple[str, ...] = ("answer",)

    def examples(self, split: str) -> Sequence[Mapping[str, Any]]:
        place, draw = ("train", "eval", "sft").index(split), random.Random(split)
        pool = [(a, b) for a in range(100) for b in range(a + 1) if (a + b) % 3 == place]
        chosen = draw.sample(pool, 300)
        given = [str(a - b) for a, b in chosen]
        draw.shuffle(given)
        rows = [{"prompt": f"{a}-{b}=", "answer": str(a - b)} for a, b in chosen]
        return [row | {"completion": text} for row, text in zip(rows, given, strict=True)] if split == "sft" else rows

    def corpus(self) -> Sequence[str]:
        return [example["prompt"] for example in self.examples("train")]


@caught_by("replay", "fills_its_places")
@attrs.frozen(kw_only=True)
class WritesAtOnePlace:
    """Draws among all places that should have been filled, and fills the first ones only."""

    groups: int = 2
    capacity: int = 16

    def init(self, empty):
        slots = {name: np.zeros((self.capacity, *array.shape), array.dtype) for name, array in empty.items()}
        return slots | {"stored": np.zeros((), np.int32)}

    def step(self, state, fresh, rng):
        stored, count = int(state["stored"]), len(fresh["mask"])
        order = np.concatenate([rng.permutation(stored), np.arange(stored, self.capacity)]).astype(np.int64)
        joined = {name: state[name][order[: self.groups]] for name in fresh}
        slots = {name: np.concatenate([array, state[name][count:]]) for name, array in fresh.items()}
        return joined, slots | {"stored": np.asarray(min(stored + count, self.capacity), np.int32)}


@right("early_stopping")
def by_the_mean_of_its_best(curve, others, *, grace: Annotated[int, Ge(0)] = 10):
    """Stop a trial whose best values so far are lower on average than those of most others, after grace steps."""
    step = curve[-1][0]
    rivals = [each for each in others if each and each[-1][0] >= step]
    if step <= grace or len(rivals) < 3:
        return False

    def level(points):
        best = np.maximum.accumulate([value for at, value in points if at <= step])
        return float(np.mean(best))

    return sum(level(rival) <= level(curve) for rival in rivals) < 0.34 * len(rivals)


@caught_by("policy_loss", "shapes")
def without_a_return(logps, advantages, mask):
    clean(-masked(advantages, mask) * logps, mask)


@right("reward")
@dovetail.declares(range=(0, 1))
def with_a_time_limit(completions, *, time_limit: Annotated[float, Gt(0)] = 2.0, workers: Annotated[int, Ge(1)] = 2):
    """Whether each of the completions is short; time_limit and workers change nothing here."""
    return [float(len(text) < 20) if time_limit and workers else None for text in completions]
