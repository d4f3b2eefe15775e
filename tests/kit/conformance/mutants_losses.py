"""Broken losses, KL estimators and aggregations. Most are bugs that somebody has shipped."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge
from tests.kit.conformance.mutants import caught_by

import dovetail

calls = []


def clean(x, mask):
    return jnp.where(mask, x.astype(jnp.float32), 0.0)


def ratio_of(logps, old_logps, mask):
    return jnp.exp(jnp.clip(clean(logps, mask) - clean(old_logps, mask), -20.0, 20.0))


@caught_by("policy_loss", "garbage")
def mask_multiplied(logps, advantages, mask):
    return -advantages * logps * mask


@caught_by("policy_loss", "garbage")
def where_after_exp(logps, old_logps, advantages, mask):
    """The value is right, and the gradient NaN."""
    return jnp.where(mask, -advantages * jnp.exp(logps - old_logps), 0.0)


@caught_by("policy_loss", "clip_side")
@dovetail.declares(pessimistic=True)
def clips_the_wrong_side_for_negative_advantages(logps, old_logps, advantages, mask):
    ratio, a = ratio_of(logps, old_logps, mask), clean(advantages, mask)
    clipped = jnp.clip(ratio, 0.8, 1.2)
    return jnp.where(a > 0, jnp.maximum(-a * ratio, -a * clipped), jnp.minimum(-a * ratio, -a * clipped))


@caught_by("policy_loss", "clip_side")
@dovetail.declares(pessimistic=True)
def clips_without_the_maximum(logps, old_logps, advantages, mask):
    return -clean(advantages, mask) * jnp.clip(ratio_of(logps, old_logps, mask), 0.8, 1.2)


@caught_by("policy_loss", "on_policy_gradient")
@dovetail.declares(on_policy_gradient=True, surrogate=True)
def no_stop_gradient_on_the_weight(logps, old_logps, advantages, mask):
    return -ratio_of(logps, old_logps, mask) * clean(advantages, mask) * clean(logps, mask)


@caught_by("policy_loss", "on_policy_gradient")
@dovetail.declares(on_policy_gradient=True)
def divides_by_the_completions_length(logps, old_logps, advantages, mask):
    """It aggregates already, and the aggregation does so once more."""
    lengths = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1)
    return -clean(advantages, mask) * ratio_of(logps, old_logps, mask) / lengths


@caught_by("policy_loss", "micro_batches")
def whitens_the_advantages_itself(logps, old_logps, advantages, mask):
    a = clean(advantages, mask)
    mean = jnp.sum(a) / jnp.maximum(jnp.sum(mask), 1)
    return jnp.where(mask, -(a - mean) * ratio_of(logps, old_logps, mask), 0.0)


@caught_by("policy_loss", "micro_batches")
def divides_by_the_rows(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask) / mask.shape[0]


@caught_by("policy_loss", "padding")
def divides_by_the_width(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask) / mask.shape[1]


@caught_by("policy_loss", "shapes")
def returns_the_mean(logps, advantages, mask):
    return jnp.sum(-clean(advantages, mask) * clean(logps, mask)) / jnp.sum(mask)


@caught_by("policy_loss", "shapes")
def returns_half_precision(logps, advantages, mask):
    return (-clean(advantages, mask) * clean(logps, mask)).astype(jnp.bfloat16)


@caught_by("policy_loss", "half_precision")
def computes_in_the_inputs_precision(logps, old_logps, advantages, mask):
    a, new, old = (jnp.where(mask, x, jnp.zeros((), x.dtype)) for x in (advantages, logps, old_logps))
    return (-a * jnp.exp(new - old)).astype(jnp.float32)


@caught_by("policy_loss", "jit")
def branches_on_data(logps, advantages, mask):
    if jnp.max(jnp.abs(advantages)) < 1e-6:
        return jnp.zeros_like(logps)
    return -clean(advantages, mask) * clean(logps, mask)


@caught_by("policy_loss", "traced_numbers")
def branches_on_a_hyperparameter(logps, advantages, mask, *, coef: float = 1.0):
    loss = -clean(advantages, mask) * clean(logps, mask)
    return loss * coef if coef > 0 else loss


@caught_by("policy_loss", "determinism")
def remembers_the_last_call(logps, advantages, mask):
    calls.append(1)
    return -clean(advantages, mask) * clean(logps, mask) * len(calls)


@caught_by("policy_loss", "determinism")
def unseeded_noise(logps, advantages, mask):
    noise = np.random.default_rng().normal(size=mask.shape).astype(np.float32)
    return -clean(advantages, mask) * clean(logps, mask) * (1 + noise)


@caught_by("policy_loss", "purity")
def the_global_generator(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask) * np.float32(1 + 1e-9 * np.random.rand())  # noqa: NPY002


@caught_by("policy_loss", "purity")
def changes_its_argument(logps, advantages, mask):
    if isinstance(advantages, np.ndarray):
        advantages[~mask] = -1.0
    return -clean(advantages, mask) * clean(logps, mask)


@caught_by("policy_loss", "gradient_direction")
def sign_flipped(logps, old_logps, advantages, mask):
    return clean(advantages, mask) * ratio_of(logps, old_logps, mask)


@caught_by("policy_loss", "extremes")
def clips_after_the_exponential(logps, old_logps, advantages, mask):
    ratio = jnp.exp(clean(logps, mask) - clean(old_logps, mask))
    a = clean(advantages, mask)
    return jnp.maximum(-a * ratio, -a * jnp.clip(ratio, 0.8, 1.2))


@caught_by("policy_loss", "learns_from_policy_tokens")
def detached(logps, advantages, mask):
    return jax.lax.stop_gradient(-clean(advantages, mask) * clean(logps, mask))


@caught_by("policy_loss", "learns_from_policy_tokens")
def learns_from_the_tools_tokens(logps, old_logps, advantages, mask):
    """A mean over the row that forgets the mask: zero outside in value, not in gradient."""
    log_ratio = jnp.where(jnp.isfinite(logps), logps, 0.0) - jnp.where(jnp.isfinite(old_logps), old_logps, 0.0)
    ratio = jnp.exp(jnp.clip(jnp.mean(log_ratio, axis=-1, keepdims=True), -10.0, 10.0))
    return jnp.where(mask, -clean(advantages, mask) * ratio, 0.0)


@caught_by("policy_loss", "zero_outside_the_mask")
def forgets_the_mask_at_the_end(logps, old_logps, advantages, mask):
    return 1.0 - clean(advantages, mask) * ratio_of(logps, old_logps, mask)


@caught_by("policy_loss", "zero_advantage")
def an_undeclared_penalty(logps, old_logps, advantages, mask):
    x = clean(logps, mask) - clean(old_logps, mask)
    return -clean(advantages, mask) * clean(logps, mask) + 0.1 * x**2


@jax.custom_vjp
def _wrong(x):
    return jnp.square(x)


_wrong.defvjp(lambda x: (jnp.square(x), x), lambda x, g: (g * x,))


@caught_by("policy_loss", "finite_differences")
def wrong_derivative_by_hand(logps, advantages, mask):
    return clean(advantages, mask) * _wrong(clean(logps, mask))


@caught_by("policy_loss", "row_order")
def takes_neighbours_for_a_group(logps, advantages, mask):
    pairs = clean(advantages, mask).reshape(-1, 2, mask.shape[1]) if mask.shape[0] % 2 == 0 else 0
    return -(pairs - pairs.mean(axis=1, keepdims=True)).reshape(mask.shape) * clean(logps, mask)


@caught_by("policy_loss", "all_masked")
def divides_by_the_masks_sum(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask) / jnp.sum(mask)


@caught_by("policy_loss", "finite_results")
def nothing_in_an_empty_row(logps, advantages, mask):
    lengths = jnp.sum(mask, axis=-1, keepdims=True, dtype=jnp.float32)
    return -clean(advantages, mask) * clean(logps, mask) / lengths


@caught_by("policy_loss", "vmap", raises="NotImplementedError")
def a_callback(logps, advantages, mask):
    loss = -clean(advantages, mask) * clean(logps, mask)
    scale = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), jnp.float32), jnp.float32(1))
    there = jax.pure_callback(lambda m: m, jax.ShapeDtypeStruct(mask.shape, mask.dtype), mask)
    return jnp.where(there, loss * scale, 0.0)


@caught_by("policy_loss", "sharded", slow=True)
def makes_up_for_the_devices(logps, advantages, mask):
    """A factor for a mean over devices that somebody else may take: verl's `dp_size`."""
    return -clean(advantages, mask) * clean(logps, mask) * jax.device_count()


@caught_by("policy_loss", "fields_are_known")
def reads_what_nobody_provides(logps, advantages, msk):
    return -advantages * logps * msk


@caught_by("value_loss", "extremes")
def exponential_of_the_error(values, returns, mask):
    return jnp.expm1(jnp.square(clean(values, mask) - clean(returns, mask)))


@caught_by("value_loss", "finite_differences")
def detached_on_one_side(values, returns, mask):
    x = clean(values, mask)
    return (jax.lax.stop_gradient(x) - clean(returns, mask)) * (x - clean(returns, mask))


@caught_by("kl", "unbiased_value")
@dovetail.declares(unbiased_value=True)
def the_other_divergence(logps, ref_logps):
    """k3 with the two policies exchanged."""
    x = jnp.clip(logps - ref_logps, -20.0, 20.0)
    return jnp.exp(x) - x - 1.0


@caught_by("kl", "unbiased_gradient")
@dovetail.declares(unbiased_gradient=True)
def k1_as_a_loss(logps, ref_logps):
    """Its gradient is zero in expectation: real libraries offer it as a penalty."""
    return logps - ref_logps


@caught_by("kl", "unbiased_value")
@dovetail.declares(unbiased_value=True)
def k2_called_unbiased(logps, ref_logps):
    return 0.5 * jnp.square(logps - ref_logps)


@caught_by("kl", "zero_at_equality")
def forgets_the_one(logps, ref_logps):
    x = jnp.clip(ref_logps - logps, -20.0, 20.0)
    return jnp.exp(x) - x


@caught_by("kl", "extremes")
def an_unbounded_exponential(logps, ref_logps):
    x = ref_logps - logps
    return jnp.exp(x) - x - 1.0


@caught_by("kl", "nan_is_seen")
def hides_nan(logps, ref_logps):
    return 0.5 * jnp.square(jnp.nan_to_num(logps - ref_logps))


@caught_by("kl", "non_negative")
@dovetail.declares(non_negative=True)
def k1_called_non_negative(logps, ref_logps):
    return logps - ref_logps


@caught_by("kl", "zero_expected_gradient")
@dovetail.declares(zero_expected_gradient=True)
def k2_called_without_gradient(logps, ref_logps):
    return 0.5 * jnp.square(logps - ref_logps)


@caught_by("loss_agg", "padding")
def mean_over_the_rectangle(mask):
    return mask.astype(jnp.float32) / mask.size


@caught_by("loss_agg", "empty_rows")
def counts_empty_rows(mask):
    lengths = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True, dtype=jnp.float32), 1.0)
    return mask / lengths / mask.shape[0]


@caught_by("loss_agg", "normaliser")
@dovetail.declares(sums_to_one=True)
def sums_to_the_rows(mask):
    lengths = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True, dtype=jnp.float32), 1.0)
    return mask / lengths


@caught_by("loss_agg", "positive_weights")
def leaves_the_last_token_out(mask):
    later = jnp.cumsum(mask[:, ::-1], axis=1)[:, ::-1]
    kept = mask & (later > 1)
    return kept / jnp.maximum(jnp.sum(kept, dtype=jnp.float32), 1.0)


@caught_by("loss_agg", "linearity")
def weighs_by_the_policy(logps, mask):
    weights = jnp.where(mask, jnp.exp(logps), 0.0)
    return weights / jnp.maximum(jnp.sum(weights), 1e-6)


@caught_by("loss_agg", "group_labels")
def indexes_by_the_label(mask, group_ids):
    sizes = jax.ops.segment_sum(jnp.any(mask, -1).astype(jnp.float32), group_ids, num_segments=64)
    return jnp.where(mask, 1.0 / jnp.maximum(sizes[group_ids], 1.0)[:, None], 0.0)


@caught_by("policy_loss", "defaults_are_valid")
def default_out_of_range(logps, advantages, mask, *, epsilon: Annotated[float, Ge(0)] = -0.2):
    return -clean(advantages, mask) * clean(logps, mask) * epsilon


@caught_by("policy_loss", "defaults_are_valid")
def hyperparameter_without_annotation(logps, advantages, mask, *, epsilon=0.2):
    return -clean(advantages, mask) * clean(logps, mask) * epsilon


@caught_by("policy_loss", "docstring")
def without_a_formula(logps, advantages, mask):
    """Policy gradient, of logps, advantages, mask."""
    return -clean(advantages, mask) * clean(logps, mask)


@caught_by("policy_loss", "docstring")
def speaks_of_no_parameter(logps, advantages, mask, *, epsilon: float = 0.2):
    """Policy gradient: L = -A·log π, of logps, advantages and mask."""
    return -clean(advantages, mask) * clean(logps, mask) * epsilon


@caught_by("policy_loss", "declarations")
@dovetail.declares(own={"proved": True})
def claims_with_a_typing_error(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask)


@caught_by("policy_loss", "declarations")
@dovetail.declares(excludes=("corection",))
def excludes_no_kind(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask)


@caught_by("policy_loss", "declarations")
@dovetail.declares(per_reward=("weights",))
def has_no_such_weights(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask)


@caught_by("policy_loss", "declarations")
@dovetail.declares(expected_failures={"pading": "known"})
def expects_no_check_to_fail(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask)


@caught_by("policy_loss", "padding")
@dovetail.declares(expected_failures={"padding": "not mended yet"})
def is_mended_and_does_not_say_so(logps, advantages, mask):
    return -clean(advantages, mask) * clean(logps, mask)
