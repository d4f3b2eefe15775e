"""From signatures to exactly the forward passes needed."""

import pytest

from dovetail.errors import PlanError
from dovetail.plan import Reader, plan
from dovetail.registry import Component, Origin, Registry

ORIGIN = Origin("acme", "1", "acme")


def grpo(scores, group_ids, mask):
    """Estimator."""


def gae(token_rewards, values, mask):
    """Estimator with a critic."""


def otb(scores, sum_pi_squared, entropy, mask):
    """Estimator that reads quantities of the policy at collection."""


def reinforce(logps, advantages, mask):
    """Loss without old log-probabilities."""


def ppo(logps, old_logps, advantages, mask):
    """Loss with."""


def sharp(logps, advantages, sharpness, mask):
    """Loss that reads a derived, differentiable field."""


def ranked(logps, advantages, top, mask):
    """Loss that reads a field ranked over the mini-batch."""


def k3(logps, ref_logps):
    """KL."""


def token_mean(mask):
    """Weights."""


def bad_agg(mask, entropy):
    """Weights that would change during the update."""


def value_loss(values, old_values, returns, mask):
    """Critic's loss."""


def logps(logits, tokens):
    """Quantity."""


def entropy(logits):
    """Quantity."""


def sum_pi_squared(logits):
    """Quantity of a plugin."""


def sharpness(logps, mask):
    """Derived from a quantity."""


def top(old_entropy, mask):
    """Derived before the split."""


def stray(logits, advantages):
    """A quantity that reads what no forward pass has."""


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add_kind("field", "", ORIGIN)
    for function in (logps, entropy, sum_pi_squared, sharpness, top, stray):
        made.add("field", function.__name__, function, origin=ORIGIN)
    return made


def reader(kind, function, *, update, **options):
    component = Component(kind=kind, name=function.__name__, target=function, origin=ORIGIN)
    return Reader(role=f"train.{kind}", component=component, update=update, **options)


def step(advantage=grpo, loss=ppo, agg=token_mean, *more):
    return [
        reader("advantage", advantage, update=False, refused={"logps": "no policy being trained yet"}),
        reader("loss_agg", agg, update=True, whole_batch=True),
        reader("policy_loss", loss, update=True),
        *more,
    ]


def make(readers, registry, *, on_policy=False, has_correction=False):
    return plan(readers, registry, on_policy=on_policy, has_correction=has_correction)


def test_reinforce_without_kl_needs_no_forward_pass_but_the_update(registry):
    found = make(step(grpo, reinforce), registry)
    assert found.forwards == ()
    assert found.now == ("logps",)


def test_kl_adds_just_the_reference(registry):
    found = make(step(grpo, reinforce, token_mean, reader("kl", k3, update=True)), registry)
    assert found.forwards == ("reference",)
    assert found.ref == ("logps",)


def test_kl_in_the_reward_reads_the_policy_at_collection(registry):
    kl = reader("kl", k3, update=False, renames={"logps": "old_logps"})
    found = make([kl, *step(grpo, reinforce)], registry)
    assert found.forwards == ("old policy", "reference")


def test_off_policy_updates_score_the_policy_at_collection_once(registry):
    found = make(step(grpo, ppo), registry)
    assert found.forwards == ("old policy",)
    assert found.old == ("logps",)
    assert not found.old_logps_from_update


def test_on_policy_old_logps_come_from_the_update_itself(registry):
    found = make(step(grpo, ppo), registry, on_policy=True)
    assert found.forwards == ()
    assert found.old_logps_from_update


def test_on_policy_old_logps_are_scored_when_something_reads_them_earlier(registry):
    kl = reader("kl", k3, update=False, renames={"logps": "old_logps"})
    found = make([kl, *step(grpo, ppo)], registry, on_policy=True)
    assert found.old == ("logps",)
    assert not found.old_logps_from_update


def test_an_estimator_that_reads_values_brings_a_critic(registry):
    found = make(step(gae, ppo), registry, on_policy=True)
    assert found.forwards == ("critic",)
    both = make([*step(gae, ppo), reader("value_loss", value_loss, update=True)], registry, on_policy=True)
    assert {entry.field for entry in both.entries} >= {"values", "old_values", "returns"}


def test_bare_quantities_at_collection_are_those_of_the_policy_that_sampled(registry):
    found = make(step(otb, reinforce), registry)
    assert found.old == ("sum_pi_squared", "entropy")
    assert found.now == ("logps",)


def test_derived_fields_are_computed_at_the_level_they_need(registry):
    assert make(step(grpo, sharp), registry).derived["micro"] == ("sharpness",)
    found = make(step(grpo, ranked), registry)
    assert found.derived["mini"] == ("top",)
    assert found.old == ("entropy",)


def test_the_plan_names_readers_and_providers(registry):
    found = make(step(grpo, ppo), registry)
    entry = next(e for e in found.entries if e.field == "old_logps")
    assert entry.provider == "forward pass of the policy at collection"
    assert entry.readers == ["train.policy_loss = ppo"]


def misspelt(logps, old_logp, advantages, mask):
    """Loss that reads a field nobody provides."""


def corrected(logps, is_weights, advantages, mask):
    """Loss that reads a correction's field."""


def early(advantages, mask):
    """Estimator that reads what it is to compute."""


def peeking(scores, logps, mask):
    """Estimator that reads the policy being trained."""


def straying(logps, stray, mask):
    """Loss that reads a broken quantity."""


@pytest.mark.parametrize(
    ("readers", "message"),
    [
        (step(grpo, misspelt), r"train.policy_loss = misspelt \(acme 1 \(acme\)\) reads the field 'old_logp', which nobody provides. Did you mean 'old_logps'\?"),
        (step(grpo, corrected), "reads 'is_weights', which a correction provides; set train.correction"),
        (step(early, ppo), "train.advantage = early reads 'advantages', which does not exist before"),
        (step(peeking, ppo), "train.advantage = peeking cannot read 'logps': no policy being trained yet"),
        (step(grpo, ppo, bad_agg), "train.loss_agg = bad_agg reads 'entropy', which changes during the update; .* 'old_entropy'"),
        (step(grpo, straying), "field stray of acme 1 .* reads 'advantages' besides the forward pass"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused(registry, readers, message):
    with pytest.raises(PlanError, match=message):
        make(readers, registry)
