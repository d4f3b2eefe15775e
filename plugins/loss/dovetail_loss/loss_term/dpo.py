"""Loss term `dpo`: direct preference optimisation over pairs that are formed by the scores within a group."""

from __future__ import annotations

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Bool, Float, Int

from dovetail.arrays import Groups, log_ratio, masked, per_token
from dovetail.registry import declares


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
    pairs: Literal["all", "extremes"] = "all",
) -> tuple[Float[Array, "seq token"], dict[str, Float[Array, "seq"]]]:
    """Direct preference optimisation, online: the better-scored of two completions of a prompt is preferred.

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
    *SLiC-HF* (hinge), on pairs that the policy itself has sampled: Guo et al. 2024, *Direct language model alignment
    from online AI feedback*. ε is the share of preferences taken to be the wrong way round: Mitchell 2023, *A note on
    DPO with noisy preferences*.

    With `train.policy_loss = 'zero'` it is the whole objective. The scores are what a reward, a judge or a reward model
    gives. A group without a pair adds nothing to the sum, and is counted in the mean over prompts. Mini- and
    micro-batches must not cut groups.

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
    groups = Groups.of(group_ids, mask)
    preferred = _preferred(groups, masked(scores, groups.live), margin, pairs)
    log_ratios = jnp.sum(log_ratio(logps, ref_logps, mask), axis=-1)
    h = log_ratios[:, None] - log_ratios[None, :]
    counts = groups.total(jnp.sum(preferred, axis=1, dtype=h.dtype))
    scale = groups.sizes.astype(h.dtype) / (2.0 * jnp.maximum(counts, 1.0))

    def of_pairs(values: Float[Array, "seq seq"]) -> Float[Array, "seq"]:
        kept = jnp.where(preferred, values, 0.0)
        return scale * (jnp.sum(kept, axis=1) + jnp.sum(kept, axis=0))

    smoothed = (1.0 - label_smoothing) * _loss(h, beta, loss_type) + label_smoothing * _loss(-h, beta, loss_type)
    metrics = {
        "accuracy": jnp.where(counts > 0, of_pairs((1.0 + jnp.sign(h)) / 2.0), 0.5),
        "reward_margin": of_pairs(beta * h),
        "paired": (counts > 0).astype(h.dtype),
        "reward": beta * log_ratios,
    }
    return per_token(of_pairs(smoothed), mask), metrics


def _preferred(
    groups: Groups, scores: Float[Array, "seq"], margin: float, pairs: Literal["all", "extremes"]
) -> Bool[Array, "seq seq"]:
    """Return a matrix that is true where the completion of the row is preferred to that of the column."""
    comparable = (groups.segments[:, None] == groups.segments[None, :]) & groups.live[:, None] & groups.live[None, :]
    gaps = scores[:, None] - scores[None, :]
    preferred = comparable & (gaps > 0) & (gaps >= margin)
    if pairs == "all":
        return preferred
    gaps = jnp.where(comparable, gaps, 0.0)
    is_best, is_worst = jnp.min(gaps, axis=1) == 0, jnp.max(gaps, axis=1) == 0
    return preferred & is_best[:, None] & is_worst[None, :]


def _loss(h: Float[Array, "seq seq"], beta: float, loss_type: str) -> Float[Array, "seq seq"]:
    """Return ℓ(h), the loss of a pair whose log-ratios differ by h."""
    if loss_type == "sigmoid":
        return -jax.nn.log_sigmoid(beta * h)
    if loss_type == "hinge":
        return jnp.maximum(0.0, 1.0 - beta * h)
    return jnp.square(h - 0.5 / beta)
