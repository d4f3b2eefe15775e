"""Replicas on the machines of a Ray cluster."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
from annotated_types import Ge, Gt

from dovetail import STATIC
from dovetail.errors import RunError
from dovetail.ranges import in_range
from dovetail_kit.ray_cluster import import_ray, join
from dovetail_rollout.kinds import Program
from dovetail_rollout.launcher._keeper import Keeper

ANSWER_SECONDS: Final = 60.0
"""How long an actor may take to answer."""


@attrs.frozen(kw_only=True)
class Ray:
    """An actor for each replica, in a bundle of one placement group, which starts the server and ends with it.

    Needs the extra `ray` here, and Dovetail under the same version on every machine. Weights travel through Ray's
    object store to machines other than the trainer's, so that no shared file system is needed. A replica whose machine
    is lost is started again in its bundle, which Ray moves to another machine that has room.

    Servers listen on the address that their machine has in the cluster, and routes that replace weights are not
    authenticated: the cluster's network must be yours alone.

    Args:
        address: `auto` for this machine's cluster, or `host:port`; None starts Ray here.
        cpus: CPUs of each replica.
        gpus: GPUs of each replica; 0 hides them.
        resources: other resources of each replica, by their names in the cluster.
        strategy: how replicas are placed: `PACK` on few machines, `SPREAD` over many, `STRICT_PACK` on one,
            `STRICT_SPREAD` each on its own.
        seconds: how long to wait for the resources before the run is refused, saying what is missing.
    """

    address: str | None = None
    cpus: Annotated[float, Ge(0), STATIC] = attrs.field(default=1.0, validator=in_range)
    gpus: Annotated[float, Ge(0), STATIC] = attrs.field(default=0.0, validator=in_range)
    resources: Mapping[str, float] = attrs.field(factory=dict)
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    seconds: Annotated[float, Gt(0), STATIC] = attrs.field(default=60.0, validator=in_range)

    def count(self, asked: int) -> int:
        """Return as many as are asked for."""
        return asked

    def check(self) -> None:
        """Refuse a missing Ray."""
        import_ray("launcher 'ray'")

    def open(self, replicas: int) -> RayPlaces:
        """Join the cluster or start one, and reserve a bundle for each replica.

        Raises:
            ConfigError: if Ray is not installed, or there is no cluster at the address.
            RunError: if the resources are not there in time, saying which.
        """
        ray = import_ray("launcher 'ray'")
        owned = join(ray, self.address, "launcher.ray.address")
        group = ray.util.placement_group([self.bundle] * replicas, strategy=self.strategy)
        ready, _ = ray.wait([group.ready()], timeout=self.seconds)
        places = RayPlaces(
            ray=ray, groups=[group], count=replicas, bundle=self.bundle, options=self._options(), owned=owned
        )
        if not ready:
            missing = _missing(ray, self.bundle, replicas, self.strategy)
            places.close()
            raise RunError(f"launcher 'ray': after {self.seconds:g} s there is no room for the replicas: {missing}")
        return places

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one replica, as Ray names them."""
        asked = {"CPU": self.cpus, "GPU": self.gpus, **self.resources}
        return {name: amount for name, amount in asked.items() if amount} or {"CPU": 0.001}

    def _options(self) -> dict[str, Any]:
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "resources": dict(self.resources), "max_restarts": 0}


def _missing(ray: Any, bundle: Mapping[str, float], replicas: int, strategy: str) -> str:
    """Say what was asked for, what there is, and which of it is missing."""
    total, free = ray.cluster_resources(), ray.available_resources()
    each = ", ".join(f"{name} {amount:g}" for name, amount in bundle.items())
    asked = {name: replicas * amount for name, amount in bundle.items()}
    has = ", ".join(f"{name} {total.get(name, 0):g} ({free.get(name, 0):g} free)" for name in bundle)
    short = [f"{name} {need - free.get(name, 0):g}" for name, need in asked.items() if need > free.get(name, 0)]
    said = f"{replicas} replicas with {each} each; the cluster has {has}"
    if short:
        return f"{said}, so that {', '.join(short)} are missing"
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = (min(math.floor(node.get(name, 0) / amount) for name, amount in bundle.items()) for node in nodes)
    fit = sorted(room, reverse=True)
    return (
        f"{said}, but its {len(nodes)} machines have room for {fit} of them, and launcher.ray.strategy = '{strategy}'"
    )


@attrs.define(kw_only=True, eq=False)
class RayPlaces:
    """An open `Ray`: a placement group whose bundles are the places, and one more for each replica that is added.

    Attributes:
        groups: the placement groups; the first has `count` bundles, others one.
        bundle: the resources of a replica.
        options: of each actor.
        owned: whether to leave the cluster at the end.
        shipped: the last folder that went through the object store, and its reference there.
    """

    ray: Any
    groups: list[Any]
    count: int
    bundle: Mapping[str, float]
    options: Mapping[str, Any]
    owned: bool
    shipped: tuple[Path, Any] | None = None

    def place(self, number: int) -> RayPlace:
        """Return the place that is bundle `number`, or a bundle of its own."""
        if number < self.count:
            return RayPlace(places=self, number=number, group=self.groups[0], bundle=number)
        self.groups.append(self.ray.util.placement_group([dict(self.bundle)]))
        return RayPlace(places=self, number=number, group=self.groups[-1], bundle=0)

    def actor(self, group: Any, bundle: int) -> Any:
        """Start an actor in a bundle."""
        from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
            PlacementGroupSchedulingStrategy,
        )

        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        made = self.ray.remote(Keeper).options(**self.options, scheduling_strategy=where, max_concurrency=4)
        return made.remote()

    def reference(self, folder: Path) -> Any:
        """Put the files of a folder into the object store, once for all replicas."""
        if self.shipped is None or self.shipped[0] != folder:
            files = {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}
            self.shipped = folder, self.ray.put(files)
        return self.shipped[1]

    def close(self) -> None:
        """Give the bundles back, and leave the cluster if we have joined it."""
        self.shipped = None
        if self.ray.is_initialized():
            for group in self.groups:
                self.ray.util.remove_placement_group(group)
            if self.owned:
                self.ray.shutdown()


@attrs.define(kw_only=True, eq=False)
class RayPlace:
    """A bundle of a placement group, with the actor that is in it at the moment."""

    places: RayPlaces
    number: int
    group: Any
    bundle: int
    actor: Any = None
    node: str = ""

    def run(self, program: Program, folder: Path) -> Kept:
        """Have the actor start the server."""
        actor = self._actor()
        return Kept(ray=self.places.ray, actor=actor, url=self._ask(actor.run.remote(program, str(folder))), place=self)

    def see(self, folder: Path) -> Path:
        """Return the same path on the trainer's machine; elsewhere that of a copy."""
        actor, ray = self._actor(), self.places.ray
        if self.node == ray.get_runtime_context().get_node_id():
            return folder
        return Path(self._ask(actor.write.remote(folder.name, self.places.reference(folder))))

    def _actor(self) -> Any:
        if self.actor is None:
            actor = self.places.actor(self.group, self.bundle)
            self.node = self._ask(actor.node.remote())
            self.actor = actor
        return self.actor

    def _ask(self, reference: Any) -> Any:
        ray = self.places.ray
        try:
            return ray.get(reference, timeout=ANSWER_SECONDS)
        except ray.exceptions.GetTimeoutError as error:
            raise RunError(
                f"replica {self.number}: its Ray actor does not answer in {ANSWER_SECONDS:g} s; does the cluster still"
                f" have room for {dict(self.places.options)}?"
            ) from error
        except ray.exceptions.RayError as error:
            raise RunError(f"replica {self.number}: {_one_line(error)}") from error


@attrs.define(kw_only=True, eq=False)
class Kept:
    """A server that an actor has started."""

    ray: Any
    actor: Any
    url: str
    place: RayPlace
    ours: bool = True

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready` returns true.

        Raises:
            RunError: if the server or its actor ends first, or this takes longer.
        """
        end = time.monotonic() + seconds
        while not ready():
            if not self._runs() or time.monotonic() > end:
                raise RunError(f"replica {self.place.number} did not start in {seconds:g} s: {self.epitaph()}")
            time.sleep(0.2)

    def _runs(self) -> bool:
        try:
            return self.ray.get(self.actor.runs.remote(), timeout=ANSWER_SECONDS)
        except self.ray.exceptions.RayError:
            return False

    def epitaph(self) -> str:
        """Ask the actor how the server ended; the actor may be gone as well."""
        try:
            return self.ray.get(self.actor.epitaph.remote(), timeout=ANSWER_SECONDS)
        except self.ray.exceptions.RayError as error:
            return f"its Ray actor is gone: {_one_line(error)}"

    def close(self) -> None:
        """End the server, and the actor with it."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.get(self.actor.close.remote(), timeout=ANSWER_SECONDS)
        self.ray.kill(self.actor, no_restart=True)
        if self.place.actor is self.actor:
            self.place.actor = None


def _one_line(error: Exception, limit: int = 400) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if len(lines) > 1 and "Traceback" in str(error) else " ".join(lines))[:limit]
