"""How full the rows of an update are expected to be."""

from __future__ import annotations

import jax
import numpy as np

from dovetail.step.algorithm import Sizes
from dovetail.step.buckets import widths_of
from dovetail.step.packing import first_fit


def expected_fill(sizes: Sizes, tokens: int) -> float:
    """Return the share of positions that completions take, as `lengths/fill`, if lengths are uniform in 1 … `tokens`.

    >>> import attrs
    >>> whole = Sizes(epochs=1, group_size=8, mini_batch_size=64, micro_batch_size=16)
    >>> round(expected_fill(whole, 64), 1), round(expected_fill(attrs.evolve(whole, length_buckets=8), 64), 1)
    (0.5, 0.9)
    >>> round(expected_fill(attrs.evolve(whole, segments=8), 64), 2)
    0.82
    """
    lengths = jax.random.randint(jax.random.key(0), (64 * sizes.rows_per_prompt,), 1, tokens + 1)
    offered = np.array(widths_of(sizes, tokens))
    used = np.asarray(lengths)
    if sizes.segments > 1:
        used = np.asarray(first_fit(lengths, sizes.rows_per_prompt, int(offered[-1]), sizes.segments).used)
    used = used[used > 0]
    return float(used.sum() / offered[np.searchsorted(offered, used)].sum())
