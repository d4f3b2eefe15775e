"""Loss term `echo`: the negative log-likelihood of the environment's observations."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float

from dovetail.arrays import masked


def echo(logps: Float[Array, "seq token"], observed: Bool[Array, "seq token"]) -> Float[Array, "seq token"]:
    """Negative log-likelihood of the observations: the output of tools and environments after each turn.

        L_it = -log π(o_it | x_i, y_i,<t),  at the tokens o of observations

    Even a failed episode shows the consequences of each action, and the forward pass over it is needed anyway.
    Shrivastava et al. 2026, *ECHO: terminal agents learn world models for free*, whose λ is `loss_term.echo.coef`. The
    aggregation weights the tokens of observations separately from all others: under `token_mean` their number does not
    change the balance with the policy loss.

    Args:
        logps: log π, in nats, at the sampling temperature, differentiable.
        observed: the tokens of observations, including the text that a chat template adds around them. Episodes that
            are excluded elsewhere, such as those that failed with an error, are excluded here too. The loss is zero
            elsewhere.

    Returns:
        The loss per token of an observation, in nats.

    Departures:
        The paper excludes warnings of the harness, and prime-rl (λ = 0.1) the text that the chat template adds.

    >>> import jax.numpy as jnp
    >>> echo(jnp.array([[-2.0, -9.0, -1.0]]), jnp.array([[False, True, False]])).tolist()
    [[0.0, 9.0, 0.0]]
    """
    return masked(-logps, observed)
