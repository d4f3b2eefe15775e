"""Loss term `nll`: the negative log-likelihood of demonstrations."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def nll(demo_logps: Float[Array, "seq token"], demo_mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Maximum likelihood on demonstrations during reinforcement learning: the PTX term of InstructGPT.

        L_it = -log π(d_it | x_i, d_i,<t),   d_i a demonstration of the task

    Ouyang et al. 2022, *Training language models to follow instructions with human feedback*, equation 2, whose E_D[log
    π(d)] is -L under `sequence_mean_token_sum` and whose γ is `loss_term.nll.coef`. Under `token_mean` it is the loss
    of supervised fine-tuning. The aggregation weights the tokens of the demonstrations separately from all others, so
    that the balance with the policy loss does not depend on the lengths of either.

    A step draws one demonstration for each of its groups, in a shuffled order, from those that `sft` would train on.
    They cost an additional forward and backward pass over as many rows as there are prompts.

    Args:
        demo_logps: log π of the demonstrations' tokens, in nats, at the sampling temperature; differentiable.
        demo_mask: the demonstrations' tokens, their EOS included; the loss is zero elsewhere.

    Returns:
        The loss per token of a demonstration, in nats.

    Departures:
        InstructGPT draws from the pretraining data; here the task provides the demonstrations.

    >>> import jax.numpy as jnp
    >>> nll(jnp.array([[-2.0, -9.0]]), jnp.array([[True, False]])).tolist()
    [[2.0, 0.0]]
    """
    return masked(-demo_logps, demo_mask)
