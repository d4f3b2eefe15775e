"""From signatures to exactly the forward passes needed."""

import attrs
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


def divergence(logits, ref_logits):
    """Quantity of two models."""


def pooled(hidden_states, mask):
    """Quantity of whole completions."""


def greedy_pool(logits, mask):
    """A quantity of whole completions that would need whole logits."""


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add_kind("field", "", ORIGIN)
    for function in (logps, entropy, sum_pi_squared, sharpness, top, stray, divergence, pooled, greedy_pool):
        made.add("field", function.__name__, function, origin=ORIGIN)
    return made


@attrs.frozen(kw_only=True)
class Tracker:
    """Estimator that remembers."""

    def init(self, roles):
        """Begin."""

    def __call__(self, state, scores, role_ids, mask):
        """Estimate."""

    def update(self, state, scores, role_ids, mask):
        """Go on."""


@attrs.frozen(kw_only=True)
class Forgetful:
    """Estimator that reads a state that nobody makes."""

    def __call__(self, state, scores):
        """Estimate."""


@attrs.frozen(kw_only=True)
class Crooked(Forgetful):
    """Estimator whose update reads something else."""

    def __call__(self, state, scores, mask):
        """Estimate."""

    def init(self, roles):
        """Begin."""

    def update(self, state, mask, scores):
        """Go on."""


def remembering(logps, state, mask):
    """Loss that reads a state."""


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


def make(readers, registry, *, on_policy=False, has_correction=False, has_schedule=False):
    return plan(readers, registry, on_policy=on_policy, has_correction=has_correction, has_schedule=has_schedule)


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


def test_an_estimator_that_remembers_brings_its_state_and_the_roles(registry):
    found = make(step(Tracker, reinforce), registry)
    assert found.state
    assert found.roles
    assert {entry.field for entry in found.entries} >= {"state", "role_ids"}
    assert not make(step(grpo, reinforce), registry).state


def test_derived_fields_are_computed_at_the_level_they_need(registry):
    assert make(step(grpo, sharp), registry).derived["micro"] == ("sharpness",)
    found = make(step(grpo, ranked), registry)
    assert found.derived["mini"] == ("top",)
    assert found.old == ("entropy",)


def test_the_plan_names_readers_and_providers(registry):
    found = make(step(grpo, ppo), registry)
    entry = next(e for e in found.entries if e.field == "old_logps")
    assert entry.provider == "forward pass of the policy at collection"
    assert entry.readers == ["train.policy_loss = acme/ppo"]


def full_kl(divergence):
    """KL from both models' logits."""


def aligned(token_rewards, pooled, answer_pooled, schedule_weight):
    """Shaping that compares a completion with the task's answer."""


def flat(old_logps, advantages, mask):
    """Selection, once the advantages are there."""


def test_two_models_meet_in_the_update_or_at_collection(registry):
    in_loss = make(step(grpo, reinforce, token_mean, reader("kl", full_kl, update=True)), registry, on_policy=True)
    assert (in_loss.now, in_loss.forwards) == (("logps", "divergence"), ())
    assert in_loss.reference
    assert in_loss.reference_in_update
    in_reward = make([reader("kl", full_kl, update=False), *step(grpo, reinforce)], registry)
    assert in_reward.old == ("divergence",)
    assert in_reward.reference
    assert not in_reward.reference_in_update


def test_answers_pass_through_the_policy_at_collection(registry):
    shaped = [reader("reward_shaping", aligned, update=False), *step(grpo, reinforce)]
    found = make(shaped, registry, has_schedule=True)
    assert (found.old, found.answer, found.answers) == (("pooled",), ("pooled",), True)
    assert found.forwards == ("old policy", "answers")
    assert not make(step(), registry).answers


def test_a_selection_reads_advantages_and_the_policy_at_collection(registry):
    found = make(
        [*step(grpo, ppo), reader("selection", flat, update=False, after_advantages=True)], registry, on_policy=True
    )
    assert found.old == ("logps",)
    assert not found.old_logps_from_update


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


def pooling(logps, greedy_pool, mask):
    """Loss that reads another."""


def fading(logps, schedule_weight, mask):
    """Loss that reads a schedule's field."""


@pytest.mark.parametrize(
    ("readers", "message"),
    [
        (step(grpo, misspelt), r"train.policy_loss = acme/misspelt \(acme 1 \(acme\)\) reads the field 'old_logp', which nobody provides. Did you mean 'old_logps'\?.* under its name \[.*test_planner.py:\d+\]"),
        (step(grpo, corrected), "reads 'is_weights', which a correction provides; set train.correction"),
        (step(early, ppo), "train.advantage = acme/early reads 'advantages', which does not exist before"),
        (step(peeking, ppo), "train.advantage = acme/peeking cannot read 'logps': no policy being trained yet"),
        (step(grpo, ppo, bad_agg), "train.loss_agg = acme/bad_agg reads 'entropy', which changes during the update; .* 'old_entropy'"),
        (step(Forgetful, ppo), r"train.advantage = acme/Forgetful reads 'state' .* class with init\(self, roles\), and update"),
        (step(Crooked, ppo), "update reads state, mask, scores; it is called with .* state, scores, mask"),
        (step(grpo, remembering), "train.policy_loss = acme/remembering reads 'state', which estimators .* alone keep"),
        (step(grpo, straying), "field stray of acme 1 .* reads 'advantages' besides the forward pass"),
        (step(grpo, pooling), "field greedy_pool of acme 1 .* reads 'mask' and 'logits'; .* whole completions"),
        (step(grpo, fading), "reads 'schedule_weight', which a schedule provides; set train.schedule to a name"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused(registry, readers, message):
    with pytest.raises(PlanError, match=message):
        make(readers, registry)
