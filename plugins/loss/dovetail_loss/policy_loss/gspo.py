"""Policy loss `gspo`: the clipped surrogate of the sequence's geometric-mean ratio."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from jaxtyping import Array, Bool, Float

from dovetail.arrays import importance_ratio
from dovetail.registry import declares
from dovetail_loss.policy_loss._clipped import clipped_surrogate, ratio_metrics


@declares(on_policy_gradient=True, pessimistic=True, surrogate=True, averaged_by="sequence_mean_token_mean")
def gspo(
    logps: Float[Array, "seq token"],
    old_logps: Float[Array, "seq token"],
    advantages: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    epsilon_low: Annotated[float, Ge(0)] = 3e-4,
    epsilon_high: Annotated[float, Ge(0)] = 4e-4,
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq token"]]]:
    """Group sequence policy optimisation, in the token form: one ratio for the whole completion.

        s_i  = (π(y_i|x) / π_old(y_i|x))^(1/|y_i|) = exp( (1/|y_i|)·∑_t [log π - log π_old] )
        s_it = sg[s_i]·π_it / sg[π_it]
        L_it = max(-A_it·s_it, -A_it·clip(s_it, 1-ε_low, 1+ε_high))

    with sg the stop-gradient: every token has the value of the sequence's ratio and the gradient of its own
    log π. Zheng et al. 2025, *Group sequence policy optimization*, equations 5 and 7 (s_i), 13 and 14 (the
    token form, GSPO-token). With one advantage per completion its gradient is that of the sequence form, and
    the paper's objective is this loss under `sequence_mean_token_mean`.

    Deltas against `ppo`:

    1. the ratio is the sequence's geometric mean, not the token's, so that all tokens of a completion are
       clipped together;
    2. the clip range is three orders of magnitude smaller, because a mean over |y| tokens varies less.

    Args:
        logps: log π, in nats, differentiable.
        old_logps: log π_old, in nats.
        advantages: A; may differ from token to token.
        mask: policy tokens; |y_i| is their number, and the loss is zero elsewhere.
        epsilon_low: ε_low, in units of the ratio; 3e-4 in the paper's experiments.
        epsilon_high: ε_high; 4e-4 in the paper's experiments.

    Returns:
        The loss per token, and per-token metrics as in `ppo`; `ratio` is the sequence's.

    Departures:
        log s is bounded from above by 10 (gradient zero beyond), as in verl. verl's default range is 0.2.

    >>> import jax.numpy as jnp
    >>> old = jnp.zeros((1, 2))
    >>> loss, metrics = gspo(jnp.array([[0.3, -0.1]]), old, jnp.ones((1, 2)), old == 0, epsilon_high=0.2)
    >>> bool(jnp.allclose(metrics["ratio"], jnp.exp(0.1))), bool(jnp.allclose(loss, -jnp.exp(0.1)))
    (True, True)
    """
    log_ratio, ratio = importance_ratio(logps, old_logps, mask, "sequence")
    loss, metrics = clipped_surrogate(ratio, advantages, mask, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    return loss, metrics | ratio_metrics(log_ratio, ratio, mask)
