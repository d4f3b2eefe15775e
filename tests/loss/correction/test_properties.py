"""What holds for every correction, whoever registered it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.loss.batch import Batch, float_params, make_batch, token_fields
from tests.loss.correction.run import correct

import dovetail

NAMES = dovetail.names("correction")

TIGHT: dict[str, dict[str, float]] = {
    "reject": {},
    "sequence_mask": {},
    "sequence_mask_tis": {"lower": 0.9, "upper": 1.1},
    "tis_reject": {},
    "token_veto": {"threshold": 0.5},
}
"""Settings under which each rejects something of the batch below."""

every_correction = pytest.mark.parametrize("name", NAMES)


def having(option: str) -> pytest.MarkDecorator:
    """Every correction with a hyperparameter of this name."""
    return pytest.mark.parametrize("name", [n for n in NAMES if option in dovetail.get("correction", n).params])


def mismatched(scale: float = 0.3, seed: int = 0) -> Batch:
    """A batch in which the sampler is so far off that every correction finds something to do."""
    fields = make_batch(seed)
    noise = np.random.default_rng(seed).normal(scale=scale, size=fields["mask"].shape).astype(np.float32)
    return fields | {"rollout_logps": fields["old_logps"] + noise}


def close(actual: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@every_correction
def test_shapes_and_what_is_outside_the_mask(name: str) -> None:
    fields = mismatched()
    weights, kept = correct(name, fields)
    assert weights.shape == kept.shape == fields["mask"].shape
    assert weights.dtype == jnp.float32
    assert kept.dtype == bool
    assert not (np.asarray(kept) & ~fields["mask"]).any()
    assert (np.asarray(weights)[~np.asarray(kept)] == 0).all()
    assert np.isfinite(weights).all()


@every_correction
def test_without_mismatch_nothing_is_corrected(name: str) -> None:
    fields = mismatched(scale=0.0)
    weights, kept = correct(name, fields)
    np.testing.assert_array_equal(weights, fields["mask"])
    np.testing.assert_array_equal(kept, fields["mask"])


@every_correction
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30, -1e30])
def test_garbage_outside_the_mask_changes_nothing(name: str, garbage: float) -> None:
    fields = mismatched()
    spoilt = {key: np.where(fields["mask"], fields[key], np.float32(garbage)) for key in token_fields(fields)}
    close(correct(name, fields | spoilt), correct(name, fields))


@every_correction
def test_padding_and_empty_rows_change_nothing(name: str) -> None:
    fields = mismatched()
    width = fields["mask"].shape[1]
    padded = {
        key: np.pad(fields[key], [(0, 2), (0, 3)], constant_values=False if key == "mask" else np.nan)
        for key in ("mask", "old_logps", "rollout_logps")
    }
    weights, kept = correct(name, padded)
    close((weights[:-2, :width], kept[:-2, :width]), correct(name, fields))


@every_correction
def test_rows_may_come_in_any_order(name: str) -> None:
    fields = mismatched()
    order = np.array([3, 0, 5, 2, 4, 1])
    weights, kept = correct(name, fields)
    close(correct(name, {key: value[order] for key, value in fields.items()}), (weights[order], kept[order]))


@every_correction
def test_an_all_masked_batch_gives_zeros(name: str) -> None:
    fields = mismatched()
    weights, kept = correct(name, fields | {"mask": np.zeros_like(fields["mask"])})
    assert not kept.any()
    assert (weights == 0).all()


@every_correction
@pytest.mark.parametrize("shift", [200.0, -200.0])
def test_far_apart_policies_stay_finite(name: str, shift: float) -> None:
    fields = mismatched()
    weights, _ = correct(name, fields | {"rollout_logps": fields["old_logps"] + np.float32(shift)})
    assert np.isfinite(weights).all()


@every_correction
def test_a_nan_that_counts_is_seen(name: str) -> None:
    fields = mismatched(scale=0.0)
    fields["rollout_logps"][0, 0] = np.nan
    weights, kept = correct(name, fields)
    assert kept[0, 0]
    assert np.isnan(weights[0, 0]) or (np.asarray(weights)[fields["mask"]] == 1).all()


@every_correction
def test_bfloat16_in_float32_out(name: str) -> None:
    fields = mismatched()
    half = fields | {key: fields[key].astype(jnp.bfloat16) for key in ("old_logps", "rollout_logps")}
    assert correct(name, half)[0].dtype == jnp.float32


@every_correction
def test_jit_equals_eager_and_numbers_do_not_recompile(name: str) -> None:
    traces = []

    def counted(fields: Batch, params: dict[str, Any]) -> Any:
        traces.append(name)
        return correct(name, fields, **params)

    compiled = jax.jit(counted)
    params = float_params(dovetail.get("correction", name))
    close(compiled(mismatched(), params), correct(name, mismatched(), **params))
    compiled(mismatched(seed=1), {key: value * np.float32(1.5) for key, value in params.items()})
    assert len(traces) == 1


@having("count_rejected")
def test_what_is_rejected_may_still_count(name: str) -> None:
    fields = mismatched(scale=1.0)
    weights, kept = correct(name, fields, **TIGHT[name])
    weights_counted, kept_counted = correct(name, fields, **TIGHT[name], count_rejected=True)
    assert (np.asarray(kept) != fields["mask"]).any()
    np.testing.assert_array_equal(kept_counted, fields["mask"])
    close(weights_counted, weights)


@having("normalize")
def test_normalised_weights_have_mean_one(name: str) -> None:
    fields = mismatched(scale=0.1)
    weights, kept = (np.asarray(value) for value in correct(name, fields, normalize=True))
    if name in ("tis_token", "icepop", "tis_reject"):
        mean = weights[kept].mean()
    else:
        mean = np.mean([row[where].mean() for row, where in zip(weights, kept, strict=True) if where.any()])
    assert mean == pytest.approx(1.0, rel=1e-5)
    plain = np.asarray(correct(name, fields)[0])
    ratio = weights[plain > 0] / plain[plain > 0]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("tis", "tis_token"),
        ("token_truncate", "tis_token"),
        ("sequence_truncate", "tis_sequence"),
        ("mis", "sequence_mask"),
        ("seq-mask-tis", "sequence_mask_tis"),
    ],
)
def test_peers_spellings_are_aliases(alias: str, name: str) -> None:
    assert dovetail.get("correction", alias) is dovetail.get("correction", name)


@every_correction
def test_it_says_what_it_is_and_reads_no_more_than_it_needs(name: str) -> None:
    component = dovetail.get("correction", name)
    assert component.summary.endswith("."), component.label
    assert component.reads == ("old_logps", "rollout_logps", "mask")
