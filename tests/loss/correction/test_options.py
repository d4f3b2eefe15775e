"""Options that several corrections have, and their names; what holds for every correction is in `dovetail_kit.conformance`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from tests.loss.batch import Batch, make_batch
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
"""Settings with which each correction rejects something of the batch below."""


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


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_no_more_than_it_needs(name: str) -> None:
    component = dovetail.get("correction", name)
    assert component.reads == ("old_logps", "rollout_logps", "mask")
