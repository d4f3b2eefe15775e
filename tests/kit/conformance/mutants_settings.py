"""Broken components of the host: settings without effect, answers that are not asked for, records that say nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import attrs
import jax
import numpy as np
import optax
from annotated_types import Ge
from flax import nnx
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_data import _Lines
from tests.kit.conformance.mutants_manners import _Any
from tests.kit.conformance.mutants_others import _decoder, _Words
from tests.kit.conformance.mutants_sweeps import _Draws

import dovetail
from dovetail.protocols import Call, Parsed, Step
from dovetail_agent.tool_format.hermes import Hermes

ANSWER = [({"completions": "it is 42", "answer": "42"}, {"completions": "it is 7", "answer": "42"})]
graded = dovetail.declares(range=(0, 1), examples=ANSWER)


def _numbers(text: str) -> list[str]:
    return [word for word in text.split() if word.isdigit()]


@caught_by("reward", "every_number_counts")
def a_limit_that_is_written_down(completions, *, longest: float = 100.0):
    return [min(len(text) / 100.0, 1.0) for text in completions]


@caught_by("reward", "one_answer_counts")
@graded
def any_of_the_numbers(completions, answer):
    return [float(truth in _numbers(text)) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "no_answer_no_score")
@dovetail.declares(abstains=True, examples=ANSWER)
def none_is_wrong(completions, answer):
    return [float(_numbers(text)[-1:] == [str(truth)]) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "the_whole_answer")
@graded
def as_far_as_it_goes(completions, answer):
    last = [_numbers(text)[-1:] for text in completions]
    return [float(bool(said) and str(truth).startswith(said[0])) for said, truth in zip(last, answer, strict=True)]


@caught_by("reward", "leaves_its_arguments")
def empties_its_list(completions, answer):
    found = [float(text == truth) for text, truth in zip(completions, answer, strict=True)]
    completions.clear()
    return found


WEIGHTS = {"the": 1.0, "a": 0.5}


@caught_by("reward", "order_of_settings")
def the_first_weight(completions, *, weights: dict[str, float] = WEIGHTS):
    first, second = weights.values()
    return [first * text.count("the") + second * text.count("a") for text in completions]


@caught_by("reward_manager", "by_name")
@attrs.frozen(kw_only=True)
class WeightsInOrderOfNames:
    weights: dict[str, float] | None = None

    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        weights = [(self.weights or {}).get(name, 1.0) for name in sorted(reward_names)]
        return np.where(np.isnan(score_table).all(axis=1), np.nan, np.nansum(score_table * weights, axis=1))


@caught_by("task", "every_number_counts")
@attrs.frozen(kw_only=True)
class AlwaysAHundred:
    size: int = 100
    columns: ClassVar[tuple[str, ...]] = ()

    def examples(self, split: str) -> Sequence[Any]:
        done = {"completion": "yes"} if split == "sft" else {}
        return [{"prompt": f"{split} {number}", **done} for number in range(100)]

    def corpus(self) -> Sequence[str]:
        return ["a text"]


@caught_by("adapter", "every_number_counts")
@attrs.frozen(kw_only=True)
class AlwaysRankEight:
    rank: Annotated[int, Ge(1)] = 8

    def apply(self, model: nnx.Module, *, rngs: nnx.Rngs) -> nnx.Module:
        return dovetail.get("adapter", "dovetail/lora").bind(rank=8, alpha=8.0).apply(model, rngs=rngs)


@caught_by("follower", "every_number_counts")
@attrs.frozen(kw_only=True)
class ATenthAlways:
    decay: float = 0.9

    def __call__(self, weights: Any, policy: Any) -> Any:
        return jax.tree.map(lambda w, theta: w + (0.1 * (theta - w)).astype(w.dtype), weights, policy)


@caught_by("curriculum", "chooses_by_what_it_learns")
@attrs.frozen(kw_only=True)
class LearnsAndForgetsIt(_Any):
    def choose(self, state: Any, count: int, rng: Any) -> Any:
        return rng.integers(0, len(state["rate"]), count)

    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        rate = state["rate"].copy()
        rate[chosen] = np.nan_to_num(scores).mean(axis=1)
        return {"rate": rate}


class _Whole(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        super().write(step, {name: int(value) for name, value in metrics.items()})


@caught_by("sink", "tells_records_apart")
@attrs.frozen(kw_only=True)
class WholeNumbers:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _Whole(f"{folder}/lines.jsonl", "a")


class _Rounded(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        super().write(step, {name: round(value, 1) for name, value in metrics.items()})


@caught_by("sink", "tells_records_apart")
@attrs.frozen(kw_only=True)
class OneDecimal:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _Rounded(f"{folder}/lines.jsonl", "a")


@caught_by("sink", "tells_records_apart")
@attrs.frozen(kw_only=True)
class WithoutTheStep:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _Unnumbered(f"{folder}/lines.jsonl", "a")


class _Unnumbered(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        self.lines.append(json.dumps(dict(metrics)))


class _InSixDigits(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        super().write(step, {name: float(f"{value:g}") for name, value in metrics.items()})


@caught_by("sink", "counts_in_full")
@attrs.frozen(kw_only=True)
class InSixDigits:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _InSixDigits(f"{folder}/lines.jsonl", "a")


EVERY_NAME: dict[str, float] = {}


class _OfAnyRun(_Lines):
    def write(self, step: int, metrics: Any) -> None:
        EVERY_NAME.update(metrics)
        super().write(step, EVERY_NAME)


@caught_by("sink", "forgets_other_runs")
@attrs.frozen(kw_only=True)
class OfAnyRun:
    def open(self, folder: Any, total_steps: int, start_step: int) -> Any:
        return _OfAnyRun(f"{folder}/lines.jsonl", "a")


@attrs.define
class _FollowsTheWorst:
    space: Any
    draws: int
    seed: int
    asked: list[Any] = attrs.field(factory=list)
    worst: tuple[float, Any] | None = None

    def ask(self) -> Any:
        from dovetail_lab.kinds import Proposal

        if len(self.asked) == self.draws:
            return None
        own = {key: form.draw(self.seed, key, len(self.asked)) for key, form in self.space.items()}
        self.asked.append(self.worst[1] if self.worst and len(self.asked) % 4 else own)
        return Proposal(values=self.asked[-1])

    def tell(self, number: int, result: Any) -> None:
        if result.value is not None and (self.worst is None or result.value < self.worst[0]):
            self.worst = (result.value, self.asked[number])


@caught_by("sampler", "learns_upwards", slow=True)
@attrs.frozen(kw_only=True)
class FollowsTheWorst(_Draws):
    learns: ClassVar[bool] = True

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> Any:
        return _FollowsTheWorst(space, draws, seed)


@attrs.define
class _TakesZeroForNone(_FollowsTheWorst):
    def tell(self, number: int, result: Any) -> None:
        if result.value and (self.worst is None or result.value > self.worst[0]):
            self.worst = (result.value, self.asked[number])


@caught_by("sampler", "zero_is_a_value", slow=True)
@attrs.frozen(kw_only=True)
class TakesZeroForNone(_Draws):
    learns: ClassVar[bool] = True

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> Any:
        return _TakesZeroForNone(space, draws, seed)


@attrs.define
class _TheNewestDidIt(_FollowsTheWorst):
    def tell(self, number: int, result: Any) -> None:
        if result.value is not None and (self.worst is None or result.value > self.worst[0]):
            self.worst = (result.value, self.asked[-1])


@caught_by("sampler", "results_belong_to_their_proposals", slow=True)
@attrs.frozen(kw_only=True)
class TheNewestDidIt(_Draws):
    learns: ClassVar[bool] = True

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> Any:
        return _TheNewestDidIt(space, draws, seed)


@caught_by("tool_format", "tells_of_a_broken_call")
@attrs.frozen
class PassesOverWhatItCannotRead(Hermes):
    def parse(self, text: str) -> Parsed:
        found = super().parse(text)
        return Parsed() if found.error is not None else found


@caught_by("tool_format", "every_text_counts")
@attrs.frozen(kw_only=True)
class AlwaysTheSameMarker(Hermes):
    marker: str = "CALL"


@caught_by("architecture", "describes_a_decoder", raises="TypeError")
def with_a_misspelt_field(config):
    return attrs.evolve(dovetail.get("architecture", "dovetail/llama")(config), qkv_biased=True)


@caught_by("architecture", "describes_a_decoder")
def of_one_layer(config):
    spec = dovetail.get("architecture", "dovetail/llama")(config)
    return attrs.evolve(spec, layers=spec.layers[:1])


@caught_by("tool_format", "reads_all_calls")
@attrs.frozen
class InOrderOfNames(Hermes):
    def parse(self, text: str) -> Parsed:
        found = super().parse(text)
        return attrs.evolve(found, calls=tuple(sorted(found.calls, key=lambda call: call.name)))


@caught_by("tool_format", "reads_all_calls")
@attrs.frozen
class TurnsThemRound(Hermes):
    def parse(self, text: str) -> Parsed:
        found = super().parse(text)
        return attrs.evolve(found, calls=tuple[Call, ...](found.calls[::-1]))


_ASKED: list[str] = []


@caught_by("tool", "answers_alike")
def remembers_everyone(text: str) -> str:
    """Say what was asked so far."""
    _ASKED.append(text)
    return " ".join(_ASKED)


@caught_by("tool", "answers_alike")
def adds_to_the_list(items: list[str]) -> str:
    """Count items."""
    items.append("one more")
    return str(len(items))


@caught_by("tool", "answers_alike")
def says_nothing(text: str) -> None:
    """Print a text, which the model does not see."""


@caught_by("interaction", "is_a_function")
@attrs.frozen(kw_only=True)
class TossesItsOwnCoin:
    columns: ClassVar[tuple[str, ...]] = ()

    def reset(self, example: Any, rng: Any) -> Any:
        return 0, ()

    def step(self, state: int, turn: Any, rng: Any) -> Step:
        return Step(state=state + 1, reward=float(turn.text == "never said" and random.random() < 0.5), done=_toss())


def _toss() -> bool:
    return random.random() < 2.0


@caught_by("replay", "as_they_were")
@attrs.frozen(kw_only=True)
class ScoresOfAnotherGroup:
    groups: ClassVar[int] = 2

    def init(self, empty: Any) -> Any:
        return {name: np.zeros((2, *array.shape), array.dtype) for name, array in empty.items()}

    def step(self, state: Any, fresh: Any, rng: Any) -> Any:
        earlier = {name: state[name].copy() for name in fresh} | {"scores": state["scores"][::-1].copy()}
        return earlier, {name: array[:2].copy() for name, array in fresh.items()}


class _Trims(_Words):
    def render(self, prompt: str) -> str:
        return prompt.strip()


@caught_by("tokenizer", "renders_the_whole_prompt")
@attrs.frozen(kw_only=True)
class TrimsThePrompt:
    def make(self, corpus: Any) -> Any:
        return _Trims()

    load = make


@caught_by("early_stopping", "judges")
def sorts_in_place(curve, others):
    curve.sort(key=lambda point: point[1])
    return False


@caught_by("optimizer", "neither_swells_nor_fades")
@attrs.frozen(kw_only=True)
class WarmsUpByItself:
    def __call__(self, lr: Any) -> Any:
        return optax.chain(optax.sgd(lr), optax.scale_by_schedule(optax.linear_schedule(0.1, 1.0, 10)))


@caught_by("optimizer", "optimises")
@attrs.frozen(kw_only=True)
class TheFirstParameterAlone:
    def __call__(self, lr: Any) -> Any:
        def first(updates: Any, params: Any) -> Any:
            leaves, tree = jax.tree.flatten(updates)
            return tree.unflatten([leaves[0], *(0 * leaf for leaf in leaves[1:])])

        return optax.chain(optax.sgd(lr), optax.stateless(first))


@caught_by("kl_controller", "reacts")
@attrs.frozen(kw_only=True)
class OnlyEverRises:
    def init(self, coef: float) -> Any:
        return {"coef": jax.numpy.asarray(coef, dtype=float)}

    def coef(self, state: Any) -> Any:
        return state["coef"]

    def update(self, state: Any, kl: Any, samples: Any) -> Any:
        rise = jax.numpy.where((samples > 0) & (kl > 0.1), 1.01, 1.0)
        return {"coef": state["coef"] * rise}


@caught_by("model", "cache_by_rows", slow=True)
@attrs.frozen(kw_only=True)
class ACountForEachRow:
    def make(self, vocab_size: int, *, rngs: Any, place: Any) -> Any:
        def init_cache(self: Any, batch: int, length: int) -> Any:
            cache = super(type(self), self).init_cache(batch, length)
            return cache._replace(filled=jax.numpy.zeros(batch, int))

        return _decoder(init_cache=init_cache)
