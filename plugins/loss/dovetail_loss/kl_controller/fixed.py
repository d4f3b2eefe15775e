"""KL controller `fixed`: the coefficient stays."""

from __future__ import annotations

import attrs
import jax
import jax.numpy as jnp


@attrs.frozen(kw_only=True)
class Fixed:
    """A constant coefficient: β stays what `train.kl_coef` says.

    >>> controller = Fixed()
    >>> state = controller.update(controller.init(0.25), kl=jnp.array(9.0), samples=jnp.array(64))
    >>> controller.coef(state).item()
    0.25
    """

    def init(self, coef: float) -> dict[str, jax.Array]:
        """Return the first state."""
        return {"coef": jnp.asarray(coef, dtype=float)}

    def coef(self, state: dict[str, jax.Array]) -> jax.Array:
        """Return β."""
        return state["coef"]

    def update(self, state: dict[str, jax.Array], kl: jax.Array, samples: jax.Array) -> dict[str, jax.Array]:
        """Return the state as it is."""
        return state
