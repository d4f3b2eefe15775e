"""Environments that change themselves, as functions of what has been done in them."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import attrs
import numpy as np
from dovetail.errors import ConfigError

OPEN = 256
"""How many environments are kept open: those used last."""


class Played(NamedTuple):
    """What has been done in an environment. If it is deterministic, nothing else determines the state that it is in.

    Attributes:
        seed: of its random numbers.
        actions: in order.
        row: the columns that it began with, as JSON.
    """

    seed: int
    actions: tuple[Hashable, ...] = ()
    row: str = "{}"

    def then(self, action: Hashable) -> Played:
        """Return the state after a further action."""
        return self._replace(actions=(*self.actions, action))


@attrs.define(eq=False)
class Opened:
    """An open environment with its own states of the global generators of Python and numpy, which many use."""

    world: Any
    seed: int
    _drawn: tuple[Any, Any] | None = None

    @contextmanager
    def chance(self) -> Iterator[Any]:
        """Give the global generators to this environment, and leave them to the rest of the process as they were."""
        outer = _states()
        if self._drawn is None:
            random.seed(self.seed)
            np.random.seed(self.seed)  # noqa: NPY002
        else:
            _set(self._drawn)
        try:
            yield self.world
        finally:
            self._drawn = _states()
            _set(outer)


@attrs.define(eq=False)
class Worlds:
    """Open environments by what has been done in them.

    Args:
        begin: makes an environment and resets it.
        act: does an action in it.
        close: closes it.
        size: how many are kept open.
    """

    begin: Callable[[Opened, Played], Any]
    act: Callable[[Any, Any], Any]
    close: Callable[[Any], Any]
    size: int = OPEN
    _open: OrderedDict[Played, Opened] = attrs.field(factory=OrderedDict, init=False)

    def begun(self, state: Played) -> tuple[Opened, Any]:
        """Return a new environment in the first state, and what `begin` returned."""
        self._close_down_to(self.size - 1)
        opened = Opened(None, state.seed)
        with opened.chance():
            return opened, self.begin(opened, state)

    def at(self, state: Played) -> Opened:
        """Return an environment in which exactly this has been done, and take it away from others.

        If none is open, a new one is given the same actions.
        """
        if state in self._open:
            return self._open.pop(state)
        opened, _ = self.begun(state)
        with opened.chance() as world:
            for action in state.actions:
                self.act(world, action)
        return opened

    def keep(self, state: Played, opened: Opened) -> None:
        """Keep an environment open; the one that was used least recently is closed if there are too many."""
        if (other := self._open.pop(state, None)) is not None:
            self.close(other.world)
        self._open[state] = opened
        self._close_down_to(self.size)

    def _close_down_to(self, most: int) -> None:
        while len(self._open) > most:
            self.close(self._open.popitem(last=False)[1].world)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open environments to this process."""
        return {name: getattr(self, name) for name in ("begin", "act", "close", "size")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start without any."""
        self.__init__(**state)


def written(row: Mapping[str, Any]) -> str:
    """Return the columns that an environment begins with, or its settings, as JSON.

    Raises:
        ConfigError: if a value cannot be written.
    """
    for name, value in row.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"'{name}', which the environment is given, is not JSON: {error}") from error
    return json.dumps(row, sort_keys=True)


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002


def _set(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
