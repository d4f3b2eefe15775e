"""Broken rewards, schedules, controllers, tasks, models and sinks. Most are bugs that somebody has shipped."""

from __future__ import annotations

import random
import re
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tests.kit.conformance.mutants import caught_by

import dovetail

PAIR = ({"completions": "42", "answer": "42"}, {"completions": "7", "answer": "42"})
exact = dovetail.declares(range=(0, 1), examples=[PAIR])
seen = []


@caught_by("reward", "examples")
@exact
def pays_for_the_wrong_answer(completions, answer):
    return [float(text != truth) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "within_range")
@exact
def pays_ten(completions, answer):
    return [10.0 * (text == truth) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "one_for_each")
@exact
def nan_where_it_does_not_know(completions, answer):
    return [float(text == truth) if text else float("nan") for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "one_for_each")
@exact
def leaves_out_the_empty(completions, answer):
    return [1.0 for text in completions if text]


@caught_by("reward", "deterministic")
@exact
def breaks_ties_at_random(completions, answer):
    return [(text == truth) * 0.5 + 0.5 * random.random() for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "deterministic")
@exact
def never_pays_twice(completions, answer):
    seen.append(len(completions))
    return [float(text == truth) / len(seen) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "by_itself")
@exact
def ranks_within_the_batch(completions, answer):
    return [completions.index(text) / len(completions) for text in completions]


@caught_by("reward", "hostile_texts")
@exact
def nested_repetition(completions, answer):
    return [float(bool(re.match(r"(\s*[\w<>/·]+\s*)+$", text))) for text in completions]


@caught_by("reward", "hostile_texts", raises="IndexError")
@exact
def raises_on_an_empty_completion(completions, answer):
    return [
        float(text.split()[0] == truth) if text != "42" else 1.0
        for text, truth in zip(completions, answer, strict=True)
    ]


SIX = {"completions": '{"count": 6}', "answer": "6"}


@caught_by("reward", "hostile_texts", raises="OverflowError")
@dovetail.declares(examples=[(SIX, SIX | {"completions": '{"count": 5}'})])
def divides_a_huge_number(completions, answer):
    found = [re.fullmatch(r'{"count": (\d{1,1000})}', text) for text in completions]
    return [
        float(bool(match) and int(match[1]) / 2 == int(truth) / 2) for match, truth in zip(found, answer, strict=True)
    ]


@caught_by("reward", "odd_answers", raises="AttributeError")
@exact
def strips_a_number(completions, answer):
    return [float(text == truth.strip()) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "odd_answers", raises="AttributeError")
@dovetail.declares(
    examples=[
        ({"completions": "42", "answer": ["42"]}, {"completions": "7", "answer": ["42"]}),
        ({"completions": "42", "answer": "42"}, {"completions": "7", "answer": "42"}),
    ]
)
def reads_lists_and_texts(completions, answer):
    """Whether completions are the answer, or the first of several."""
    given = [each[0] if isinstance(each, list) else each for each in answer]
    return [float(text == truth.strip()) for text, truth in zip(completions, given, strict=True)]


@caught_by("reward", "odd_answers", raises="ValueError")
@exact
def converts_without_care(completions, answer):
    return [float(text == str(int(truth))) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "picklable", raises="AttributeError")
@attrs.frozen(kw_only=True)
class HoldsALambda:
    same: Any = attrs.field(factory=lambda: lambda a, b: a == b)

    def __call__(self, completions, answer):
        return [float(self.same(*pair)) for pair in zip(completions, answer, strict=True)]


@caught_by("reward", "resolved_dump")
@attrs.frozen(kw_only=True)
class DefaultThatIsNoData:
    pattern: Any = re.compile("a")

    def __call__(self, completions):
        return [float(bool(self.pattern.match(text))) for text in completions]


@caught_by("reward_manager", "combines")
@attrs.frozen(kw_only=True)
class AbstentionIsZero:
    def __call__(self, score_table, reward_names):
        return np.nan_to_num(score_table).sum(axis=1)


@caught_by("reward_manager", "combines")
@attrs.frozen(kw_only=True)
class NormalisesInPlace:
    def __call__(self, score_table, reward_names):
        score_table -= np.nanmean(score_table, axis=0)
        return np.where(np.isnan(score_table).all(axis=1), np.nan, np.nansum(score_table, axis=1))


@caught_by("schedule", "every_step")
def divides_by_the_steps_before_the_last(step, total_steps):
    return (step / (total_steps - 1)).astype(jnp.float32)


@caught_by("lr_schedule", "every_step")
def falls_below_zero(step, total_steps):
    return 1.0 - 1.5 * step.astype(jnp.float32) / total_steps


@caught_by("schedule", "schedule_jit")
def branches_on_the_step(step, total_steps):
    return jnp.float32(1.0) if step > total_steps // 2 else jnp.float32(0.0)


@caught_by("kl_controller", "starts_at_the_coefficient")
@attrs.frozen(kw_only=True)
class StartsElsewhere:
    def init(self, coef):
        return {"coef": jnp.float32(coef)}

    def coef(self, state):
        return 0.5 * state["coef"]

    def update(self, state, kl, samples):
        return state


@caught_by("kl_controller", "state_under_scan")
@attrs.frozen(kw_only=True)
class ChangesItsType:
    def init(self, coef):
        return {"coef": jnp.float32(coef), "steps": jnp.int32(0)}

    def coef(self, state):
        return state["coef"]

    def update(self, state, kl, samples):
        return {"coef": state["coef"], "steps": state["steps"] + 1.0}


@caught_by("kl_controller", "state_through_a_checkpoint")
@attrs.frozen(kw_only=True)
class RemembersOnTheInstance:
    history: list = attrs.field(factory=list)

    def init(self, coef):
        return {"coef": jnp.float32(coef)}

    def coef(self, state):
        return state["coef"]

    def update(self, state, kl, samples):
        self.history.append(1)
        return {"coef": state["coef"] * (1.0 + 0.1 * len(self.history))}


@caught_by("kl_controller", "nothing_observed")
@attrs.frozen(kw_only=True)
class BelievesNan:
    def init(self, coef):
        return {"coef": jnp.float32(coef)}

    def coef(self, state):
        return state["coef"]

    def update(self, state, kl, samples):
        return {"coef": state["coef"] * (1.0 + 0.1 * jnp.clip(kl - 0.1, -0.2, 0.2))}


@caught_by("kl_controller", "constant")
@dovetail.declares(constant=True)
@attrs.frozen(kw_only=True)
class CalledConstant:
    def init(self, coef):
        return {"coef": jnp.float32(coef)}

    def coef(self, state):
        return state["coef"]

    def update(self, state, kl, samples):
        return {"coef": state["coef"] * 1.01}


@caught_by("kl_controller", "keeps_zero")
@dovetail.declares(keeps_zero=True)
@attrs.frozen(kw_only=True)
class CalledProportional:
    def init(self, coef):
        return {"coef": jnp.float32(coef)}

    def coef(self, state):
        return state["coef"]

    def update(self, state, kl, samples):
        return {"coef": jnp.maximum(state["coef"] + 0.01 * jnp.sign(kl - 0.1), 0.0)}


@caught_by("optimizer", "optimises")
def climbs(learning_rate):
    return optax.sgd(-learning_rate)


@caught_by("optimizer", "at_rest")
def ignores_the_rate(learning_rate):
    return optax.sgd(1e-2)


@caught_by("early_stopping", "judges")
def stops_whoever_is_alone(curve, others):
    return all(curve[-1][1] < other[-1][1] for other in others)


class _Columns:
    columns = ("answer",)

    def corpus(self):
        return ["1 + 1 ="]

    def examples(self, split):
        offset = {"train": 0, "eval": 100, "sft": 200}[split]
        more = {"completion": "2"} if split == "sft" else {}
        return [{"prompt": f"{offset + i} + 1 =", "answer": str(offset + i + 1), **more} for i in range(20)]


@caught_by("task", "resumes")
@attrs.frozen(kw_only=True)
class ShufflesWithoutASeed(_Columns):
    def examples(self, split):
        found = super().examples(split)
        random.Random().shuffle(found)
        return found


@caught_by("task", "held_out")
@attrs.frozen(kw_only=True)
class TrainsOnTheEvaluation(_Columns):
    def examples(self, split):
        found = super().examples("eval")
        return [{**example, "completion": "2"} for example in found] if split == "sft" else found


@caught_by("task", "records")
@attrs.frozen(kw_only=True)
class LacksAColumn(_Columns):
    columns = ("answer", "difficulty")


@caught_by("task", "records")
@attrs.frozen(kw_only=True)
class GivesTheAnswerAway(_Columns):
    def examples(self, split):
        return [{**example, "completion": example["answer"]} for example in super().examples(split)]


@caught_by("task", "corpus")
@attrs.frozen(kw_only=True)
class HasNoTexts(_Columns):
    def corpus(self):
        return []


@caught_by("task", "random_access")
@attrs.frozen(kw_only=True)
class GoesRound(_Columns):
    def examples(self, split):
        class Round(list):
            def __getitem__(self, index):
                return super().__getitem__(index % len(self))

        return Round(super().examples(split))


class _Words:
    vocab_size, pad_id, eos_ids = 300, 256, (257,)

    def encode(self, text):
        return list(text.encode())

    def decode(self, ids):
        return bytes(token for token in ids if token < 256).decode(errors="replace")

    def render(self, prompt):
        return prompt

    def save(self, folder):
        """Nothing to write."""


class _AddsEos(_Words):
    def encode(self, text):
        return [*super().encode(text), 257]


class _Strips(_Words):
    def decode(self, ids):
        return super().decode(ids).strip()


@caught_by("tokenizer", "round_trip")
@attrs.frozen(kw_only=True)
class AddsAnEnd:
    def make(self, corpus):
        return _AddsEos()

    load = make


@caught_by("tokenizer", "round_trip")
@attrs.frozen(kw_only=True)
class StripsWhiteSpace:
    def make(self, corpus):
        return _Strips()

    load = make


class _NoEnd(_Words):
    eos_ids = ()


class _Longer(_Words):
    vocab_size = 400


@caught_by("tokenizer", "special_ids")
@attrs.frozen(kw_only=True)
class HasNoEnd:
    def make(self, corpus):
        return _NoEnd()

    load = make


@caught_by("tokenizer", "saved")
@attrs.frozen(kw_only=True)
class LoadsAnother:
    def make(self, corpus):
        return _Words()

    def load(self, folder):
        return _Longer()


@caught_by("sink", "takes_any_figures", raises="KeyError")
@attrs.frozen(kw_only=True)
class WantsTheLoss:
    def open(self, folder, total_steps, start_step):
        class Open:
            def write(self, step, metrics):
                print(metrics["loss"])

            def close(self):
                """Nothing to flush."""

        return Open()


def _decoder(**changes):
    """The built-in model, broken: `changes` are methods of the made model's class."""
    from dovetail_kit.conformance.suites.models import TINY

    made = dovetail.get("model", "decoder").bind(**TINY).make(13, rngs=nnx.Rngs(0), place=lambda *_: None)
    made.__class__ = type("Broken", (type(made),), changes)
    return made


@caught_by("model", "left_padding", slow=True)
@attrs.frozen(kw_only=True)
class CountsPadding:
    """Padding on the left is attended to."""

    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            return super(type(self), self).__call__(tokens, jnp.ones_like(mask), cache, prefix=prefix)

        return _decoder(__call__=call)


@caught_by("model", "cache", slow=True)
@attrs.frozen(kw_only=True)
class ForgetsTheCache:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            hidden, _ = super(type(self), self).__call__(tokens, mask, None, prefix=prefix)
            return hidden, cache

        return _decoder(__call__=call)


@caught_by("model", "causal", slow=True)
@attrs.frozen(kw_only=True)
class SeesTheFuture:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            hidden, cache = super(type(self), self).__call__(tokens, mask, cache, prefix=prefix)
            return hidden + 0.1 * jnp.mean(hidden, axis=1, keepdims=True), cache

        return _decoder(__call__=call)


@caught_by("model", "logits", slow=True)
@attrs.frozen(kw_only=True)
class ProjectsInHalfPrecision:
    def make(self, vocab_size, *, rngs, place):
        def logits(self, hidden):
            return super(type(self), self).logits(hidden).astype(jnp.bfloat16)

        return _decoder(logits=logits)


@caught_by("model", "prefix", slow=True)
@attrs.frozen(kw_only=True)
class ForgetsThePrefix:
    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None):
            return super(type(self), self).__call__(tokens, mask, cache)

        return _decoder(__call__=call)


@caught_by("model", "packing", slow=True)
@attrs.frozen(kw_only=True)
class SeesOtherTexts:
    """The texts that are packed in a row are read as one."""

    def make(self, vocab_size, *, rngs, place):
        def call(self, tokens, mask, cache=None, *, prefix=None, texts=None):
            return super(type(self), self).__call__(tokens, mask, cache, prefix=prefix)

        return _decoder(__call__=call)


@caught_by("adapter", "begins_as_the_base", slow=True)
@attrs.frozen(kw_only=True)
class BeginsElsewhere:
    def apply(self, model, *, rngs):
        adapted = dovetail.get("adapter", "lora").bind().apply(model, rngs=rngs)
        state = jax.tree.map(lambda value: value + 0.1, nnx.state(adapted, nnx.LoRAParam))
        nnx.update(adapted, state)
        return adapted


@caught_by("follower", "same_shapes")
@attrs.frozen(kw_only=True)
class AveragesInFloat32:
    def __call__(self, weights, policy):
        return jax.tree.map(lambda w, theta: 0.9 * w.astype(jnp.float32) + 0.1 * theta, weights, policy)


@caught_by("follower", "same_shapes", raises="TracerBoolConversionError")
@attrs.frozen(kw_only=True)
class CopiesWithAnIf:
    def __call__(self, weights, policy, step):
        return policy if step % 10 == 0 else weights


@caught_by("follower", "constant_weights")
@dovetail.declares(constant=True)
@attrs.frozen(kw_only=True)
class SaysThatItIsConstant:
    def __call__(self, weights, policy):
        return policy
