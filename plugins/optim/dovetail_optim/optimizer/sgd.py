"""Optimizer `sgd`."""

from __future__ import annotations

from typing import Annotated

import optax
from annotated_types import Interval
from jaxtyping import Array, Float


def sgd(
    learning_rate: Float[Array, ""], *, momentum: Annotated[float, Interval(ge=0, lt=1)] | None = None
) -> optax.GradientTransformation:
    """Gradient descent, with optional heavy-ball momentum.

    t ← μt + g,  θ ← θ - lr·t; optax's implementation.

    Args:
        learning_rate: lr of this step.
        momentum: μ; None keeps no state.

    >>> updates, _ = sgd(0.1).update({"w": 2.0}, sgd(0.1).init({"w": 1.0}))
    >>> updates["w"]
    -0.2
    """
    return optax.sgd(learning_rate, momentum=momentum)
