"""Controller `fixed`, for the KL and entropy coefficients: the coefficient stays constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
import jax
import jax.numpy as jnp


@attrs.frozen(kw_only=True)
class Fixed:
    """A constant coefficient: the value of `train.kl_coef` or `train.entropy_coef`.

    >>> controller = Fixed()
    >>> state = controller.update(controller.init(0.25), jnp.array(9.0), jnp.array(64))
    >>> controller.coef(state).item()
    0.25
    """

    declares: ClassVar[Mapping[str, Any]] = {"constant": True}

    def init(self, coef: float) -> dict[str, jax.Array]:
        """Return the initial state."""
        return {"coef": jnp.asarray(coef, dtype=float)}

    def coef(self, state: dict[str, jax.Array]) -> jax.Array:
        """Return the coefficient."""
        return state["coef"]

    def update(self, state: dict[str, jax.Array], observed: jax.Array, samples: jax.Array) -> dict[str, jax.Array]:
        """Return the state unchanged."""
        return state
