"""Measure a fleet of engines behind a simulated accelerator: `python benchmarks/fleet.py > fleet.json`.

The servers are processes that answer as vLLM does, after the time that an accelerator would take: a decoding step takes
`--step` seconds whatever the number of completions in it, up to `--slots` of them at a time, and each completion takes
as many steps as it has tokens. Lengths are drawn from a lognormal distribution by the request's seed. They compute next
to nothing, so that two cores can run several; everything else is real: processes, HTTP, routing, threads.

`scaling`: completions per second with 1, 2 and 4 replicas, beside the linear extrapolation of one. A batch is
`--waves` times what all replicas hold, so that every size has the same tail.
`held`: so many requests in flight at the same time (`--held`), each of which takes `--seconds` at the server; lost and
repeated ones, and the overhead per request: from the moment that the router has chosen a replica to the answer, less
the time from when the server took the connection to when it answered.
`training` (`--steps`): runs with 1, 2 and 4 replicas and the same batch, `--completions` of them, sampled one step
ahead: steps per second, and what `dovetail simulate` predicts for these and for 8, 64 and 512 replicas from the run
with one.
`recovery` (`--recovery`): one of two replicas is killed with SIGKILL, so many times in mid-batch and during a sync: the
seconds until it may be asked again, with the newest weights. Once with these servers and once with `vanilla`.
`machine` (`--machines`): the same for a replica whose machine of a Ray cluster is lost with all that runs there, so
many times; a spare machine has room for it. The machines are processes of this one. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from dovetail.config.settings import Sampling
from dovetail_rollout.hosted.fleet import Fleet
from dovetail_rollout.hosted.host import Answer, Ends, Failure, Overdue, Request
from dovetail_rollout.hosted.vllm_server import Serving, VllmServer
from dovetail_rollout.kinds import Place
from dovetail_rollout.launcher.local import Local

INFO = {
    "model_config": {"logprobs_mode": "processed_logprobs"},
    "parallel_config": {"worker_extension_cls": "dovetail_vllm_worker.DovetailWorker"},
    "device_config": {"device_type": "cpu"},
}

LOADING = 0.3
"""Seconds that a server takes to read new weights."""


def length(seed: int, mean: float, sigma: float, most: int) -> int:
    """Draw the tokens of a completion from its seed alone."""
    drawn = random.Random(seed).lognormvariate(0.0, sigma) * mean
    return max(1, min(most, round(drawn)))


class Accelerator:
    """A server that answers after a modelled time."""

    def __init__(self, step: float, slots: int, mean: float, sigma: float, token: int = 0) -> None:
        self.step, self.mean, self.sigma, self.token = step, mean, sigma, token
        self.room = asyncio.Semaphore(slots)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and hang up."""
        try:
            came = time.perf_counter()
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            data = await reader.readexactly(int(fields.get(b"content-length", 0)))
            body = json.dumps(await self.body(path, json.loads(data or b"null"), came)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def body(self, path: str, asked: Any, came: float) -> Any:
        """Return what a route says."""
        if path == "/v1/completions":
            tokens = length(asked["seed"], self.mean, self.sigma, asked["max_tokens"])
            async with self.room:
                await asyncio.sleep(tokens * self.step)
            # what the server took, in microseconds, travels as the first token, unless a model learns from it
            took = self.token or round(1e6 * (time.perf_counter() - came))
            found = {"token_ids": [took] + [self.token or 1] * (tokens - 1)}
            return {"choices": [found | {"logprobs": {"token_logprobs": [-1.0] * tokens}}]}
        if path == "/collective_rpc":
            await asyncio.sleep(LOADING)
        answers = {"/v1/models": {"data": [{"id": "policy"}]}, "/reset_prefix_cache": {"success": True}}
        return {"vllm_config": INFO} if path.startswith("/server_info") else answers.get(path, {})


async def serve(words: list[str]) -> None:
    """Serve until the process is ended."""
    said = dict(itertools.pairwise(words))
    accelerator = Accelerator(*json.loads(said["--accelerator"]))
    server = await asyncio.start_server(accelerator.answer, said["--host"], int(said["--port"]), backlog=16384)
    async with server:
        await server.serve_forever()


OVERHEAD: dict[int, float] = {}
"""Seconds of each request, by its seed, that were not spent at the server."""
SPANS: list[tuple[float, float]] = []
"""When each request began and ended."""
ASKED: Counter[int] = Counter()
"""How often each request was asked, by its seed."""


class Timed(VllmServer):
    """A replica that notes what its requests took beside the server's own time."""

    def share(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure | Overdue]:
        """Ask, and note."""
        began = time.perf_counter()
        answers = super().share(requests, sampling, ends)
        for request, answer in zip(requests, answers, strict=True):
            ASKED[request.seed] += 1
            assert isinstance(answer, Answer), answer
            SPANS.append((began, time.perf_counter()))
            OVERHEAD[request.seed] = time.perf_counter() - began - answer.tokens[0] / 1e6
        return answers


def fleet(replicas: int, connections: int, accelerator: list[float], restarts: int = 1, launcher: Any = None) -> Fleet:
    """Return a fleet of accelerators, not yet started."""
    serving = Serving(
        command=(sys.executable, __file__, "serve"),
        sleeps=False,
        flags=("--accelerator", json.dumps(accelerator)),
        start_seconds=60.0,
    )

    def replica(place: Place) -> VllmServer:
        return Timed(serving=serving, place=place, sleeps=False, calls=connections)

    return Fleet(name="vllm", launcher=launcher or Local(), replica=replica, count=replicas, restarts=restarts, floor=1)


def sampled(opened: Fleet, requests: list[Request], most: int) -> tuple[float, list[Answer]]:
    """Complete requests; return the seconds and the answers."""
    began = time.perf_counter()
    answers = opened.complete(requests, Sampling(max_tokens=most), Ends(eos_ids=(0,), stopped=None))
    return time.perf_counter() - began, [answer for answer in answers if isinstance(answer, Answer)]


def scaling(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure completions per second by the number of replicas."""
    found: dict[str, Any] = {}
    accelerator = [options.step, options.slots, options.mean, options.sigma]
    for replicas in options.replicas:
        opened = fleet(replicas, options.slots, accelerator)
        opened.start(folder)
        requests = [Request([2, 3, 4], seed) for seed in range(options.waves * options.slots * replicas)]
        sampled(opened, requests[: options.slots], 8)
        rounds = [len(requests) / sampled(opened, requests, options.most)[0] for _ in range(options.rounds)]
        opened.stop()
        found[str(replicas)] = {"completions": len(requests), "per_second": statistics.median(rounds)}
    one = found[str(options.replicas[0])]["per_second"] / options.replicas[0]
    for replicas, figures in found.items():
        figures["share_of_linear"] = figures["per_second"] / (one * int(replicas))
    return found


def held(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Hold many requests at a time, and measure what the router adds."""
    replicas, seconds = options.replicas[-1], options.seconds
    opened = fleet(replicas, options.held, [seconds / 10, options.held, 10, 0.0])
    opened.start(folder)
    requests = [Request([2, 3, 4], seed) for seed in range(options.held)]
    OVERHEAD.clear()
    ASKED.clear()
    SPANS.clear()
    took, answers = sampled(opened, requests, 10)
    opened.stop()
    overhead = sorted(OVERHEAD.values())
    return {
        "requests": options.held,
        "replicas": replicas,
        "seconds_at_the_server": seconds,
        "seconds": took,
        "at_the_same_time": most_at_a_time(SPANS),
        "answered": len(answers),
        "lost": options.held - len(answers),
        "repeated": sum(count > 1 for count in ASKED.values()),
        "overhead_ms": {
            name: 1e3 * overhead[int(share * (len(overhead) - 1))]
            for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        },
    }


SETS = (
    "train.task=arithmetic",
    "task.arithmetic.operations=('+',)",
    "tokenizer.sentencepiece.vocab_size=300",
    *("model.decoder.width=16", "model.decoder.layers=1", "model.decoder.heads=2", "model.decoder.kv_heads=1"),
    *("train.rewards=['exact_match']", "train.group_size=8", "train.max_prompt_tokens=48", "train.lr=1e-4"),
    *("train.staleness=1", "train.correction=('tis_token',)"),
    *("sft.steps=0", "eval.every=None", "run.checkpoint_every=1000", "run.sinks=()"),
    *("train.rollout=vllm", "rollout.vllm.probe=0.0"),
)


def training(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train behind 1, 2 and 4 accelerators, and simulate more of them from the run with one."""
    from dovetail.config import load
    from dovetail.run.files import read_lines
    from dovetail.training.loop import train
    from dovetail_lab.simulate.fit import fit

    accelerator = json.dumps([options.step, options.slots, options.mean, options.sigma, 5])
    found: dict[str, Any] = {}
    for replicas in options.replicas:
        sets = (
            f"train.prompts={options.completions // 8}",
            f"train.steps={options.steps}",
            f"sampling.max_tokens={options.most}",
            f"rollout.vllm.command={f'{sys.executable} {Path(__file__).resolve()} serve'!r}",
            f"rollout.vllm.flags=('--accelerator', {accelerator!r})",
            f"rollout.vllm.replicas={replicas}",
            f"rollout.vllm.connections={options.slots}",
        )
        train(load(None, [*SETS, *sets]), folder / f"{replicas}")
        timed = [line["time/step"] for line in read_lines(folder / f"{replicas}" / "timings.jsonl", "rl")[2:]]
        found[str(replicas)] = {"steps_per_second": 1.0 / statistics.mean(timed)}
        print(found, file=sys.stderr, flush=True)
    one = found[str(options.replicas[0])]["steps_per_second"] / options.replicas[0]
    fitted = fit(folder / f"{options.replicas[0]}", trusted=True)
    for engines in (*options.replicas, 8, 64, 512):
        figures = found.setdefault(str(engines), {})
        figures["simulated"] = 1.0 / fitted.forecast(1, engines=engines).step
        if "steps_per_second" in figures:
            figures["share_of_linear"] = figures["steps_per_second"] / (one * engines)
    return found


def recovery(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill replicas, and measure how long they are away."""
    accelerator = [options.step, options.slots, options.mean, options.sigma]
    opened = fleet(2, options.slots, accelerator, restarts=1000)
    opened.start(folder)
    rounds, (sample, sync) = range(options.recovery), both(opened, folder, options.slots)
    found = {
        "simulated, mid-batch": [killed(opened, sample, 0.5, kill_process) for _ in rounds],
        "simulated, sync": [killed(opened, sync, LOADING / 2, kill_process) for _ in rounds],
    }
    opened.stop()
    return {name: summed(each) for name, each in (found | recovery_of_vanilla(options.recovery)).items()}


def both(opened: Fleet, folder: Path, slots: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what samples a batch, and what hands over weights."""
    requests = [Request([2, 3, 4], seed) for seed in range(8 * slots)]
    for name in ("even", "odd"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text((folder / "config.json").read_text())
    weights = itertools.cycle((folder / "even", folder / "odd"))
    return lambda: sampled(opened, requests, 96), lambda: opened.load(next(weights))


def recovery_of_a_machine(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Lose machines, and measure how long their replicas are away."""
    from ray.cluster_utils import Cluster

    from dovetail_rollout.launcher.ray import Ray

    memory: Any = {"object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **memory})
    machines = {node.node_id: node for node in (cluster.add_node(num_cpus=1, **memory) for _ in range(2))}
    launcher = Ray(address=cluster.address, strategy="SPREAD")
    opened = fleet(2, options.slots, [options.step, options.slots, options.mean, options.sigma], 1000, launcher)
    opened.start(folder)

    def lose(member: Any) -> None:
        cluster.remove_node(machines.pop(member.host.place.node), allow_graceful=False)

    found: dict[str, list[tuple[float, float]]] = {}
    sample, sync = both(opened, folder, options.slots)
    for name, work, after in (("machine, mid-batch", sample, 0.5), ("machine, sync", sync, LOADING / 2)):
        for _ in range(options.machines):
            spare = cluster.add_node(num_cpus=1, **memory)
            machines[spare.node_id] = spare
            found.setdefault(name, []).append(killed(opened, work, after, lose))
    opened.stop()
    cluster.shutdown()
    return {name: summed(each) for name, each in found.items()}


def recovery_of_vanilla(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Kill replicas of `vanilla`, which have a tiny model."""
    import attrs
    import jax
    import numpy as np
    from flax import nnx

    import dovetail
    from dovetail.protocols import Weights
    from dovetail_kit.rollout import Numbers

    maker: Any = dovetail.get("model", "decoder").bind(width=64, layers=2, heads=2, kv_heads=1, ffn=128)
    graphdef, trained, rest = nnx.split(maker.make(Numbers().vocab_size, rngs=nnx.Rngs(0)), nnx.Param, ...)
    rollout: Any = dovetail.get("rollout", "vanilla").bind(replicas=2, restarts=1000)
    engine = rollout.open(graphdef, Weights(trained, rest), attrs.evolve(Numbers(), eos_ids=()))
    tokens, versions = np.arange(48).reshape(16, 3) % 12 + 1, itertools.count(1)
    keys = jax.random.split(jax.random.key(0), (16, 2))

    def sample() -> None:
        engine.generate(tokens, np.ones_like(tokens, bool), keys, Sampling(max_tokens=256))

    def sync() -> None:
        engine.sync(Weights(trained, rest), next(versions))

    found: dict[str, list[tuple[float, float]]] = {"vanilla, mid-batch": [], "vanilla, sync": []}
    for _ in range(rounds):
        sample()  # compiles what a replica that has come back lacks
        found["vanilla, mid-batch"].append(killed(engine.host, sample, 0.3, kill_process))
        found["vanilla, sync"].append(killed(engine.host, sync, 0.005, kill_process))
    engine.close()
    return found


def kill_process(member: Any) -> None:
    """Kill the process of a replica on this machine."""
    guard = member.host.process._process.pid
    os.kill(int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0]), signal.SIGKILL)


def killed(opened: Fleet, work: Callable[[], Any], after: float, end: Callable[[Any], None]) -> tuple[float, float]:
    """End replica 1 so many seconds into the work; return the seconds until it is back, and those of the work."""
    member, at = opened.members[1], list[float]()
    life = member.life

    def kill() -> None:
        at.append(time.perf_counter())
        end(member)
        while not (member.life > life and member.routable) and time.perf_counter() - at[0] < 300:
            time.sleep(0.005)
        at.append(time.perf_counter())

    timer = threading.Timer(after, kill)
    began = time.perf_counter()
    timer.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        work()
        took = time.perf_counter() - began
        timer.join(2.0)
        while timer.is_alive():
            if member.life == life:  # a loss that nobody has noticed is noticed with the next work
                work()
            timer.join(2.0)
    return at[1] - at[0], took


def summed(each: list[tuple[float, float]]) -> dict[str, Any]:
    """Return medians, and all seconds of absence."""
    away, took = zip(*each, strict=True)
    return {"away_s": statistics.median(away), "work_s": statistics.median(took), "all_away_s": sorted(away)}


def most_at_a_time(spans: Sequence[tuple[float, float]]) -> int:
    """Return how many spans overlap at most.

    >>> most_at_a_time([(0, 2), (1, 3), (2, 4)])
    2
    """
    changes = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    return max(itertools.accumulate(change for _, change in changes))


def main() -> None:
    """Measure, and print JSON."""
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--slots", type=int, default=32, help="completions that an accelerator decodes at a time")
    parser.add_argument("--step", type=float, default=0.02, help="seconds of a decoding step")
    parser.add_argument("--mean", type=float, default=24, help="median tokens of a completion")
    parser.add_argument("--sigma", type=float, default=0.5, help="of the logarithm of the length")
    parser.add_argument("--most", type=int, default=96, help="tokens of a completion at most")
    parser.add_argument("--waves", type=int, default=8, help="batch, in what all replicas hold; 0: no scaling")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--held", type=int, default=10_000, help="requests that are held at a time; 0 measures none")
    parser.add_argument("--seconds", type=float, default=60.0, help="that each of them takes at the server")
    parser.add_argument("--steps", type=int, default=0, help="of the runs that train; 0 trains none")
    parser.add_argument("--completions", type=int, default=512, help="of a step of such a run")
    parser.add_argument("--recovery", type=int, default=0, help="kills of each sort; 0 kills none")
    parser.add_argument("--machines", type=int, default=0, help="that are lost in each way; 0 loses none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "config.json").write_text('{"torch_dtype": "float32"}')
        figures = {"machine": {"cores": os.cpu_count(), "python": platform.python_version()}}
        if options.waves:
            figures["scaling"] = scaling(options, folder)
        if options.steps:
            figures["training"] = training(options, folder)
        if options.recovery:
            figures["recovery"] = recovery(options, folder)
        if options.machines:
            with redirect_stdout(sys.stderr):  # Ray tells there of a machine that it has lost
                figures["machine"] = recovery_of_a_machine(options, folder)
        if options.held:
            figures["held"] = held(options, folder)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
