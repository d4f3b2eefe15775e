"""Measure the time to import each component after jax; a program that `suites.devices` runs.

It reads the list that `dovetail_kit.conformance.sharded` reads, and writes seconds of processor time, by name.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

from dovetail_kit.answers import give


def main() -> None:
    """Import the components listed on standard input."""
    for module in ("jax.numpy", "flax.nnx", "optax", "numpy", "dovetail.protocols"):
        importlib.import_module(module)
    took = {}
    for name, _, _, _, target, _ in json.load(sys.stdin):
        began = time.process_time()
        importlib.import_module(target.partition(":")[0])
        took[name] = time.process_time() - began
    give(took)


if __name__ == "__main__":
    main()
