"""Runs trials on the machines of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dovetail.errors import WorkerLost
from dovetail_kit.ray_cluster import import_ray, join


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
