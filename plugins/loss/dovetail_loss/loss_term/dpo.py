"""Loss term `dpo`: direct preference optimisation over pairs of completions of a prompt."""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import log_ratio, per_token
from dovetail.registry import declares
from dovetail_loss.loss_term._pairs import Pairs, Which, gaps


@declares(whole_groups=True)
def dpo(
    logps: Float[Array, "seq token"],
    ref_logps: Float[Array, "seq token"],
    scores: Float[Array, "seq"],
    group_ids: Int[Array, "seq"],
    mask: Bool[Array, "seq token"],
    *,
    beta: Annotated[float, Gt(0)] = 0.1,
    loss_type: Literal["sigmoid", "hinge", "ipo"] = "sigmoid",
    label_smoothing: Annotated[float, Interval(ge=0, lt=0.5)] = 0.0,
    margin: Annotated[float, Ge(0)] = 0.0,
    pairs: Which = "all",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """Direct preference optimisation: the better-scored of two completions of a prompt is preferred.

        h_wl = Δ_w - Δ_l,  Δ_i = ∑_t [log π(y_it) - log π_ref(y_it)]
        ℓ(h) = -log σ(β·h) (sigmoid),  max(0, 1 - β·h) (hinge),  (h - 1/(2β))² (ipo)
        ℓ_wl = (1-ε)·ℓ(h_wl) + ε·ℓ(-h_wl)
        L_it = n_g/(2·P_g)·∑_((w,l) ∋ i) ℓ_wl

    over the P_g pairs of the group g that completion i belongs to, and that has n_g completions. Two completions are a
    pair if their scores differ by at least the margin, and differ at all. Every token of a completion has the
    completion's value, and half of a pair's loss is on either side. Under `sequence_mean_token_mean`, with N
    completions,

        ∑_it w_it·L_it = ∑_g (n_g/N)·(1/P_g)·∑_((w,l) ∈ g) ℓ_wl

    which is the mean over prompts of the mean over their pairs. With two completions a prompt it is the mean over pairs
    of Rafailov et al. 2023, *Direct preference optimization*, equation 7 (sigmoid), Azar et al. 2024, *A general
    theoretical paradigm to understand learning from human preferences*, equation 17 (ipo), and Zhao et al. 2023,
    *SLiC-HF* (hinge). The completions are those of a data set (the engine `recorded`), as in these papers, or the
    policy's own: Guo et al. 2024, *Direct language model alignment from online AI feedback*. ε is the share of
    preferences taken to be the wrong way round: Mitchell 2023, *A note on DPO with noisy preferences*.

    With `train.policy_loss = 'zero'` it is the whole objective. The scores are what a reward, a judge, a reward model
    or the data gives. A group without a pair adds nothing to the sum, and is counted in the mean over prompts. Mini-
    and micro-batches must not cut groups.

    Args:
        logps: log π, in nats, differentiable.
        ref_logps: log π_ref, in nats.
        scores: s, one total reward per completion.
        group_ids: g, the prompt that a completion answers.
        mask: policy tokens; completions without any are in no pair, and the loss is zero elsewhere.
        beta: β, per nat; small values let the policy go further from the reference.
        loss_type: ℓ.
        label_smoothing: ε.
        margin: the smallest difference of scores that forms a pair, in units of the score.
        pairs: "all" pairs of a group, or only pairs of a best and a worst completion ("extremes"), including ties.

    Returns:
        The loss per token, and metrics whose means over completions are means over prompts: `accuracy`, the share of a
        prompt's pairs with h > 0, where h = 0 counts one half, as does a prompt without pairs; `reward_margin`, β·h,
        zero where it has none; `paired`, 1 where it has any. And `reward`, β·Δ of each completion.

    Departures:
        TRL's `ipo` divides Δ by the completion's length; the paper does not.

    >>> logps, scores = jnp.log(jnp.array([[0.5], [0.25]])), jnp.array([1.0, 0.0])
    >>> mask = jnp.ones((2, 1), bool)
    >>> loss, metrics = dpo(logps, jnp.log(jnp.full((2, 1), 0.25)), scores, jnp.array([7, 7]), mask, beta=1.0)
    >>> bool(jnp.allclose(loss, jnp.log(1.5))), metrics["accuracy"].tolist()  # -log σ(log 2), for both of the pair
    (True, [1.0, 1.0])
    """
    found = Pairs.of(scores, group_ids, mask, margin=margin, which=pairs)
    log_ratios = jnp.sum(log_ratio(logps, ref_logps, mask), axis=-1)
    h = gaps(log_ratios)
    smoothed = (1.0 - label_smoothing) * _loss(h, beta, loss_type) + label_smoothing * _loss(-h, beta, loss_type)
    metrics = {
        "accuracy": found.accuracy(h),
        "reward_margin": found.halves(beta * h),
        "paired": found.paired,
        "reward": beta * log_ratios,
    }
    return per_token(found.halves(smoothed), mask), metrics


def _loss(h: Float[Array, "seq seq"], beta: float, loss_type: str) -> Float[Array, "seq seq"]:
    """Return ℓ(h), the loss of a pair whose log-ratios differ by h."""
    if loss_type == "sigmoid":
        return -jax.nn.log_sigmoid(beta * h)
    if loss_type == "hinge":
        return jnp.maximum(0.0, 1.0 - beta * h)
    return jnp.square(h - 0.5 / beta)
