"""The episodes in which tools and interactions are examined: what is said in them, and how they are played."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np

from dovetail.errors import DovetailError
from dovetail.protocols import Turn
from dovetail.registry import current
from dovetail_kit.conformance.check import Inapplicable
from dovetail_kit.conformance.subject import Subject

TEXTS: Final = ("", "1", "It is 3.", "7 or 8?", "left", "\x00", "x" * 10_000, "\N{SNOWMAN}", '{"name": 1}', "[]", "<a>")
TURNS: Final = 12
MADE_UP: Final = (int, str, lambda number: [number, number + 1])
"""What a column may hold, as a function of a number."""
NUMBERS: Final = ("3", "8", "12", "25", "345", "678", "1234", "9876", "12345", "67890")
"""Of one to five digits, two of each."""
STEADY: Final = ("sky", "1 + 2", "3")
"""Texts that arguments may hold."""


def begun(interaction: Any, seed: int) -> tuple[Any, np.random.Generator]:
    """Return the state of an episode that begins, and its generator.

    Raises:
        Inapplicable: if it cannot begin here, for want of a server, say, of which `is_a_function` tells.
    """
    rng = np.random.default_rng(seed)
    try:
        return interaction.reset(example_of(interaction), rng)[0], rng
    except DovetailError:
        raise Inapplicable("it begins no episode here") from None


def played(subject: Subject) -> list[str]:
    """What an interaction says and rewards in some episodes."""
    return episodes_of(subject.bind())


def episodes_of(interaction: Any, *, states: bool = False) -> list[str]:
    """What an interaction says and rewards in some episodes, and the states that they begin in, if they are numbers."""
    found = []
    for text in TEXTS:
        rng = np.random.default_rng(0)
        state, said = interaction.reset(example_of(interaction), rng)
        found.append(repr((state, said) if states and isinstance(state, int | float | str) else said))
        for turn in range(3 * TURNS):
            step = interaction.step(state, Turn(text=text, number=turn), rng)
            found.append(repr((step.messages, step.reward, step.done)))
            if step.done:
                break
            state = step.state
    return found


def are_equal(state: Any, other: Any) -> bool:
    """Tell whether two states are equal, which may be arrays, or hold some: of these `==` is no single answer."""
    try:
        return bool(state == other)
    except ValueError:
        pass
    if hasattr(state, "__array__"):
        return np.array_equal(state, other)
    ours, theirs = _parts(state), _parts(other)
    return ours.keys() == theirs.keys() and all(are_equal(ours[name], theirs[name]) for name in ours)


def _parts(state: Any) -> Mapping[Any, Any]:
    """Return what a state consists of, by name or by place."""
    if isinstance(state, Mapping):
        return state
    if attrs.has(type(state)):
        return attrs.asdict(state, recurse=False)
    return dict(enumerate(state)) if isinstance(state, list | tuple) else vars(state)


def example_of(interaction: Any) -> Mapping[str, Any]:
    """Return one example; see `examples`."""
    return examples(interaction, 1)[0]


def examples(interaction: Any, count: int) -> Sequence[Mapping[str, Any]]:
    """Return examples of a task that has what the interaction reads, or some that are made up, if it takes those.

    Raises:
        Inapplicable: if no task that can be built has, and numbers and texts will not do.
    """
    wanted = set(interaction.columns)
    if not wanted:
        return [{"prompt": "Begin."}] * count
    for name in current().names("task"):
        try:
            task: Any = current().get("task", name).bind()
            if wanted <= set(task.columns):
                of_task = task.examples("train")
                return [of_task[index % len(of_task)] for index in range(count)]
        except (DovetailError, ImportError, TypeError):
            continue
    for value in MADE_UP:
        made = [_made_up(sorted(wanted), value, 2 + index) for index in range(count)]
        with contextlib.suppress(Exception):
            for example in made:
                interaction.reset(copy.deepcopy(example), np.random.default_rng(0))
            return made
    raise Inapplicable(f"no task has the columns {', '.join(sorted(wanted))}; register one beside the interaction")


def _made_up(columns: Sequence[str], value: Callable[[int], Any], first: int) -> Mapping[str, Any]:
    return {"prompt": "Begin.", **{name: value(number) for number, name in enumerate(columns, first)}}
