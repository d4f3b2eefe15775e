"""Interaction `verifiers`: an environment of verifiers that plays the user."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import numpy as np
from dovetail.errors import ConfigError, RunError
from dovetail.protocols import Example, Message, Step, Turn
from dovetail.registry import declares

from dovetail_environments._loading import finished
from dovetail_environments._replay import Opened, Played, Worlds, written
from dovetail_environments._verifiers import COLUMN, add, conversation, named, traced


@declares()
@attrs.frozen(kw_only=True)
class VerifiersUser:
    """What the environment's `run` says to its agent, which is the policy, until it returns.

    `run(task, agents)` is executed as it is; `agents` has the one agent that the environment declares, and its
    `interaction(task)` and `run(task)` hand the turns over. The last turn gets the rewards that the environment and the
    task record. The state is the task and the turns so far; see the interaction `gymnasium`.

    Departures from verifiers:
        There is no harness and no sandbox; `Env.setup`, `Env.finalize` and `@stop` are not called. An environment with
        several agents, or one that shows its agent another prompt than the task's, is refused.
    """

    _worlds: Worlds = attrs.field(
        default=attrs.Factory(lambda self: Worlds(self._begun, _answered, _close), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """Which task it is, from the task `verifiers`."""
        return (COLUMN,)

    def reset(self, example: Example, rng: np.random.Generator) -> tuple[Played, Sequence[Message]]:
        """Begin; what the environment says first follows the task's prompt."""
        state = Played(int(rng.integers(2**31)), row=written({COLUMN: example[COLUMN]}))
        opened, _ = self._worlds.begun(state)
        said = opened.world.said()
        self._worlds.keep(state, opened)
        return state, said

    def anchor(self, state: Played) -> Played:
        """Return what has been said."""
        return state

    def step(self, state: Played, turn: Turn, rng: np.random.Generator) -> Step:
        """Answer."""
        opened, after = self._worlds.at(state), state.then(turn.text)
        with opened.chance() as run:
            _answered(run, turn.text)
        if run.over:
            metrics = {name: float(value) for name, value in run.trace.metrics.items() if value is not None}
            return Step(state=after, reward=float(run.trace.reward), done=True, metrics=metrics)
        said = run.said()
        self._worlds.keep(after, opened)
        return Step(state=after, messages=said)

    def _begun(self, opened: Opened, state: Played) -> None:
        environment, task = named(json.loads(state.row)[COLUMN])
        opened.world = Run(environment, task)
        finished(opened.world.begin())


class Run:
    """An environment's `run` that waits for the policy in every turn; all methods but `said` run in the event loop."""

    def __init__(self, environment: Any, task: Any) -> None:
        self.environment, self.task = environment, task
        self.trace = traced(task)
        self.asked: str | None = None
        self.over = False
        self._turn: asyncio.Future[str] | None = None
        self._waiting = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def said(self) -> tuple[Message, ...]:
        """Return what the environment has said since the last turn."""
        return () if self.asked is None else ({"role": "user", "content": self.asked},)

    async def begin(self) -> None:
        """Run until the policy is asked for its first turn."""
        self._running = asyncio.create_task(self._run())
        await self._until_asked()

    async def answer(self, text: str) -> None:
        """Hand a turn over, and run until the next one is asked for, or the end."""
        self._waiting.clear()
        assert self._turn is not None
        self._turn.set_result(text)
        await self._until_asked()

    async def end(self) -> None:
        """Cancel what is running."""
        if self._running is not None:
            self._running.cancel()

    async def ask(self, message: str | None) -> str:
        """Wait for the policy's turn."""
        self.asked, self._turn = message, asyncio.get_running_loop().create_future()
        self._waiting.set()
        return await self._turn

    async def _until_asked(self) -> None:
        assert self._running is not None
        waiting = asyncio.create_task(self._waiting.wait())
        await asyncio.wait((self._running, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._running.done():
            self.over = True
            self._running.result()

    async def _run(self) -> None:
        from verifiers.v1.configs.agent import agent_config_fields

        seats = list(agent_config_fields(self.environment.config))
        if len(seats) != 1:
            raise ConfigError(
                f"{type(self.environment).__name__} has the agents {', '.join(seats)}; Dovetail plays one"
            )
        await self.environment.run(self.task, _Agents(seats[0], _Agent(self)))


class _Agents:
    """The only agent, by the name that the environment gives it."""

    def __init__(self, name: str, agent: _Agent) -> None:
        setattr(self, name, agent)


class _Agent:
    """The policy, as an agent of verifiers."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @asynccontextmanager
    async def interaction(self, task: Any, **_: Any) -> AsyncIterator[_Exchange]:
        """Open the exchange; the task scores it at the end."""
        if conversation(task) != conversation(self._run.task):
            raise RunError("the environment shows its agent another prompt than the task's, which Dovetail cannot do")
        for message in conversation(task):
            add(self._run.trace, message["role"], message["content"])
        yield _Exchange(self._run)
        await task.score(self._run.trace)

    async def run(self, task: Any, **_: Any) -> Any:
        """Play a single turn."""
        async with self.interaction(task) as exchange:
            await exchange.turn()
        return self._run.trace


class _Exchange:
    """verifiers' `Interaction`: the environment says something, the policy replies."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def trace(self) -> Any:
        """What has been said so far, and the rewards."""
        return self._run.trace

    async def turn(self, message: str | None = None) -> Any:
        """Return the policy's next turn."""
        from verifiers.v1 import Segment

        if message is not None:
            add(self._run.trace, "user", message)
        reply = await self._run.ask(message)
        return Segment(messages=[add(self._run.trace, "assistant", reply)], root_reply=reply)


def _answered(run: Run, text: str) -> None:
    finished(run.answer(text))


def _close(run: Run) -> None:
    finished(run.end())
