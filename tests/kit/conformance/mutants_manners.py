"""Components of the host that an independent trial got past the checks, and unusual ones that are right."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, ClassVar

import attrs
import numpy as np
from annotated_types import Interval
from flax import nnx
from tests.kit.conformance.mutants import caught_by, right
from tests.kit.conformance.mutants_others import _Words

import dovetail
from dovetail.protocols import Call, Parsed, Step
from dovetail_lab.kinds import Proposal

ANSWER = [({"completions": "42", "answer": "42"}, {"completions": "7", "answer": "42"})]


@caught_by("reward", "leaves_its_arguments")
@dovetail.declares(examples=ANSWER)
def strips_in_place(completions, answer):
    completions[:] = [text.strip() for text in completions]
    return [float(text == truth) for text, truth in zip(completions, answer, strict=True)]


@caught_by("reward", "every_number_counts")
@dovetail.declares(examples=ANSWER)
def a_tenth_for_any_number(completions, answer, *, partial: float = 0.1):
    return [float(text == truth) or 0.1 * text.isdigit() for text, truth in zip(completions, answer, strict=True)]


@caught_by("answer", "no_answer_is_none")
def an_empty_answer(completions):
    return [found[0] if (found := re.search(r"\d+", text)) else "" for text in completions]


@caught_by("answer", "the_last_answer")
def the_first_number(completions):
    return [found[0] if (found := re.search(r"\d+", text)) else None for text in completions]


@caught_by("answer", "numbers_vote_alike")
def as_it_is_spelt(completions):
    return [found[-1] if (found := re.findall(r"\d+(?:\.\d+)?", text)) else None for text in completions]


@caught_by("answer", "by_itself")
def what_most_say(completions):
    numbers = Counter(found[0] for text in completions if (found := re.search(r"\d+", text)))
    return [numbers.most_common(1)[0][0] if numbers else None for _ in completions]


@caught_by("process_reward", "finds_its_tokens")
def by_characters(completions, ends):
    lines = [[at for at, mark in enumerate(text) if mark == "\n"] for text in completions]
    return [[float(at in found) for at in range(len(tokens))] for found, tokens in zip(lines, ends, strict=True)]


@caught_by("reward_manager", "more_is_not_less")
@attrs.frozen(kw_only=True)
class Costs:
    def __call__(self, score_table: Any, reward_names: Any) -> Any:
        return np.where(np.isnan(score_table).all(axis=1), np.nan, -np.nansum(score_table, axis=1))


@attrs.frozen(kw_only=True)
class _Any:
    def init(self, examples: int) -> Any:
        return {"rate": np.zeros(examples)}

    def choose(self, state: Any, count: int, rng: Any) -> Any:
        return np.concatenate([rng.permutation(len(state["rate"])) for _ in range(3)])[:count]

    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        rate = state["rate"].copy()
        for prompt, of_prompt in zip(chosen, scores, strict=True):
            rate[prompt] = np.mean(of_prompt[~np.isnan(of_prompt)]) if not np.isnan(of_prompt).all() else rate[prompt]
        return {"rate": rate}


@caught_by("curriculum", "reaches_every_prompt")
@attrs.frozen(kw_only=True)
class TheFirstOnes(_Any):
    def choose(self, state: Any, count: int, rng: Any) -> Any:
        return np.arange(count) % len(state["rate"])


@caught_by("curriculum", "learns_from_scores_that_are_there")
@attrs.frozen(kw_only=True)
class SpreadsNan(_Any):
    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        rate = state["rate"].copy()
        rate[chosen] = scores.mean(axis=1)
        return {"rate": rate}


@caught_by("curriculum", "learns_from_scores_that_are_there")
@attrs.frozen(kw_only=True)
class ForgetsAtOnce(_Any):
    def update(self, state: Any, chosen: Any, scores: Any) -> Any:
        return self.init(len(state["rate"]))


@caught_by("replay", "something_joins")
@attrs.frozen(kw_only=True)
class NeverStores:
    groups: ClassVar[int] = 1

    def init(self, empty: Any) -> Any:
        return {name: array[None] for name, array in empty.items()}

    def step(self, state: Any, fresh: Any, rng: Any) -> Any:
        return {name: state[name].copy() for name in fresh}, dict(state)


@attrs.frozen(kw_only=True)
class _Format:
    def parse(self, text: str) -> Parsed:
        calls = []
        for line in text.split("\n"):
            try:
                body = json.loads(line.removeprefix("CALL ")) if line.startswith("CALL ") else None
                calls += [Call(body["name"], body["arguments"])] if body else []
            except (ValueError, KeyError, TypeError, RecursionError):
                return Parsed(error="this is not a call")
        return self.found(calls)

    def found(self, calls: list[Call]) -> Parsed:
        return Parsed(calls=tuple(calls))

    def write(self, call: Call) -> str:
        return f"CALL {json.dumps({'name': call.name, 'arguments': dict(call.arguments)})}"


@caught_by("tool_format", "reads_all_calls")
@attrs.frozen(kw_only=True)
class TheFirstCallAlone(_Format):
    def found(self, calls: list[Call]) -> Parsed:
        return Parsed(calls=tuple(calls[:1]))


@right("tool_format")
@attrs.frozen(kw_only=True)
class OneCallOrAnError(_Format):
    """Calls as lines of JSON, one for each turn."""

    def found(self, calls: list[Call]) -> Parsed:
        return Parsed(calls=tuple(calls)) if len(calls) < 2 else Parsed(error="one call at a time")


@attrs.frozen(kw_only=True)
class _World:
    columns: ClassVar[tuple[str, ...]] = ()
    role: ClassVar[str] = "user"

    def reset(self, example: Any, rng: Any) -> Any:
        return 0, ()

    def step(self, state: int, turn: Any, rng: Any) -> Step:
        said = ({"role": self.role, "content": "go on"},) if self.role else ()
        return Step(state=state + 1, messages=said if state < 2 else (), done=state >= 2)


@caught_by("interaction", "is_a_function")
@attrs.frozen(kw_only=True)
class SaysNothing(_World):
    role: ClassVar[str] = ""


@caught_by("interaction", "is_a_function")
@attrs.frozen(kw_only=True)
class SpeaksForThePolicy(_World):
    role: ClassVar[str] = "assistant"


@attrs.define
class _LastOnly:
    path: Path
    last: str = ""

    def write(self, step: int, metrics: Any) -> None:
        self.last = f"{step} {sorted(metrics.items())}"

    def close(self) -> None:
        self.path.write_text(self.last)


@caught_by("sink", "keeps_every_record")
@attrs.frozen(kw_only=True)
class TheLastRecordAlone:
    def open(self, folder: Path, total_steps: int, start_step: int) -> Any:
        return _LastOnly(folder / "last.txt")


@caught_by("sampling_preset", "sets_what_there_is")
@attrs.frozen(kw_only=True)
class Misspelt:
    temprature: float = 0.5


@caught_by("sampling_preset", "sets_what_there_is")
@attrs.frozen(kw_only=True)
class BelowZero:
    temperature: float = -0.5


@attrs.define
class _Study:
    settings: list[Any]

    def ask(self) -> Any:
        return Proposal(values=self.settings.pop(0)) if self.settings else None

    def tell(self, number: int, result: Any) -> None:
        """Learn nothing."""


@attrs.frozen(kw_only=True)
class _Sampler:
    learns: ClassVar[bool] = False

    def open(self, space: Any, *, draws: int, seed: int, total_steps: int) -> Any:
        return _Study([{key: self.one(form, seed, key, i) for key, form in space.items()} for i in range(draws)])

    def one(self, form: Any, seed: int, key: str, number: int) -> Any:
        return form.draw(seed, key, number)


@caught_by("sampler", "tries_other_settings")
@attrs.frozen(kw_only=True)
class TheSameAgain(_Sampler):
    def one(self, form: Any, seed: int, key: str, number: int) -> Any:
        return form.draw(seed, key, 0)


@caught_by("sampler", "same_in_another_process", slow=True)
@attrs.frozen(kw_only=True)
class DrawsByHash(_Sampler):
    def one(self, form: Any, seed: int, key: str, number: int) -> Any:
        return form.draw(hash((str(seed), key)) % 10**6, key, number)


@caught_by("early_stopping", "judges")
def sorts_the_others(curve, others):
    others.sort(key=lambda other: other[-1][1])
    return bool(others) and curve[-1][1] < others[len(others) // 2][-1][1]


@caught_by("early_stopping", "stops_the_hopeless")
def compares_with_the_first(curve, others):
    return bool(others) and curve[-1][1] < others[0][-1][1]


@caught_by("early_stopping", "stops_the_hopeless")
def stops_nothing(curve, others):
    return False


def _adapter() -> Any:
    return dovetail.get("adapter", "lora").bind(rank=2)


@caught_by("adapter", "can_learn", slow=True)
@attrs.frozen(kw_only=True)
class TwoZeros:
    def apply(self, model: Any, *, rngs: Any) -> Any:
        adapted = _adapter().apply(model, rngs=rngs)
        for _, parameter in nnx.iter_graph(adapted):
            if isinstance(parameter, nnx.LoRAParam):
                parameter[...] = 0.0 * parameter[...]
        return adapted


@right("reward")
@dovetail.declares(examples=ANSWER)
def abstains_on_empty_texts(completions, answer):
    """1 where completions are the answer, None where they are empty; as numbers of numpy."""
    return [np.float32(text == truth) if text else None for text, truth in zip(completions, answer, strict=True)]


@right("early_stopping")
def the_worst_quarter(curve, others, *, grace: int = 5):
    """Stop what is in the worst quarter at its step, after grace steps; curve, others."""
    if not curve or curve[-1][0] <= grace:
        return False
    there = [max(v for at, v in other if at <= curve[-1][0]) for other in others if other[-1][0] >= curve[-1][0]]
    return len(there) > 2 and bool(max(value for _, value in curve) < np.quantile(there, 0.25))


@attrs.frozen
class _Prefixed(_Words):
    beginning: str = ""

    def render(self, prompt: Any) -> str:
        return self.beginning + prompt


@caught_by("tokenizer", "saves_its_settings")
@attrs.frozen(kw_only=True)
class ForgetsTheBeginning:
    beginning: str = ""

    def make(self, corpus: Any) -> Any:
        return _Prefixed(self.beginning)

    def load(self, folder: Path) -> Any:
        return _Prefixed()


@attrs.frozen
class _Shifted(_Words):
    shift: int

    def encode(self, text: str) -> list[int]:
        return [(byte + self.shift) % 256 for byte in text.encode()]

    def decode(self, ids: Any) -> str:
        return bytes((token - self.shift) % 256 for token in ids if token < 256).decode(errors="replace")


@caught_by("tokenizer", "saves_its_settings")
@attrs.frozen(kw_only=True)
class ForgetsTheShift:
    shift: Annotated[int, Interval(ge=0, le=4)] = 0

    def make(self, corpus: Any) -> Any:
        return _Shifted(self.shift)

    def load(self, folder: Path) -> Any:
        return _Shifted(self.shift)
