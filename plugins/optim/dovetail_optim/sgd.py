"""Stochastic gradient descent."""

from __future__ import annotations

import optax
from jaxtyping import Array, Float


def sgd(learning_rate: Float[Array, ""], *, momentum: float | None = None) -> optax.GradientTransformation:
    """Gradient descent, with heavy-ball momentum where it is set.

    t ← μt + g,  θ ← θ - lr·t; optax's implementation.

    Args:
        learning_rate: lr of this step.
        momentum: μ; None keeps no state.

    >>> updates, _ = sgd(0.1).update({"w": 2.0}, sgd(0.1).init({"w": 1.0}))
    >>> updates["w"]
    -0.2
    """
    return optax.sgd(learning_rate, momentum=momentum)
