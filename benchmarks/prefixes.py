"""Count the prompt tokens that replicas compute for episodes: `python benchmarks/prefixes.py`.

Episodes of several turns are routed as a fleet does it, once with what replicas keep in their prefix caches and once by
outstanding tokens alone. Replicas are simulated and forget nothing: a decoding step takes 20 ms and a little more for
each request that is in it, prefill 50 µs for a token, and a tool an exponential time of 2 s.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import statistics
from collections.abc import Sequence

import numpy as np

from dovetail_rollout.hosted.host import Answer
from dovetail_rollout.hosted.ledger import Ledger, Room, Sending
from dovetail_rollout.hosted.prefixes import Prefixes

SAMPLES = 8
MOST = 512
"""Tokens that a turn may have; one has 20 to 200."""
OBSERVED = 200
CALLS = 64


class Unused(Prefixes):
    """What replicas keep, of which the router does not know."""

    def of(self, ordinal: int, replica: int) -> int:
        """Return nothing."""
        return 0


def computed(replicas: int, episodes: int, seed: int, made: type[Prefixes]) -> tuple[int, float]:
    """Return the prompt tokens that all replicas compute, and the seconds that the batch takes."""
    rng = np.random.default_rng(seed)
    prompts = np.repeat(rng.integers(500, 1500, episodes // SAMPLES), SAMPLES).tolist()
    turns, done = rng.integers(3, 12, len(prompts)), [0] * len(prompts)
    prefixes = made(prompts, [place // SAMPLES for place in range(len(prompts))])
    ledger = Ledger.of([length + MOST for length in prompts], prefixes=prefixes)
    events: list[tuple[float, int, Sending | int, int]] = []
    numbers, busy, tokens, now = itertools.count(), [0] * replicas, 0, 0.0

    def after(seconds: float, what: Sending | int, drawn: int) -> None:
        heapq.heappush(events, (now + seconds, next(numbers), what, drawn))

    while True:
        before = Prefixes(prompts, prefixes.groups, {replica: dict(each) for replica, each in prefixes.kept.items()})
        before.shared = prefixes.shared
        for sending in ledger.route([Room(replica, CALLS) for replica in range(replicas)]):
            [place], replica = sending.ordinals, sending.replica
            prefill = prompts[place] - before.of(place, replica)
            before.sent(place, replica)
            tokens, busy[replica] = tokens + prefill, busy[replica] + 1
            # what a turn draws depends on the episode and the turn alone, so that both ways have the same work
            drawn = int(np.random.default_rng([seed, place, done[place]]).integers(20, 200))
            after(drawn * (0.02 + 0.0002 * busy[replica]) + prefill / 20_000, sending, drawn)
        if not events:
            return tokens, now
        now, _, what, drawn = heapq.heappop(events)
        if isinstance(what, Sending):
            [place] = what.ordinals
            ledger.take(what, [Answer([1] * drawn, [0.0] * drawn)])
            ledger.leave(place)
            busy[what.replica] -= 1
            done[place] += 1
            after(float(np.random.default_rng([seed, place, done[place], 1]).exponential(2.0)), place, drawn)
        elif done[what] == turns[what]:
            ledger.go_on(what, None)
        else:
            longer = prompts[what] + drawn + OBSERVED
            ledger.go_on(what, longer + MOST, longer)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each number of replicas."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args(arguments)
    print("replicas  tokens alone  with prefixes  saved  seconds")
    for replicas in options.replicas:
        ways = [
            [computed(replicas, options.episodes, seed, made) for seed in range(options.seeds)]
            for made in (Unused, Prefixes)
        ]
        (without, slow), (with_, fast) = (map(statistics.mean, zip(*way, strict=True)) for way in ways)
        print(
            f"{replicas:8} {without / 1e6:12.2f}M {with_ / 1e6:13.2f}M {1 - with_ / without:6.0%}"
            f"  {slow:.1f}, {fast:.1f}"
        )


if __name__ == "__main__":
    main()
