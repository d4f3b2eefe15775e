"""Loss term `echo`: the negative log-likelihood of what the environment answered."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def echo(logps: Float[Array, "seq token"], observed: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Learn to predict the observations: what a tool or an environment says after each turn of the policy.

        L_it = -log π(o_it | x_i, y_i,<t),  at the tokens o of observations

    Whether an episode succeeds or fails, it shows what came of each action, and the forward pass over it is made
    anyway. Shrivastava et al. 2026, *ECHO: terminal agents learn world models for free*, whose λ is
    `loss_term.echo.coef`. The aggregation weighs the tokens of observations by themselves, as if they were all that
    there is: under `token_mean` their number does not change the balance with the policy loss.

    Args:
        logps: log π, in nats, at the sampling temperature, differentiable.
        observed: the tokens of observations, and whatever a chat template writes around them; an episode that counts
            nowhere else, such as one that failed, does not count here either. The loss is zero elsewhere.

    Returns:
        The loss per token of an observation, in nats.

    Departures:
        The paper leaves out warnings of the harness, and prime-rl (λ = 0.1) what the chat template writes.

    >>> import jax.numpy as jnp
    >>> echo(jnp.array([[-2.0, -9.0, -1.0]]), jnp.array([[False, True, False]]))
    Array([[0., 9., 0.]], dtype=float32)
    """
    return masked(-logps, observed)
