"""Broken agent loops, interactions and tools that are right as long as episodes wait for one another."""

from __future__ import annotations

import contextlib
import sqlite3
import threading

import attrs
import numpy as np
from tests.kit.conformance.mutants import caught_by
from tests.kit.conformance.mutants_loops import With

import dovetail
from dovetail.protocols import Step
from dovetail_agent.agent_loop._played import Played
from dovetail_agent.agent_loop.tool_agent import ToolAgent


class Shortened(Played):
    def alone(self, row, turn, finish):
        return (found := super().alone(row, turn, finish)) and found[:-1]


@caught_by("agent_loop", "alone_is_as_in_rounds")
@attrs.frozen(kw_only=True)
class LosesTheLastId(With, ToolAgent):
    played = Shortened


class Drawn(Played):
    def alone(self, row, turn, finish):
        asked = sum(len(each.rewards) for each in self.episodes)
        drawing = attrs.evolve(self, generator=lambda **_: np.random.default_rng(asked))
        return drawing.then([row], [turn], [finish])[0]


@caught_by("agent_loop", "alone_is_as_in_rounds")
@attrs.frozen(kw_only=True)
class DrawsInTheOrderOfTurns(With, ToolAgent):
    played = Drawn


class Strict(Played):
    def alone(self, row, turn, finish):
        found = super().alone(row, turn, finish)
        if self.episodes[row].end == "failed":
            raise ConnectionError("nobody is there")
        return found


@caught_by("agent_loop", "alone_is_as_in_rounds")
@attrs.frozen(kw_only=True)
class EndsAllForOne(With, ToolAgent):
    played = Strict


class Nobody:
    """A lock that keeps nobody out."""

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return None


class Open(Played):
    def alone(self, row, turn, finish):
        return attrs.evolve(self, lock=Nobody()).then([row], [turn], [finish])[0]


@caught_by("agent_loop", "alone_in_threads")
@attrs.frozen(kw_only=True)
class HoldsNoLock(With, ToolAgent):
    played = Open


NOW = {}
"""Whose turn it is, for want of a better place."""


class Elsewhere(Played):
    def alone(self, row, turn, finish):
        NOW["row"] = row
        with self.lock:
            self.loop.tokenizer.decode(turn)
        return self.then([NOW["row"]], [turn], [finish])[0]


@caught_by("agent_loop", "alone_in_threads")
@attrs.frozen(kw_only=True)
class KeepsWhoseTurnItIs(With, ToolAgent):
    played = Elsewhere


@attrs.frozen(kw_only=True)
class Recalls:
    """A number from 1 to 9; a turn is right if it has it."""

    columns = ()
    _kept: dict = attrs.field(init=False, factory=dict, eq=False)

    def reset(self, example, rng):
        self._kept["number"] = int(rng.integers(1, 10))
        return 0, ()

    def step(self, state, turn, rng):
        right = str(self._kept["number"]) in turn.text
        said = {"role": "user", "content": "go on"}
        return Step(state=state + 1, messages=(said,), reward=float(right), done=state > 3)


@caught_by("interaction", "episodes_take_turns")
@attrs.frozen(kw_only=True)
class KeepsTheNumberInItself(Recalls):
    """A number from 1 to 9; a turn is right if it has it."""


@caught_by("interaction", "episodes_take_turns")
@attrs.frozen(kw_only=True)
class KeepsTheNumberByThread(Recalls):
    """A number from 1 to 9; a turn is right if it has it."""

    _here: threading.local = attrs.field(init=False, factory=threading.local, eq=False)

    def reset(self, example, rng):
        self._here.number = int(rng.integers(1, 10))
        return self._here.number, ()

    def step(self, state, turn, rng):
        said = {"role": "user", "content": "go on"}
        right = str(self._here.number) in turn.text
        return Step(state=state, messages=(said,), reward=float(right), done=turn.number > 3)


@caught_by("tool", "answers_in_another_thread")
@attrs.frozen(kw_only=True)
class HasAConnectionOfItsOwn:
    """Look a word up."""

    _open: sqlite3.Connection = attrs.field(init=False, factory=lambda: sqlite3.connect(":memory:"))

    def __call__(self, word: str) -> str:
        """Look a word up.

        Args:
            word: the word.
        """
        return str(self._open.execute("SELECT ?", (word[::-1],)).fetchone()[0])


DRAWER = {}
MEETING = threading.Barrier(8)


@caught_by("tool", "answers_side_by_side")
@dovetail.declares(own_process=True)
def has_one_drawer(text: str) -> str:
    """Lay a text down, and take up what lies there.

    Args:
        text: the text.
    """
    DRAWER["text"] = text
    if threading.current_thread() is not threading.main_thread():
        with contextlib.suppress(threading.BrokenBarrierError):
            MEETING.wait(60)
    return DRAWER["text"]
