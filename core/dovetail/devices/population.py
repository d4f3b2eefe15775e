"""The seam for runs of one process that are trained together; `dovetail_lab.sweep.population` implements it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dovetail.devices.compiled import Compiled
    from dovetail.protocols import Weights


class Population(Protocol):
    """Runs in threads of one process, which share what is equal in them."""

    def call(self, function: Compiled, arguments: tuple[Any, ...]) -> Any:
        """Call a compiled function for the run of this thread, possibly together with calls of the others."""
        ...

    def make_model(self, make: Callable[[], tuple[Any, Weights]]) -> tuple[Any, Weights]:
        """Create the model of the run of this thread."""
        ...


CURRENT: contextvars.ContextVar[Population | None] = contextvars.ContextVar("population", default=None)
"""The population to which this thread's run belongs."""


def make_model(make: Callable[[], tuple[Any, Weights]]) -> tuple[Any, Weights]:
    """Create a run's model: its structure and weights."""
    population = CURRENT.get()
    return make() if population is None else population.make_model(make)
