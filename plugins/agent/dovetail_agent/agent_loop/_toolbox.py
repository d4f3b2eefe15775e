"""The tools of an agent loop: run concurrently, with a time limit, and with results cut to a number of tokens."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import attrs

from dovetail.errors import ConfigError, DovetailWarning, RunError
from dovetail.protocols import Call, Tokenizer, Tool
from dovetail_agent.record import Record
from dovetail_agent.runner import Ran, Runner
from dovetail_kit.workers import LATE, LOST, Workers, cores, workers

INTERACTION: Final = ""
"""The key of the interaction's state among the states of tools; no tool has this name."""

CHARACTERS: Final = 64
"""More characters than almost any token has. Text with more than this per allowed token is cut before it is encoded."""

_NO_LOCK: Final[AbstractContextManager[Any]] = nullcontext()


def opened(tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools, with each tool server replaced by the tools that it provides.

    Raises:
        ConfigError: if a server provides none, or two tools have the same name.
    """
    found: dict[str, Tool] = {}
    for tool in tools:
        of_server = getattr(tool.function, "tools", None)
        several = of_server() if of_server else [tool]
        if not several:
            raise ConfigError(f"tool {tool.name} stands for the tools of a server, which has none")
        for each in several:
            if each.name in found:
                raise ConfigError(f"two tools of train.tools are called '{each.name}'; the policy could not choose")
            found[each.name] = each
    return list(found.values())


@attrs.frozen(kw_only=True, slots=False)
class Toolbox:
    """Tools with the limits of their calls; see `ToolAgent`. Those named in `acting` act on the interaction's state."""

    tools: tuple[Tool, ...]
    tokenizer: Tokenizer
    max_tokens: int
    processes: int | None
    time_limit: float
    acting: frozenset[str] = frozenset()
    pool: Any = None
    record: Record | None = None
    _told: set[str] = attrs.field(factory=set, init=False, repr=False)
    """The tools whose authors have been told of a slip."""
    _here: Any = attrs.field(factory=threading.Lock, init=False, repr=False)
    """Held while tools run in this process, one after another: they need not expect threads."""
    _free: Any = attrs.field(factory=lambda: threading.Semaphore(cores()), init=False, repr=False)
    """One for each call of a tool with processes of its own, whose time limits would not hold for more than cores."""

    def run(
        self,
        turns: Sequence[Sequence[Call]],
        states: Sequence[dict[str, Any]],
        ids: Sequence[str],
        lock: AbstractContextManager[Any],
    ) -> list[list[Ran]]:
        """Run the calls of several turns, those of a turn in the order written, and update the states of its tools.

        With a record, results come from there if it has them; `ids` are the identities of the turns in it. The lock is
        held by whoever uses the tokenizer or the interaction, tools of the interaction in this process included.

        Raises:
            RunError: if a tool cannot continue for a reason that is not the fault of any episode.
        """
        results: list[list[Ran]] = [[] for _ in turns]
        for number in range(max((len(calls) for calls in turns), default=0)):
            rows = [row for row, calls in enumerate(turns) if number < len(calls)]
            asked = [(turns[row][number], states[row].get(self._key(turns[row][number]))) for row in rows]
            for row, (call, state), ran in zip(
                rows, asked, self._results(asked, [ids[row] for row in rows], number, lock), strict=True
            ):
                if ran.stop:
                    raise RunError(ran.stop)
                if ran.slip and call.name not in self._told:
                    self._told.add(call.name)
                    warnings.warn(ran.slip, DovetailWarning, stacklevel=2)
                states[row][self._key(call)] = state if ran.lost else ran.state
                with lock:
                    text = self._cut(ran.text, ran.more)
                results[row].append(attrs.evolve(ran, text=text))
        return results

    def _results(
        self, asked: Sequence[tuple[Call, Any]], ids: Sequence[str], number: int, lock: AbstractContextManager[Any]
    ) -> list[Ran]:
        if self.record is None:
            return self._side_by_side(asked, lock)
        acting = [call.name in self.acting for call, _ in asked]  # a part of the interaction, which repeats itself
        own = iter(self._side_by_side([each for each, acts in zip(asked, acting, strict=True) if acts], lock))
        others = [(each, name) for each, name, acts in zip(asked, ids, acting, strict=True) if not acts]
        calls, turns = [each for each, _ in others], [name for _, name in others]
        recorded = iter(self.record.results(calls, turns, number, self._side_by_side))
        return [next(own if acts else recorded) for acts in acting]

    def _key(self, call: Call) -> str:
        return INTERACTION if call.name in self.acting else call.name

    def _side_by_side(
        self, asked: Sequence[tuple[Call, Any]], lock: AbstractContextManager[Any] = _NO_LOCK
    ) -> list[Ran]:
        if not self.processes and self.pool is None:
            return self._without_workers(asked, lock)
        with self._here:
            workers = self.workers
        seconds = self.time_limit if self.pool is None else self.pool.seconds
        late = f"error: nothing was returned within {seconds:g} seconds"
        said = {LATE: late, LOST: "error: the process of the tool ended"}
        return [
            Ran(said[ran], at_fault=True, state=state) if ran in (LATE, LOST) else ran
            for ran, (_, state) in zip(workers.map(asked, time_limit=seconds), asked, strict=True)
        ]

    def _without_workers(self, asked: Sequence[tuple[Call, Any]], lock: AbstractContextManager[Any]) -> list[Ran]:
        """Run calls one after another here, and beside them those of tools that have processes of their own."""
        apart = [self.processes is None and call.name in self._own for call, _ in asked]
        with ThreadPoolExecutor(max(1, min(cores(), sum(apart)))) as threads:
            begun = [threads.submit(self._when_free, *each) for each, own in zip(asked, apart, strict=True) if own]
            with self._here:
                here = iter([self._run_here(*each, lock) for each, own in zip(asked, apart, strict=True) if not own])
            there = iter([each.result() for each in begun])
        return [next(there if own else here) for own in apart]

    def _run_here(self, call: Call, state: Any, lock: AbstractContextManager[Any]) -> Ran:
        with lock if call.name in self.acting else _NO_LOCK:
            return self._runner(call, state)

    def _when_free(self, call: Call, state: Any) -> Ran:
        with self._free:
            return self._runner(call, state)

    @functools.cached_property
    def _own(self) -> frozenset[str]:
        """The tools that declare `own_process`."""
        declared = {tool.name: getattr(tool.target, "declares", {}) for tool in self.tools}
        return frozenset(name for name, claims in declared.items() if claims.get("own_process"))

    @functools.cached_property
    def _runner(self) -> Runner:
        return Runner(self.tools, CHARACTERS * self.max_tokens)

    @functools.cached_property
    def workers(self) -> Workers:
        """The processes in which tools run, the same for all rounds; they start when needed, and end with the program.

        Raises:
            ConfigError: if a tool cannot be sent to a pool.
        """
        if self.pool is not None:
            return self.pool.open(self._runner, "the tools of train.tools")
        return workers(functools.partial(Runner, self.tools, CHARACTERS * self.max_tokens), self.processes)

    def _cut(self, text: str, more: int) -> str:
        """Cut a result to the tokens that the policy reads; `more` characters have been cut off before."""
        ids = self.tokenizer.encode(text)
        if len(ids) <= self.max_tokens and not more:
            return text
        head = self.tokenizer.decode(ids[: self.max_tokens])
        missing = f"{len(text) + more - len(head)} characters" if more else f"{len(ids) - self.max_tokens} tokens"
        return f"{head}... ({missing} more)"
