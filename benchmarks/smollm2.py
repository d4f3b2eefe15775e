"""Time steps of the recipe `smollm2_arithmetic`: `python benchmarks/smollm2.py`; TRL's: `benchmarks/trl/smollm2.py`.

The figures are the CPU seconds of the fastest step after the first, which compiles, and the peak of resident memory.
The steps are those of `dovetail train`: sampling, rewards, update and records, without evaluations.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time

from step import machine

import dovetail
from dovetail.registry import plugin_manager


class Clock:
    """CPU seconds since the previous step."""

    def __init__(self) -> None:
        self.last, self.seconds = time.process_time(), list[float]()

    @dovetail.hookimpl
    def dovetail_step_end(self, phase: str) -> None:
        now = time.process_time()
        self.seconds.append(round(now - self.last, 1))
        self.last = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    clock = Clock()
    plugin_manager().register(clock)
    fixed = (f"train.steps={options.steps}", "eval.every=None", "run.sinks=()", "run.checkpoint_every=1000000")
    with tempfile.TemporaryDirectory() as folder:
        dovetail.train("smollm2_arithmetic", folder, [*fixed, *options.overrides])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    figures = {"cpu_s": min(clock.seconds[1:]), "steps": clock.seconds, "peak_gib": round(peak, 2)}
    print(json.dumps({"work": "smollm2_arithmetic", **figures, **machine()}, indent=2))


if __name__ == "__main__":
    main()
