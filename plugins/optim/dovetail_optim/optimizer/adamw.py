"""Optimizer `adamw`."""

from __future__ import annotations

from typing import Annotated

import optax
from annotated_types import Ge, Interval
from jaxtyping import Array, Float

from dovetail_optim.optimizer._parts import Decay, HalfPrecision, decayed


def adamw(
    learning_rate: Float[Array, ""],
    *,
    b1: Annotated[float, Interval(ge=0, lt=1)] = 0.9,
    b2: Annotated[float, Interval(ge=0, lt=1)] = 0.999,
    eps: Annotated[float, Ge(0)] = 1e-8,
    weight_decay: Annotated[float, Ge(0)] = 0.0,
    decay: Decay = "matrices",
    mu_dtype: HalfPrecision | None = None,
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay.

    m ← β₁m + (1-β₁)g,  v ← β₂v + (1-β₂)g²,  θ ← θ - lr·(m̂/(√v̂ + ε) + λθ), with bias-corrected m̂, v̂.
    Loshchilov and Hutter 2019, *Decoupled weight decay regularization*, algorithm 2; optax's implementation.

    Args:
        learning_rate: lr of this step.
        b1: β₁, decay of the gradient's mean.
        b2: β₂, decay of its second moment.
        eps: ε.
        weight_decay: λ; 0 by default, since RL runs are short.
        decay: the parameters that decay: 'matrices', including embedding tables and the factors of an adapter, or
            'all', including norms and biases. Decaying the scale of a norm rescales a layer without regularising it.
        mu_dtype: the dtype of m; None for that of the parameters. 'bfloat16' saves a quarter of the state in float32.

    >>> adamw(1e-3).init({"w": 1.0})[0].count.item()
    0
    """
    return optax.adamw(
        learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay, mask=decayed(decay), mu_dtype=mu_dtype
    )
