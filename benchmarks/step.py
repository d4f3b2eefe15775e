"""Time training steps as `dovetail train` runs them: `python benchmarks/step.py W1 W2 W3 W4 > step.json`.

The workloads are in `workloads.py`. Each runs in a process of its own, without a persistent compilation cache unless
the environment names one. `--set` changes the config; `--steps` and `--warm-up` set the numbers of timed and untimed
steps. Times are medians over the steps after the warm-up. A step lasts from the end of the previous step, so the
loop's own work between the compiled calls is included.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from workloads import WORKLOADS, register

from dovetail.config import load
from dovetail.hookspecs import hookimpl
from dovetail.registry import plugin_manager
from dovetail.training.loop import train

COMPILED = "/jax/core/compile/backend_compile_duration"


class Observer:
    """Records at the end of each step the time, the metrics, and the number of compilations so far."""

    def __init__(self) -> None:
        self.compiled: list[float] = []
        self.steps: list[dict[str, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._compiled)

    def _compiled(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            self.compiled.append(duration_secs)

    @hookimpl
    def dovetail_step_end(self, step: int, metrics: dict[str, float]) -> None:
        if "time/rollout" in metrics:  # an evaluation ends a step too
            now = {"wall": time.perf_counter(), "cpu": time.process_time(), "compilations": len(self.compiled)}
            self.steps.append(metrics | now)


def measure(name: str, steps: int, warm_up: int, overrides: Sequence[str]) -> dict[str, Any]:
    """Run a workload in this process and return its figures."""
    register()
    observer = Observer()
    plugin_manager().register(observer)
    config = load(None, [*WORKLOADS[name], f"train.steps={warm_up + steps}", *overrides])
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder))
    return {"workload": name, "overrides": list(overrides)} | figures(observer, warm_up, config)


def figures(observer: Observer, warm_up: int, config: Any) -> dict[str, Any]:
    """Return the seconds per step and per part of it, tokens per second, compilations and memory."""
    timed = observer.steps[warm_up:]
    parts = sorted({key for step in timed for key in step if key.startswith("time/")} - {"time/tokens_per_second"})
    found: dict[str, Any] = {}
    for clock in ("wall", "cpu"):
        ends = [step[clock] for step in observer.steps[warm_up - 1 :]]
        found[f"step_{clock}_s"] = [round(after - before, 4) for before, after in itertools.pairwise(ends)]
    rows = config.train.prompts * config.train.group_size
    tokens = [rows * step["completion/length_mean"] for step in timed]
    rollout = [step["time/rollout"] for step in timed]
    return found | {
        "step_s": round(statistics.median(found["step_wall_s"]), 4),
        "parts_s": {key.removeprefix("time/"): _median(timed, key) for key in parts},
        "completion_tokens": statistics.mean(tokens),
        "rollout_tokens_per_s": round(statistics.median(n / s for n, s in zip(tokens, rollout, strict=True))),
        "compilations": len(observer.compiled),
        "compilations_after_step_2": int(observer.steps[-1]["compilations"] - observer.steps[1]["compilations"]),
        "compile_s": round(sum(observer.compiled), 2),
        "peak_rss_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
    }


def _median(steps: list[dict[str, float]], key: str) -> float:
    return round(statistics.median(step.get(key, 0.0) for step in steps), 4)


def machine() -> dict[str, Any]:
    """Return the hardware and versions that the figures depend on."""
    return {
        "device": jax.devices()[0].device_kind,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="W1|W2|W3|W4")
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--warm-up", type=int, default=2, help="untimed steps before them")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"unknown workload {min(unknown)!r}; there are {', '.join(WORKLOADS)}")
    if options.steps < 1 or options.warm_up < 2:
        parser.error("--steps must be at least 1, and --warm-up at least 2: the first step compiles")
    if len(options.workloads) == 1:
        found = measure(options.workloads[0], options.steps, options.warm_up, options.overrides)
        print(json.dumps(found | machine(), indent=2))
        return
    # memory and compilations are counted per process
    same = [f"--steps={options.steps}", f"--warm-up={options.warm_up}", *(f"--set={o}" for o in options.overrides)]
    print(json.dumps([_in_child(name, same) for name in options.workloads], indent=2))


def _in_child(name: str, arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, __file__, name, *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main()
