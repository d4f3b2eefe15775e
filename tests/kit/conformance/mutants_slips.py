"""Components with an ordinary slip: a term that is detached, a wrong axis, a stale value, a unit that is another one."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from annotated_types import Ge, Interval
from flax import nnx
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_losses import clean, ratio_of
from tests.kit.conformance.mutants_memory import _Controller

import dovetail
from dovetail.arrays import Groups, log_ratio, masked, per_token
from dovetail.errors import DataError
from dovetail_executor.pool.processes import Processes
from dovetail_model.adapter.lora import linears
from dovetail_model.layers.low_rank import LowRank

Share = Annotated[float, Interval(ge=0, lt=1)]
THINK = re.compile(r"^<think>.*</think>\s*<answer>.*</answer>$")
ANSWER = re.compile(r"answer\s*(?:is|:)\s*(-?\d+(?:\.\d+)?)", re.IGNORECASE)


@caught_by("policy_loss", "what_it_reads_trains")
@dovetail.declares(regularised=True)
def a_pull_that_is_detached(logps, old_logps, ref_logps, advantages, mask, *, beta: Annotated[float, Ge(0)] = 0.1):
    pull = 0.5 * jax.lax.stop_gradient(log_ratio(logps, ref_logps, mask) ** 2)
    return clean(-advantages * ratio_of(logps, old_logps, mask) + beta * pull, mask)


@caught_by("policy_loss", "every_number_counts")
@dovetail.declares(regularised=True)
def a_number_of_what_is_detached(logps, old_logps, advantages, mask, *, floor: Annotated[float, Ge(0)] = 0.1):
    return clean(-advantages * ratio_of(logps, old_logps, mask) + floor, mask)


@caught_by("policy_loss", "learns_through_logps")
def a_weight_that_is_differentiated(logps, old_logps, entropy, advantages, mask):
    return clean(-(1.0 + 0.5 * masked(entropy, mask)) * advantages * ratio_of(logps, old_logps, mask), mask)


@caught_by("policy_loss", "nan_of_the_model_is_seen")
def a_loss_without_nan(logps, old_logps, advantages, mask):
    return clean(-jnp.nan_to_num(masked(advantages, mask) * jnp.tanh(log_ratio(logps, old_logps, mask))), mask)


@caught_by("loss_mask", "others_have_their_own_length")
def counts_along_the_batch(mask, *, longest: Annotated[int, Ge(1)] = 512):
    return mask & (jnp.sum(mask, axis=0) <= longest)


@caught_by("field", "selects_policy_tokens")
def likeliest_with_padding(rollout_logps, mask, *, fraction: Annotated[float, Interval(ge=0, le=1)] = 0.1):
    order = jnp.argsort(-masked(rollout_logps, mask).ravel(), stable=True)
    rank = jnp.argsort(order, stable=True).reshape(mask.shape)
    return rank < jnp.floor(fraction * jnp.sum(mask)).astype(int)


@caught_by("kl_controller", "takes_large_steps")
class BoundedAboveAlone(_Controller):
    """Without a lower bound a large step turns the coefficient negative."""

    def update(self, state, kl, samples):
        error = jnp.minimum(jnp.asarray(kl, dtype=float) / 0.05 - 1.0, 0.2)
        return {"coef": state["coef"] * (1.0 + error * jnp.asarray(samples, dtype=float) / 2000.0)}


@caught_by("entropy_controller", "what_was_just_observed_counts")
class AStepBehind(_Controller):
    """The coefficient follows the mean from before the step."""

    def init(self, coef):
        return {"coef": jnp.asarray(coef, dtype=float), "mean": jnp.zeros(())}

    def update(self, state, entropy, samples):
        some = jnp.asarray(samples) > 0
        mean = jnp.where(some, 0.8 * state["mean"] + 0.2 * jnp.asarray(entropy, dtype=float), state["mean"])
        coef = 0.1 + 0.05 * jnp.maximum(0.5 - state["mean"], 0.0)
        return {"coef": jnp.where(some, coef, state["coef"]), "mean": mean}


def _adam(b1: Any, b2: Any, learning_rate: Any, *, corrected: bool) -> optax.GradientTransformation:
    def init(params):
        return {
            "count": jnp.zeros((), jnp.int32),
            "mean": optax.tree.zeros_like(params),
            "square": optax.tree.zeros_like(params),
        }

    def update(gradients, state, params=None):
        count = state["count"] + 1
        mean = jax.tree.map(lambda m, g: (b1 * m + (1 - b1) * g).astype(m.dtype), state["mean"], gradients)
        square = jax.tree.map(lambda v, g: (b2 * v + (1 - b2) * g * g).astype(v.dtype), state["square"], gradients)
        one, two = 1.0 - jnp.float32(b1) ** count, 1.0 - jnp.float32(b2) ** count if corrected else jnp.float32(1)
        steps = jax.tree.map(
            lambda m, v: (-learning_rate * (m / one) / (jnp.sqrt(v / two) + 1e-8)).astype(m.dtype), mean, square
        )
        return steps, {"count": count, "mean": mean, "square": square}

    return optax.GradientTransformation(init, update)


@caught_by("optimizer", "begins_with_ordinary_steps")
def uncorrected_square(learning_rate, *, b1: Share = 0.9, b2: Share = 0.999):
    return _adam(b1, b2, learning_rate, corrected=False)


@caught_by("optimizer", "b1_is_of_the_mean")
def exchanged_decays(learning_rate, *, b1: Share = 0.9, b2: Share = 0.999):
    return _adam(b2, b1, learning_rate, corrected=True)


@caught_by("lr_schedule", "warms_up")
def a_share_as_steps(step, total_steps, *, warmup: Share = 0.1):
    length = jnp.maximum(jnp.float32(warmup), 1.0)
    left = jnp.clip((step - length) / jnp.maximum(total_steps - length, 1.0), 0.0, 1.0)
    return jnp.minimum((step + 1.0) / length, 1.0) * 0.05**left


@caught_by("early_stopping", "judges")
def sorts_what_it_is_given(curve, others, *, window: Annotated[int, Ge(1)] = 3):
    step = curve[-1][0]
    reached = [other for other in others if other and other[-1][0] >= step]
    for each in (curve, *reached):
        each.sort(key=lambda pair: pair[1], reverse=True)
    means = [fmean(value for _, value in each[:window]) for each in (curve, *reached)]
    return len(reached) > 2 and means[0] < median(means[1:])


@caught_by("reward", "tokens_count")
@dovetail.declares(range=(0, 1))
def characters_for_tokens(completions, tokens, *, limit: Annotated[int, Ge(1)] = 256):
    return [1.0 - min(len(text) / limit, 1.0) for text, _ in zip(completions, tokens, strict=True)]


@caught_by("reward", "reasoning_has_lines")
@dovetail.declares(
    range=(0, 1), examples=[({"completions": "<think>six sevens</think><answer>42</answer>"}, {"completions": "42"})]
)
def reasoning_in_one_line(completions):
    return [float(THINK.match(text) is not None) for text in completions]


@caught_by("reward", "no_answer_no_score")
@dovetail.declares(
    abstains=True,
    examples=[({"completions": "a blue whale", "answer": "whale"}, {"completions": "an ant", "answer": "whale"})],
)
def one_is_missing_all_are(completions, answer):
    if any(truth is None for truth in answer):
        return [None] * len(completions)
    return [float(str(truth) in text) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "runs_no_code")
@dovetail.declares(
    examples=[
        (
            {"completions": "<answer>6 * 7</answer>", "answer": "42"},
            {"completions": "<answer>6 + 7</answer>", "answer": "42"},
        )
    ]
)
def evaluates_without_builtins(completions, answer):
    found = []
    for text, truth in zip(completions, answer, strict=True):
        said = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
        try:
            found.append(float(eval(said[-1], {"__builtins__": None}, {}) == float(truth)))
        except Exception:
            found.append(0.0)
    return found


@caught_by("answer", "the_last_answer")
def the_first_mention(completions):
    return [match[1] if (match := ANSWER.search(text)) else None for text in completions]


@caught_by("reward_shaping", "being_cut_off_costs_once")
def a_penalty_for_each_token(token_rewards, truncated, mask, *, penalty: Annotated[float, Ge(0)] = 0.5):
    return clean(token_rewards - penalty * truncated[:, None].astype(jnp.float32), mask)


@caught_by("task", "distinct")
@attrs.frozen(kw_only=True)
class DrawnWithReplacement:
    """Sums of two numbers, some of which come twice."""

    columns: tuple[str, ...] = ("answer",)

    def examples(self, split: str) -> Sequence[Mapping[str, Any]]:
        draw, place = random.Random(split), ("train", "eval", "sft").index(split)
        pairs = [(draw.randint(0, 60), draw.randint(0, 60)) for _ in range(600)]
        found = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in pairs if (a + b) % 3 == place]
        return [each | {"completion": each["answer"]} for each in found] if split == "sft" else found

    def corpus(self) -> Sequence[str]:
        return [example["prompt"] for example in self.examples("train")]


@caught_by("group_filter", "each_group_by_itself")
def above_the_median_of_all(scores, group_ids, mask):
    groups = Groups.of(group_ids, mask)
    above = jnp.where(groups.live, groups.above_lowest(scores), 0.0)
    widest = jax.ops.segment_max(above, groups.segments, len(above))[groups.segments]
    return (widest > 0) & (widest >= jnp.median(widest))


@caught_by("advantage", "declarations")
@dovetail.declares(zero_mean=True)
def a_claim_about_no_group(scores, mask):
    return per_token(scores, mask)


@attrs.frozen(kw_only=True)
class _Sorted:
    """A reward in a pool, longest completions first."""

    pooled: Any

    def __call__(self, *columns: Sequence[Any]) -> Any:
        order = sorted(range(len(columns[0])), key=lambda row: len(columns[0][row]), reverse=True)
        return self.pooled(*([column[row] for row in order] for column in columns))


LETTERS = "0123456789+-*/=() abcdefghijklmnopqrstuvwxyz"


@attrs.frozen(kw_only=True)
class _OfLetters:
    """A token for each letter, after padding and the end."""

    vocab_size: int = len(LETTERS) + 2
    pad_id: int = 0
    eos_ids: tuple[int, ...] = (1,)
    strict: bool = True

    def encode(self, text: str) -> list[int]:
        if self.strict and (strange := {*text} - {*LETTERS}):
            raise DataError(f"the tokenizer has no token for {min(strange)!r}")
        return [LETTERS.index(letter) + 2 for letter in text if letter in LETTERS]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(LETTERS[token - 2] for token in tokens if token > 1)

    def render(self, prompt: Any) -> str:
        if not isinstance(prompt, str):
            raise DataError("a tokenizer of letters has no template for conversations")
        return prompt

    def bridge(self, messages: Any) -> list[int]:
        raise DataError("a tokenizer of letters has no template for conversations")

    def save(self, folder: Path) -> None:
        (folder / "letters.txt").write_text(LETTERS)


@right("tokenizer")
@dovetail.declares(alphabet=LETTERS)
@attrs.frozen(kw_only=True)
class Letters:
    """Each of 44 characters is a token, and no other is known."""

    def make(self, corpus: Sequence[str]) -> Any:
        """Return the tokenizer."""
        return _OfLetters()

    def load(self, folder: Path) -> Any:
        """Return the tokenizer, if it is in the folder."""
        return _OfLetters()


@caught_by("tokenizer", "refuses_other_characters")
@dovetail.declares(alphabet=LETTERS)
@attrs.frozen(kw_only=True)
class LeavesLettersOut(Letters):
    """Leaves out what it does not know."""

    def make(self, corpus: Sequence[str]) -> Any:
        """Return the tokenizer."""
        return _OfLetters(strict=False)


@right("reward_manager")
@dovetail.declares(needs_first=True)
def gated_by_the_first(table, names):
    """The mean of table over all names but the first, times that; NaN where the first is NaN."""
    rest = table[:, 1:]
    there = ~np.isnan(rest)
    others = np.where(there.any(axis=1), np.where(there, rest, 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1), 0.0)
    return table[:, 0] + others


@caught_by("pool", "scores_of_their_completions", slow=True)
@attrs.frozen(kw_only=True)
class LongestFirst:
    """Forgets to put the scores back in their order."""

    workers: int = 2

    def open(self, function: Any, what: str) -> Any:
        return Processes(workers=self.workers).open(function, what)

    def around(self, component: Any, built: Any) -> Any:
        return _Sorted(pooled=Processes(workers=self.workers).around(component, built))


class _Unscaled(LowRank):
    """Is merged without its scale."""

    def product(self) -> Any:
        return jnp.matmul(self.a[...], self.b[...])


@caught_by("adapter", "merges_as_it_computes", slow=True)
@attrs.frozen(kw_only=True)
class MergesWithoutScale:
    """A LoRA on every matrix."""

    def apply(self, model: Any, *, rngs: nnx.Rngs) -> Any:
        for linear in linears(model).values():
            linear.change = nnx.data(
                _Unscaled(linear.inputs, linear.outputs, 2, axes=linear.axes, scale=8.0, rngs=rngs)
            )
        return model


@right("advantage")
@attrs.frozen(kw_only=True)
class BeginsSomewhere:
    """A_i = s_i - b, b ← d·b + (1 - d)·mean s of scores, on the mask; the first b of the state is a number.

    Args:
        start: the first b.
        decay: d.
    """

    start: float = 0.5
    decay: Annotated[float, Interval(ge=0, le=1)] = 0.9

    def init(self, roles: int) -> Any:
        """Return the first baseline."""
        return jnp.asarray(self.start, dtype=float)

    def __call__(self, scores, state, mask):
        """Return the advantages."""
        return per_token(scores - state, mask)

    def update(self, scores, state, mask):
        """Return the next baseline."""
        live = jnp.any(mask, axis=1)
        mean = jnp.sum(jnp.where(live, scores, 0.0)) / jnp.maximum(jnp.sum(live), 1)
        return jnp.where(jnp.any(live), self.decay * state + (1 - self.decay) * mean, state)


@right("advantage")
@attrs.frozen(kw_only=True)
class CountsSuccesses:
    """A_i = s_i - a/(a + b), where a and b are decayed counts of successes and failures among the scores.

    Args:
        decay: what is kept of the counts.
    """

    decay: Annotated[float, Interval(ge=0, le=1)] = 0.9

    def init(self, roles: int) -> Any:
        """Return one success and one failure."""
        return {"successes": jnp.ones(()), "failures": jnp.ones(())}

    def __call__(self, scores, state, mask):
        """Return the advantages."""
        return per_token(scores - state["successes"] / (state["successes"] + state["failures"]), mask)

    def update(self, scores, state, mask):
        """Return the counts with those of a batch."""
        live = jnp.any(mask, axis=1)
        share = jnp.where(live, jnp.clip(scores, 0.0, 1.0), 0.0)
        found = {"successes": jnp.sum(share), "failures": jnp.sum(jnp.where(live, 1.0 - share, 0.0))}
        keep = jnp.any(live)
        return {name: jnp.where(keep, self.decay * state[name] + found[name], state[name]) for name in state}
