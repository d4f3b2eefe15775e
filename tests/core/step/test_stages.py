"""The inputs that components of any kind, built-in or a third party's, get at their stage, and the use of their results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.step.test_update import PLAIN, change, collect, in_micro_batches, make, moment, sampled

import dovetail
from dovetail.errors import PluginError
from dovetail.kinds import STAGES, Kind
from dovetail.registry import Origin, current
from dovetail.step.update import mini_batches
from dovetail.training.metrics import means

ON_POLICY = (*PLAIN, "train.policy_loss=reinforce", "train.monitor=()")
"""Settings without any forward pass except the update's."""


def register(kind, function):
    dovetail.register(kind, function.__name__, function)


def open_kind(name, stage, **options):
    """Open a kind as a plugin would; it is removed after the test."""
    current().add_kind(
        Kind(name=name, summary=name, stage=stage, reads="fields", **options), Origin("session", "0", "")
    )


def close(actual, expected, tolerance=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=1e-6)


def same(one, other, tolerance=1e-4):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=1e-6), one, other)


def different(one, other):
    return max(float(np.abs(a - b).max()) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def summary(scores, mask, *, factor: float = 1.0):
    """A derived field: one number per completion, from its score and its remaining tokens."""
    return scores + factor * jnp.sum(mask, axis=-1, dtype=jnp.float32), {"scores": scores}


# --- derived fields


def test_a_derived_field_first_read_by_a_correction_reaches_the_estimator_as_things_stand_then():
    """It is computed from the mask after the correction and from the shaped scores."""

    def narrow(summary, mask):
        """Keep the first tokens, after reading the field."""
        return jnp.ones(mask.shape), mask & (jnp.arange(5)[None] < 1) & jnp.isfinite(summary)[:, None]

    def threefold(token_rewards, summary):
        """Triple the rewards, after reading the field, too."""
        return 3 * token_rewards + 0 * summary[:, None]

    def of_summary(summary, mask):
        """Advantages that are the field itself."""
        return jnp.where(mask, summary[:, None], 0.0)

    for kind, function in (
        ("field", summary), ("correction", narrow), ("reward_shaping", threefold), ("advantage", of_summary)
    ):  # fmt: skip
        register(kind, function)
    chosen = ("train.correction=narrow", "train.reward_shaping=threefold", "train.advantage=of_summary")
    algorithm, graphdef, weights = make(*ON_POLICY, *chosen, "field.summary.factor=10.0")
    given = sampled()
    batch, metrics = collect(algorithm, graphdef, weights, given)
    left = np.asarray(given["mask"]) & (np.arange(5) < 1)
    assert left.any(axis=1).sum() > 6
    rewarded = np.where(left.any(axis=1), 3 * np.asarray(given["scores"]), 0)  # no token left, nothing to reward
    np.testing.assert_array_equal(batch["mask"], left)
    close(batch["advantages"], np.where(left, (rewarded + 10 * left.sum(1))[:, None], 0))
    close(means(metrics)["field/summary/scores"], rewarded[left.any(axis=1)].mean())


def test_estimators_see_what_shaping_took_and_others_the_scores_as_they_were():
    def threefold(token_rewards):
        """Triple the rewards."""
        return 3 * token_rewards

    def by_score(scores, mask):
        """Weigh tokens by the score."""
        return jnp.where(mask, scores[:, None], 0.0)

    register("reward_shaping", threefold)
    register("loss_mask", by_score)
    shaped, plain = (
        collect(*make(*ON_POLICY, "train.advantage=reinforce", "train.loss_mask=by_score", *more), sampled())[0]
        for more in (("train.reward_shaping=threefold",), ())
    )
    close(shaped["advantages"], 3 * np.asarray(plain["advantages"]))
    close(shaped["loss_weights"], plain["loss_weights"])
    close(shaped["scores"], sampled()["scores"])


# --- kinds of a third party


def test_the_stages_of_the_whole_batch_run_in_the_order_in_which_the_planner_has_them():
    """Each is called once, and a field that it writes is there at the next."""
    stages = [stage.name for stage in STAGES if stage.level == "batch"]
    ran = []

    def recorder(stage):
        def record(mask):
            """Note the stage, and write its field."""
            ran.append(stage)
            return jnp.where(mask, 1.0, 0.0)

        record.__name__ = f"record_{stage}"
        return record

    for stage in stages:
        open_kind(f"at_{stage}", stage, writes=(f"seen_{stage}",))
        register(f"at_{stage}", recorder(stage))
    chosen = [f"train.at_{stage}=record_{stage}" for stage in stages]
    batch, _ = collect(*make(*ON_POLICY, *chosen), sampled())
    assert ran == stages
    assert {f"seen_{stage}" for stage in stages} <= batch.keys()


def test_a_third_party_s_kind_is_called_and_its_field_reaches_the_estimator_and_the_loss():
    def distrust(rollout_logps, mask, *, scale: float = 1.0):
        """A verifier: doubt of every token, and a metric."""
        return jnp.where(mask, -scale * rollout_logps, 0.0), {"tokens": mask}

    def cautious(scores, doubt, mask):
        """Advantages that are zero for doubtful tokens."""
        return jnp.where(mask, scores[:, None] - doubt, 0.0)

    def careful(logps, advantages, doubt, mask):
        """A loss that weighs by doubt."""
        return -logps * advantages * doubt

    open_kind("verifier", "corrections", writes=("doubt",))
    for kind, function in (("verifier", distrust), ("advantage", cautious), ("policy_loss", careful)):
        register(kind, function)
    chosen = ("train.verifier=distrust", "verifier.distrust.scale=2.0", "train.advantage=cautious")
    algorithm, graphdef, weights = make(*PLAIN, "train.monitor=()", *chosen, "train.policy_loss=careful")
    given = sampled()
    batch, metrics = collect(algorithm, graphdef, weights, given)
    mask, doubt = np.asarray(given["mask"]), -2 * np.asarray(given["rollout_logps"])
    close(batch["doubt"], np.where(mask, doubt, 0))
    close(batch["advantages"], np.where(mask, np.asarray(given["scores"])[:, None] - doubt, 0))
    assert means(metrics)["verifier/tokens"] == 1
    learnt, _ = change(algorithm, graphdef, weights, batch)
    same(change(in_micro_batches(algorithm, 5), graphdef, weights, batch)[0], learnt)
    reinforce, *_ = make(*ON_POLICY)
    expected, _ = change(reinforce, graphdef, weights, batch | {"advantages": batch["advantages"] * batch["doubt"]})
    same(learnt, expected)


def test_a_third_party_s_kind_may_look_at_the_whole_mini_batch():
    def rank(advantages, mask, *, above: float = 0.0):
        """Whether a token is above the mean of the mini-batch."""
        return (advantages > above + jnp.sum(advantages) / jnp.sum(mask, dtype=jnp.float32)).astype(jnp.float32)

    def chosen_few(logps, advantages, rank, mask):
        """A loss on tokens with a high rank."""
        return -logps * rank

    open_kind("ranking", "mini_batch", writes=("rank",))
    register("ranking", rank)
    register("policy_loss", chosen_few)
    algorithm, graphdef, weights = make(*PLAIN, "train.ranking=rank", "train.policy_loss=chosen_few")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    learnt, _ = change(algorithm, graphdef, weights, batch)
    for size in (1, 4, 5):
        same(change(in_micro_batches(algorithm, size), graphdef, weights, batch)[0], learnt)


def test_a_third_party_s_kind_may_replace_a_field_in_each_mini_batch():
    def centred(advantages, mask):
        """The advantages without the mean of the mini-batch."""
        return jnp.where(mask, advantages - jnp.sum(advantages) / jnp.sum(mask, dtype=jnp.float32), 0.0)

    open_kind("whitening", "mini_batch", writes=("advantages",))
    register("whitening", centred)
    algorithm, graphdef, weights = make(*ON_POLICY, "train.whitening=centred")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    learnt, _ = change(algorithm, graphdef, weights, batch)
    plain, *_ = make(*ON_POLICY)
    given = batch | {"advantages": centred(batch["advantages"], batch["mask"])}
    same(learnt, change(plain, graphdef, weights, given)[0])
    assert different(learnt, change(plain, graphdef, weights, batch)[0]) > 1e-4


SHAPES = {"one number": jnp.sum, "one for each group": lambda x: jnp.sum(x.reshape(3, 4, -1), axis=(1, 2))}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stage", ["corrections", "mini_batch"])
def test_what_is_not_one_row_for_each_completion_is_refused_with_its_author(stage, shape):
    def misshapen(scores):
        """A field of the wrong shape."""
        return SHAPES[shape](scores[:, None])

    open_kind("oddity", stage, writes=("odd",))
    register("oddity", misshapen)
    algorithm, graphdef, weights = make(*ON_POLICY, "train.oddity=misshapen")
    message = r"oddity.misshapen of session 0 .* gives 'odd' the shape \((3,)?\); .* each of its 12 completions"
    with pytest.raises(PluginError, match=message):
        change(algorithm, graphdef, weights, collect(algorithm, graphdef, weights, sampled())[0])


def test_a_result_that_broadcasting_would_hide_is_refused_with_its_author():
    """The results have one number per completion instead of one per token."""

    def by_row(scores, mask):
        """An advantage for each completion, in the shape that broadcasts."""
        return scores[:, None]

    def of_rows(logps, advantages, mask):
        """A loss for each completion, likewise."""
        return -jnp.sum(logps * advantages, axis=1, keepdims=True)

    register("advantage", by_row)
    register("policy_loss", of_rows)
    shape = r"the shape \(12, 1\); it has \(12, 5\) here, one number for each token \[.*test_stages.py"
    algorithm, graphdef, weights = make(*ON_POLICY, "train.advantage=by_row")
    with pytest.raises(PluginError, match=f"advantage.by_row of session 0 .* gives 'advantages' {shape}"):
        collect(algorithm, graphdef, weights, sampled())
    algorithm, graphdef, weights = make(*PLAIN, "train.monitor=()", "train.policy_loss=of_rows")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    with pytest.raises(PluginError, match=f"policy_loss.of_rows of session 0 .* gives the loss {shape}"):
        change(algorithm, graphdef, weights, batch)


# --- random numbers


@pytest.mark.slow
def test_draws_do_not_depend_on_the_split_and_differ_between_mini_batches_and_epochs():
    def noisy(logps, advantages, row_keys, mask):
        """A loss that drops tokens, by the key of each completion."""
        return -logps * jax.vmap(lambda key: jax.random.bernoulli(key, 0.5, (5,)).astype(jnp.float32))(row_keys)

    def lucky(old_logps, key, mask):
        """A field that ranks at random over the mini-batch."""
        return jax.random.uniform(key, mask.shape)

    def gambling(logps, lucky, mask):
        """A loss that reads it."""
        return -logps * (lucky > 0.5).astype(jnp.float32)

    register("field", lucky)
    for loss in (noisy, gambling):
        register("policy_loss", loss)
        algorithm, graphdef, weights = make(*PLAIN, "train.monitor=()", f"train.policy_loss={loss.__name__}")
        batch, _ = collect(algorithm, graphdef, weights, sampled())
        first, second = mini_batches(batch, 12, 2, jax.random.key(0))
        learnt, _ = change(algorithm, graphdef, weights, first)
        same(change(in_micro_batches(algorithm, 5), graphdef, weights, first)[0], learnt)
        again, _ = change(algorithm, graphdef, weights, second, moment(update=1))
        assert different(learnt, again) > 1e-4, "the next epoch draws others"


# --- metrics


@pytest.mark.slow
def test_what_any_kind_reports_reaches_the_log():
    def shown(logits):
        """A quantity with a metric."""
        return jnp.max(logits, axis=-1), {"top": jnp.max(logits, axis=-1)}

    def counted(old_shown, mask):
        """A derived field with one."""
        return old_shown, {"tokens": mask}

    def told(logps, ref_logps):
        """A KL estimator with one."""
        return logps - ref_logps, {"gap": jnp.abs(logps - ref_logps)}

    def mean(mask):
        """Weights with one."""
        count = jnp.sum(mask, dtype=jnp.float32)
        return jnp.where(mask, 1 / count, 0.0), {"tokens": count}

    def reading(logps, advantages, shown, counted, mask):
        """A loss that reads both fields."""
        return -logps * advantages + 0 * shown + 0 * counted

    for kind, function in (
        ("field", shown), ("field", counted), ("kl", told), ("loss_agg", mean), ("policy_loss", reading)
    ):  # fmt: skip
        register(kind, function)
    chosen = ("train.policy_loss=reading", "train.loss_agg=mean", "train.kl=told", "train.kl_coef=0.1")
    for place, size in (("loss", 12), ("loss", 5), ("reward", 12)):
        algorithm, graphdef, weights = make(*PLAIN, *chosen, f"train.kl_in={place}")
        batch, at_collection = collect(algorithm, graphdef, weights, sampled())
        _, in_update = change(in_micro_batches(algorithm, size), graphdef, weights, batch)
        collected, updated = means(at_collection), means(in_update)
        assert (collected if place == "reward" else updated)["kl/gap"] > 0
        assert updated["loss_agg/tokens"] == float(batch["mask"].sum())
        assert updated["field/counted/tokens"] == 1
        close([updated["field/shown/top"]], [collected["field/old_shown/top"]], 1e-4)


def test_the_mean_weight_of_loss_masks_is_theirs_alone():
    """Independently of corrections, it is 1 for every token that no loss mask leaves out."""

    def everything(advantages, mask):
        """Leave nothing out."""
        return jnp.where(mask, 1.0, 0.0)

    def halved(rollout_logps, mask):
        """Weigh all by a half, and reject last tokens."""
        return jnp.full(mask.shape, 0.5), mask & (jnp.arange(5)[None] < 4)

    register("loss_mask", everything)
    register("correction", halved)
    algorithm, graphdef, weights = make(*ON_POLICY, "train.loss_mask=everything", "train.correction=halved")
    batch, metrics = collect(algorithm, graphdef, weights, sampled())
    found = means(metrics)
    assert found["loss_mask/weight_mean"] == 1
    assert 0 < found["correction/weight_mean"] < 0.5
    close(batch["is_weights"], np.where(sampled()["mask"], 0.5, 0))


def test_several_components_of_a_kind_are_told_apart():
    """Of one alone the kind is name enough."""

    def everything(advantages, mask):
        """Leave nothing out."""
        return jnp.where(mask, 1.0, 0.0), {"share": jnp.ones(mask.shape)}

    def nothing(advantages, mask):
        """Weigh nothing less."""
        return jnp.where(mask, 1.0, 0.0), {"share": jnp.zeros(mask.shape)}

    register("loss_mask", everything)
    register("loss_mask", nothing)
    both, alone = (
        means(collect(*make(*ON_POLICY, f"train.loss_mask={chosen}"), sampled())[1])
        for chosen in (("everything", "nothing"), ("nothing",))
    )
    assert (both["loss_mask/everything/share"], both["loss_mask/nothing/share"]) == (1, 0)
    assert alone["loss_mask/share"] == 0


def test_the_mean_weight_of_a_loss_mask_asked_with_the_loss_is_its_own_too():
    def halved(rollout_logps, mask):
        """Weigh all by a half."""
        return jnp.full(mask.shape, 0.5), mask

    def live(logps, mask):
        """A mask computed with the loss, because it reads the policy being trained."""
        return jnp.ones(mask.shape)

    register("correction", halved)
    register("loss_mask", live)
    algorithm, graphdef, weights = make(*ON_POLICY, "train.loss_mask=live", "train.correction=halved")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    assert means(change(algorithm, graphdef, weights, batch)[1])["loss_mask/live/weight_mean"] == 1
