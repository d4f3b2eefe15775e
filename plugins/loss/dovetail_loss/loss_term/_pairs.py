"""Pairs of completions of one prompt, of which the one with the higher score is preferred."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, masked

Which: TypeAlias = Literal["all", "extremes"]
"""Which pairs of a group count: all, or only those of a best and a worst completion, ties included."""


@attrs.frozen
class Pairs:
    """The pairs of a batch.

    A term of the loss gives each of its tokens a value, and the aggregation weights them. To be a mean over pairs under
    `sequence_mean_token_mean`, what a pair adds is multiplied by n_g/P_g: a group g has n_g completions and P_g pairs.

    Attributes:
        preferred: true where the completion of the row is preferred to that of the column.
        counts: P_g of each completion's group.
        scale: n_g/P_g of each completion's group.
    """

    preferred: Bool[Array, "seq seq"]
    counts: Float[Array, "seq"]
    scale: Float[Array, "seq"]

    @classmethod
    def of(
        cls,
        scores: Float[Array, "seq"],
        group_ids: Int[Array, "seq"],
        mask: Bool[Array, "seq token"],
        *,
        margin: float,
        which: Which,
    ) -> Pairs:
        """Return the pairs of completions whose scores differ by at least the margin, and differ at all."""
        groups = Groups.of(group_ids, mask)
        scores = masked(scores, groups.live)
        preferred = _preferred(groups, scores, margin, which)
        counts = groups.total(jnp.sum(preferred, axis=1, dtype=scores.dtype))
        return cls(preferred, counts, groups.sizes.astype(scores.dtype) / jnp.maximum(counts, 1.0))

    @property
    def paired(self) -> Float[Array, "seq"]:
        """1 for completions whose prompt has a pair."""
        return (self.counts > 0).astype(self.scale.dtype)

    def halves(self, values: Float[Array, "seq seq"]) -> Float[Array, "seq"]:
        """Return what each completion adds to the mean over pairs, half of each of its pairs' values."""
        kept = jnp.where(self.preferred, values, 0.0)
        return 0.5 * self.scale * (jnp.sum(kept, axis=1) + jnp.sum(kept, axis=0))

    def accuracy(self, h: Float[Array, "seq seq"]) -> Float[Array, "seq"]:
        """Return the share of a prompt's pairs with h > 0; h = 0 counts one half, as does a prompt without pairs."""
        return jnp.where(self.counts > 0, self.halves((1.0 + jnp.sign(h)) / 2.0), 0.5)

    @property
    def winning(self) -> Float[Array, "seq"]:
        """How often each completion is the preferred one of a pair, times n_g/P_g."""
        return self.scale * jnp.sum(self.preferred, axis=1, dtype=self.scale.dtype)


def gaps(values: Float[Array, "seq"]) -> Float[Array, "seq seq"]:
    """Return x_w - x_l, the completion of the row against that of the column."""
    return values[:, None] - values[None, :]


def _preferred(groups: Groups, scores: Float[Array, "seq"], margin: float, which: Which) -> Bool[Array, "seq seq"]:
    comparable = (groups.segments[:, None] == groups.segments[None, :]) & groups.live[:, None] & groups.live[None, :]
    apart = gaps(scores)
    preferred = comparable & (apart > 0) & (apart >= margin)
    if which == "all":
        return preferred
    apart = jnp.where(comparable, apart, 0.0)
    is_best, is_worst = jnp.min(apart, axis=1) == 0, jnp.max(apart, axis=1) == 0
    return preferred & is_best[:, None] & is_worst[None, :]
