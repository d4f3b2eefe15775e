"""Loss term `simpo`: preference optimisation without a reference model."""

from __future__ import annotations

from typing import Annotated

import jax
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import mean_over_tokens, per_token
from dovetail.registry import declares
from dovetail_loss.loss_term._pairs import Pairs, Which, gaps


@declares(whole_groups=True)
def simpo(
    logps: Float[Array, "seq token"],
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    beta: Annotated[float, Gt(0)] = 2.0,
    gamma: Annotated[float, Ge(0)] = 0.5,
    label_smoothing: Annotated[float, Interval(ge=0, lt=0.5)] = 0.0,
    margin: Annotated[float, Ge(0)] = 0.0,
    pairs: Which = "all",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """SimPO: the better-scored of two completions of a prompt gets the higher log-probability per token.

        h_wl = β·(r_w - r_l) - γ,  r_i = 1/|y_i|·∑_t log π(y_it)
        ℓ_wl = -(1-ε)·log σ(h_wl) - ε·log σ(-h_wl)
        L_it = n_g/(2·P_g)·∑_((w,l) ∋ i) ℓ_wl

    Meng et al. 2024, *SimPO: Simple preference optimization with a reference-free reward*, equation 6, with ε = 0. The
    reward is what decoding maximises, and needs no reference model. Which completions are pairs, and what the sums of
    L_it are, is as in `dpo`: under `sequence_mean_token_mean` the mean over prompts of the mean over their pairs.

    With `train.policy_loss = 'zero'` it is the whole objective. Completions of a data set come with the engine
    `recorded`. Mini- and micro-batches must not cut groups.

    Args:
        logps: log π, in nats, differentiable.
        scores: one total reward per completion.
        group_ids: g, the prompt that a completion answers.
        mask: policy tokens; completions without any are in no pair, and the loss is zero elsewhere.
        beta: β, per nat of a token's mean; about twenty times that of `dpo`, which is per nat of a completion.
        gamma: γ, by how much the rewards of a pair are to differ at least. The authors give it as γ/β, 0.25 by default.
        label_smoothing: ε, the share of preferences taken to be the wrong way round.
        margin: the smallest difference of scores that forms a pair, in units of the score.
        pairs: "all" pairs of a group, or only pairs of a best and a worst completion ("extremes"), including ties.

    Returns:
        The loss per token, and metrics whose means over completions are means over prompts: `accuracy`, the share of a
        prompt's pairs with r_w > r_l, where equal ones count one half, as does a prompt without pairs; `reward_margin`,
        β·(r_w - r_l), zero where it has none; `paired`, 1 where it has any. And `reward`, β·r of each completion.

    >>> import jax.numpy as jnp
    >>> logps, scores = jnp.log(jnp.array([[0.5], [0.25]])), jnp.array([1.0, 0.0])
    >>> mask = jnp.ones((2, 1), bool)
    >>> loss, metrics = simpo(logps, scores, jnp.array([7, 7]), mask, beta=1.0, gamma=0.0)
    >>> bool(jnp.allclose(loss, jnp.log(1.5))), metrics["accuracy"].tolist()  # -log σ(log 2), for both of the pair
    (True, [1.0, 1.0])
    """
    found = Pairs.of(scores, group_ids, mask, margin=margin, which=pairs)
    rewards = beta * mean_over_tokens(logps, mask)[:, 0]
    apart = gaps(rewards)
    h = apart - gamma
    smoothed = -(1.0 - label_smoothing) * jax.nn.log_sigmoid(h) - label_smoothing * jax.nn.log_sigmoid(-h)
    metrics = {
        "accuracy": found.accuracy(apart),
        "reward_margin": found.halves(apart),
        "paired": found.paired,
        "reward": rewards,
    }
    return per_token(found.halves(smoothed), mask), metrics
