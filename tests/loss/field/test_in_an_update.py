"""Every policy loss can be planned, and those that rank tokens do not depend on how a mini-batch is split."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from tests.core.step.test_update import PLAIN, change, collect, in_micro_batches, make, sampled

import dovetail
from dovetail.config import load
from dovetail.training.metrics import means

RANKED = {
    "clip_cov": ("field.clip_cov_tokens.fraction=0.2", "field.clip_cov_tokens.lower=0.0"),
    "kl_cov": ("field.kl_cov_tokens.fraction=0.2",),
    "m2po": (),
}
SPLIT = ("clip_cov", "m2po")
"""A loss that draws with a key, and a loss that reads the sampler's log-probabilities."""


@pytest.mark.parametrize("name", dovetail.names("policy_loss"))
def test_every_policy_loss_can_be_planned(name: str) -> None:
    plan = load(None, [f"train.policy_loss={name}", "train.agent_loop=tool_agent"]).plan
    assert set(dovetail.get("policy_loss", name).reads) <= {entry.field for entry in plan.entries}


@pytest.mark.parametrize("name", RANKED)
def test_a_selection_belongs_to_the_mini_batch(name: str) -> None:
    plan = load(None, [f"train.policy_loss={name}"]).plan
    (selection,) = (read for read in dovetail.get("policy_loss", name).reads if read.endswith("_tokens"))
    assert plan.before_split == (selection,)


@pytest.mark.parametrize("name", SPLIT)
def test_the_gradient_does_not_depend_on_the_micro_batch(name: str) -> None:
    algorithm, graphdef, params = make(*PLAIN, f"train.policy_loss={name}", *RANKED[name])
    batch, _ = collect(algorithm, graphdef, params, sampled())
    whole, _ = change(algorithm, graphdef, params, batch)
    split, _ = change(in_micro_batches(algorithm, 5), graphdef, params, batch)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), whole, split)
    assert any((leaf != 0).any() for leaf in jax.tree.leaves(whole))


def test_what_counts_over_the_mini_batch_reaches_the_loss() -> None:
    """One update has VAPO's share of successes, the mean over prompts, and a KL estimate that reads the old policy."""
    algorithm, graphdef, params = make(
        *PLAIN, "train.policy_loss=vapo", "train.loss_agg=prompt_mean", "train.kl=k3_corrected", "train.kl_coef=0.1"
    )
    batch, _ = collect(algorithm, graphdef, params, sampled())
    _, metrics = change(algorithm, graphdef, params, batch)
    assert {"policy_loss/positive_nll", "kl/mean"} <= metrics.keys()
    assert all(np.isfinite(value) for value in means(metrics).values())
