"""How many programs a second the sandbox runs, each in a process of its own. Prints JSON; half a minute on two cores.

    python benchmarks/sandbox.py [--programs 200] [--processes 1 2 4]

`empty` is what a process costs that starts Python, gives up its rights and ends; `sum` is a short program of a problem
with input and output; `bare` is the same program in a process of Python that keeps its rights, for comparison.
`numpy at hand` is the short program where numpy may be imported; `numpy` and `sympy` import and use these.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dovetail_reward._sandbox.outside import protections, run

SUM = "n = int(input())\nprint(sum(int(x) for x in input().split()[:n]))"
INPUT = "100\n" + " ".join(map(str, range(100)))


NUMPY = "import numpy as np\nprint(np.linalg.inv(np.eye(2)))"
SYMPY = "import sympy\nprint(sympy.integrate(sympy.Symbol('x')))"


def confined(source: str, *packages: str) -> Callable[[int], None]:
    """Return a call that runs a program in the sandbox."""

    def call(_: int) -> None:
        ran = run(source, stdin=INPUT, time_limit=60.0, output_limit=1000, require=protections(), packages=packages)
        assert ran.how == "done", ran

    return call


def bare(_: int) -> None:
    """Run the program as it is."""
    subprocess.run([sys.executable, "-S", "-s", "-c", SUM], input=INPUT.encode(), capture_output=True, check=True)


def rate(call: Callable[[int], None], programs: int, processes: int) -> dict[str, float]:
    """Return programs per second of wall time, and the milliseconds of a processor that one takes, its reader's too."""
    with ThreadPoolExecutor(processes) as threads:
        list(threads.map(call, range(2 * processes)))
        began, used = time.perf_counter(), processor_seconds()
        list(threads.map(call, range(programs)))
        wall, used = time.perf_counter() - began, processor_seconds() - used
    return {"per second": round(programs / wall, 1), "processor ms": round(1000 * used / programs, 1)}


def processor_seconds() -> float:
    """Return what this process and those that have ended have taken."""
    return sum(os.times()[:4])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    calls = {"empty": confined(""), "sum": confined(SUM), "bare": bare}
    calls |= {"numpy at hand": confined(SUM, "numpy"), "numpy": confined(NUMPY, "numpy")}
    calls |= {"sympy": confined(SYMPY, "sympy")} if importlib.util.find_spec("sympy") else {}
    found = {
        name: {str(each): rate(call, options.programs, each) for each in options.processes}
        for name, call in calls.items()
    }
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "protections": protections()}
    print(json.dumps({"programs": found} | machine, indent=2))


if __name__ == "__main__":
    main()
