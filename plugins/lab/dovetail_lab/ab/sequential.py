"""Interim looks that keep the overall type I error: Pocock's constant level for each look."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import optimize, stats

GRID = 101


@functools.cache
def pocock_level(looks: int, alpha: float = 0.05) -> float:
    """Return the two-sided level to use at each of `looks` equally spaced looks, so that all together keep `alpha`.

    Pocock 1977, "Group sequential methods in the design and analysis of clinical trials". The chance that a Gaussian
    random walk stays within ±c·√k at every look k is found by recursive integration of its density (Armitage,
    McPherson and Rowe 1969), and c solved for.

    >>> round(pocock_level(1), 4), round(pocock_level(4), 4)
    (0.05, 0.0182)
    """
    if looks < 1:
        raise ValueError(f"{looks} looks; there is at least the final one")
    if looks == 1:
        return alpha
    bound = optimize.brentq(lambda c: _ever_beyond(c, looks) - alpha, 1e-6, 9.0, xtol=1e-6)
    return float(2 * stats.norm.sf(bound))


@functools.lru_cache(maxsize=4096)
def overall_p(p: float, looks: int) -> float:
    """Return the chance, over `looks` looks and without any effect, of a p-value as small as `p` at one of them.

    It is what `pocock_level` inverts, so `overall_p(p, looks) <= alpha` is the same as `p <= pocock_level(looks,
    alpha)`; unlike the latter, it can be adjusted for several arms.

    >>> round(overall_p(0.0182, 4), 3), overall_p(0.3, 1)
    (0.05, 0.3)
    """
    if looks == 1 or p >= 1:
        return p
    return _ever_beyond(float(stats.norm.isf(p / 2)), looks)


def look_sizes(pairs: int, looks: int) -> tuple[int, ...]:
    """Return after how many pairs to look, the last time after all; early looks that share a number are one.

    >>> look_sizes(8, 4), look_sizes(3, 4)
    ((2, 4, 6, 8), (1, 2, 3))
    """
    return tuple(sorted({math.ceil(pairs * look / looks) for look in range(1, looks + 1)}))


def _ever_beyond(bound: float, looks: int) -> float:
    """Probability that a walk of standard normal steps leaves ±bound·√k at some look k."""
    points, weights = np.polynomial.legendre.leggauss(GRID)
    edge = bound
    inside = points * edge
    density, step = stats.norm.pdf(inside), weights * edge
    for look in range(2, looks + 1):
        edge = bound * math.sqrt(look)
        there = points * edge
        density = stats.norm.pdf(there[:, None] - inside[None, :]) @ (density * step)
        inside, step = there, weights * edge
    return float(1 - density @ step)
