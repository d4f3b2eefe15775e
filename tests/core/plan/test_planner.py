"""The planner derives from signatures exactly the forward passes that are needed."""

import inspect
import re
from typing import NamedTuple

import attrs
import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import PlanError
from dovetail.kinds import FIELDS, KINDS, STAGE, Kind
from dovetail.plan import Call, Planner, plan_step
from dovetail.registry import Component, Origin, Registry, declares, discover

ORIGIN = Origin("acme", "1", "acme")
KIND = {kind.name: kind for kind in KINDS}


def grpo(scores, group_ids, mask):
    """Estimator."""


def gae(token_rewards, values, mask):
    """Estimator with a critic."""


def otb(scores, sum_pi_squared, entropy, mask):
    """Estimator that reads quantities of the policy at collection."""


def reinforce(logps, advantages, mask):
    """Loss without old log-probabilities."""


def ppo(logps, old_logps, advantages, mask):
    """Loss with old log-probabilities."""


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


def luck(old_entropy, key):
    """Derived field that draws."""


def live_luck(logps, key):
    """The same from the policy being trained."""


def greedy_pool(logits, mask):
    """A quantity of whole completions that would need whole logits."""


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add_kind(KIND["field"], ORIGIN)
    quantities = (logps, entropy, sum_pi_squared, stray, divergence, pooled, greedy_pool)
    for function in (*quantities, sharpness, top, luck, live_luck):
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
class Crooked:
    """Estimator whose update reads something else."""

    def __call__(self, state, scores, mask):
        """Estimate."""

    def init(self, roles):
        """Begin."""

    def update(self, state, mask, scores):
        """Go on."""


def remembering(logps, state, mask):
    """Loss that reads a state."""


def call(kind, function, *, stage=None, model="policy", **options):
    record = kind if isinstance(kind, Kind) else KIND[kind]
    component = Component(kind=record.name, name=function.__name__, target=function, origin=ORIGIN)
    where = STAGE[stage or record.stage]
    term = where.name == "loss_terms"
    section = "critic" if model == "critic" else "train"
    path = f"{section}.{record.name}"
    return Call(path=path, kind=record, component=component, stage=where, model=model, term=term, **options)


def step(advantage=grpo, loss=ppo, agg=token_mean, *more):
    return [call("advantage", advantage), call("loss_agg", agg), call("policy_loss", loss), *more]


def kl_in_the_reward(function):
    return call("kl", function, stage="token_rewards", renames={"logps": "old_logps"})


def make(calls, registry, *, on_policy=False, there=(), **options):
    """Plan calls; `there` lists the fields that need a component of their own and have one."""
    missing = {name: info.without for name, info in FIELDS.items() if info.without and name not in there}
    planner = Planner(registry=registry, missing=missing, on_policy=on_policy, **options)
    for each in calls:
        planner.read(each)
    return planner.finish(calls)


def passes(plan, *, live):
    """Return which role's model is evaluated on which input, and for which quantities."""
    return {(each.role, each.inputs): each.quantities for each in plan.passes_of(live=live)}


AT_COLLECTION = ("policy", "completions")
REFERENCE = ("reference", "completions")
CRITIC = ("critic", "completions")


def test_reinforce_without_kl_needs_no_forward_pass_but_the_update(registry):
    found = make(step(grpo, reinforce), registry)
    assert passes(found, live=False) == {}
    assert passes(found, live=True) == {("policy", "completions"): ("logps",)}
    assert found.roles == ()


def test_kl_adds_just_the_reference(registry):
    found = make([*step(grpo, reinforce), call("kl", k3)], registry)
    assert passes(found, live=False) == {REFERENCE: ("logps",)}
    assert found.roles == ("reference",)
    assert found.roles_in_update == ()


def test_kl_in_the_reward_reads_the_policy_at_collection(registry):
    found = make([kl_in_the_reward(k3), *step(grpo, reinforce)], registry)
    assert passes(found, live=False) == {AT_COLLECTION: ("logps",), REFERENCE: ("logps",)}


def test_off_policy_updates_score_the_policy_at_collection_once(registry):
    found = make(step(grpo, ppo), registry)
    assert passes(found, live=False) == {AT_COLLECTION: ("logps",)}
    assert not found.detached


def test_on_policy_old_logps_come_from_the_update_itself(registry):
    found = make(step(grpo, ppo), registry, on_policy=True)
    assert passes(found, live=False) == {}
    assert found.detached == {"old_logps": "logps"}


def test_on_policy_old_logps_are_scored_when_something_reads_them_earlier(registry):
    found = make([kl_in_the_reward(k3), *step(grpo, ppo)], registry, on_policy=True)
    assert passes(found, live=False)[AT_COLLECTION] == ("logps",)
    assert not found.detached


def test_an_estimator_that_reads_values_brings_a_critic(registry):
    found = make(step(gae, ppo), registry, on_policy=True)
    assert passes(found, live=False) == {CRITIC: ("values",)}
    learning = call("value_loss", value_loss, stage="loss_terms", model="critic")
    both = make([*step(gae, ppo), learning], registry, on_policy=True)
    assert {"values", "old_values", "returns"} <= {entry.field for entry in both.entries}
    assert passes(both, live=True)[CRITIC] == ("values",)
    assert passes(both, live=False) == {CRITIC: ("values",)}


def test_bare_quantities_at_collection_are_those_of_the_policy_that_sampled(registry):
    found = make(step(otb, reinforce), registry)
    assert passes(found, live=False) == {AT_COLLECTION: ("sum_pi_squared", "entropy")}
    assert passes(found, live=True) == {("policy", "completions"): ("logps",)}


def test_an_estimator_that_remembers_brings_its_state_and_the_roles(registry):
    found = make(step(Tracker, reinforce), registry)
    assert {entry.field for entry in found.entries} >= {"state", "role_ids"}
    assert "state" not in make(step(grpo, reinforce), registry)


def test_derived_fields_are_computed_at_the_level_they_need(registry):
    live = make(step(grpo, sharp), registry)
    assert (live.derived, live.before_split) == (("sharpness",), ())
    found = make(step(grpo, ranked), registry)
    assert (found.derived, found.before_split) == (("top",), ("top",))
    assert passes(found, live=False)[AT_COLLECTION] == ("entropy",)


def test_the_plan_names_readers_and_providers(registry):
    found = make(step(grpo, ppo), registry)
    entry = next(e for e in found.entries if e.field == "old_logps")
    assert entry.provider == "forward pass: policy at collection on completions"
    assert entry.readers == ["train.policy_loss = acme/ppo"]


def full_kl(divergence):
    """KL from both models' logits."""


def aligned(token_rewards, pooled, answer_pooled, schedule_weight):
    """Shaping that compares a completion with the task's answer."""


def flat(old_logps, advantages, mask):
    """Loss mask, once the advantages are there."""


def test_two_models_meet_in_the_update_or_at_collection(registry):
    in_loss = make([*step(grpo, reinforce), call("kl", full_kl)], registry, on_policy=True)
    (update,) = in_loss.passes
    assert (update.role, update.live, update.quantities) == ("policy", True, ("logps", "divergence"))
    assert update.beside == in_loss.roles_in_update == in_loss.roles == ("reference",)
    in_reward = make([call("kl", full_kl, stage="token_rewards"), *step(grpo, reinforce)], registry)
    (scoring,) = in_reward.passes_of(live=False)
    assert (scoring.role, scoring.quantities, scoring.beside) == ("policy", ("divergence",), ("reference",))
    assert in_reward.roles == ("reference",)
    assert in_reward.roles_in_update == ()


def test_answers_pass_through_the_policy_at_collection(registry):
    found = make([call("reward_shaping", aligned), *step(grpo, reinforce)], registry, there=("schedule_weight",))
    assert passes(found, live=False) == {AT_COLLECTION: ("pooled",), ("policy", "answers"): ("pooled",)}
    assert found.inputs == ("answers",)
    assert make(step(), registry).inputs == ()


def test_a_loss_mask_reads_advantages_and_the_policy_at_collection(registry):
    found = make([*step(grpo, ppo), call("loss_mask", flat)], registry, on_policy=True)
    assert passes(found, live=False) == {AT_COLLECTION: ("logps",)}
    assert not found.detached


def nll(demo_logps, demo_mask):
    """Term on demonstrations."""


def test_a_term_on_demonstrations_is_a_pass_of_every_update_and_about_their_tokens(registry):
    term = call("loss_term", nll)
    found = make([*step(grpo, reinforce), term], registry)
    assert passes(found, live=True)["policy", "demonstrations"] == ("logps",)
    assert found.inputs == ("demonstrations",)
    assert term.inputs == "demonstrations"
    assert call("policy_loss", ppo).inputs == "completions"


def two_masks(logps, mask, observed):
    """Term that reads the mask of the policy's tokens, and that of those between them."""


@declares(about="observed")
def of_observations(logps, mask, observed):
    """The same, which says what it is about."""


@declares(about="demo_mask")
def of_what_it_does_not_read(logps, mask):
    """Term that claims to be about what it does not read."""


def test_a_term_that_reads_several_masks_says_over_which_it_is_summed(registry):
    make(step(grpo, ppo, token_mean, term := call("loss_term", of_observations)), registry, there=("observed",))
    assert term.about == "observed"
    assert call("loss_term", nll).about == "demo_mask"
    assert call("kl", k3).about == "mask", "what reads none is about the policy's tokens"
    with pytest.raises(PlanError, match=r"two_masks reads mask and observed; a term is .*declares\(about='mask'\)"):
        make(step(grpo, ppo, token_mean, call("loss_term", two_masks)), registry)
    with pytest.raises(PlanError, match=r"reads mask, and declares about='demo_mask'; a term is summed"):
        make(step(grpo, ppo, token_mean, call("loss_term", of_what_it_does_not_read)), registry)
    make(step(grpo, ppo, token_mean, call("loss_mask", two_masked)), registry, there=("observed",))


def two_masked(old_logps, mask, observed):
    """Loss mask that reads both: it is about no tokens of its own."""


def weighed(logps, advantages, difficulty, mask):
    """Loss that reads a dataset column."""


def test_a_column_of_the_task_is_a_field_and_a_field_goes_before_it(registry):
    found = make(step(grpo, weighed), registry, columns=lambda: ("difficulty", "mask"))
    assert found.columns.keys() == {"difficulty"}
    entry = next(e for e in found.entries if e.field == "difficulty")
    assert (entry.stage, entry.origin) == ("drawn", "dataset")


# --- kinds of a third party

VERIFIER = Kind(name="verifier", summary="", stage="corrections", reads="fields", writes=("doubt",), origin=ORIGIN)


def doubting(old_entropy, mask):
    """What a kind of a third party calls."""


def cautious(scores, doubt, mask):
    """Estimator that reads what it writes."""


def test_what_a_third_party_s_kind_writes_is_there_from_the_next_stage_on(registry):
    found = make([call(VERIFIER, doubting), *step(cautious, reinforce)], registry)
    entry = next(e for e in found.entries if e.field == "doubt")
    assert (entry.stage, entry.provider) == ("corrections", "train.verifier = acme/doubting")
    assert passes(found, live=False) == {AT_COLLECTION: ("entropy",)}
    with pytest.raises(PlanError, match="reads 'doubt', which does not exist before the stage 'corrections' is over"):
        make([call(VERIFIER, doubting), call("correction", doubtful), *step()], registry)


def doubtful(doubt, mask):
    """Correction that reads what another component of its stage writes."""


# --- what is refused


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


def gambling(logps, key, mask):
    """Loss that draws."""


def lucky(logps, luck, mask):
    """Loss that reads a field drawn for the whole mini-batch."""


def live_lucky(logps, live_luck, mask):
    """Loss that reads a drawn field of the policy being trained, which is impossible."""


def distilled(logps, teacher_logps, mask):
    """Loss that reads a role which is not there."""


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (step(grpo, misspelt), r"train.policy_loss = acme/misspelt \(acme 1 \(acme\)\) reads the field 'old_logp', which nobody provides. Did you mean 'old_logps'\?.* under its name.* \[.*test_planner.py:\d+\]"),
        (step(grpo, corrected), "reads 'is_weights', which a correction provides; set train.correction"),
        (step(early, ppo), "train.advantage = acme/early reads 'advantages', which does not exist before"),
        (step(peeking, ppo), "train.advantage = acme/peeking cannot read 'logps': it is the policy being trained, .* 'old_logps'"),
        (step(grpo, ppo, bad_agg), "train.loss_agg = acme/bad_agg reads 'entropy', which changes during the update; .* 'old_entropy'"),
        (step(Crooked, ppo), "update reads state, mask, scores; it is called with .* state, scores, mask"),
        (step(grpo, remembering), "train.policy_loss = acme/remembering reads 'state', which only estimators .* have"),
        (step(grpo, straying), "field stray of acme 1 .* reads 'advantages' besides the forward pass"),
        (step(grpo, pooling), "field greedy_pool of acme 1 .* reads 'mask' and 'logits'; .* whole completions"),
        (step(grpo, fading), "reads 'schedule_weight', which a schedule provides; set train.schedule to a name"),
        (step(grpo, gambling), "train.policy_loss = acme/gambling reads 'key', .* one micro-batch at a time, .* read 'row_keys'"),
        (step(grpo, live_lucky), "field = acme/live_luck reads 'key', .* read 'row_keys'"),
        (step(grpo, distilled), r"reads the field 'teacher_logps', which nobody provides. roles.teacher = 'frozen' would open the model role 'teacher'"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused(registry, calls, message):
    with pytest.raises(PlanError, match=message):
        make(calls, registry)


def test_a_field_that_an_update_computes_before_the_split_may_draw(registry):
    assert make(step(grpo, lucky), registry).before_split == ("luck",)


def paid(token_rewards, mask):
    """Correction that reads what a later stage makes."""


def chained(is_weights, mask):
    """Correction that reads what its own stage makes."""


def shaped(token_rewards, mask):
    """Shaping, which has a first value to shape."""


def weighted(old_logps, is_weights, mask):
    """Estimator after the corrections."""


@pytest.mark.parametrize(
    ("function", "field", "stage"), [(paid, "token_rewards", "token_rewards"), (chained, "is_weights", "corrections")]
)
def test_a_correction_cannot_read_what_comes_after_it(registry, function, field, stage):
    refused = (
        f"train.correction = acme/{function.__name__} reads '{field}', which does not exist before the stage"
        f" '{stage}' is over; it is called at 'corrections' and can read"
    )
    with pytest.raises(PlanError, match=refused) as caught:
        make([call("correction", function), *step()], registry, there=("is_weights",))
    known = str(caught.value).partition("can read")[2]
    assert "rollout_logps" in known
    assert "advantages" not in known


def lit(logps, spotlight, mask):
    """Loss that reads what a plugin's own kind writes."""


def lit_early(spotlight, mask):
    """Correction that reads it too early."""


@pytest.mark.parametrize(
    ("calls", "cure"),
    [
        (step(grpo, lit), r"set train\.spotlight to one of shade, sun"),
        (
            [call("correction", lit_early)],
            "but not before the stage 'corrections' is over, and this is called at 'corrections'",
        ),
    ],
)
def test_a_field_of_an_own_kind_that_is_not_chosen_is_said_to_be_its(registry, calls, cure):
    kind = Kind(name="spotlight", summary="lights", stage="corrections", reads="fields", writes=("spotlight",))
    registry.add_kind(kind, ORIGIN)
    for name in ("sun", "shade"):
        registry.add("spotlight", name, shaped, origin=ORIGIN)
    said = rf"'spotlight', which nobody provides: the kind 'spotlight' writes it; {cure} \[.*test_planner\.py:\d+\]$"
    with pytest.raises(PlanError, match=said):
        make(calls, registry)


def test_what_a_stage_begins_with_or_an_earlier_one_made_may_be_read(registry):
    plan = make([call("reward_shaping", shaped), *step(weighted, ppo)], registry, there=("is_weights",))
    assert {"token_rewards", "is_weights"} <= {entry.field for entry in plan.entries}


def returning(logps, returns, mask):
    """Loss that reads returns."""


def one(scores, mask) -> float:
    """Estimator whose annotation says that it returns advantages."""
    return scores


def two(scores, mask) -> tuple[float, float]:
    """Estimator that returns both."""
    return scores, mask


class Both(NamedTuple):
    """Two results that have names."""

    advantages: float
    returns: float


Alias = tuple[float, float]


def named(scores, mask) -> "Both":
    """Estimator that returns both, by name."""
    return Both(scores, mask)


def aliased(scores, mask) -> "Alias":
    """Estimator that returns both, under an alias."""
    return scores, mask


@attrs.frozen(kw_only=True)
class OneOfAClass:
    """The same as a class."""

    def __call__(self, scores, mask) -> float:
        """Estimate."""
        return scores


@pytest.mark.parametrize("estimator", [one, OneOfAClass])
def test_returns_are_refused_where_the_estimator_says_that_it_makes_none(registry, estimator):
    calls = step(estimator, returning)
    with pytest.raises(PlanError, match=f"reads 'returns', which advantage {estimator.__name__} does not return"):
        make(calls, registry, estimator=calls[0].component)


@pytest.mark.parametrize("estimator", [two, named, aliased, grpo])
def test_returns_are_there_where_the_estimator_makes_them_or_does_not_say(registry, estimator):
    calls = step(estimator, returning)
    assert "returns" in make(calls, registry, estimator=calls[0].component)


# --- plans of whole configurations


def test_a_correction_that_cannot_be_planned_is_refused_when_the_config_is_read():
    dovetail.register("correction", "paid", paid)
    with pytest.raises(PlanError, match="train.correction = session/paid reads 'token_rewards'"):
        load(None, ["train.correction=paid"])


def test_a_loss_that_reads_returns_needs_an_estimator_that_returns_them():
    def hindsight(logps, returns, mask):
        """Loss that learns from returns."""

    dovetail.register("policy_loss", "hindsight", hindsight)
    with pytest.raises(PlanError, match="session/hindsight reads 'returns', which advantage grpo does not return"):
        load(None, ["train.policy_loss=hindsight"])
    assert "returns" in load(None, ["train.policy_loss=hindsight", "train.advantage=gae"]).plan


def test_a_loss_that_corrects_by_itself_refuses_another_correction():
    @declares(excludes=("correction",))
    def own_correction(logps, rollout_logps, advantages, mask):
        """Loss that weighs by the sampler's own probabilities."""

    dovetail.register("policy_loss", "own_correction", own_correction)
    alone = ["train.policy_loss=own_correction"]
    assert load(None, alone).plan
    with pytest.raises(PlanError) as caught:
        load(None, [*alone, "train.correction=tis_token"])
    assert str(caught.value) == (
        "train.policy_loss = session/own_correction already does the work of a correction, so train.correction ="
        " tis_token would do it twice; set train.correction to None, or choose another policy_loss"
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "advantage.gdpo.weights = (1.0, 2.0, 3.0)",
            "advantage.gdpo.weights has length 3, but train.rewards has length 2; give one number for each reward, in"
            " the order of train.rewards",
        ),
        (
            "reward_manager.weighted_sum.weights = {'chek_answer': 1.0}",
            "reward_manager.weighted_sum.weights names 'chek_answer', which is not a reward of this run. Did you mean"
            " 'check_answer'? train.rewards names check_answer, match_format_exactly",
        ),
    ],
)
def test_numbers_for_each_reward_are_counted_when_the_config_is_read(tmp_path, line, problem):
    file = tmp_path / "rewards.gin"
    file.write_text(
        "train.advantage = 'gdpo'\n"
        "train.rewards = ['check_answer', 'match_format_exactly']\n"
        "train.reward_manager = 'weighted_sum'\n" + line
    )
    with pytest.raises(PlanError) as caught:
        load(file)
    assert str(caught.value) == f"{file}:4: {problem}"


def test_the_plan_looks_up_names_where_the_config_did():
    def novelty(old_logps, mask):
        """A field that only one registry has."""

    def novel(logps, advantages, novelty, mask):
        """A loss that reads it."""

    own, _ = discover()
    for kind, function in (("field", novelty), ("policy_loss", novel)):
        own.add(kind, function.__name__, function, origin=ORIGIN)
    config = load(None, ["train.policy_loss=novel"], registry=own)
    assert plan_step(config).derived == ("novelty",)
    assert config.plan.derived == ("novelty",)


def test_a_role_that_a_config_opens_has_fields():
    def distance(logps, teacher_logps, mask):
        """A loss that compares with a teacher."""

    dovetail.register("policy_loss", "distance", distance)
    with pytest.raises(PlanError, match="roles.teacher = 'frozen' would open the model role 'teacher'"):
        load(None, ["train.policy_loss=distance"])
    plan = load(None, ["train.policy_loss=distance", "roles.teacher=frozen", "teacher.model=decoder"]).plan
    assert passes(plan, live=False) == {("teacher", "completions"): ("logps",)}
    assert plan.roles == ("teacher",)


@pytest.mark.parametrize("field", [name for name, info in FIELDS.items() if info.setting])
def test_a_field_that_a_setting_brings_is_refused_without_it(field):
    info = FIELDS[field]
    assert info.setting in {kind.path for kind in KINDS}
    assert f"set {info.setting} to" in info.without

    def reader(**fields):
        """A loss."""

    named = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("logps", field)]
    reader.__signature__ = inspect.Signature(named)
    dovetail.register("policy_loss", "reader", reader)
    empty = "None" if info.setting == "train.schedule" else "()"
    with pytest.raises(PlanError, match=f"reads '{field}', which {re.escape(info.without)}"):
        load(None, ["train.policy_loss=reader", f"{info.setting}={empty}"])
