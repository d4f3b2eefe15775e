"""Entropy controller `adaptive`: the bonus is switched on when the entropy falls below a target."""

from __future__ import annotations

from typing import Annotated

import attrs
import jax
import jax.numpy as jnp
from annotated_types import Gt

from dovetail.ranges import in_range


@attrs.frozen(kw_only=True)
class Adaptive:
    """Keeps the policy's entropy near a target by raising and lowering the coefficient of the bonus.

        c_{k+1} = c_k + δ where H_k < H*, else max(c_k - δ, 0)
        α_{k+1} = c_{k+1} where H_k ≤ H*, else 0

    with H_k the mean entropy that step k observed and α the coefficient: above the target there is no bonus at all.
    He et al. 2025, *Skywork Open Reasoner 1 technical report* (arXiv:2505.22312), section on adaptive entropy control,
    with its H* and δ. c starts at `train.entropy_coef`, 0 in the report.

    Args:
        target: H*, in nats per token.
        step_size: δ, in units of the coefficient.

    Raises:
        ConfigError: if either is not positive.

    Departures:
        In the report H_k is the entropy of the step's own samples before the update; here it is the entropy observed
        during the updates of the previous step. The report lets c fall below zero while the entropy is high, which
        would decrease the entropy further once it has fallen below the target.

    >>> controller = Adaptive(target=0.2, step_size=0.5)
    >>> state = controller.update(controller.init(0.0), jnp.array(0.1), jnp.array(64))
    >>> controller.coef(state).item(), controller.coef(controller.update(state, jnp.array(0.3), jnp.array(64))).item()
    (0.5, 0.0)
    """

    target: Annotated[float, Gt(0)] = attrs.field(default=0.2, validator=in_range)
    step_size: Annotated[float, Gt(0)] = attrs.field(default=0.005, validator=in_range)

    def init(self, coef: float) -> dict[str, jax.Array]:
        """Return the initial state."""
        return {"reserve": jnp.asarray(coef, dtype=float), "active": jnp.asarray(1.0, dtype=float)}

    def coef(self, state: dict[str, jax.Array]) -> jax.Array:
        """Return α."""
        return state["active"] * state["reserve"]

    def update(self, state: dict[str, jax.Array], entropy: jax.Array, samples: jax.Array) -> dict[str, jax.Array]:
        """Return the next state, given the mean entropy per token observed over `samples` completions."""
        entropy, seen = jnp.asarray(entropy, dtype=float), jnp.asarray(samples) > 0
        change = jnp.where(entropy < self.target, self.step_size, -self.step_size)
        following = {
            "reserve": jnp.maximum(state["reserve"] + change, 0.0),
            "active": (entropy <= self.target).astype(float),
        }
        return {name: jnp.where(seen, following[name], value) for name, value in state.items()}
