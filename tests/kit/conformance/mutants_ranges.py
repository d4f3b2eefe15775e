"""Broken components at the ends of things: of a range, a completion, a run, a mask that is not the policy's."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from annotated_types import Ge, Gt, Interval
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_answers import numbers, paid
from tests.kit.conformance.mutants_contrasts import Bytes
from tests.kit.conformance.mutants_others import _Columns

from dovetail.arrays import Groups, full_precision, gae_trace, importance_ratio, log_ratio, masked, per_token
from dovetail.protocols import Step
from dovetail.registry import declares

Share = Annotated[float, Interval(ge=0, le=1)]


@caught_by("advantage", "later_rewards_reach_back")
def its_own_reward_alone(token_rewards, mask):
    return masked(token_rewards, mask)


@caught_by("advantage", "a_discount_of_zero_sees_nothing_later")
def discounts_the_trace_alone(token_rewards, values, mask, *, gamma: Share = 1.0, lam: Share = 0.95):
    advantages = gae_trace(token_rewards, values, mask, 1.0, gamma * lam)
    return advantages, masked(advantages + masked(values, mask), mask)


@caught_by("advantage", "the_greedy_score_is_a_baseline")
def adds_the_greedy_score(scores, greedy_scores, mask):
    live = jnp.any(mask, axis=-1)
    return per_token(masked(scores, live) + masked(greedy_scores, live), mask)


@caught_by("advantage", "signal")
def rounds_the_scores(scores, group_ids, mask):
    return per_token(Groups.of(group_ids, mask).deviations(full_precision(scores.astype(jnp.bfloat16))), mask)


@caught_by("advantage", "finite_within_its_range")
def an_epsilon_of_zero(scores, group_ids, mask, *, epsilon: Annotated[float, Ge(0)] = 1e-6):
    groups = Groups.of(group_ids, mask)
    return per_token(groups.deviations(scores) / (groups.std(scores) + epsilon), mask)


@caught_by("advantage", "keeps_what_it_knows")
@attrs.frozen(kw_only=True)
class DividesByWhatItHasNotSeen:
    def init(self, roles: int) -> Any:
        return {"sum": jnp.zeros(()), "count": jnp.zeros(())}

    def __call__(self, state: Any, scores: Any, mask: Any) -> Any:
        live = jnp.any(mask, axis=-1)
        return per_token(jnp.where(live, masked(scores, live) - state["sum"] / state["count"], 0.0), mask)

    def update(self, state: Any, scores: Any, mask: Any) -> Any:
        live = jnp.any(mask, axis=-1)
        seen = {"sum": masked(scores, live).sum(), "count": live.sum(dtype=jnp.float32)}
        return jax.tree.map(jnp.add, state, seen)


@caught_by("value_loss", "every_value_is_pulled")
def what_is_too_high_alone(values, returns, mask):
    return 0.5 * jnp.square(jnp.maximum(masked(values, mask) - masked(returns, mask), 0.0))


@caught_by("field", "by_position")
def is_the_token_before(logits, tokens):
    return (jnp.argmax(logits, axis=-1) == jnp.roll(tokens, 1, axis=-1)).astype(jnp.float32)


@caught_by("policy_loss", "extremes")
def an_unbounded_ratio_in_a_metric(logps, old_logps, advantages, mask):
    _, ratio = importance_ratio(logps, old_logps, mask)
    loss = jnp.where(mask, -masked(advantages, mask) * ratio, 0.0)
    return loss, {"ratio": jax.lax.stop_gradient(jnp.exp(log_ratio(logps, old_logps, mask)))}


@caught_by("kl", "not_negative_on_average")
def of_the_old_policy(old_logps, ref_logps):
    return 0.5 * jnp.square(full_precision(old_logps) - full_precision(ref_logps))


@caught_by("kl", "finite_differences")
def its_exponential_held_fixed(logps, ref_logps):
    y = jnp.clip(full_precision(ref_logps) - full_precision(logps), -20.0, 20.0)
    return jax.lax.stop_gradient(jnp.exp(y)) - y - 1.0


@caught_by("correction", "no_more_than_the_ratio")
def the_ratio_twice(old_logps, rollout_logps, mask, *, upper: float = 5.0):
    _, ratio = importance_ratio(old_logps, rollout_logps, mask)
    return jnp.where(mask, jnp.minimum(jnp.square(ratio), upper), 0.0), mask


@caught_by("correction", "no_more_than_the_ratio")
def to_first_order(old_logps, rollout_logps, mask, *, upper: float = 5.0):
    return jnp.where(mask, jnp.minimum(1.0 + log_ratio(old_logps, rollout_logps, mask), upper), 0.0), mask


@caught_by("loss_term", "towards_the_better")
@declares(whole_groups=True)
def prefers_the_worse(logps, scores, group_ids, mask):
    worse = -Groups.of(group_ids, mask).deviations(scores)
    return jnp.where(mask, -worse[:, None] * masked(logps, mask), 0.0)


@caught_by("loss_term", "garbage")
def demonstrations_under_the_policys_mask(demo_logps, mask):
    return masked(-demo_logps, mask)


@caught_by("loss_term", "garbage")
def the_policys_own_tokens_as_demonstrations(logps, demo_mask):
    return masked(-logps, demo_mask)


@caught_by("completion_filter", "flaws_do_not_help")
def what_went_wrong(tool_errors, mask):
    return mask & (tool_errors > 0)[:, None]


@caught_by("loss_mask", "never_negative")
def weighs_by_the_score(scores, mask):
    return per_token(masked(scores, jnp.any(mask, axis=-1)), mask)


@caught_by("reward_shaping", "every_reward_is_kept")
def rounds_rewards(token_rewards, mask):
    return jnp.round(masked(token_rewards, mask))


@caught_by("reward_shaping", "every_reward_is_kept")
def pays_in_advance(token_rewards, mask):
    first = mask & (jnp.cumsum(mask, axis=1) == 1)
    return jnp.where(first, jnp.sum(masked(token_rewards, mask), axis=1, keepdims=True), 0.0)


@caught_by("early_stopping", "spares_the_best")
def behind_what_others_have_come_to(curve, others):
    last = sorted(other[-1][1] for other in others)
    return bool(curve and others) and curve[-1][1] < last[len(last) // 2]


@caught_by("early_stopping", "spares_the_best")
def by_its_worst_value(curve, others):
    values = [value for other in others for _, value in other]
    return bool(curve and values) and min(value for _, value in curve) < min(values)


@caught_by("follower", "approaches")
@attrs.frozen(kw_only=True)
class AllButOne:
    def __call__(self, weights: Any, policy: Any) -> Any:
        leaves, tree = jax.tree.flatten(policy)
        return jax.tree.unflatten(tree, [jax.tree.leaves(weights)[0], *leaves[1:]])


@caught_by("interaction", "is_a_function")
@attrs.frozen(kw_only=True)
class SaysInNoRole:
    columns: ClassVar[tuple[str, ...]] = ()

    def reset(self, example: Any, rng: Any) -> Any:
        return 0, ()

    def step(self, state: Any, turn: Any, rng: Any) -> Any:
        return Step(state=state + 1, messages=({"content": "go on"},), done=state > 2)


@caught_by("lr_schedule", "finite_within_its_range")
def a_warm_up_of_zero(step, total_steps, *, warmup: Share = 0.1):
    length = warmup * total_steps
    return jnp.minimum(step.astype(jnp.float32), length) / length


@caught_by("lr_schedule", "bounded")
def in_percent(step, total_steps):
    return 100.0 * (1.0 - step / total_steps)


@caught_by("schedule", "every_step")
def never_levels_off(step, total_steps):
    return jnp.exp(step.astype(jnp.float32) ** 2 / (10.0 * total_steps))


@caught_by("reward", "one_for_each")
def characters_of_a_token(completions, tokens):
    return [len(text) / len(ids) for text, ids in zip(completions, tokens, strict=True)]


@caught_by("task", "records")
@attrs.frozen(kw_only=True)
class WithItsAnswer:
    columns: ClassVar[tuple[str, ...]] = ("answer",)

    def examples(self, split: str) -> Any:
        begin = 100 * ("train", "eval", "sft").index(split)
        found = [{"prompt": f"{n} + 1 = {n + 1}", "answer": str(n + 1)} for n in range(begin, begin + 20)]
        return [each | {"completion": each["answer"]} for each in found] if split == "sft" else found

    def corpus(self) -> Any:
        return [example["prompt"] for example in self.examples("sft")]


@caught_by("reward", "hostile_texts", raises="JSONDecodeError")
def reads_an_object(completions):
    return [float("answer" in json.loads(text)) if text.startswith("{") else 0.0 for text in completions]


@caught_by("reward_manager", "more_is_not_less")
@attrs.frozen(kw_only=True)
class WhichIsTheLargest:
    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        return np.argmax(score_table, axis=1).astype(float)


@caught_by("tokenizer", "round_trip")
@attrs.frozen(kw_only=True)
class WithABeginning:
    def make(self, corpus: Any) -> Any:
        return _Begins()

    load = make


@attrs.frozen(kw_only=True)
class _Begins(Bytes):
    vocab_size: int = 259

    def encode(self, text: str) -> list[int]:
        return [258, *super().encode(text)]

    def decode(self, ids: Any) -> str:
        return super().decode([i for i in ids if i != 258])


@caught_by("reward", "by_its_group")
def ties_by_their_order(completions, group_ids):
    places = [(group, len(text), row) for row, (text, group) in enumerate(zip(completions, group_ids, strict=True))]
    return [sum(other[0] == own[0] and other < own for other in places) / len(places) for own in places]


@caught_by("reward", "the_whole_answer")
@paid
def digits_in_any_order(completions, answer):
    return [float(any(sorted(n) == sorted(a) for n in numbers(t))) for t, a in zip(completions, answer, strict=True)]


@caught_by("task", "records")
@attrs.frozen(kw_only=True)
class MessagesOfNobody(_Columns):
    def examples(self, split: str) -> Any:
        return [each | {"prompt": [{"content": each["prompt"]}]} for each in super().examples(split)]


@caught_by("task", "records")
@attrs.frozen(kw_only=True)
class NumbersInOneSplit(_Columns):
    def examples(self, split: str) -> Any:
        return [each | {"answer": int(each["answer"])} if split == "eval" else each for each in super().examples(split)]


@caught_by("optimizer", "keeps_its_state")
def counts_no_step(learning_rate):
    inner = optax.adam(learning_rate)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        updates, (adam, *others) = inner.update(updates, state, params)
        return updates, (adam._replace(count=state[0].count), *others)

    return optax.GradientTransformation(inner.init, update)


@right("advantage")
@declares(not_monotone=True, beyond_scores=True)
def discounted_to_the_first_token(token_rewards, group_ids, mask, *, gamma: Share = 0.99):
    """A = G - mean over group_ids, G = ∑ γᵏ token_rewards from the first token of mask on, with gamma for γ."""
    place = jnp.cumsum(mask, axis=1) - 1
    powers = jnp.power(jnp.float32(gamma), place.astype(jnp.float32))
    returns = jnp.sum(masked(token_rewards, mask) * powers, axis=1)
    return per_token(Groups.of(group_ids, mask).deviations(returns), mask)


@right("reward_shaping")
def success_or_not(token_rewards, mask, *, least: Annotated[float, Gt(0)] = 0.5):
    """r = 1 where token_rewards ≥ least, else 0, on mask."""
    return jnp.where(mask, (full_precision(token_rewards) >= least).astype(jnp.float32), 0.0)


@right("reward")
@declares(range=(-1, 0))
def a_cost_of_tokens(tokens, *, most: Annotated[int, Gt(0)] = 64):
    """-min(l / most, 1) for l tokens, and nothing for a completion without any."""
    return [-min(len(ids) / most, 1.0) if ids else None for ids in tokens]
