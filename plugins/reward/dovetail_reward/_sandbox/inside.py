"""The program of a confined process: it reads its job, drops its privileges, and runs the code."""

from __future__ import annotations

import builtins
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

from .confine import confine, limit

JOB, CODE, PACKAGES = "job.json", "main.py", "packages"
NOT_CONFINED = 97
"""The exit status if a required protection is not in effect; no code has run then, and `BEGUN` is not written."""
BEGUN = b"+"
"""Written before any output of the code, so that the code cannot pretend not to have run."""

_GIVEN = """\
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict, defaultdict, deque
from functools import cache, lru_cache, reduce
from heapq import heapify, heappop, heappush, heappushpop, heapreplace, nlargest, nsmallest
from itertools import accumulate, chain, combinations, groupby, permutations, product
from math import ceil, comb, floor, gcd, inf, sqrt
from typing import *
"""
"""Imports that sites whose problems ask for a function provide implicitly."""


def main(folder: str) -> None:
    """Run the job that is described in a folder, with the limits `memory` and `seconds`, and `require`.

    The job has `call` if a function is to be called, `cells` if the code continues other code, and the places of
    `packages`, to which there are links in a folder of that name.
    """
    job = json.loads(Path(folder, JOB).read_text())
    os.chdir(folder)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    run_cells = None
    if job["cells"] is not None:  # read now: from this folder nothing can be when the code runs
        from .cells import run as run_cells
    limit(job["memory"], job["seconds"])
    held = confine((folder, *job["packages"]))
    orphaned = os.getppid() != job["parent"]  # its reader was ended before the kernel knew that it should end with it
    if orphaned or not set(job["require"]) <= set(held):
        os._exit(NOT_CONFINED)
    os.write(1, BEGUN)
    if job["probe"]:
        print(json.dumps(held))
        return
    source = Path(CODE).read_text(encoding="utf-8")
    builtins.exit = builtins.quit = sys.exit  # pyright: ignore[reportAttributeAccessIssue]
    if job["packages"]:
        sys.path.append(os.path.join(folder, PACKAGES))
        _repeat()
    if run_cells is not None:
        run_cells(job["cells"], source, nowhere)
    elif job["call"] is None:
        _run(source, "__main__", {})
    else:
        _call(source, nowhere, **job["call"])


def _repeat() -> None:
    """Have numpy's generators begin alike in every process, as `random` does: it takes their seeds from here."""
    import random
    import secrets

    secrets.randbits = random.Random(0).getrandbits


def _run(source: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    module = sys.modules[name] = types.ModuleType(name)
    vars(module).update(given)
    exec(compile(source, CODE, "exec"), vars(module))
    return vars(module)


def _call(source: str, nowhere: int, function: str, arguments: list[Any]) -> None:
    """Write the result of the function as JSON; the output of the code is discarded."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(nowhere, 1)
        given: dict[str, Any] = {}
        exec(_GIVEN, given)
        found = _run(source, "solution", given)
        holder = found.get("Solution")
        target = found[function] if holder is None else getattr(holder(), function)
        answer.write(json.dumps(target(*arguments), default=list))
