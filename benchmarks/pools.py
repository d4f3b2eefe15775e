"""Seconds to score a batch in a pool, by the number of workers. Prints JSON; half a minute on two cores.

    python benchmarks/pools.py [--completions 64] [--milliseconds 50] [--workers 1 2 4] [--busy] [--where ray]

The reward sleeps for a time, as one that waits for a server or a container does; with `--busy` it computes for as long
in processor time. `start` is the first call, in which the workers start; `again` the median of `--rounds` calls after
it; `free` a reward that returns at once, so that what is left is the pool.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs

from dovetail.registry import Component, Origin
from dovetail_executor.pool.processes import Processes
from dovetail_executor.pool.ray import Ray


def work(completions: Sequence[str], *, milliseconds: float, how: Literal["sleep", "busy"]) -> list[float]:
    """Return the length of each completion after a time."""
    for _ in completions:
        end = time.process_time() + milliseconds / 1000
        if how == "sleep":
            time.sleep(milliseconds / 1000)
        while how == "busy" and time.process_time() < end:
            pass
    return [float(len(text)) for text in completions]


@attrs.frozen
class Reward:
    """The work with its settings."""

    milliseconds: float
    how: Literal["sleep", "busy"]

    def __call__(self, completions: Sequence[str]) -> list[float]:
        """Score."""
        return work(completions, milliseconds=self.milliseconds, how=self.how)


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=64)
    parser.add_argument("--milliseconds", type=float, default=50.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--where", choices=("processes", "ray"), default="processes")
    given = parser.parse_args()

    own = importlib.import_module("pools")  # under the name that workers can import, unlike __main__
    how = "busy" if given.busy else "sleep"
    origin = Origin("benchmarks", "0", "pools")
    component = Component(kind="reward", name="work", target=own.work, origin=origin)
    texts = ["a completion of some length " * 20] * given.completions
    rows = []
    for workers in given.workers:
        pool = Processes(workers=workers) if given.where == "processes" else Ray(workers=workers, cpus=0)
        paid, free = (pool.around(component, own.Reward(each, how)) for each in (given.milliseconds, 0.0))
        start = seconds(lambda paid=paid: paid(texts))
        again = statistics.median(seconds(lambda paid=paid: paid(texts)) for _ in range(given.rounds))
        free(texts)
        nothing = statistics.median(seconds(lambda free=free: free(texts)) for _ in range(given.rounds))
        rows.append({"workers": workers, "start": start, "again": again, "free": nothing})
        for each in (paid, free):
            each.workers.close()
    alone = seconds(lambda: Reward(given.milliseconds, how)(texts))
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
    print(json.dumps({"settings": vars(given), "machine": machine, "without_a_pool": alone, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
