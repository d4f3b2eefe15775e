"""Loss term `gkd`: distillation with the divergence over the whole vocabulary."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def gkd(jensen_shannon: Float[Array, "seq token"], mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Generalised knowledge distillation on the student's own samples.

        L_it = D_β( π_T(·|s_it) || π(·|s_it) ),  y_i ~ π

    with D_β the generalised Jensen-Shannon divergence of the field `jensen_shannon`, whose β is
    `field.jensen_shannon.beta`: 0 is the forward KL(π_T || π), 1 the reverse KL(π || π_T). Agarwal et al. 2024,
    *On-policy distillation of language models: learning from self-generated mistakes*, algorithm 1 with λ = 1. Their L
    is a mean over the tokens of each completion and over completions: this loss under `sequence_mean_token_mean`.

    Value and gradient are exact at every state, whereas `reverse_kl` estimates them from the one token that was
    sampled. As in the paper, the gradient does not flow through the sampling. It costs a forward pass of the teacher in
    every update, including its logits, a chunk of positions at a time, whereas `reverse_kl` needs one pass per
    collection.

    Args:
        jensen_shannon: the field of that name, in nats; differentiable.
        mask: policy tokens; the loss is zero elsewhere.

    Returns:
        The loss per token, in nats.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> np.asarray(gkd(jnp.array([[0.3, jnp.nan]]), jnp.array([[True, False]])), float).round(4).tolist()
    [[0.3, 0.0]]
    """
    return masked(jensen_shannon, mask)
