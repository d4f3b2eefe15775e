"""Numbers as people read them: shares in percent, their differences in points, no more digits than tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

SHARES = ("accuracy", "truncated", "fraction", "fraction_high", "fraction_low", "kept", "unscored", "abstained")
"""Last words of metrics that are shares."""
LONG = 1e12
"""Numbers from it on are written with a power of ten."""
MOST_DIGITS = 12
"""How many digits more than usual the ticks of an axis may have."""


@attrs.frozen
class Unit:
    """How a metric is written: as a share in percent, as bytes, or as it is."""

    percent: bool = False
    bytes: bool = False
    points: bool = False
    """Whether an axis shows differences of shares."""

    @classmethod
    def of(cls, metric: str) -> Unit:
        """Return the unit of a metric, by its name.

        >>> Unit.of("eval/pass@4").value(0.5), Unit.of("entropy/mean").value(0.5), Unit.of("memory/peak").value(2e9)
        ('50.0 %', '0.5', '1.86 GiB')
        """
        section, _, last = metric.rpartition("/")
        share = last.endswith(SHARES) or last.startswith(("pass@", "maj@", "rejected_"))
        return cls(percent=share, bytes=section == "memory")

    def value(self, value: float) -> str:
        """Write a value."""
        if math.isnan(value):
            return "–"
        if math.isinf(value):
            return number(value)
        if self.percent:
            return f"{100 * value:.1f} %".replace("-", "−")
        return size(value) if self.bytes else number(value)

    def difference(self, value: float) -> str:
        """Write a difference, with its sign.

        >>> Unit(percent=True).difference(-0.0123), Unit().difference(2.0)
        ('−1.2 points', '+2')
        """
        if math.isnan(value):
            return "–"
        if self.percent:
            return f"{100 * value:+.1f} points".replace("-", "−")
        return f"{'+' if value >= 0 else '−'}{self.value(abs(value))}"

    def length(self, value: float) -> str:
        """Write a difference that has no direction.

        >>> Unit(percent=True).length(0.02)
        '2.0 points'
        """
        return self.difference(abs(value)).removeprefix("+")

    def interval(self, low: float, high: float) -> str:
        """Write the ends of an interval of differences.

        >>> Unit(percent=True).interval(-0.01, 0.02), Unit().interval(-math.inf, math.inf)
        ('−1.0 to +2.0', 'unknown')
        """
        if not math.isfinite(low + high):
            return "unknown"
        return f"{self.difference(low).removesuffix(' points')} to {self.difference(high).removesuffix(' points')}"

    @property
    def of_differences(self) -> Unit:
        """The unit of an axis of differences."""
        return attrs.evolve(self, points=self.percent)

    def axis(self, ticks: Sequence[float]) -> list[str]:
        """Write the ticks of an axis, with as many digits as tell them apart.

        >>> Unit(percent=True).axis([0.4]), Unit(percent=True).of_differences.axis([0.0, 0.05])
        (['40 %'], ['0', '+5'])
        >>> Unit().axis([12034.0, 12034.5]), Unit(bytes=True).axis([15.21 * 2**30, 15.24 * 2**30])
        (['12,034.0', '12,034.5'], ['15.21 GiB', '15.24 GiB'])
        """
        more, written = 0, [self._tick(tick, 0) for tick in ticks]
        while len(set(written)) < len(set(ticks)) and more < MOST_DIGITS:
            more += 1
            written = [self._tick(tick, more) for tick in ticks]
        return written

    def _tick(self, value: float, more: int) -> str:
        """Write a tick with so many digits more than usual."""
        if self.points:
            return f"{100 * value:+.{4 + more}g}".replace("-", "−") if value else "0"
        if self.percent:
            return f"{100 * value:.{4 + more}g} %".replace("-", "−")
        return size(value, 3 + more) if self.bytes else number(value, 4 + more)


def share(value: float) -> str:
    """Write a share without decimals.

    >>> share(0.915)
    '92 %'
    """
    return f"{100 * value:.0f} %"


def size(count: float, digits: int = 3) -> str:
    """Write a number of bytes.

    >>> size(512.0), size(40e6)
    ('512 B', '38.1 MiB')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(int(math.log(max(abs(count), 1), 1024)), len(units) - 1)
    return f"{count / 1024**power:.{digits}g} {units[power]}"


def number(value: float, digits: int = 4) -> str:
    """Write a number with four digits or so; thousands are set apart.

    >>> number(0.123456), number(1234567.0), number(12.0), number(3e-7), number(float("inf")), number(1.5e25)
    ('0.1235', '1,234,567', '12', '3e−07', '∞', '1.5e+25')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    grouped = 1000 <= abs(value) < LONG
    return (f"{value:,.{max(digits - 4, 0)}f}" if grouped else f"{value:.{digits}g}").replace("-", "−")


def p_value(p: float) -> str:
    """Write a p-value.

    >>> p_value(0.03125), p_value(0.00001), p_value(1.0)
    ('0.031', '< 0.001', '1')
    """
    if math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}".rstrip("0").rstrip(".")


def ratio(value: float) -> str:
    """Write a factor.

    >>> ratio(1.3149), ratio(16.2), ratio(float("nan"))
    ('×1.31', '×16.2', '–')
    """
    return f"×{factor(value)}" if math.isfinite(value) else "–"


def factor(value: float) -> str:
    """Write a factor without its sign."""
    return (f"{value:.2f}" if abs(value) < 10 else f"{value:.3g}").replace("-", "−")
