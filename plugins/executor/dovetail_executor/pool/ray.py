"""Pool `ray`: actors of a Ray cluster."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import attrs
from annotated_types import Ge, Gt, Le

from dovetail import STATIC
from dovetail.errors import RunError
from dovetail.ranges import in_range
from dovetail.registry import Component
from dovetail_executor.pooled import Failed, Pooled, around, packed
from dovetail_kit.ray_cluster import import_ray, join
from dovetail_kit.workers import DAY, LATE, LOST, CallError, Make, Process, Workers, workers

GRACE: Final = 60.0
"""Seconds beyond the time limit after which an actor that does not answer is given up: its machine may hang."""

MACHINES: Final = 3
"""Actors that a call is tried on, when they are lost with their machines: that says nothing of the function."""

_JOINING: Final = threading.Lock()


@attrs.frozen(kw_only=True)
class Ray:
    """Actors of a Ray cluster, each with its own resources. Needs the extra `ray`, and Dovetail on every machine.

    It is chosen and behaves as the pool `processes`, whose settings it has: each actor is one worker, with the function
    in a process of its own. A call whose actor is lost, with its machine for example, is tried again on another, a few
    times, with a warning. The actors end with the trainer, even if that is killed.

    Args:
        workers: the number of actors of each reward, and of the tools of the agent loop.
        seconds: time limit of a call: of `rows` completions, or of a call of a tool.
        rows: the number of completions in a call of a reward. A reward that reads `group_ids` gets whole groups.
        failed: what becomes of completions whose call has no result; see the pool `processes`.
        address: `auto` for this machine's cluster, or `host:port`; None starts Ray on this machine.
        cpus: CPUs of each worker.
        gpus: GPUs of each worker; 0 hides them.
        resources: other resources of each worker, by their names in the cluster: `{'sandbox': 1}` keeps workers on the
            machines that were started with `ray start --resources='{"sandbox": 8}'`.
        wait: seconds for an actor to start, before the run ends, saying which resources are missing.

    Raises:
        ConfigError: when it is used, if Ray is not installed, or for a reward or a tool that cannot be sent.
        RunError: at a call, if the cluster has no room for the workers.
    """

    workers: Annotated[int, Ge(1)] = attrs.field(default=4, validator=in_range)
    seconds: Annotated[float, Gt(0), Le(DAY), STATIC] = attrs.field(default=60.0, validator=in_range)
    rows: Annotated[int, Ge(1)] = attrs.field(default=1, validator=in_range)
    failed: Annotated[Failed, STATIC] = "error"
    address: str | None = None
    cpus: Annotated[float, Ge(0), STATIC] = attrs.field(default=1.0, validator=in_range)
    gpus: Annotated[float, Ge(0), STATIC] = attrs.field(default=0.0, validator=in_range)
    resources: Mapping[str, float] = attrs.field(factory=dict)
    wait: Annotated[float, Gt(0), STATIC] = attrs.field(default=60.0, validator=in_range)

    def open(self, function: Callable[..., Any], what: str) -> Workers:
        """Return workers that call a function; they join the cluster at their first call."""
        import_ray("pool 'ray'")
        asked = {"CPU": self.cpus, "GPU": self.gpus, **self.resources}
        actors = Actors(address=self.address, asked=tuple(sorted(asked.items())), wait=self.wait)
        return workers(packed(function, what, "pool 'ray'"), self.workers, retries=1, worker=actors)

    def around(self, component: Component, built: Callable[..., Any]) -> Pooled:
        """Return a reward that runs here."""
        return around(component, built, self)


@attrs.frozen(kw_only=True)
class Actors:
    """Makes workers that are actors; `asked` are the resources of each, as Ray names them."""

    address: str | None
    asked: tuple[tuple[str, float], ...]
    wait: float

    def __call__(self, make: Make) -> Actor:
        """Return a worker, which does not start yet."""
        return Actor(self, make)

    def start(self, make: Make) -> Any:
        """Start an actor.

        Raises:
            RunError: if the cluster has no room for it in time.
        """
        ray = import_ray("pool 'ray'")
        with _JOINING:
            join(ray, self.address, "pool.ray.address")
        asked = dict(self.asked)
        options = {"num_cpus": asked.pop("CPU"), "num_gpus": asked.pop("GPU"), "resources": asked}
        actor = ray.remote(Seat).options(**options, max_restarts=0).remote(make)
        ready, _ = ray.wait([actor.ready.remote()], timeout=self.wait)
        if not ready:
            missing = self._missing(ray)
            ray.kill(actor, no_restart=True)
            raise RunError(f"pool 'ray': after {self.wait:g} s there is no room for a worker{missing}")
        return actor

    def _missing(self, ray: Any) -> str:
        """Say what a worker needs, what the cluster has, and what may help."""
        total, free = ray.cluster_resources(), ray.available_resources()
        asked = {name: amount for name, amount in self.asked if amount}
        each = ", ".join(f"{name} {amount:g}" for name, amount in asked.items())
        has = ", ".join(f"{name} {total.get(name, 0):g} ({free.get(name, 0):g} free)" for name in asked)
        short = [name for name, amount in asked.items() if free.get(name, 0) < amount]
        lacks = f", so that {', '.join(short)} is missing" if short else ", but no machine has all of it"
        return f" with {each}; the cluster has {has}{lacks}: add machines, or lower pool.ray.workers"


class Seat:
    """The actor: the function in a process that can be ended without it."""

    def __init__(self, make: Make) -> None:
        self._process = Process(make)

    def ready(self) -> None:
        """Answer once the actor has started."""

    def call(self, time_limit: float, arguments: Sequence[Any]) -> tuple[bool, Any]:
        """Return (True, result), or (False, message) if an exception was raised."""
        try:
            return True, self._process.call(time_limit, arguments)
        except CallError as error:
            return False, str(error)


@attrs.define(eq=False)
class Actor:
    """The trainer's side of an actor, a `Worker`."""

    actors: Actors
    make: Make
    actor: Any = None

    def call(self, time_limit: float, arguments: Sequence[Any]) -> Any:
        """Return the result of a call, `LATE` or `LOST`."""
        ray = import_ray("pool 'ray'")
        for _ in range(MACHINES):
            if self.actor is None:
                self.actor = self.actors.start(self.make)
            try:
                done, value = ray.get(self.actor.call.remote(time_limit, list(arguments)), timeout=time_limit + GRACE)
            except ray.exceptions.GetTimeoutError:
                self.close()
                return LATE
            except ray.exceptions.RayError as error:
                self.close()
                said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                warnings.warn(f"pool 'ray': a worker is lost with its call: {said}", RuntimeWarning, stacklevel=2)
                continue
            if not done:
                raise CallError(value)
            return value
        return LOST

    def close(self) -> None:
        """End the actor, and its process with it."""
        actor, self.actor = self.actor, None
        ray = import_ray("pool 'ray'")
        if actor is not None and ray.is_initialized():
            with suppress(ray.exceptions.RayError):
                ray.kill(actor, no_restart=True)
