"""Loss term `nll`: the negative log-likelihood of demonstrations."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def nll(demo_logps: Float[Array, "seq token"], demo_mask: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Maximum likelihood on demonstrations while reinforcement learning goes on: the PTX term of InstructGPT.

        L_it = -log π(d_it | x_i, d_i,<t),   d_i a demonstration of the task

    Ouyang et al. 2022, *Training language models to follow instructions with human feedback*, equation 2, whose E_D[log
    π(d)] is -L under `sequence_mean_token_sum` and whose γ is `loss_term.nll.coef`. Under `token_mean` it is the loss
    of supervised fine-tuning. The aggregation weighs the tokens of the demonstrations by themselves, as if they were
    all that there is, so that the balance with the policy loss does not depend on how long either is.

    A step draws one demonstration for each of its groups, in an order of its own, from those that `sft` would train on.
    They cost one more forward and backward pass over as many rows as there are prompts.

    Args:
        demo_logps: log π of the demonstrations' tokens, in nats, at the sampling temperature; differentiable.
        demo_mask: the demonstrations' tokens, their EOS included; the loss is zero elsewhere.

    Returns:
        The loss per token of a demonstration, in nats.

    Departures:
        InstructGPT draws from the pretraining data; here it is the task that says what its demonstrations are.

    >>> import jax.numpy as jnp
    >>> nll(jnp.array([[-2.0, -9.0]]), jnp.array([[True, False]]))
    Array([[2., 0.]], dtype=float32)
    """
    return masked(-demo_logps, demo_mask)
