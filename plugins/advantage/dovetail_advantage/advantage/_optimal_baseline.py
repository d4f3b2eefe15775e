"""The minimum-variance baseline for each token of a group, computed without a backward pass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, masked

Row = Float[Array, "seq"]
Tokens = Float[Array, "seq token"]


def energy(old_logps: Tokens, old_sum_pi_squared: Tokens, mask: Bool[Array, "seq token"]) -> Tokens:
    """Squared norm of a token's gradient with respect to its logits: ‖e_y - π‖² = 1 - 2·π_y + ∑_v π_v².

    Zero outside the mask.

    >>> logps, squares = jnp.log(jnp.array([[0.5, 1.0]])), jnp.array([[0.5, 1.0]])
    >>> energy(logps, squares, jnp.ones((1, 2), bool)).round(3)
    Array([[0.5, 0. ]], dtype=float32)
    """
    return masked(1.0 - 2.0 * jnp.exp(masked(old_logps, mask)) + masked(old_sum_pi_squared, mask), mask)


def against_optimal_baseline(
    returns: Tokens,
    energies: Tokens,
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    handle_zero_tail: bool,
    epsilon: float,
) -> Tokens:
    """A_it = G_it - ∑_j W_jt·G_jt / (∑_j W_jt + ε), W_it = ∑_{k ≤ t} w_ik, sums over j with a policy token at t.

    Exactly zero in a group whose returns are the same at every t, and outside the mask.

    Args:
        returns: G, the return from each policy token on.
        energies: w, zero outside the mask.
        group_ids: equal labels form a group.
        mask: policy tokens.
        handle_zero_tail: use no baseline where all but one completion of the group have ended.
        epsilon: ε, in units of W.
    """
    segments = Groups.of(group_ids, mask).segments
    energies = jnp.cumsum(energies, axis=1)
    running = jnp.flip(jnp.cumsum(jnp.flip(mask, axis=1), axis=1), axis=1) > 0

    def at(here: Bool[Array, "seq"], gain: Row, weight: Row) -> tuple[Row, Bool[Array, "seq"]]:
        """Return the advantages at one position, and whether the returns of the row's group differ there."""
        groups = Groups(segments, here)
        above = groups.above_lowest(gain)
        total = groups.total(weight) + epsilon
        # This equals G - ∑WG/(∑W + ε) with G = lowest + above, but does not round equal returns apart.
        lowest = masked(gain, here) - above
        pull = (groups.total(weight * above) - epsilon * lowest) / jnp.where(total > 0, total, 1.0)
        return masked(above - pull, here), groups.total(above) > 0

    advantages, vary = jax.vmap(at, in_axes=1, out_axes=1)(mask, returns, energies)
    if handle_zero_tail:
        unended = jax.vmap(lambda column: Groups(segments, column).sizes, in_axes=1, out_axes=1)(running)
        advantages = jnp.where(unended == 1, returns, advantages)
    return masked(jnp.where(jnp.any(vary, axis=1, keepdims=True), advantages, 0.0), mask)


def in_policy_steps(mask: Bool[Array, "seq token"]) -> tuple[Int[Array, "seq token"], Int[Array, "seq token"]]:
    """Return the order that moves policy tokens to the front of their rows, and the one that moves them back.

    >>> there, back = in_policy_steps(jnp.array([[False, True, False, True]]))
    >>> print(there, back)
    [[1 3 0 2]] [[2 0 3 1]]
    """
    there = jnp.argsort(~mask, axis=1, stable=True)
    return there, jnp.argsort(there, axis=1)
