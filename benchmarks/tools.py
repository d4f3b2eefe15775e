"""Slow tools, by the number of processes: `python benchmarks/tools.py > tools.json`. Two minutes.

Each of `--episodes` calls a tool in each of `--turns` turns, in rounds or, with `--apart`, each as soon as it can. The
tool sleeps, like one that waits for a server: the seconds are lognormal with a median of 50 ms, cut at 2.5 s, and are
the same in every run. Wall-clock seconds are compared with three bounds:

one_by_one  the sum of all calls: what a single process takes
rounds      the sum over rounds of the slowest call: rounds with a process for each episode
slowest     the slowest episode alone, which no order of the calls can beat
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np

from dovetail.protocols import Call, Tool
from dovetail_agent.agent_loop._toolbox import Toolbox

MEDIAN, SIGMA, LONGEST = 0.05, 1.5, 2.5


class Words:
    """A tokenizer of code points."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


def wait(seconds: float) -> str:
    """Wait.

    Args:
        seconds: how long.
    """
    time.sleep(seconds)
    return "done"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--processes", type=int, nargs="+", default=[0, 4, 16, 64], help="0: in this process")
    parser.add_argument("--apart", action="store_true", help="no episode waits for another")
    options = parser.parse_args()
    drawn = np.random.default_rng(0).normal(size=(options.turns, options.episodes))
    seconds = np.minimum(MEDIAN * np.exp(SIGMA * drawn), LONGEST)
    bounds = {"one_by_one": seconds.sum(), "rounds": seconds.max(axis=1).sum(), "slowest": seconds.sum(axis=0).max()}
    found: dict[str, Any] = {"bounds_s": {name: round(float(bound), 2) for name, bound in bounds.items()}}
    for processes in options.processes:
        taken = measure(seconds, processes, apart=options.apart)
        share = bounds["rounds"] / taken
        found[f"{processes} processes"] = {"seconds": round(taken, 2), "of_the_bound_of_rounds": round(float(share), 2)}
    print(json.dumps(vars(options) | found | {"cores": os.cpu_count(), "python": platform.python_version()}, indent=2))


def measure(seconds: np.ndarray, processes: int, *, apart: bool) -> float:
    """Return the seconds of all turns, without starting the processes."""
    from tools import wait  # by its module's name, since processes cannot import `__main__`

    made: Any = Words()
    tool = Tool(name="wait", function=wait, target=wait)
    toolbox = Toolbox(tools=(tool,), tokenizer=made, max_tokens=16, processes=processes, time_limit=30.0)
    episodes = seconds.shape[1]
    states: list[dict[str, Any]] = [{} for _ in range(episodes)]
    ids = [str(row) for row in range(episodes)]

    def round_of(each: np.ndarray) -> None:
        calls = [[Call("wait", {"seconds": float(length)})] for length in each]
        results = toolbox.run(calls, states, ids, nullcontext())
        assert all(ran.text == "done" for row in results for ran in row)

    round_of(np.full(episodes, 0.05 if processes else 0.0))  # starts the processes

    def episode(row: int) -> None:
        for length in seconds[:, row]:
            call = Call("wait", {"seconds": float(length)})
            assert toolbox.run([[call]], [states[row]], [ids[row]], nullcontext())[0][0].text == "done"

    begun = time.perf_counter()
    if apart:
        with ThreadPoolExecutor(episodes) as threads:
            list(threads.map(episode, range(episodes)))
    else:
        for each in seconds:
            round_of(each)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
