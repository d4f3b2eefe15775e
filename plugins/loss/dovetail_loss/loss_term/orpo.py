"""Loss term `orpo`: the likelihood of preferred completions, and the odds against the others."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
from annotated_types import Ge
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import masked, mean_over_tokens, per_token
from dovetail.registry import declares
from dovetail_loss.loss_term._pairs import Pairs, Which, gaps

SMALLEST = 1e-6
"""The least |log p| whose odds are computed: with float32 those of a text that is nearly certain are infinite."""


@declares(whole_groups=True)
def orpo(
    logps: Float[Array, "seq token"],
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    ratio_coef: Annotated[float, Ge(0)] = 0.1,
    margin: Annotated[float, Ge(0)] = 0.0,
    pairs: Which = "all",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """ORPO: maximum likelihood of the better-scored completions, and a penalty on the odds of the worse ones.

        log odds_i = log p_i - log(1 - p_i),  log p_i = 1/|y_i|·∑_t log π(y_it)
        ℓ_wl = -λ·log σ(log odds_w - log odds_l)
        L_it = n_g/P_g·[∑_((i,l)) -log π(y_it) + 1/2·∑_((w,l) ∋ i) ℓ_wl]

    Hong et al. 2024, *ORPO: Monolithic preference optimization without reference model*, equations 6 and 7: supervised
    fine-tuning on the preferred completion of each pair, and in the same step the odds ratio. It needs neither a
    reference model nor a warm start. Which completions are pairs, and what the sums of L_it are, is as in `dpo`: under
    `sequence_mean_token_mean` the mean over prompts of the mean over their pairs.

    With `train.policy_loss = 'zero'` it is the whole objective. Completions of a data set come with the engine
    `recorded`. Mini- and micro-batches must not cut groups.

    Args:
        logps: log π, in nats, differentiable.
        scores: one total reward per completion.
        group_ids: g, the prompt that a completion answers.
        mask: policy tokens; completions without any are in no pair, and the loss is zero elsewhere.
        ratio_coef: λ, the weight of the odds ratio; `beta` of TRL, `lambda_orpo` of tunix.
        margin: the smallest difference of scores that forms a pair, in units of the score.
        pairs: "all" pairs of a group, or only pairs of a best and a worst completion ("extremes"), including ties.

    Returns:
        The loss per token, and metrics whose means over completions are means over prompts: `accuracy`, the share of a
        prompt's pairs with log p_w > log p_l, where equal ones count one half, as does a prompt without pairs;
        `log_odds_ratio` and `nll`, -log p_w in nats per token, zero where it has no pairs; `paired`, 1 where it has
        any.

    Departures:
        TRL's likelihood covers the prompt too; in the paper, as here, it is that of the completion. tunix takes the
        odds of a whole completion, ∑_t log π(y_it), in place of those of its mean token.

    >>> logps, scores = jnp.log(jnp.array([[0.5], [0.25]])), jnp.array([1.0, 0.0])
    >>> mask = jnp.ones((2, 1), bool)
    >>> loss, metrics = orpo(logps, scores, jnp.array([7, 7]), mask, ratio_coef=1.0)
    >>> [round(float(jnp.exp(metrics[name][0])), 4) for name in ("log_odds_ratio", "nll")]  # 1 : 1 against 1 : 3
    [3.0, 2.0]
    >>> bool(jnp.allclose(jnp.mean(loss), jnp.log(2.0) - jnp.log(0.75)))
    True
    """
    found = Pairs.of(scores, group_ids, mask, margin=margin, which=pairs)
    log_p = mean_over_tokens(logps, mask)[:, 0]
    certain = jnp.minimum(log_p, -SMALLEST)
    log_ratio = gaps(certain - jnp.log(-jnp.expm1(certain)))
    ratios = found.halves(-ratio_coef * jax.nn.log_sigmoid(log_ratio))
    metrics = {
        "accuracy": found.accuracy(gaps(log_p)),
        "log_odds_ratio": found.halves(log_ratio),
        "nll": found.halves(jnp.broadcast_to(-log_p[:, None], log_ratio.shape)),
        "paired": found.paired,
    }
    return per_token(ratios, mask) + found.winning[:, None] * masked(-logps, mask), metrics
