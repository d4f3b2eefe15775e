"""Runs trials on the machines of a Ray cluster."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from dovetail.errors import ConfigError, WorkerLost
from dovetail.extras import needs


@attrs.frozen(kw_only=True)
class Ray:
    """Runs workers as actors of a Ray cluster, each with its own resources. Needs the extra `ray`.

    Every machine must see the sweep's folder under the same path. The folder contains the checkpoints, so if a machine
    is lost, its trial continues elsewhere, provided that `--retry` allows another attempt.

    Args:
        address: `auto` for this machine's cluster, or `host:port`; None starts Ray on this machine.
        cpus: CPUs of each worker.
        gpus: GPUs of each worker; 0 hides them.
        resources: other resources of each worker, by their names in the cluster.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = attrs.field(factory=dict)

    def open(self, sweep: Path, jobs: int) -> RayWorkers:
        """Join the cluster or start one.

        Raises:
            ConfigError: if Ray is not installed, or there is no cluster at `address`.
        """
        ray = import_ray("executor 'ray'")
        joined = join(ray, self.address, "executor.ray.address")
        options = {"num_cpus": self.cpus, "num_gpus": self.gpus, "resources": dict(self.resources)}
        return RayWorkers(ray=ray, sweep=sweep.absolute(), options=options, owned=joined)


def import_ray(who: str) -> ModuleType:
    """Return the module `ray`.

    Raises:
        ConfigError: if it is not installed; the message says who needs it.
    """
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(needs(who, "Ray", "ray") + f" ({error})") from error


def join(ray: Any, address: str | None, setting: str) -> bool:
    """Join the cluster at an address, or start one; return whether that was necessary.

    Raises:
        ConfigError: if there is no cluster; the message names the setting.
    """
    if ray.is_initialized():
        return False
    try:
        ray.init(address=address or "local", include_dashboard=None, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        message = " ".join(str(error).split())
        raise ConfigError(f"{setting} = {address!r}: no Ray cluster there: {message}") from error
    return True


@attrs.frozen(kw_only=True)
class RayWorkers:
    """The open executor; `owned` tells whether to leave the cluster when the sweep ends."""

    ray: Any
    sweep: Path
    options: Mapping[str, Any]
    owned: bool

    def open_worker(self, number: int) -> RayWorker:
        """Start an actor as soon as the cluster has room for it."""
        actor = self.ray.remote(Runner).options(**self.options, max_restarts=0).remote(str(self.sweep))
        return RayWorker(self.ray, actor)

    def close(self) -> None:
        """Leave the cluster."""
        if self.owned:
            self.ray.shutdown()


class Runner:
    """The actor, the counterpart of `dovetail_lab.sweep.worker` on another machine."""

    def __init__(self, sweep: str) -> None:
        self._sweep = Path(sweep)

    def run(self, trials: list[str]) -> None:
        """Run a job."""
        from dovetail_lab.sweep import run_job

        run_job(self._sweep, trials)


class RayWorker:
    """An actor and its current job."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor, self._job = ray, actor, None

    def start(self, trials: Sequence[str]) -> None:
        """Send a job."""
        self._job = self._actor.run.remote(list(trials))

    def finished(self) -> bool:
        """Return whether the job has ended."""
        ready, _ = self._ray.wait([self._job], timeout=0)
        if not ready:
            return False
        try:
            self._ray.get(ready[0])
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(f"its Ray worker is gone: {_one_line(error)}") from error
        return True

    def kill(self) -> None:
        """End the actor."""
        self._ray.kill(self._actor, no_restart=True)


def _one_line(error: Exception, limit: int = 200) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if len(lines) > 1 and "Traceback" in str(error) else " ".join(lines))[:limit]
