"""Simulate the error rates and the power of A/B tests. Prints JSON; takes a minute on one core.

    python benchmarks/ab.py [--tests 20000]

The differences of pairs are simulated; the code of `dovetail ab` decides.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from dovetail_lab.ab.paired import sign_flip_p, sign_flip_ps
from dovetail_lab.ab.sequential import deciding_looks, look_sizes, pocock_level
from dovetail_lab.ab.verdict import results_of_pairs

LEVEL = 0.05


def collapsing(rng: np.random.Generator, tests: int) -> dict[str, float]:
    """Return how often an arm of equal mean wins if it collapses by 0.4 in some seeds and is better in the others."""
    found = {}
    for rate in (0.1, 0.2):
        for pairs in (6, 8, 10):
            noise = rng.normal(0, 0.03, (tests, pairs))
            draws = noise + np.where(rng.random(noise.shape) < rate, -0.4, 0.4 * rate / (1 - rate))
            better = (sign_flip_ps(draws) <= LEVEL) & (draws.mean(1) > 0)
            found[f"{rate:.0%} of seeds, {pairs} pairs"] = float(better.mean())
    return found


def crashing(rng: np.random.Generator, tests: int) -> dict[str, float]:
    """Return how often one of two equal arms with ten pairs wins if its worst runs, three in ten, crash."""
    control, arm = rng.normal(0, 1, (2, tests, 10))
    arm[arm < -0.524] = np.nan
    found = {}
    for lost in ("leave_out", "worst"):
        pairs = (results_of_pairs(*both, 1.0, lost) for both in zip(control, arm, strict=True))
        found[lost] = (
            sum(mine.mean() > base.mean() and sign_flip_p(mine - base) <= LEVEL for base, mine in pairs) / tests
        )
    return found


def looking(rng: np.random.Generator, tests: int) -> dict[str, dict[str, float]]:
    """Return the rates of winners with eight pairs and `pocock:4`, for differences of 0 and of 1 standard deviation."""
    planned = look_sizes(8, 4)
    rules = {
        "one look": ((8,), LEVEL),
        "all four looks": (planned, pocock_level(planned)),
        "looks that can decide": (deciding_looks(planned, LEVEL), pocock_level(deciding_looks(planned, LEVEL))),
    }
    noise = rng.normal(0, 1, (tests, 8))
    return {
        name: {
            str(effect): float(np.any([sign_flip_ps((noise + effect)[:, :n]) <= level for n in sizes], axis=0).mean())
            for effect in (0, 1)
        }
        for name, (sizes, level) in rules.items()
    }


def adding_seeds(rng: np.random.Generator, tests: int) -> float:
    """Return the rate of false winners if seeds are added to six, two at a time, until an arm wins or there are 20."""
    draws = rng.normal(0, 1, (tests, 20))
    small = draws[: max(tests // 20, 1)]  # beyond 14 pairs each test draws 65,536 patterns
    return float(np.any([sign_flip_ps(small[:, :n]) <= LEVEL for n in range(6, 21, 2)], axis=0).mean())


def main() -> None:
    """Print the rates as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=20_000, help="simulated tests of each kind")
    tests, rng = parser.parse_args().tests, np.random.default_rng(0)
    print(
        json.dumps(
            {
                "a collapse at equal means is found better": collapsing(rng, tests),
                "crashes of the worst runs are found better": crashing(rng, tests),
                "false and true winners by looks": looking(rng, tests),
                "false winners if seeds are added after looks": adding_seeds(rng, tests),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
