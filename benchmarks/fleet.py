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
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dovetail.config.settings import Sampling
from dovetail_rollout.hosted.fleet import Fleet
from dovetail_rollout.hosted.host import Answer, Ends, Failure, Request
from dovetail_rollout.hosted.vllm_server import Serving, VllmServer
from dovetail_rollout.kinds import Place
from dovetail_rollout.launcher.local import Local

INFO = {
    "model_config": {"logprobs_mode": "processed_logprobs"},
    "parallel_config": {"worker_extension_cls": "dovetail_vllm_worker.DovetailWorker"},
    "device_config": {"device_type": "cpu"},
}


def length(seed: int, mean: float, sigma: float, most: int) -> int:
    """Draw the tokens of a completion from its seed alone."""
    drawn = random.Random(seed).lognormvariate(0.0, sigma) * mean
    return max(1, min(most, round(drawn)))


class Accelerator:
    """A server that answers after a modelled time."""

    def __init__(self, step: float, slots: int, mean: float, sigma: float) -> None:
        self.step, self.mean, self.sigma = step, mean, sigma
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
            # what the server took, in microseconds, travels as the first token
            took = round(1e6 * (time.perf_counter() - came))
            return {"choices": [{"token_ids": [took] + [1] * (tokens - 1), "logprobs": {"token_logprobs": []}}]}
        answers = {"/v1/models": {"data": [{"id": "policy"}]}, "/reset_prefix_cache": {"success": True}}
        return {"vllm_config": INFO} if path.startswith("/server_info") else answers.get(path, {})


async def serve(words: list[str]) -> None:
    """Serve until the process is ended."""
    said = dict(itertools.pairwise(words))
    step, slots, mean, sigma = json.loads(said["--accelerator"])
    accelerator = Accelerator(step, slots, mean, sigma)
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

    def share(self, requests: Sequence[Request], sampling: Sampling, ends: Ends) -> list[Answer | Failure]:
        """Ask, and note."""
        began = time.perf_counter()
        answers = super().share(requests, sampling, ends)
        for request, answer in zip(requests, answers, strict=True):
            ASKED[request.seed] += 1
            assert isinstance(answer, Answer), answer
            SPANS.append((began, time.perf_counter()))
            OVERHEAD[request.seed] = time.perf_counter() - began - answer.tokens[0] / 1e6
        return answers


def fleet(replicas: int, connections: int, accelerator: list[float]) -> Fleet:
    """Return a fleet of accelerators, not yet started."""
    serving = Serving(
        command=(sys.executable, __file__, "serve"),
        sleeps=False,
        flags=("--accelerator", json.dumps(accelerator)),
        start_seconds=60.0,
    )

    def replica(place: Place) -> VllmServer:
        return Timed(serving=serving, place=place, sleeps=False, calls=connections)

    return Fleet(name="vllm", launcher=Local(), replica=replica, count=replicas, restarts=1, floor=1)


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
    parser.add_argument("--waves", type=int, default=8, help="batch, in what all replicas hold at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--held", type=int, default=10_000, help="requests that are held at a time; 0 measures none")
    parser.add_argument("--seconds", type=float, default=60.0, help="that each of them takes at the server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "config.json").write_text('{"torch_dtype": "float32"}')
        figures = {"machine": {"cores": os.cpu_count(), "python": platform.python_version()}}
        figures["scaling"] = scaling(options, folder)
        if options.held:
            figures["held"] = held(options, folder)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
