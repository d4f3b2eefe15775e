"""Correction `tis_reject`: truncated importance sampling on the tokens that remain after rejection."""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
from annotated_types import Gt
from jaxtyping import Array, Bool, Float

from dovetail.arrays import log_ratio
from dovetail_loss.correction._bounds import Divergence, Over, within, without_catastrophe
from dovetail_loss.correction._corrected import Corrected, corrected
from dovetail_loss.correction._ratio import Level, normalized, ratio


def tis_reject(
    old_logps: Float[Array, "seq token"],
    rollout_logps: Float[Array, "seq token"],
    mask: Bool[Array, "seq token"],
    *,
    level: Level = "token",
    upper: Annotated[float, Gt(0)] = 2.0,
    normalize: bool = False,
    divergence: Divergence = "k3",
    over: Over = "mean",
    low: float | None = None,
    high: float = 0.01,
    veto: Annotated[float, Gt(0)] | None = None,
    count_rejected: bool = False,
) -> Corrected:
    """Rejection of tokens or completions that are far off-policy, and importance weights for the rest.

        kept = kept by `reject` and by `token_veto`
        w_it = min(r_it, C) where kept,   r_it = π/μ of the token or the completion

    Weights correct a small mismatch but add noise where it is large; rejection removes a large mismatch but does not
    correct a small one. This correction combines the weights of `tis_token`, `tis_sequence` or `tis_geometric` with one
    criterion of `reject` and with the veto. A run may also name these separately (`train.correction = ['tis_token',
    'reject']`), but here weights are normalised over the tokens that remain after rejection. Criterion and veto both
    apply to the completions as sampled, and a completion's ratio includes its rejected tokens, so that the order of the
    parts does not matter.

    Liu, Li et al. 2025, *When speed kills stability: demystifying RL collapse from the training-inference mismatch*.

    Args:
        old_logps: log π, in nats, by the trainer's forward pass at collection.
        rollout_logps: log μ, in nats, as the sampler reports it.
        mask: policy tokens.
        level: `token`, `sequence` (the product over the completion) or `geometric` (its geometric mean).
        upper: C, in units of the ratio.
        normalize: divide the weights by their mean over the tokens or completions of the batch that count.
        divergence: D, the estimator of KL(μ‖π) from one token.
        over: what the bounds apply to: each token separately, or completions by the `sum` or `mean` of D over their
            tokens, or by their extreme token (`max`: one token out of bounds rejects the completion).
        low: in nats; None for -high. It matters only for k1; k2 and k3 are never negative.
        high: in nats.
        veto: τ, in units of the ratio: a completion with a token below it is rejected; None for no veto.
        count_rejected: whether rejected tokens stay in the mask, with weight zero. They then count in the baseline
            of their group, in the lengths over which the loss is averaged, and in terms that the weights do not
            multiply, such as KL and entropy; otherwise they count nowhere.

    Returns:
        The weights, and the mask without the rejected tokens.

    Departures:
        verl's `rollout_is` with `rollout_rs`, as described in `reject`. Its mean for `normalize` is computed before the
        rejection, and so includes completions that are then dropped; here it is over those that count.

    >>> old, sampled = jnp.array([[-1.0, -1.0], [-1.0, -2.0]]), jnp.array([[-1.1, -1.0], [-1.0, -1.0]])
    >>> weights, kept = tis_reject(old, sampled, jnp.ones((2, 2), bool))
    >>> jnp.allclose(weights, jnp.exp(jnp.array([[0.1, 0.0], [-jnp.inf, -jnp.inf]]))).item(), kept[:, 0].tolist()
    (True, [True, False])
    """
    x = log_ratio(old_logps, rollout_logps, mask)
    kept = within(x, mask, divergence=divergence, over=over, low=low, high=high)
    if veto is not None:
        kept = kept & without_catastrophe(x, mask, veto)
    weights = jnp.where(kept, jnp.minimum(ratio(x, mask, level), upper), 0.0)
    if normalize:
        weights = normalized(weights, mask if count_rejected else kept, level)
    return corrected(mask, weights, kept, count_rejected=count_rejected)
