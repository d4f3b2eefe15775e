"""Time steps with a slow reward, sampled ahead or not: `python benchmarks/staleness.py > staleness.json`.

The reward of a batch sleeps, like a reward that asks a tool or a server. The seconds are drawn from a lognormal
distribution whose median is one update, and are the same in every run (`--latency 0`: none). With `--update 0.4`
updates sleep too, as if they waited for a device of their own.

The steps per second are compared with the bound 1 / max(T_sampler, T_trainer), where T is the mean seconds per batch
that each program works if it runs alone (`train.staleness = 0`). Programs that share cores slow each other down, so
`share_of_own_bound` refers to the bound with the T of the same run. Overlap saves no `cpu_seconds_per_step`: where
both programs compute all the time, a step takes at least these divided by the number of cores at any staleness. Each
round runs all values of staleness, one after another, and the figures are medians over the rounds, because the
machine's other load changes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from workloads import COMMON, register

import dovetail
from dovetail.config import load
from dovetail.hookspecs import hookimpl
from dovetail.registry import plugin_manager
from dovetail.run.files import read_lines
from dovetail.training.drawing import Batch
from dovetail.training.learner import Learner
from dovetail.training.loop import train
from dovetail.training.metrics import Clock

SIZES = (
    "train.prompts=4",
    "train.group_size=4",
    "train.epochs=4",
    "train.max_prompt_tokens=64",
    "sampling.max_tokens=8",
    "model.decoder.layers=2",
    "train.kl_coef=0.0",
    "eval.every=None",
    "train.rewards=['even_tokens', 'asked']",
    "train.correction=['tis_token']",
    "sft.steps=0",
)


PARTS = ("waiting", "rollout", "reward")
"""The parts of the sampler's work, except handing over weights."""


class Latency:
    """A reward that sleeps; the sequence of its latencies is the same in every run."""

    def __init__(self) -> None:
        self.median, self.sigma, self.calls = 0.0, 0.5, 0

    def reward(self, completions: list[str]) -> list[float]:
        """Sleep, and return zeros."""
        self.calls += 1
        drawn = np.random.default_rng([7, self.calls]).standard_normal()
        time.sleep(float(self.median * np.exp(self.sigma * drawn)))
        return [0.0] * len(completions)


class Observer:
    """Records the time at the end of each step, and the processor time of all threads."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.cpu: list[float] = []

    @hookimpl
    def dovetail_step_end(self, step: int) -> None:
        self.ends.append(time.perf_counter())
        self.cpu.append(time.process_time())


def slow_updates(seconds: float) -> None:
    """Make each update take `seconds` longer, as if it waited for a device of its own."""
    learn = Learner.learn

    def slowly(self: Learner, taken: Batch, step: int, clock: Clock) -> dict[str, float]:
        time.sleep(seconds)
        return learn(self, taken, step, clock)

    Learner.learn = slowly


def run(latency: Latency, staleness: int, steps: int, overrides: list[str]) -> dict[str, float]:
    """Train, and return the times of the steps after the first `WARM_UP`."""
    sizes = [f"train.staleness={staleness}", f"train.steps={steps + WARM_UP}"]
    config = load(None, [*COMMON, *SIZES, *overrides, *sizes])
    observer, latency.calls = Observer(), 0
    plugin_manager().register(observer)
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder))
        every = read_lines(Path(folder) / "timings.jsonl", "rl")
    lines = every[WARM_UP:]
    plugin_manager().unregister(observer)
    ends, cpu = observer.ends[WARM_UP - 1 :], observer.cpu[WARM_UP - 1 :]
    found = {
        "steps_per_second": (len(ends) - 1) / (ends[-1] - ends[0]),
        "cpu_seconds_per_step": (cpu[-1] - cpu[0]) / (len(cpu) - 1),
        "update": statistics.median(line["time/scoring"] + line["time/update"] for line in lines),
        "trainer": statistics.fmean(line["time/scoring"] + line["time/update"] for line in lines),
        "compiled_after_step_2": sum(line.get("compile/programs", 0.0) for line in every[2:]),
    }
    if not staleness:
        return found | {"sampler": statistics.fmean(sum(line[f"time/{name}"] for name in PARTS) for line in lines)}
    found["sampler"] = statistics.fmean(line["sampler/step"] - line["sampler/channel"] for line in lines)
    for name in ("trainer", "sampler"):
        found[f"idle_{name}"] = statistics.fmean(line[f"idle/{name}"] for line in lines)
    found["share_of_own_bound"] = found["steps_per_second"] * max(found["trainer"], found["sampler"])
    return found


WARM_UP = 5


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="steps that are timed in each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each staleness")
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2, 4], help="the first must be 0")
    parser.add_argument("--latency", type=float, default=1.0, help="median of the reward's seconds, in updates")
    parser.add_argument("--update", type=float, default=0.0, help="seconds of extra waiting in each update")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the runs")
    options = parser.parse_args()
    register()
    latency = Latency()
    dovetail.register("reward", "asked", latency.reward)
    run(latency, options.staleness[-1], 2, options.set)  # compiles
    slow_updates(options.update)
    latency.median = options.latency * run(latency, 0, options.steps // 2, options.set)["update"]
    rounds = [
        {k: run(latency, k, options.steps, options.set) for k in options.staleness} for _ in range(options.rounds)
    ]
    bounds = [1 / max(found[0]["sampler"], found[0]["trainer"]) for found in rounds]
    median: Any = {
        k: {name: statistics.median(found[k][name] for found in rounds) for name in rounds[0][k]}
        | {
            "share_of_bound": statistics.median(
                found[k]["steps_per_second"] / bound for found, bound in zip(rounds, bounds, strict=True)
            )
        }
        for k in options.staleness
    }
    figures = {
        "latency_median_s": latency.median,
        "bound_steps_per_second": statistics.median(bounds),
        "staleness": median,
        "rounds": [found[k]["steps_per_second"] for found in rounds for k in options.staleness],
        "steps": options.steps,
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
    }
    json.dump(figures, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
