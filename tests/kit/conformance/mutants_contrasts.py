"""Components that a third trial, with 384 mutants, got past the checks, and correct ones that look like them."""

from __future__ import annotations

import random
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from tests.kit.conformance.mutants import caught_by, right

import dovetail
from dovetail.arrays import Groups, bounded, full_precision, in_units_of, log_ratio, masked, per_token, returns_to_go
from dovetail.errors import DataError
from dovetail.protocols import Call, Parsed, Step

ANSWER = [({"completions": "42", "answer": "42"}, {"completions": "7", "answer": "42"})]


@caught_by("advantage", "larger_scores_count_more")
def over_the_variance(scores, group_ids, mask):
    groups = Groups.of(group_ids, mask)
    return per_token(in_units_of(groups.deviations(scores), jnp.square(groups.std(scores)), 1e-6), mask)


@caught_by("advantage", "a_larger_discount_reaches_further")
def one_less_the_discount(token_rewards, mask, *, gamma: float = 0.1):
    return returns_to_go(masked(token_rewards, mask), mask, 1.0 - gamma)


@right("advantage")
def to_go(token_rewards, mask, *, discount: float = 0.9):
    """G = r + discount·G', r of token_rewards, from each policy token of the mask to the next."""
    return returns_to_go(masked(token_rewards, mask), mask, discount)


@caught_by("advantage", "row_order")
def the_first_of_the_best(scores, group_ids, mask):
    groups, rows = Groups.of(group_ids, mask), jnp.arange(scores.shape[0])
    above = jnp.where(groups.live, groups.above_lowest(scores), -1.0)
    best = jax.ops.segment_max(above, groups.segments, len(rows))[groups.segments]
    first = jax.ops.segment_min(jnp.where(above == best, rows, len(rows)), groups.segments, len(rows))[groups.segments]
    return per_token(jnp.where((rows == first) & (best > 0), 1.0, 0.0), mask)


@caught_by("advantage", "shift_invariance")
@dovetail.declares(shift_invariant=True)
def of_whole_scores(scores, group_ids, mask):
    return per_token(Groups.of(group_ids, mask).deviations(jnp.round(scores)), mask)


@caught_by("advantage", "every_value_counts")
def less_the_value_of_the_prompt(token_rewards, old_values, mask):
    first = jnp.take_along_axis(masked(old_values, mask), jnp.argmax(mask, axis=1)[:, None], axis=1)
    returns = returns_to_go(masked(token_rewards, mask), mask, 1.0)
    return masked(returns - first, mask), returns


@caught_by("policy_loss", "every_advantage_counts")
def of_whole_advantages(logps, old_logps, advantages, mask):
    ratio = jnp.exp(bounded(log_ratio(logps, old_logps, mask)))
    return -jnp.trunc(masked(advantages, mask)) * ratio


@right("policy_loss")
def of_bounded_advantages(logps, old_logps, advantages, mask, *, bound: float = 0.7):
    """L = -clip(advantages, -bound, bound)·exp(logps - old_logps) on the mask."""
    return -jnp.clip(masked(advantages, mask), -bound, bound) * jnp.exp(bounded(log_ratio(logps, old_logps, mask)))


@right("advantage")
@attrs.frozen(kw_only=True)
class StateInTheMiddle:
    """A = scores - state, a mean that moves slowly over rows with policy tokens in the mask."""

    def init(self, roles: int) -> Any:
        return {"mean": jnp.zeros(()), "seen": jnp.zeros(())}

    def __call__(self, scores: Any, state: Any, mask: Any) -> Any:
        return per_token(masked(scores, jnp.any(mask, axis=-1)) - state["mean"], mask)

    def update(self, mask: Any, scores: Any, state: Any) -> Any:
        live = jnp.any(mask, axis=-1)
        mean = jnp.sum(masked(scores, live)) / jnp.maximum(jnp.sum(live), 1)
        moved = jnp.where(state["seen"] > 0, 0.9 * state["mean"] + 0.1 * mean, mean)
        some = jnp.any(live)
        return {"mean": jnp.where(some, moved, state["mean"]), "seen": jnp.where(some, 1.0, state["seen"])}


@caught_by("correction", "corrects_what_is_off")
def the_ratio_of_the_batch(old_logps, rollout_logps, mask, *, upper: float = 2.0):
    total = jnp.sum(log_ratio(old_logps, rollout_logps, mask))
    return jnp.where(mask, jnp.minimum(jnp.exp(jnp.clip(total, -20, 20)), upper), 0.0), mask


@right("correction")
def normalised_over_the_batch(old_logps, rollout_logps, mask):
    """w = exp(old_logps - rollout_logps) over its mean on the mask."""
    ratio = jnp.where(mask, jnp.exp(bounded(log_ratio(old_logps, rollout_logps, mask))), 0.0)
    mean = jnp.sum(ratio) / jnp.maximum(jnp.sum(mask), 1)
    return ratio / jnp.where(mean > 0, mean, 1.0), mask


@caught_by("correction", "stays_below_its_cap")
def the_larger_of_the_two(old_logps, rollout_logps, mask, *, upper: float = 1.0):
    ratio = jnp.exp(bounded(log_ratio(old_logps, rollout_logps, mask)))
    return jnp.where(mask, jnp.maximum(ratio, upper), 0.0), mask


@caught_by("group_filter", "rounding_decides_nothing")
def far_from_a_rounded_mean(scores, group_ids, mask):
    groups = Groups.of(group_ids, mask)
    mean = groups.total(scores) / groups.sizes
    return groups.total(jnp.abs(masked(scores, groups.live) - mean)) > 0


@right("group_filter")
def a_band_of_means(scores, group_ids, mask, *, low: float = 0.2, high: float = 0.8):
    """Groups, by group_ids, with a mean of scores between low and high; rows count by their mask."""
    groups = Groups.of(group_ids, mask)
    mean = groups.total(scores) / groups.sizes
    return (mean >= low) & (mean <= high)


@caught_by("loss_mask", "zero_outside_the_mask")
def large_anywhere(advantages, mask, *, least: float = 0.5):
    return (jnp.abs(advantages) >= least) | (mask & (advantages > 9))


@caught_by("policy_loss", "on_policy_gradient")
@dovetail.declares(on_policy_gradient=True)
def saturates_without_its_unit(logps, old_logps, advantages, mask, *, temperature: float = 1.0):
    return -masked(advantages, mask) * jnp.tanh(temperature * log_ratio(logps, old_logps, mask))


@caught_by("policy_loss", "micro_batches")
@dovetail.declares(on_policy_gradient=True, surrogate=True)
def the_weight_of_the_micro_batch(logps, old_logps, advantages, mask, *, highest: float = 2.0):
    weight = jnp.minimum(jnp.exp(bounded(jnp.sum(log_ratio(logps, old_logps, mask)))), highest)
    return -masked(advantages, mask) * jax.lax.stop_gradient(weight) * masked(logps, mask)


@caught_by("reward_shaping", "costs_cost")
def pays_for_length(token_rewards, lengths, mask, *, cost: float = 0.1):
    last = mask & (jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)
    return masked(token_rewards, mask) + jnp.where(last, cost * lengths[:, None], 0.0)


@caught_by("reward_shaping", "being_cut_off_does_not_pay")
def costs_to_finish(token_rewards, truncated, mask, *, penalty: float = 0.5):
    last = mask & (jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)
    return masked(token_rewards, mask) - jnp.where(last & ~truncated[:, None], penalty, 0.0)


@caught_by("reward_manager", "abstaining_is_absence")
@attrs.frozen(kw_only=True)
class ZeroForAnAbstention:
    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        silent = np.isnan(score_table)
        return np.where(silent.all(axis=1), np.nan, np.where(silent, 0.0, score_table).max(axis=1))


@right("reward_manager")
@dovetail.declares(absent_is_zero=True)
@attrs.frozen(kw_only=True)
class MeanOfAll:
    """The mean over all rewards of score_table; reward_names do not matter."""

    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        silent = np.isnan(score_table)
        return np.where(silent.all(axis=1), np.nan, np.where(silent, 0.0, score_table).mean(axis=1))


@right("reward_manager")
@attrs.frozen(kw_only=True)
class GeometricMean:
    """The product of score_table to the power of 1/n, where nothing counts less than 0.001; whatever reward_names are."""

    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        silent = np.isnan(score_table)
        logs = np.where(silent, 0.0, np.log(np.maximum(np.nan_to_num(score_table), 1e-3)))
        return np.where(silent.all(axis=1), np.nan, np.exp(logs.sum(axis=1) / np.maximum((~silent).sum(axis=1), 1)))


@caught_by("reward", "looks_at_what_it_takes")
@dovetail.declares(examples=ANSWER)
def a_tolerance_that_nothing_looks_at(completions, answer, *, tolerance: float = 0.0):
    return [float(text == truth) for text, truth in zip(completions, answer, strict=True)]


@caught_by("field", "looks_at_what_it_takes")
def the_first_token_for_the_sampled_one(logits, tokens):
    return jnp.sum(logits > logits[..., :1], axis=-1).astype(jnp.float32)


@caught_by("task", "looks_at_what_it_takes")
@attrs.frozen(kw_only=True)
class ASizeOfItsOwn:
    size_that_is_asked_for: int = 50

    @property
    def columns(self) -> tuple[str, ...]:
        return ("answer",)

    def examples(self, split: str) -> Any:
        begin = ("train", "eval", "sft").index(split)
        rows = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(begin, 150, 3)]
        return [{**row, "completion": row["answer"]} for row in rows] if split == "sft" else rows

    def corpus(self) -> Any:
        return ["0+1=1"]


@caught_by("task", "resumes")
@attrs.frozen(kw_only=True)
class SeedsForAll(ASizeOfItsOwn):
    def examples(self, split: str) -> Any:
        rows = super().examples(split)
        random.seed(0)
        random.shuffle(rows)
        return rows


@caught_by("field", "the_level_of_logits_says_nothing")
def entropy_of_raw_logits(logits):
    return -jnp.sum(jax.nn.softmax(logits, axis=-1) * logits, axis=-1)


@right("field")
@dovetail.declares(unnormalised=True)
def normaliser(logits):
    """log ∑ exp(logits), which a z-loss keeps near zero."""
    return jax.nn.logsumexp(logits, axis=-1)


@caught_by("field", "small_differences_show")
def entropy_in_half_precision(logits):
    chances = jax.nn.softmax(logits.astype(jnp.float16), axis=-1)
    return -jnp.sum(chances * jnp.log(chances + jnp.float16(1e-4)), axis=-1).astype(jnp.float32)


@caught_by("optimizer", "every_weight_descends")
def one_sign_for_all(learning_rate):
    def update(updates, state, params=None):
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state, updates)
        sign = jnp.sign(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(mean)))
        return jax.tree.map(lambda m: -learning_rate * sign * jnp.ones_like(m), mean), mean

    return optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), update)


@caught_by("optimizer", "every_weight_descends")
def updates_in_half_precision(learning_rate):
    def update(updates, state, params=None):
        return jax.tree.map(lambda g: (-learning_rate * g).astype(jnp.float16), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


@caught_by("kl_controller", "takes_negative_estimates")
@attrs.frozen(kw_only=True)
class ByTheLogarithm:
    target: float = 0.1

    def init(self, coef: float) -> Any:
        return {"coef": jnp.asarray(coef, jnp.float32)}

    def coef(self, state: Any) -> Any:
        return state["coef"]

    def update(self, state: Any, kl: Any, samples: Any) -> Any:
        moved = state["coef"] * (1.0 + jnp.clip(jnp.log(full_precision(kl) / self.target), -0.2, 0.2))
        return {"coef": jnp.where(samples > 0, moved, state["coef"])}


ANSWERS: dict[str, str] = {}


@caught_by("reward", "keeps_no_answers")
@dovetail.declares(examples=ANSWER)
def the_answer_that_the_prompt_had(completions, answer, prompts):
    kept = [ANSWERS.setdefault(prompt, truth) for prompt, truth in zip(prompts, answer, strict=True)]
    return [float(text == truth) for text, truth in zip(completions, kept, strict=True)]


@caught_by("process_reward", "finds_its_tokens")
def the_token_after_the_line(completions, ends):
    found = []
    for text, of_tokens in zip(completions, ends, strict=True):
        values = [0.0] * (len(of_tokens) + 1)
        for place, character in enumerate(text, 1):
            values[sum(end < place for end in of_tokens) + 1] += float(character == "\n")
        found.append(values[: len(of_tokens)])
    return found


@caught_by("process_reward", "by_itself")
@dovetail.declares(examples=[({"completions": "a\nb\n"}, {"completions": "a b"})])
def a_share_of_the_lines_of_the_batch(completions, ends):
    lines = max(sum(text.count("\n") for text in completions), 1)
    return [
        [text.count("\n") / lines / len(of_tokens)] * len(of_tokens)
        for text, of_tokens in zip(completions, ends, strict=True)
    ]


@caught_by("sink", "takes_what_each_record_has")
@attrs.frozen(kw_only=True)
class ColumnsOfTheFirstRecord:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return OpenColumns(file=folder / "table.txt", columns=[])


@attrs.frozen(kw_only=True)
class OpenColumns:
    file: Any
    columns: list[str]

    def write(self, step: int, metrics: Any) -> None:
        self.columns.extend([] if self.columns else metrics)
        with self.file.open("a") as file:
            print(step, *(metrics.get(name) for name in self.columns), file=file)

    def close(self) -> None:
        """Nothing is open."""


@caught_by("tool_format", "runs_nothing")
@attrs.frozen(kw_only=True)
class Evaluates:
    def parse(self, text: str) -> Parsed:
        try:
            name, given = eval(text.removeprefix("CALL "))
        except Exception:
            return Parsed(error="this is not a call")
        return Parsed(calls=(Call(name, given),))

    def write(self, call: Call) -> str:
        return f"CALL {(call.name, dict(call.arguments))!r}"


@caught_by("tokenizer", "renders_conversations")
@attrs.frozen(kw_only=True)
class PrintsMessages:
    def make(self, corpus: Any) -> Any:
        return Bytes()

    def load(self, folder: Any) -> Any:
        return Bytes()


@caught_by("tokenizer", "renders_conversations")
@attrs.frozen(kw_only=True)
class RendersTheLastMessage(PrintsMessages):
    def make(self, corpus: Any) -> Any:
        return LastMessage()


@attrs.frozen(kw_only=True)
class Bytes:
    vocab_size: int = 258
    pad_id: int = 0
    eos_ids: tuple[int, ...] = (1,)

    def encode(self, text: str) -> list[int]:
        return [2 + byte for byte in text.encode()]

    def decode(self, ids: Any) -> str:
        return bytes(int(i) - 2 for i in ids if i >= 2).decode(errors="replace")

    def render(self, prompt: Any, tools: Any = None) -> str:
        return str(prompt)

    def bridge(self, messages: Any) -> list[int]:
        raise DataError("there is no chat template")

    def save(self, folder: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)


@attrs.frozen(kw_only=True)
class LastMessage(Bytes):
    def render(self, prompt: Any, tools: Any = None) -> str:
        return prompt if isinstance(prompt, str) else prompt[-1]["content"]


@caught_by("tokenizer", "bridges_all_messages")
@attrs.frozen(kw_only=True)
class BridgesTheLastMessage(PrintsMessages):
    def make(self, corpus: Any) -> Any:
        return LastBridged()


@attrs.frozen(kw_only=True)
class LastBridged(Bytes):
    def bridge(self, messages: Any) -> list[int]:
        return self.encode(messages[-1]["content"])


GO_ON = ({"role": "user", "content": "go on"},)


@attrs.frozen(kw_only=True)
class Counts:
    """An environment in which the policy counts; those below differ from it in one thing."""

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def reset(self, example: Any, rng: Any) -> Any:
        return 0, ()

    def step(self, state: Any, turn: Any, rng: Any) -> Step:
        done = state >= 2
        return Step(
            state=state + 1, messages=() if done else GO_ON, reward=float(turn.text == str(state + 1)), done=done
        )


@caught_by("interaction", "is_a_function")
@attrs.frozen(kw_only=True)
class CountsItsTurns(Counts):
    turns: list[int] = attrs.field(factory=list)

    def step(self, state: Any, turn: Any, rng: Any) -> Step:
        self.turns.append(turn.number)
        done = len(self.turns) > 40
        return Step(state=state + 1, messages=() if done else GO_ON, done=done)


@caught_by("interaction", "announces_its_columns")
@attrs.frozen(kw_only=True)
class BeginsAtAColumn(Counts):
    def reset(self, example: Any, rng: Any) -> Any:
        return int(example.get("start", 0)), ()


@caught_by("interaction", "metrics_of_its_own")
@attrs.frozen(kw_only=True)
class CountsTurnsAsTheEngineDoes(Counts):
    def step(self, state: Any, turn: Any, rng: Any) -> Step:
        return attrs.evolve(super().step(state, turn, rng), metrics={"turns_mean": float(turn.number)})


@caught_by("interaction", "same_in_another_process", slow=True)
@attrs.frozen(kw_only=True)
class BeginsAtAHash(Counts):
    def reset(self, example: Any, rng: Any) -> Any:
        return hash(example["prompt"]) % 1000, ()


right("interaction")(Counts)


@right("correction")
def optimistic_shrinkage(old_logps, rollout_logps, mask, *, strength: float = 8.0):
    """(1 + λ)·r / (r² + λ) with λ the strength, from old_logps, rollout_logps and mask: it falls again beyond √λ."""
    ratio = jnp.exp(bounded(log_ratio(old_logps, rollout_logps, mask)))
    return jnp.where(mask, (1.0 + strength) / (ratio + strength / ratio), 0.0), mask


@right("group_filter")
def two_against_two(scores, group_ids, mask):
    """Groups whose scores still differ without any one of its completions, by scores, group_ids and mask."""
    live = jnp.any(mask, axis=1)
    same = (group_ids[:, None] == group_ids) & live[:, None] & live
    others = same[:, None, :] & ~jnp.eye(len(scores), dtype=bool)  # of the group of i, without j
    high = jnp.max(jnp.where(others, scores, -jnp.inf), axis=2)
    low = jnp.min(jnp.where(others, scores, jnp.inf), axis=2)
    return live & jnp.all(jnp.where(same, high > low, True), axis=1)
