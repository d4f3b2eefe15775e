"""Compare arrays, at the positions that are read, and whole results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import numpy as np

from dovetail_kit.conformance.check import Failed

STEP: Final = np.float32(1e-2)


@attrs.frozen
class Result:
    """The result of a call: values, metrics, and gradients of ∑ w·value by the fields to differentiate by."""

    values: tuple[np.ndarray, ...]
    metrics: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]

    @property
    def value(self) -> np.ndarray:
        """The first value."""
        return self.values[0]


def read_where(value: np.ndarray, mask: np.ndarray) -> Any:
    """Return the positions at which a value is read: in the mask, in rows with a policy token, or everywhere."""
    if value.ndim > 1 and value.shape[:2] == mask.shape:
        return mask
    rows = mask.any(axis=1)
    return rows if value.shape[:1] == rows.shape else True


def same(actual: Any, expected: Any, what: str, *, within: float = 1e-5, where: Any = True) -> None:
    """Compare two arrays; `where` is a mask of the leading axes, and `within` the relative and absolute tolerance.

    Raises:
        Failed: with the largest difference and its place.
    """
    actual, expected = (np.asarray(x) for x in (actual, expected))
    if actual.shape != expected.shape:
        raise Failed(f"{what}: shape {list(actual.shape)} instead of {list(expected.shape)}")
    seen = np.asarray(where)
    seen = np.broadcast_to(seen.reshape(seen.shape + (1,) * (actual.ndim - seen.ndim)), actual.shape)
    ours, theirs = (np.where(seen, x.astype(np.float64), 0.0) for x in (actual, expected))
    close = np.isclose(ours, theirs, rtol=within, atol=within, equal_nan=True)
    if not close.all():
        gap = np.where(close, 0.0, np.nan_to_num(np.abs(ours - theirs), nan=np.inf, posinf=np.inf))
        at = np.unravel_index(np.argmax(gap), gap.shape) if gap.ndim else ()
        place = f"[{', '.join(map(str, at))}]" if at else ""
        raise Failed(
            f"{what}{place} is {ours[at]:.6g} instead of {theirs[at]:.6g} ({np.sum(~close)} of {close.size} differ)"
        )


def same_results(actual: Result, expected: Result, what: str, *, mask: np.ndarray, within: float = 1e-5) -> None:
    """Compare values, metrics and gradients at the positions that are read.

    Raises:
        Failed: with the largest difference and its place.
    """
    if len(actual.values) != len(expected.values):
        raise Failed(f"{what}: {len(actual.values)} values instead of {len(expected.values)}")
    pairs = [
        *((f"value {i}" if i else "the value", actual.values[i], value) for i, value in enumerate(expected.values)),
        *((f"the metric '{name}'", actual.metrics[name], expected.metrics[name]) for name in expected.metrics),
        *((f"the gradient by {name}", actual.gradients[name], expected.gradients[name]) for name in expected.gradients),
    ]
    for name, ours, theirs in pairs:
        same(ours, theirs, f"{what}: {name}", within=within, where=read_where(ours, mask))


def finite(array: Any, what: str, *, where: Any = True) -> None:
    """Check that an array has no NaN or infinity; `where` is a mask of the leading axes.

    Raises:
        Failed: with the first of them and its place.
    """
    array = np.asarray(array)
    if array.dtype.kind in "fc" or array.dtype.name == "bfloat16":
        where = np.asarray(where)
        bad = ~np.isfinite(array.astype(np.float32)) & where.reshape(where.shape + (1,) * (array.ndim - where.ndim))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
            raise Failed(f"{what}{list(at) or ''} is {array[at]} ({bad.sum()} of {bad.size} are not finite)")


def same_slopes(total: Callable[[Any], float], slopes: Mapping[Any, Any], inputs: Mapping[Any, Any]) -> None:
    """Compare gradients of a sum with its central differences in four random directions, of which one must agree.

    One direction may step over a kink.

    Args:
        total: the sum, of inputs that were moved.
        slopes: its gradients, by the names of the inputs.
        inputs: arrays to move.

    Raises:
        Failed: with the slopes in all of the directions.
    """
    rng, told = np.random.default_rng(0), []
    for _ in range(4):
        moved = {name: STEP * rng.normal(size=x.shape).astype(np.float32) for name, x in inputs.items()}
        expected = sum(float(np.sum(np.asarray(slopes[name], np.float64) * step)) for name, step in moved.items())
        ends = [total({name: x + sign * moved[name] for name, x in inputs.items()}) for sign in (1, -1)]
        found = (ends[0] - ends[1]) / 2
        if np.isclose(found, expected, rtol=5e-2, atol=STEP * STEP):
            return
        told.append(f"{expected / STEP:.5g} instead of {found / STEP:.5g}")
    raise Failed(f"the slope in four directions is {', '.join(told)}")
