"""Interim looks that keep the overall type I error: Pocock's constant level for each look."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
from scipy import optimize, stats

from dovetail_lab.ab.paired import smallest_p

GRID = 101


Looks = int | tuple[int, ...]
"""How many equally spaced looks there are, or after how many pairs each of them is."""


@functools.cache
def pocock_level(looks: Looks, alpha: float = 0.05) -> float:
    """Return the two-sided level to use at each look, so that all together keep `alpha`.

    Pocock 1977, "Group sequential methods in the design and analysis of clinical trials". The chance that a Gaussian
    random walk stays within ±c·√k at every look k is found by recursive integration of its density (Armitage,
    McPherson and Rowe 1969), and c solved for.

    >>> round(pocock_level(1), 4), round(pocock_level(4), 4)
    (0.05, 0.0182)
    """
    sizes = _sizes(looks)
    if len(sizes) == 1:
        return alpha
    bound = optimize.brentq(lambda c: _ever_beyond(c, sizes) - alpha, 1e-6, 9.0, xtol=1e-6)
    return float(2 * stats.norm.sf(bound))


@functools.lru_cache(maxsize=4096)
def overall_p(p: float, looks: Looks) -> float:
    """Return the chance, over all looks and without any effect, of a p-value as small as `p` at one of them.

    It is what `pocock_level` inverts, so `overall_p(p, looks) <= alpha` is the same as `p <= pocock_level(looks,
    alpha)`; unlike the latter, it can be adjusted for several arms.

    >>> round(overall_p(0.0182, 4), 3), overall_p(0.3, 1)
    (0.05, 0.3)
    """
    sizes = _sizes(looks)
    if len(sizes) == 1 or p >= 1:
        return p
    return _ever_beyond(float(stats.norm.isf(p / 2)), sizes)


def look_sizes(pairs: int, looks: int) -> tuple[int, ...]:
    """Return after how many pairs to look, the last time after all; early looks that share a number are one.

    >>> look_sizes(8, 4), look_sizes(3, 4)
    ((2, 4, 6, 8), (1, 2, 3))
    """
    return tuple(sorted({math.ceil(pairs * look / looks) for look in range(1, looks + 1)}))


def deciding_looks(sizes: tuple[int, ...], alpha: float) -> tuple[int, ...]:
    """Return the looks at which the sign-flip test can find a winner at Pocock's level for these looks; one at least.

    An early look at n pairs whose least p-value, 2¹⁻ⁿ, is above the level could never end a test, but would make the
    level of all others smaller. So the first ones are left out until the first that is left can decide.

    Args:
        sizes: after how many pairs looks were planned.
        alpha: of the hardest comparison: the level of the test over the number of arms.

    >>> deciding_looks((2, 4, 6, 8), 0.05), deciding_looks((6, 12, 18), 0.05)
    ((6, 8), (12, 18))
    """
    for first in range(len(sizes)):
        if smallest_p(sizes[first]) <= pocock_level(sizes[first:], alpha):
            return sizes[first:]
    return sizes[-1:]


def _sizes(looks: Looks) -> tuple[int, ...]:
    sizes = tuple(range(1, looks + 1)) if isinstance(looks, int) else looks
    if not sizes:
        raise ValueError(f"{looks} looks; there is at least the final one")
    return sizes


def _ever_beyond(bound: float, sizes: tuple[int, ...]) -> float:
    """Probability that a walk of standard normal steps is beyond ±bound·√n after n steps, for any n of `sizes`."""
    points, weights = np.polynomial.legendre.leggauss(GRID)
    edge = bound * math.sqrt(sizes[0])
    inside = points * edge
    density, step = stats.norm.pdf(inside, scale=math.sqrt(sizes[0])), weights * edge
    for before, size in itertools.pairwise(sizes):
        edge = bound * math.sqrt(size)
        there = points * edge
        moved = stats.norm.pdf(there[:, None] - inside[None, :], scale=math.sqrt(size - before))
        density = moved @ (density * step)
        inside, step = there, weights * edge
    return float(1 - density @ step)
