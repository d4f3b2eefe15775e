"""One run of Dovetail on a Ray cluster: Ray places the processes, `dovetail train` runs in each of them.

    ray job submit --working-dir . -- python configs/cluster/ray_train.py --processes 2 --gpus 8 \
        CONFIG --folder /shared/runs/mine --set mesh.fsdp=16

    python configs/cluster/ray_train.py --dry-run --processes 2 CONFIG ...     prints the commands and starts nothing

What this script does not know goes to `dovetail train`. The folder must be on a disk that all nodes see. Resources that
the cluster does not have are an error within --wait seconds, instead of a job that is pending forever.
"""

from __future__ import annotations

import argparse
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a run and wait for its end; returns the exit status."""
    parser = argparse.ArgumentParser(description="one run of Dovetail on a Ray cluster", allow_abbrev=False)
    parser.add_argument("--processes", type=int, required=True, help="how many, each on a node of its own")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of each")
    parser.add_argument("--cpus", type=float, default=1, help="CPUs of each")
    parser.add_argument("--wait", type=int, default=300, help="seconds to wait for these resources")
    parser.add_argument("--spread", default="STRICT_SPREAD", help="Ray's placement strategy; PACK allows one node")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    options, train = parser.parse_known_args(arguments)
    if options.dry_run:
        for process in range(options.processes):
            print(shlex.join(["dovetail", *command(train, "HOST:1234", options.processes, process)]))
        return 0
    return run(options, train)


def command(train: Sequence[str], coordinator: str, processes: int, process: int) -> list[str]:
    """Return what one process is started with."""
    where = ["--coordinator", coordinator, "--processes", str(processes), "--process", str(process)]
    return ["train", *train, *where]


def run(options: argparse.Namespace, train: Sequence[str]) -> int:
    """Let Ray start the processes."""
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray.init()
    each = {"CPU": options.cpus} | ({"GPU": options.gpus} if options.gpus else {})
    group = placement_group([each] * options.processes, strategy=options.spread)
    if not group.wait(options.wait):
        print(
            f"error: {options.processes} nodes with {each} each have not been free for {options.wait} s; there are"
            f" {ray.cluster_resources()}, of which {ray.available_resources()} are free",
            file=sys.stderr,
        )
        return 1

    def on(index: int) -> dict[str, object]:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        return {"num_cpus": options.cpus, "num_gpus": options.gpus, "scheduling_strategy": strategy, "max_retries": 0}

    coordinator = ray.get(ray.remote(address).options(**on(0)).remote())
    statuses = [
        ray.remote(start).options(**on(index)).remote(command(train, coordinator, options.processes, index))
        for index in range(options.processes)
    ]
    return max(abs(status) for status in ray.get(statuses))


def address() -> str:
    """Return this node's address and a port that is free on it."""
    import ray

    with socket.socket() as tried:
        tried.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{tried.getsockname()[1]}"


def start(arguments: Sequence[str]) -> int:
    """Run `dovetail` with these arguments."""
    return subprocess.run([sys.executable, "-m", "dovetail", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
