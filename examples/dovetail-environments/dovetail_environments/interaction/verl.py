"""Interaction `verl`: an interaction written for verl, a subclass of its `BaseInteraction`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
from dovetail.protocols import Example, Message, Step, Turn
from dovetail.registry import declares

from dovetail_environments._loading import finished, load
from dovetail_environments._replay import Opened, Played, Worlds, written

_NUMBERS: Final = itertools.count()


@attrs.define
class Begun:
    """An episode of verl's interaction: its instance, the conversation so far, and the columns that it is given."""

    interaction: Any
    instance: str
    messages: list[Message]
    columns: dict[str, Any]


@declares(
    settings={"path": "dovetail_environments.samples:Patience", "config": {"times": 2}},
    programs=("path",),
    files=("path",),
)
@attrs.frozen(kw_only=True)
class Verl:
    """Each turn is answered by `generate_response`, whose score is the turn's reward.

    The class is used as verl does: `start_interaction` with the columns, `generate_response` with the conversation and
    the columns after every turn, `finalize_interaction` at the end; `calculate_score` is called by the class itself.
    The state is the columns and the turns so far; see the interaction `gymnasium`. verl need not be installed, unless
    the class imports it.

    Args:
        path: the class, `module:Class` or `file.py:Class`.
        config: its argument `config`.
        columns: the task's columns that it is given, verl's `interaction_kwargs`.

    Raises:
        ConfigError: on construction, if there is no such class.
    """

    path: str
    config: Mapping[str, Any] = attrs.field(factory=dict)
    columns: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    _interaction: Any = attrs.field(
        default=attrs.Factory(lambda self: self._made(), takes_self=True), init=False, eq=False, repr=False
    )
    _worlds: Worlds = attrs.field(
        default=attrs.Factory(lambda self: Worlds(self._begun, _answered, _close), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Played, Sequence[Message]]:
        """Begin; the prompt is the task's."""
        prompt = example["prompt"]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        row = {"messages": messages, "columns": {name: example[name] for name in self.columns}}
        return Played(int(rng.integers(2**31)), row=written(row)), ()

    def anchor(self, state: Played) -> Played:
        """Return what has been said."""
        return state

    def step(self, state: Played, turn: Turn, rng: np.random.Generator) -> Step:
        """Answer."""
        opened, after = self._worlds.at(state), state.then(turn.text)
        with opened.chance() as begun:
            done, text, score, more = _answered(begun, turn.text)
        metrics = {name: float(value) for name, value in (more or {}).items() if isinstance(value, int | float)}
        if done:
            _close(opened.world)
        else:
            self._worlds.keep(after, opened)
        said = () if done else ({"role": "user", "content": text},)
        return Step(state=after, messages=said, reward=float(score), done=bool(done), metrics=metrics)

    def _made(self) -> Any:
        return load("interaction.verl.path", self.path)(dict(self.config))

    def _begun(self, opened: Opened, state: Played) -> None:
        row, instance = json.loads(state.row), f"episode-{next(_NUMBERS)}"
        started = finished(self._interaction.start_interaction(instance, **row["columns"]))
        opened.world = Begun(self._interaction, started or instance, row["messages"], row["columns"])


def _answered(begun: Begun, text: str) -> Any:
    begun.messages.append({"role": "assistant", "content": text})
    given = begun.interaction.generate_response(begun.instance, list(begun.messages), **begun.columns)
    done, said, score, more = finished(given)
    begun.messages.append({"role": "user", "content": said})
    return done, said, score, more


def _close(begun: Begun) -> None:
    finished(begun.interaction.finalize_interaction(begun.instance))
