"""Time eight trials that differ only in a number: as eight processes, one sweep, and one population. Prints JSON.

    python benchmarks/sweep.py [--trials 8] [--ways sweep warm ...]

The config takes a second to train, so the figures show the overhead of a trial: imports, compilation, set-up. The ways:

separate     processes that share nothing
cached       processes that share a compilation cache, empty at first, as with `dovetail train` by default
cached_warm  the same processes again, with the filled cache of `cached`
sweep        one sweep, beginning with an empty cache
warm         the sweep again in another folder, with the filled cache of `cached`
population   one sweep that trains all trials as one population

`cpu` is the CPU time of the child processes, in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WAYS = ["separate", "cached", "cached_warm", "sweep", "warm", "population"]

CONFIG = """
train.task = 'arithmetic'
task.arithmetic.operations = ('+',)
task.arithmetic.max_operand = 9
tokenizer.sentencepiece.vocab_size = 300
model.decoder.width = 64
model.decoder.layers = 2
train.prompts = 8
train.group_size = 8
train.max_prompt_tokens = 64
train.steps = 10
sampling.max_tokens = 16
train.kl_coef = 0.01
sft.steps = 10
sft.batch_size = 16
eval.examples = 16
eval.every = 5
run.sinks = ()
"""


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "config.gin").write_text(CONFIG)
        rates = [f"{1e-4 * (i + 1):g}" for i in range(options.trials)]
        cache = root / "cache"
        ways: dict[str, Callable[[Path], None]] = {
            "separate": lambda where: processes(root, where, rates),
            "cached": lambda where: processes(root, where, rates, cache),
            "cached_warm": lambda where: processes(root, where, rates, cache),
            "sweep": lambda where: sweep(root, where, rates, where / "cache"),
            "warm": lambda where: sweep(root, where, rates, cache),
            "population": lambda where: sweep(root, where, rates, where / "cache", "--vectorize", str(options.trials)),
        }
        found = {name: measure(root / name, way) for name, way in ways.items() if name in options.ways}
    print(json.dumps({"trials": options.trials, "cpus": os.cpu_count(), "ways": found}, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    return parser.parse_args()


def measure(where: Path, way: Callable[[Path], None]) -> dict[str, float]:
    """Return the wall-clock and CPU seconds of one way of training."""
    where.mkdir()
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    way(where)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    user = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "cpu": round(user, 1)}


def processes(root: Path, where: Path, rates: list[str], cache: Path | None = None) -> None:
    for rate in rates:
        arguments = ["train", str(root / "config.gin"), "--set", f"train.lr={rate}", "--folder", str(where / rate)]
        dovetail(cache or where / f"cache-{rate}", *arguments)


def sweep(root: Path, where: Path, rates: list[str], cache: Path, *options: str) -> None:
    grid = f"train.lr={','.join(rates)}"
    dovetail(cache, "sweep", str(root / "config.gin"), "--grid", grid, "--folder", str(where / "sweep"), *options)


def dovetail(cache: Path, *arguments: str) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    subprocess.run([sys.executable, "-m", "dovetail", *arguments], env=environment, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
