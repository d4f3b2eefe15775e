"""Trains several runs in one process together: their equal compiled calls become one vectorised call.

Each run is an ordinary run in a thread of its own. Its compiled functions (`dovetail.devices.compiled`) do not run
immediately: they wait until every run of the population waits in a call or at the end of a step. Then calls of the same
function whose arguments have the same shapes are stacked and run under `jax.vmap`. Arguments that are identical arrays
in all runs, such as the frozen base model under adapters, are not stacked, and there is one copy of them. Runs that
have fallen behind, for example to sample another round, are served alone until they have caught up.

A signal ends them all after the same step: the last one would have to compile what it had only called together before,
which may take longer than the signal's sender waits before it kills the process.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs
import jax
import jax.numpy as jnp

from dovetail.devices.compiled import Compiled
from dovetail.devices.population import CURRENT
from dovetail.interruptions import IS_ASKED, has_come
from dovetail.protocols import Weights

KEPT: Final = 64
"""The number of vectorised functions that a process caches."""

TAKEN, LENT, COMMON = "taken", "lent", "common"
"""Kinds of argument arrays: one per run, donated; one per run, not donated; the same array in all runs."""


@attrs.define(eq=False)
class _Call:
    """A waiting call; without a function, a run that waits at the end of a step."""

    function: Compiled | None
    arguments: tuple[Any, ...]
    member: int
    done: bool = False
    result: Any = None
    error: BaseException | None = None


_MEMBER: contextvars.ContextVar[int] = contextvars.ContextVar("number in the population", default=0)


class Population:
    """The runs that are trained together."""

    def __init__(self, size: int) -> None:
        self._alive = size
        self._waiting: list[_Call] = []
        self._changed = threading.Condition()
        self._making = threading.Lock()
        self._frozen: list[Any] = []
        self._ends = False

    @contextlib.contextmanager
    def member(self, number: int) -> Iterator[None]:
        """Return a context in which the current thread's run belongs to the population, in its place among the runs."""
        tokens = CURRENT.set(self), _MEMBER.set(number), IS_ASKED.set(lambda: self._ends)
        try:
            yield
        finally:
            CURRENT.reset(tokens[0])
            _MEMBER.reset(tokens[1])
            IS_ASKED.reset(tokens[2])
            with self._changed:
                self._alive -= 1
                self._run_if_all_wait()

    def call(self, function: Compiled, arguments: tuple[Any, ...]) -> Any:
        """Call a function together with the other runs that call it."""
        return self._wait(_Call(function, arguments, _MEMBER.get()))

    def align(self) -> None:
        """Wait for the other runs at the end of a step."""
        self._wait(_Call(None, (), _MEMBER.get()))

    def _wait(self, call: _Call) -> Any:
        with self._changed:
            self._waiting.append(call)
            self._run_if_all_wait()
            self._changed.wait_for(lambda: call.done)
        if call.error is not None:
            raise call.error
        return call.result

    def _run_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._alive:
            return
        # the place in a stack may decide about the last bit, and which thread comes first is chance
        self._waiting.sort(key=lambda call: call.member)
        calls = [call for call in self._waiting if call.function is not None]
        self._ends = self._ends or (not calls and has_come())
        served = calls or self._waiting
        self._waiting = [call for call in self._waiting if call not in served]
        # this thread serves all runs: an error that escaped here would leave the others waiting forever
        for group in _alike(calls):
            try:
                for call, result in zip(group, _together(group), strict=True):
                    call.result = result
            except BaseException as error:
                for call in group:
                    call.error = error
        for call in served:
            call.done = True
        self._changed.notify_all()

    def make_model(self, make: Callable[[], tuple[Any, Weights]]) -> tuple[Any, Weights]:
        """Create a run's model; runs do this one after another, and share one copy of equal frozen weights.

        `make` must not call a `Compiled` function.
        """
        with self._making:
            graphdef, weights = make()
            for frozen in self._frozen:
                if _equal(frozen, weights.frozen):
                    return graphdef, weights._replace(frozen=frozen)
            self._frozen.append(weights.frozen)
            return graphdef, weights


def _alike(calls: Sequence[_Call]) -> list[list[_Call]]:
    """Group calls that can be stacked: the same function, compile-time arguments, structure, shapes and types.

    A call that cannot be compared is in a group of its own, so that it raises the same error as alone.
    """
    groups: dict[Any, list[_Call]] = {}
    for call in calls:
        try:
            groups.setdefault(_likeness(call), []).append(call)
        except Exception:
            groups[id(call)] = [call]
    return list(groups.values())


def _likeness(call: _Call) -> tuple[Any, ...]:
    function = call.function
    assert function is not None, "who waits at the end of a step is not a call"
    static = tuple(call.arguments[i] for i in function.static)
    leaves, structure = jax.tree.flatten(_traced(function, call.arguments))
    return id(function), static, structure, tuple(map(jax.typeof, leaves))


def _traced(function: Compiled, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(argument for i, argument in enumerate(arguments) if i not in function.static)


def _together(group: Sequence[_Call]) -> Sequence[Any]:
    """Return the results of the calls."""
    function, first = group[0].function, group[0].arguments
    assert function is not None, "who waits at the end of a step is not a call"
    rows = [jax.tree.leaves(_traced(function, call.arguments)) for call in group]
    kinds = _kinds(function, first, rows)
    if len(group) == 1 or not any(kind != COMMON for kind in kinds):
        return [function.alone(*call.arguments) for call in group]
    program = _Program(
        function=function,
        arguments=len(first),
        static=tuple(first[i] for i in function.static),
        structure=jax.tree.structure(_traced(function, first)),
        kinds=kinds,
    )
    taken, lent = ([_of_kind(row, kinds, kind) for row in rows] for kind in (TAKEN, LENT))
    return _vectorised(program)(taken, lent, _of_kind(rows[0], kinds, COMMON))


def _kinds(function: Compiled, arguments: tuple[Any, ...], rows: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    """Return the kind of each leaf: whether all runs have the identical array, and whether it is donated."""
    donated: list[bool] = []
    for i, argument in enumerate(arguments):
        if i not in function.static:
            donated += [i in function.donate] * len(jax.tree.leaves(argument))
    columns = zip(*rows, strict=True)
    common = [len(rows) > 1 and all(leaf is column[0] for leaf in column) for column in columns]
    return tuple(COMMON if same else TAKEN if given else LENT for same, given in zip(common, donated, strict=True))


def _of_kind(leaves: Sequence[Any], kinds: Sequence[str], wanted: str) -> list[Any]:
    return [leaf for leaf, kind in zip(leaves, kinds, strict=True) if kind == wanted]


@attrs.frozen(kw_only=True)
class _Program:
    """The key of a vectorised function."""

    function: Compiled
    arguments: int
    static: tuple[Any, ...]
    structure: Any
    kinds: tuple[str, ...]

    def __call__(self, taken: Sequence[Any], lent: Sequence[Any], common: Sequence[Any]) -> Any:
        """Call the function with one run's leaves and the leaves that all runs have in common."""
        sources = {TAKEN: iter(taken), LENT: iter(lent), COMMON: iter(common)}
        traced = iter(jax.tree.unflatten(self.structure, [next(sources[kind]) for kind in self.kinds]))
        static = dict(zip(self.function.static, self.static, strict=True))
        return self.function.function(*(static[i] if i in static else next(traced) for i in range(self.arguments)))


@functools.lru_cache(maxsize=KEPT)
def _vectorised(program: _Program) -> Callable[..., list[Any]]:
    """Return a compiled function of the leaves of all runs, which stacks them and splits the results again."""

    def together(taken: list[list[Any]], lent: list[list[Any]], common: list[Any]) -> list[Any]:
        stacked = [[jnp.stack(column) for column in zip(*rows, strict=True)] for rows in (taken, lent)]
        results = jax.vmap(lambda mine, borrowed: program(mine, borrowed, common))(*stacked)
        return [jax.tree.map(lambda x, row=row: x[row], results) for row in range(len(lent))]

    return jax.jit(together, donate_argnums=0)


def _equal(a: Any, b: Any) -> bool:
    """Return whether two trees have the same structure and bitwise equal arrays."""
    leaves, others = jax.tree.leaves(a), jax.tree.leaves(b)
    if jax.tree.structure(a) != jax.tree.structure(b):
        return False
    alike = all(x.shape == y.shape and x.dtype == y.dtype for x, y in zip(leaves, others, strict=True))
    return alike and all(bool(jnp.array_equal(x, y)) for x, y in zip(leaves, others, strict=True))
