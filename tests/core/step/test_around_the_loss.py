"""Corrections, loss masks, shaping and the full divergence in a step of a tiny model."""

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.core.step.test_update import PLAIN, VOCAB, change, collect, in_micro_batches, make, reference, sampled

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError, DataError, PlanError, PluginError
from dovetail.host.prompts import answers
from dovetail.step import forward
from dovetail.training.metrics import means
from dovetail_kit.notices import warnings


def close(actual, expected, tolerance=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=1e-6)


def same(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), one, other)


# --- corrections

TIGHT = (
    "correction.token_veto.threshold=0.05",
    "correction.icepop.lower=0.2",
    "correction.icepop.upper=3.0",
    "correction.tis_token.upper=1.5",
)


def test_weights_of_corrections_multiply_and_masks_meet():
    def corrected(*names):
        algorithm, graphdef, weights = make(f"train.correction={list(names)}", *TIGHT)
        return collect(algorithm, graphdef, weights, sampled())

    (tis, _), (ice, _), (veto, _) = (corrected(name) for name in ("tis_token", "icepop", "token_veto"))
    both, metrics = corrected("tis_token", "icepop", "token_veto")
    assert (veto["mask"] != sampled()["mask"]).any()
    np.testing.assert_array_equal(both["mask"], veto["mask"])
    close(both["is_weights"], tis["is_weights"] * ice["is_weights"] * veto["is_weights"])
    found = means(metrics)
    given = np.asarray(both["is_weights"])[np.asarray(sampled()["mask"])]
    close(found["correction/weight_mean"], given.mean())
    close(found["correction/rejected_tokens"], (given == 0).mean())


def test_a_single_name_none_and_a_tuple_are_all_right():
    for text, names in (("tis_token", ("tis_token",)), ("None", ()), ("['tis','reject']", ("tis_token", "reject"))):
        assert load(None, [f"train.correction={text}"]).setting("train.correction") == names
    with pytest.raises(ConfigError, match="'tis_token' is named twice"):
        load(None, ["train.correction=['tis_token', 'tis']"])
    with pytest.raises(ConfigError, match="unknown correction 'rejekt'. Did you mean 'reject'"):
        load(None, ["train.correction=['tis_token', 'rejekt']"])


def test_rejected_completions_leave_the_baseline_of_their_group_unless_asked_otherwise():
    def advantages(*more):
        algorithm, graphdef, weights = make("train.advantage=rloo", *more)
        return collect(algorithm, graphdef, weights, sampled())[0]["advantages"]

    veto = ("train.correction=token_veto", TIGHT[0])
    everyone, left = advantages(), advantages(*veto)
    close(advantages(*veto, "correction.token_veto.count_rejected=True"), everyone)
    assert np.abs(np.where(left != 0, left - everyone, 0)).max() > 1e-3


# --- the sampler's mismatch


@pytest.mark.slow
def test_the_mismatch_is_measured_at_collection_or_on_policy_in_the_update():
    for loss in ("ppo", "reinforce"):
        algorithm, graphdef, weights = make(*PLAIN, f"train.policy_loss={loss}")
        batch, at_collection = collect(algorithm, graphdef, weights, sampled())
        _, in_update = change(in_micro_batches(algorithm, 4), graphdef, weights, batch)
        assert not any(name.startswith("mismatch") for name in at_collection)
        found = {name: value for name, value in means(in_update).items() if name.startswith("mismatch")}
        algorithm, graphdef, weights = make("train.kl_coef=0.1", "train.kl_in=reward")
        scored, metrics = collect(algorithm, graphdef, weights, sampled())
        expected = {name: value for name, value in means(metrics).items() if name.startswith("mismatch")}
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            close(found[name], value, 1e-4)
        gap = np.abs(scored["old_logps"] - scored["rollout_logps"])[scored["mask"]]
        close([found["mismatch/abs_mean"], found["mismatch/abs_max"]], [gap.mean(), gap.max()], 1e-4)


# --- loss masks


def without_loss_masks(algorithm, stage="loss_masks"):
    """Return the same algorithm without the loss masks of a stage."""
    return attrs.evolve(algorithm, parts={"policy": {**algorithm.parts["policy"], stage: ()}})


@pytest.mark.slow
def test_a_loss_mask_narrows_any_loss():
    algorithm, graphdef, weights = make(*PLAIN, "train.policy_loss=gspo", "train.loss_mask=top_entropy")
    batch, metrics = collect(algorithm, graphdef, weights, sampled())
    chosen = np.asarray(batch["loss_weights"])
    assert 0 < chosen.sum() < np.asarray(batch["mask"]).sum()
    np.testing.assert_array_equal(batch["mask"], sampled()["mask"])
    close(means(metrics)["loss_mask/weight_mean"], chosen[np.asarray(batch["mask"])].mean())
    whole, _ = change(algorithm, graphdef, weights, batch)
    split, _ = change(in_micro_batches(algorithm, 5), graphdef, weights, batch)
    same(split, whole)
    weighed = {name: value for name, value in batch.items() if name != "loss_weights"}
    without, _ = change(algorithm, graphdef, weights, weighed | {"advantages": batch["advantages"] * chosen})
    same(without, whole)


def test_truncated_completions_are_in_the_statistics_and_in_no_loss():
    truncated = jnp.arange(12) % 3 == 0
    given = sampled() | {"truncated": truncated}
    algorithm, graphdef, weights = make(*PLAIN, "train.loss_mask=drop_truncated", "train.advantage=rloo")
    batch, _ = collect(algorithm, graphdef, weights, given)
    everyone, _ = collect(without_loss_masks(algorithm), graphdef, weights, given)
    np.testing.assert_array_equal(batch["advantages"], everyone["advantages"])
    np.testing.assert_array_equal(batch["mask"], given["mask"] & ~truncated[:, None])
    dropped, _ = change(algorithm, graphdef, weights, batch)
    expected, _ = change(algorithm, graphdef, weights, everyone | {"mask": batch["mask"]})
    same(dropped, expected)


def test_a_loss_mask_that_reads_the_policy_being_trained_is_asked_with_the_loss():
    opsm = ("train.loss_mask=opsm", "loss_mask.opsm.threshold=0.0")
    algorithm, graphdef, weights = make(*PLAIN, "train.policy_loss=cispo", *opsm)
    assert [part.component.name for part in algorithm.at("loss_terms")] == ["opsm"]
    assert not algorithm.at("loss_masks")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    assert "loss_weights" not in batch
    learnt, metrics = change(algorithm, graphdef, weights, batch)
    assert 0 < means(metrics)["loss_mask/opsm/weight_mean"] < 1
    plain = without_loss_masks(algorithm, "loss_terms")
    positive = batch | {"advantages": jnp.maximum(batch["advantages"], 0.0)}
    gap = means(metrics)["mismatch/kl_k1"]  # mean(log μ - log π): with this model every completion is beyond 0
    assert gap > 0
    without, _ = change(plain, graphdef, weights, positive)
    same(without, learnt)


def test_a_loss_mask_asked_with_the_loss_cannot_change_the_mask():
    def wrong(logps, mask):
        """Return a mask as well."""
        return mask, mask

    dovetail.register("loss_mask", "wrong", wrong)
    algorithm, graphdef, weights = make("train.loss_mask=wrong")
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    with pytest.raises(PluginError, match=r"loss_mask.wrong of .* reads 'logps', so it is asked with the loss"):
        change(algorithm, graphdef, weights, batch)


def test_advantages_are_read_after_they_are_estimated_only():
    def eager(token_rewards, advantages):
        """Shape rewards by what they will lead to."""
        return token_rewards

    dovetail.register("reward_shaping", "eager", eager)
    with pytest.raises(
        PlanError, match="reads 'advantages', which does not exist before the stage 'advantages' is over"
    ):
        load(None, ["train.reward_shaping=eager"])


# --- the full divergence


def direct(graphdef, weights, other, batch):
    """Return KL(π‖π_ref) at every position, computed from all logits at once."""

    def logits(which):
        model = nnx.merge(graphdef, *which)
        tokens = jnp.concatenate([batch["prompt_tokens"], batch["tokens"]], axis=1)
        visible = jnp.concatenate([batch["prompt_mask"], jnp.ones(batch["tokens"].shape, bool)], axis=1)
        return jax.nn.log_softmax(model.logits(model(tokens, visible)[0])[:, batch["prompt_tokens"].shape[1] - 1 : -1])

    logps, ref_logps = logits(weights), logits(other)
    return jnp.sum(jnp.exp(logps) * (logps - ref_logps), axis=-1)


@pytest.mark.slow
def test_the_full_divergence_is_that_of_whole_logits_in_value_and_gradient(monkeypatch):
    algorithm, graphdef, weights = make(*PLAIN, "train.kl=full", "train.kl_coef=0.1", "train.policy_loss=reinforce")
    assert algorithm.plan.roles_in_update == ("reference",)
    assert algorithm.plan.passes_of(live=False) == ()
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    batch = batch | {"advantages": jnp.zeros_like(batch["advantages"])}  # so that nothing else has a gradient
    whole, metrics = change(algorithm, graphdef, weights, batch)
    other, mask = reference(algorithm, weights), batch["mask"]

    def loss(trained):
        divergence = direct(graphdef, weights._replace(trained=trained), other, batch)
        return 0.1 * jnp.sum(jnp.where(mask, divergence, 0.0)) / mask.sum().astype(jnp.float32)

    value, gradient = jax.value_and_grad(loss)(weights.trained)
    close(0.1 * means(metrics)["kl/mean"], value, 1e-4)
    same(whole, jax.tree.map(lambda g: -g, gradient))
    monkeypatch.setattr(forward, "LOGITS_PER_CHUNK", VOCAB * 7)
    same(change(in_micro_batches(algorithm, 5), graphdef, weights, batch)[0], whole)


def test_the_full_divergence_in_the_reward_is_that_of_the_policy_at_collection():
    algorithm, graphdef, weights = make("train.kl=full", "train.kl_coef=0.1", "train.kl_in=reward")
    assert algorithm.plan.roles_in_update == ()
    batch, _ = collect(algorithm, graphdef, weights, sampled())
    close(batch["old_full_kl"], direct(graphdef, weights, reference(algorithm, weights), batch), 1e-4)


# --- rewards blended with what models think

SHAPED = ("train.schedule=linear", "schedule.linear.max_weight=0.5", "schedule.linear.warmup_ratio=0.0")


def test_the_references_likelihood_is_blended_in():
    algorithm, graphdef, weights = make("train.reward_shaping=reference_quality", *SHAPED)
    assert [(each.role, each.inputs) for each in algorithm.plan.passes_of(live=False)] == [("reference", "completions")]
    batch, metrics = collect(algorithm, graphdef, weights, sampled())
    mask = np.asarray(batch["mask"])
    quality = np.exp(np.where(mask, batch["ref_logps"], 0).sum(1) / np.maximum(mask.sum(1), 1))
    scores = np.asarray(batch["scores"])
    close(np.asarray(batch["token_rewards"]).sum(1), 0.5 * scores + 0.5 * quality * mask.sum(1))
    assert means(metrics)["schedule/weight"] == 0.5


def test_answers_pass_through_the_policy_once_per_prompt():
    algorithm, graphdef, weights = make(
        "train.reward_shaping=representation_alignment",
        "reward_shaping.representation_alignment.entropy_threshold=0.0",
        *SHAPED,
    )
    scored = [(each.role, each.inputs) for each in algorithm.plan.passes_of(live=False)]
    assert scored == [("policy", "completions"), ("policy", "answers")]
    given = sampled()
    answered = {"answer_tokens": given["tokens"][::4].repeat(4, 0), "answer_mask": given["mask"][::4].repeat(4, 0)}
    batch, metrics = collect(algorithm, graphdef, weights, given | answered)
    for group in range(3):  # the first completion of each prompt is the answer itself
        close(batch["old_answer_mean_hidden_states"][4 * group], batch["old_mean_hidden_states"][4 * group])
        close(batch["old_answer_mean_hidden_states"][4 * group + 3], batch["old_mean_hidden_states"][4 * group])
    bonus = np.asarray(batch["token_rewards"]).sum(1) - np.asarray(given["scores"])
    close(bonus[::4], 0.5, 1e-4)
    assert (np.abs(bonus) <= 0.5 + 1e-5).all()
    assert means(metrics)["reward_shaping/active"] == 1


def test_a_schedule_is_missed_when_the_config_is_read():
    with pytest.raises(PlanError, match="reads 'schedule_weight', which a schedule provides; set train.schedule"):
        load(None, ["train.reward_shaping=reference_quality"])


def test_a_schedule_that_nobody_reads_is_noticed():
    assert warnings(load(None, ["train.schedule=linear"])) == [
        "train.schedule = linear has no effect: no chosen component reads 'schedule_weight'"
    ]
    assert not warnings(load(None, ["train.schedule=linear", "train.reward_shaping=reference_quality"]))


def test_an_answer_that_is_no_text_is_refused():
    assert answers([{"prompt": "1+1", "answer": "2"}], "answer") == ["2"]
    with pytest.raises(DataError, match=r"answer in the column 'answer' is 2, no text; prompt '1\+1'"):
        answers([{"prompt": "1+1", "answer": 2}], "answer")
