"""Broken tools, formats of calls, interactions and filters of episodes."""

from __future__ import annotations

import itertools
import json

import attrs
import jax.numpy as jnp
from tests.kit.conformance.mutants import caught_by

from dovetail.protocols import Call, Parsed, Step
from dovetail_agent.interaction.guess_number import GuessNumber
from dovetail_agent.tool_format.hermes import Hermes


@caught_by("tool_format", "reads_what_it_writes")
@attrs.frozen
class WithoutEscapes(Hermes):
    def write(self, call):
        given = ", ".join(f'"{name}": "{value}"' for name, value in call.arguments.items())
        return f'<tool_call>{{"name": "{call.name}", "arguments": {{{given}}}}}</tool_call>'


@caught_by("tool_format", "reads_what_it_writes")
@attrs.frozen
class LosesArguments(Hermes):
    def parse(self, text):
        found = super().parse(text)
        return attrs.evolve(found, calls=tuple(Call(call.name, {}) for call in found.calls))


@caught_by("tool_format", "reads_anything")
@attrs.frozen
class RaisesOnCutJson(Hermes):
    def parse(self, text):
        if "<tool_call>" not in text:
            return Parsed()
        found = json.loads(text.split("<tool_call>")[1].split("</tool_call>")[0])
        return Parsed(calls=(Call(found["name"], found["arguments"]),))


@caught_by("tool_format", "reads_anything")
@attrs.frozen
class ReturnsACallAndAnError(Hermes):
    def parse(self, text):
        found = super().parse(text)
        return attrs.evolve(found, error="more than one call") if len(found.calls) > 1 else found


@caught_by("tool", "can_be_told_of")
def without_annotations(query) -> str:
    """Look for something."""
    return query


@caught_by("tool", "can_be_told_of")
def without_a_word(query: str) -> str:
    return query


@caught_by("tool", "no_answer_is_nan")
def mean(numbers: list[float]) -> float:
    """Take a mean."""
    return sum(numbers) / len(numbers) if numbers else float("nan")


@caught_by("tool", "no_answer_is_nan")
def root(number: float) -> dict[str, float]:
    """Take the root of a number less one."""
    return {"root": (number - 1) ** 0.5 if number >= 1 else float("nan")}


_COUNT = itertools.count()


@caught_by("interaction", "is_a_function")
@attrs.frozen
class Counts(GuessNumber):
    """Something outside its arguments decides."""

    def step(self, state, turn, rng):
        step = super().step(state, turn, rng)
        return attrs.evolve(step, reward=float(next(_COUNT)))


@caught_by("interaction", "is_a_function")
@attrs.frozen
class ChangesItsState:
    columns = ()

    def reset(self, example, rng):
        return [], ()

    def step(self, state, turn, rng):
        state.append(turn.text)
        return Step(state=state, messages=({"role": "user", "content": "go on"},))


@caught_by("completion_filter", "selects")
def nothing_is_good_enough(mask):
    return jnp.zeros_like(mask)
