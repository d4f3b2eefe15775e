"""Optimizer `lion`."""

from __future__ import annotations

from typing import Annotated

import optax
from annotated_types import Ge, Interval
from jaxtyping import Array, Float

from dovetail_optim.optimizer._parts import Decay, HalfPrecision, decayed


def lion(
    learning_rate: Float[Array, ""],
    *,
    b1: Annotated[float, Interval(ge=0, lt=1)] = 0.9,
    b2: Annotated[float, Interval(ge=0, lt=1)] = 0.99,
    weight_decay: Annotated[float, Ge(0)] = 0.0,
    decay: Decay = "matrices",
    mu_dtype: HalfPrecision | None = None,
) -> optax.GradientTransformation:
    """Steps of constant size in the direction of the momentum's sign, with half the state of Adam.

    θ ← θ - lr·(sign(β₁m + (1-β₁)g) + λθ),  then m ← β₂m + (1-β₂)g.
    Chen et al. 2023, *Symbolic discovery of optimization algorithms*, algorithm 2; optax's implementation.

    Every parameter moves by lr at every step, so that lr should be a third to a tenth of Adam's, and λ larger by the
    same factor.

    Args:
        learning_rate: lr of this step.
        b1: β₁, weight of the momentum in the direction of the step.
        b2: β₂, decay of the momentum.
        weight_decay: λ.
        decay: the parameters that decay, 'matrices' or 'all', as for `adamw`.
        mu_dtype: the dtype of m; None for that of the parameters. 'bfloat16' halves the state in float32.

    >>> import jax.numpy as jnp
    >>> updates, _ = lion(0.1).update({"w": jnp.array(3.0)}, lion(0.1).init({"w": jnp.array(1.0)}), {"w": 1.0})
    >>> round(updates["w"].item(), 3)
    -0.1
    """
    return optax.lion(learning_rate, b1=b1, b2=b2, weight_decay=weight_decay, mask=decayed(decay), mu_dtype=mu_dtype)
