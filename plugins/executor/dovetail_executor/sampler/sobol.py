"""Sobol points, which fill a space more evenly than independent draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from dovetail_executor.sampler.random import Drawn
from dovetail_lab.sweep import Distribution


@attrs.frozen(kw_only=True)
class Sobol:
    """Points of a scrambled Sobol sequence, one dimension for each key in alphabetical order.

        θᵢ = F⁻¹(uᵢ),  u₀, u₁, ... a (t, d)-sequence in base 2

    where F is the distribution of a key. Of 2ᵐ points, each of 2ᵏ equal intervals of a key holds 2ᵐ⁻ᵏ: powers of two
    are the best numbers of draws. More draws begin with those of fewer; another key gives other draws. Sobol 1967;
    scrambling: Owen 1998, *Scrambling Sobol' and Niederreiter-Xing points*, as in `scipy.stats.qmc.Sobol`.
    """

    learns: ClassVar[bool] = False

    def open(self, space: Mapping[str, Distribution], *, draws: int, seed: int, total_steps: int) -> Drawn:
        """Make all of them."""
        from scipy.stats import qmc

        keys = sorted(space)
        # one draw less than a power of two would be a warning: what is cut off is the beginning of what follows
        points = qmc.Sobol(len(keys), scramble=True, rng=seed).random_base2(max(draws - 1, 0).bit_length())[:draws]
        at = [dict(zip(keys, map(float, point), strict=True)) for point in points]
        return Drawn([{key: form.at(shares[key]) for key, form in space.items()} for shares in at])
