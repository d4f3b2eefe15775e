"""Loss term `preferred_nll`: the likelihood of preferred completions."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import masked
from dovetail.registry import declares
from dovetail_loss.loss_term._pairs import Pairs, Which


@declares(whole_groups=True)
def preferred_nll(
    logps: Float[Array, "seq token"],
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    margin: Annotated[float, Ge(0)] = 0.0,
    pairs: Which = "all",
) -> Float[Array, "seq token"]:
    """The negative log-likelihood of the better-scored completion of each pair.

        L_it = n_g/P_g·∑_((i,l)) -log π(y_it)

    Beside `dpo` it keeps the preferred completions likely: `dpo` alone compares the two of a pair, and is content if
    both become less likely, as long as the other does so faster (likelihood displacement). The sum is the objective of
    Pang et al. 2024, *Iterative reasoning preference optimization*, equation 1, whose α is
    `loss_term.preferred_nll.coef` (the loss type `sft` beside `sigmoid` in TRL, formerly `rpo_alpha`). Which
    completions are pairs, and what the sums of L_it are, is as in `dpo`: under `sequence_mean_token_mean` the mean over
    prompts of the mean over their pairs of the likelihood per token. Mini- and micro-batches must not cut groups.

    Args:
        logps: log π, in nats, differentiable.
        scores: one total reward per completion.
        group_ids: g, the prompt that a completion answers.
        mask: policy tokens; completions without any are in no pair, and the loss is zero elsewhere.
        margin: the smallest difference of scores that forms a pair, in units of the score.
        pairs: "all" pairs of a group, or only pairs of a best and a worst completion ("extremes"), including ties.

    Returns:
        The loss per token, in nats; zero in completions that are never preferred.

    >>> import jax.numpy as jnp
    >>> logps, mask = jnp.array([[-2.0, -9.0], [-1.0, -1.0]]), jnp.array([[True, False], [True, True]])
    >>> preferred_nll(logps, jnp.array([1.0, 0.0]), jnp.array([7, 7]), mask).tolist()  # twice, for one of two rows
    [[4.0, 0.0], [0.0, 0.0]]
    """
    found = Pairs.of(scores, group_ids, mask, margin=margin, which=pairs)
    return found.winning[:, None] * masked(-logps, mask)
