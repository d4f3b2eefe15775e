"""Record what a device does: `python benchmarks/accelerator.py --out accelerator.jsonl`.

In at most `--minutes` (8.5) it measures the device, the rate of its matrix products, its memory bandwidth, and then for
random models in the shapes of SmolLM2-135M, Qwen2.5-0.5B and Qwen2.5-1.5B: sampling with the engine `vanilla`, the
reference pass and the update of a GRPO step, and peak memory beside the plan. `population` trains small models alone
and together. Each finding is a line of JSON in `--out` and a line on the screen as soon as it is there, so an
interrupted run keeps what it has; what the time did not suffice for is a finding too.

Every model has a process of its own, whose peak memory is therefore its own. Times are those of the fastest of
`--calls` calls after one that compiles; on CPUs, processor time divided by the number of cores. Operations and bytes
are those of `benchmarks/flops.py`: only what is useful counts, so recomputing activations lowers the rate. A share of
the matrix rate is relative to the rate that was measured here, in the type in which the model computes: bfloat16 on
accelerators, float32 on CPUs. Decoding is compared with the time to read the weights and caches once for each token at
the bandwidth that was measured here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workloads import SHAPES

MODELS = ("SmolLM2-135M", "Qwen2.5-0.5B", "Qwen2.5-1.5B")
MACHINE, POPULATION = "machine", "population"
ALL = (*MODELS, POPULATION)


def printed(finding: dict[str, Any], rate: float, bandwidth: float) -> dict[str, Any]:
    """Add the shares of the measured rate and bandwidth to a finding, as far as they are known."""
    if "operations" in finding:
        finding["tflops_per_s"] = round(finding["operations"] / finding["seconds"] / 1e12, 3)
        if rate:
            finding["share_of_matrix_rate"] = round(finding["operations"] / finding["seconds"] / rate, 3)
    if "bytes_read" in finding and bandwidth:
        bound = finding["bytes_read"] / bandwidth
        finding["bandwidth_bound_tokens_per_s"] = round(finding["tokens"] / bound)
        finding["times_the_bound"] = round(finding["seconds"] / bound, 2)
    return finding


def row(finding: dict[str, Any]) -> str:
    """Write a finding as a row of a table."""
    left_out = ("of", "what", "operations", "bytes_read")
    rest = [f"{name} {value}" for name, value in finding.items() if name not in left_out and value is not None]
    return f"| {finding['of']:<12} | {finding['what']:<14} | {', '.join(rest)} |"


class Record:
    """The findings, written as they come."""

    def __init__(self, out: Path) -> None:
        self.out = out
        out.write_text("")
        self.rates: dict[str, float] = {}

    def add(self, finding: dict[str, Any]) -> None:
        """Write a finding to the file and to the screen."""
        if finding["what"] in ("bfloat16", "float32", "bandwidth"):
            self.rates[finding["what"]] = finding["per_s"]
        rate = self.rates.get(finding.get("dtype", ""), 0.0)
        found = printed(finding, rate, self.rates.get("bandwidth", 0.0))
        with self.out.open("a") as file:
            print(json.dumps(found), file=file)
        print(row(found), flush=True)


def measured(name: str, options: argparse.Namespace, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the findings of a child process, which is ended when the time is over."""
    command = [sys.executable, __file__, "--child", name, f"--calls={options.calls}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        late = threading.Event()
        timer = threading.Timer(seconds, lambda: (late.set(), child.kill()))
        timer.start()
        assert child.stdout is not None, "it is a pipe"
        for line in child.stdout:
            if line.startswith('{"of"'):
                yield json.loads(line)
        status = child.wait()
        timer.cancel()
    if late.is_set():
        yield {"of": name, "what": "skipped", "why": f"{options.minutes:g} minutes were over while it was measured"}
    elif status:
        yield {"of": name, "what": "failed", "why": f"its process ended with status {status}"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in child processes; this one does not start JAX, which would take a GPU's memory from them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=(*SHAPES, POPULATION), default=ALL, metavar="|".join(ALL))
    parser.add_argument("--minutes", type=float, default=8.5, help="what is left after so many minutes is skipped")
    parser.add_argument("--calls", type=int, default=3, help="timed calls of each")
    parser.add_argument("--out", type=Path, default=Path("accelerator.jsonl"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.calls < 1 or options.minutes < 0:
        parser.error("--calls must be at least 1, and --minutes at least 0")
    if options.child:
        from measuring import findings

        for finding in findings(options.child, options.calls):
            print(json.dumps(finding), flush=True)
        return 0
    end, record, failed = time.monotonic() + 60 * options.minutes, Record(options.out), False
    for name in (MACHINE, *options.shapes):
        left = end - time.monotonic()
        if left <= 0:
            record.add({"of": name, "what": "skipped", "why": f"{options.minutes:g} minutes were over before it"})
            continue
        for finding in measured(name, options, left):
            failed |= finding["what"] == "failed"
            record.add(finding)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
