"""Group-relative values, optionally in units of the group's standard deviation."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dovetail.arrays import Groups, in_units_of


def relative(
    groups: Groups, x: Float[Array, "item"], scale: Literal["none", "group"], epsilon: float
) -> Float[Array, "item"]:
    """Return x - mean_G(x), divided by std_G(x) + ε where `scale` is "group".

    >>> groups = Groups.of(jnp.array([3, 3]), jnp.ones((2, 1), bool))
    >>> relative(groups, jnp.array([1.0, 0.0]), "none", 0.0)
    Array([ 0.5, -0.5], dtype=float32)
    """
    deviations = groups.deviations(x)
    return deviations if scale == "none" else in_units_of(deviations, groups.std(x), epsilon)


def all_turns(groups: Groups, live: Bool[Array, "seq turn"]) -> Groups:
    """Return groups over the flattened [seq·turn] axis: all turns of all episodes of a prompt form one group.

    >>> groups = Groups.of(jnp.array([3, 3]), jnp.ones((2, 2), bool))
    >>> all_turns(groups, jnp.array([[True, True], [True, False]])).sizes
    Array([3., 3., 3., 3.], dtype=float32)
    """
    return Groups(jnp.repeat(groups.segments, live.shape[1]), live.ravel())
