"""Optimizer `adafactor`."""

from __future__ import annotations

from typing import Annotated

import optax
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Float

from dovetail_optim.optimizer._parts import Decay, decayed


def adafactor(
    learning_rate: Float[Array, ""],
    *,
    decay_rate: Annotated[float, Gt(0)] = 0.8,
    eps: Annotated[float, Gt(0)] = 1e-30,
    clipping_threshold: Annotated[float, Gt(0)] | None = 1.0,
    momentum: Annotated[float, Interval(ge=0, lt=1)] | None = None,
    weight_decay: Annotated[float, Ge(0)] = 0.0,
    decay: Decay = "matrices",
    scale_by_parameter: bool = False,
    min_dim_size_to_factor: Annotated[int, Ge(1)] = 128,
) -> optax.GradientTransformation:
    """Adam's second moment, factored into a row and a column of each matrix, so that it needs almost no memory.

    v ≈ R·Cᵀ / mean(R), with R and C running means of g² + ε over columns and rows,
    β₂ = 1 - t^(-c),  u = g/√v,  θ ← θ - lr·(u / max(1, rms(u)/d) + λθ).
    Shazeer and Stern 2018, *Adafactor: adaptive learning rates with sublinear memory cost*, algorithm 4; optax's
    implementation.

    Args:
        learning_rate: lr of this step.
        decay_rate: c; at step t, 1 - β₂ = t^(-c), so that the running means decay more slowly over time.
        eps: ε, added to g².
        clipping_threshold: d, bound of the root mean square of a parameter's update in units of lr; None for no bound.
        momentum: decay of a running mean of the updates, which needs as much memory as the parameters; None for none.
        weight_decay: λ.
        decay: the parameters that decay, 'matrices' or 'all', as for `adamw`.
        scale_by_parameter: multiply the update by the root mean square of the parameter, but by at least 1e-3.
        min_dim_size_to_factor: v is not factored for matrices with a side smaller than this.

    Departures:
        The paper, and optax by default, scale updates by the parameter, and choose lr accordingly. Here lr is in the
        same units as for `adamw` unless `scale_by_parameter` is set.

    >>> import jax
    >>> state = adafactor(1e-3).init({"w": jax.numpy.ones((200, 300))})
    >>> sum(x.size for x in jax.tree.leaves(state)) < 600
    True
    """
    scale = optax.adafactor(
        1.0,
        decay_rate=decay_rate,
        eps=eps,
        clipping_threshold=clipping_threshold,
        momentum=momentum,
        multiply_by_parameter_scale=scale_by_parameter,
        min_dim_size_to_factor=min_dim_size_to_factor,
    )
    return optax.chain(
        scale,
        optax.scale(-1.0),
        optax.add_decayed_weights(weight_decay, mask=decayed(decay)),
        optax.scale_by_learning_rate(learning_rate),
    )
