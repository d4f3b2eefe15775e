"""Rotary position embedding."""

from __future__ import annotations

import math
from typing import NamedTuple

import attrs
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


@attrs.frozen(kw_only=True)
class Stretch:
    """Llama 3.1's rule, which lowers low frequencies so that a context of `original` positions grows by `factor`.

    A pair turns n = original · ω / 2π times over the original context. Frequencies of at most `low`
    turns are divided by the factor, those of at least `high` turns are kept, and those in between become

        ω' = (1 - s) ω / factor + s ω,   s = (n - low) / (high - low)
    """

    factor: float
    low: float
    high: float
    original: int

    def __call__(self, frequencies: Float[np.ndarray, "half"]) -> Float[np.ndarray, "half"]:
        """Return the lowered frequencies."""
        turns = self.original * frequencies / (2 * math.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


@attrs.frozen(kw_only=True)
class Yarn:
    """YaRN's rule: Llama 3.1's, but the interpolation is linear in the index of the pair instead of its turns.

    The pair that turns n times over the original context has the (fractional) index

        i(n) = ln(original / 2πn) / -ln ω₁,   ω₁ the frequency of pair 1

    Pairs up to i(`fast`) keep their frequency, frequencies of pairs from i(`slow`) on are divided by the factor, and
    those in between become

        ω' = s ω / factor + (1 - s) ω,   s = (i - i(fast)) / (i(slow) - i(fast))

    Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.2.

    *Departures*: as in the released code, the ramp is linear in i, and with `whole` its ends are rounded outwards to
    whole numbers.
    """

    factor: float
    original: int
    fast: float = 32.0
    slow: float = 1.0
    whole: bool = True

    def __call__(self, frequencies: Float[np.ndarray, "half"]) -> Float[np.ndarray, "half"]:
        """Return the lowered frequencies; there must be at least two pairs."""
        first, last = (
            math.log(self.original / (2 * math.pi * n)) / -math.log(frequencies[1]) for n in (self.fast, self.slow)
        )
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * len(frequencies) - 1)
        # the released code's guard against an empty ramp
        length = last - first if last != first else 0.001
        lowered = np.clip((np.arange(len(frequencies)) - first) / length, 0.0, 1.0)
        return lowered * frequencies / self.factor + (1 - lowered) * frequencies


@attrs.frozen
class Divided:
    """A rule that divides each frequency by a divisor of its own.

    Ding et al. 2024, "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", equation 1.
    """

    by: tuple[float, ...]

    def __call__(self, frequencies: Float[np.ndarray, "half"]) -> Float[np.ndarray, "half"]:
        """Return the divided frequencies."""
        return frequencies / np.asarray(self.by)


@attrs.frozen(kw_only=True)
class Rope:
    """The parameters of rotary positions.

    Attributes:
        theta: base of the frequencies.
        factor: divides all frequencies.
        stretch: a rule that lowers some frequencies.
        magnitude: multiplies cosine and sine, so that attention scores are multiplied by its square.
        share: the fraction of each head's units that are rotated; the others, at its end, have no positions.
        limit: the greatest number of tokens per row for which these frequencies are valid; longer rows are refused.
            None means no limit.
    """

    theta: float
    factor: float = 1.0
    stretch: Stretch | Yarn | Divided | None = None
    magnitude: float = 1.0
    share: float = 1.0
    limit: int | None = None

    def frequencies(self, head_dim: int) -> Float[np.ndarray, "half"]:
        """Return the angle per position of each pair: ωᵢ = θ^(-2i / d) / factor, i = 0 … d/2 - 1, d = head_dim · share.

        They are computed in float64, because float32's rounding errors would matter at position 100,000.

        >>> Rope(theta=100.0).frequencies(4)
        array([1. , 0.1], dtype=float32)
        """
        turned = int(head_dim * self.share)
        plain = self.theta ** (-np.arange(0, turned, 2) / turned) / self.factor
        return np.asarray(plain if self.stretch is None else self.stretch(plain), np.float32)


class Rotation(NamedTuple):
    """Cosine and sine of the angle by which each pair of dimensions turns; computed once for all layers."""

    cos: Float[Array, "row half"]
    sin: Float[Array, "row half"]


def rotation(positions: Int[Array, "row"], frequencies: Float[np.ndarray, "half"], magnitude: float = 1.0) -> Rotation:
    """Return the rotation of each row: angle = position · ω; cosine and sine are multiplied by `magnitude`."""
    angles = positions[:, None].astype(jnp.float32) * frequencies[None, :]
    turned = Rotation(jnp.cos(angles), jnp.sin(angles))
    return turned if magnitude == 1 else Rotation(turned.cos * magnitude, turned.sin * magnitude)


def rotate(x: Float[Array, "row head head_dim"], by: Rotation) -> Float[Array, "row head head_dim"]:
    """Turn each pair (xᵢ, xᵢ₊ₕ), h = `half`, by its row's angle φᵢ; units from 2h on stay as they are.

        yᵢ   = xᵢ cos φᵢ - xᵢ₊ₕ sin φᵢ
        yᵢ₊ₕ = xᵢ₊ₕ cos φᵢ + xᵢ sin φᵢ

    Su et al. 2021, "RoFormer", equation 34, so that the product of a query at position m and a key at n depends on
    m - n alone. The arithmetic is float32; the result has the dtype of `x`.

    *Departures*: the paper pairs neighbours (x₂ᵢ, x₂ᵢ₊₁); pairing the two halves is the same up to a permutation of the
    weights, and that is how the published weights of Llama, Qwen and Gemma are stored.

    >>> quarter = rotation(jnp.array([1]), np.array([np.pi / 2], np.float32))
    >>> rotate(jnp.array([[[1.0, 0.0]]]), quarter).round(3) + 0.0
    Array([[[0., 1.]]], dtype=float32)
    """
    cos, sin = by.cos[:, None, :], by.sin[:, None, :]
    half = cos.shape[-1]
    first, second, rest = jnp.split(x.astype(jnp.float32), [half, 2 * half], axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin, rest]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)
