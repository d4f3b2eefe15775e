"""KL controller `adaptive`: adjusts the coefficient so that the KL divergence approaches a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import attrs
import jax
import jax.numpy as jnp
from annotated_types import Gt

from dovetail.ranges import in_range

ERROR_BOUND = 0.2


@attrs.frozen(kw_only=True)
class Adaptive:
    """A proportional controller that steers the divergence towards a target.

        e = clip(KL / target - 1, -0.2, 0.2)
        β ← β·(1 + e·n / horizon)

    with KL the mean observed over n completions. Ziegler et al. 2019, *Fine-tuning language models from human
    preferences*, section 2.2 (there K_β = n / horizon is 0.1, and KL is per completion).

    Args:
        target: in nats per token, as the engine observes KL per token.
        horizon: the number of completions over which β may change by about ±20 %.

    Raises:
        ConfigError: if either is not positive.

    Departures:
        An update with n = 0 leaves β unchanged, whatever the KL. So does every update with β = 0: begin with another.

    >>> controller = Adaptive(target=0.1, horizon=1000.0)
    >>> state = controller.update(controller.init(0.2), kl=jnp.array(5.0), samples=jnp.array(100))
    >>> round(controller.coef(state).item(), 6)
    0.204
    """

    declares: ClassVar[Mapping[str, Any]] = {"keeps_zero": True}

    target: Annotated[float, Gt(0)] = attrs.field(default=0.1, validator=in_range)
    horizon: Annotated[float, Gt(0)] = attrs.field(default=10_000.0, validator=in_range)

    def init(self, coef: float) -> dict[str, jax.Array]:
        """Return the initial state."""
        return {"coef": jnp.asarray(coef, dtype=float)}

    def coef(self, state: dict[str, jax.Array]) -> jax.Array:
        """Return β."""
        return state["coef"]

    def update(self, state: dict[str, jax.Array], kl: jax.Array, samples: jax.Array) -> dict[str, jax.Array]:
        """Return the next state, given the mean KL per token observed over `samples` completions."""
        error = jnp.clip(jnp.asarray(kl, dtype=float) / self.target - 1.0, -ERROR_BOUND, ERROR_BOUND)
        factor = 1.0 + error * jnp.asarray(samples, dtype=float) / self.horizon
        return {"coef": state["coef"] * jnp.where(samples > 0, factor, 1.0)}
