"""A typo in a metric's name is found before the first run."""

import sys

import pytest

import dovetail
from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail_lab.metric import check_metric

CORRECTED = "train.correction=('tis_token',)"
SAMPLED = ("eval.samples=4", "eval.pass_at=(1, 4)")


@pytest.mark.parametrize(
    ("metric", "sets"),
    [
        ("eval/accuracy", ()),
        ("eval/pass@4", SAMPLED),
        ("eval/sampled_accuracy", SAMPLED),
        ("eval/reward/check_answer", ()),
        ("reward/mean", ()),
        ("entropy/mean", ()),
        ("kl/mean", ("train.kl_coef=0.1",)),
        ("optimizer/update_norm", ()),
        ("policy_loss/clip_fraction", ()),
        ("lengths/fill", ()),
        ("mismatch/effective_sample_size", ()),
        ("reward/check_answer/abstained", ()),
        ("reward/check_answer/whatever", ()),
        ("eval/reward/check_answer/whatever", ()),
        ("loss_term/dpo/accuracy", ("train.loss_terms=('dpo',)",)),
        ("loss_term/dpo/mean", ("train.loss_terms=('dpo',)",)),
        ("staleness/mean", ("train.staleness=1", CORRECTED)),
        ("correction/rejected_tokens", (CORRECTED,)),
        ("critic/value_mean", ("train.advantage=gae",)),
        ("entropy/coef", ("train.entropy_coef=0.1",)),
        ("kl/coef", ("train.kl_coef=0.1", "train.kl_in=reward")),
        ("group_filter/kept", ("train.group_filter=nonzero_variance",)),
        ("curriculum/seen", ("train.curriculum=difficulty",)),
        ("replay/age", ("train.replay=recent", CORRECTED)),
        ("reward_shaping/quality", ("train.reward_shaping=('reference_quality',)", "train.schedule=linear")),
        ("advantage/baseline", ("train.advantage=rae",)),
        ("field/choices/agreement", ("train.replay_choices=True",)),
    ],
)
def test_metrics_that_there_are(metric, sets):
    check_metric(metric, load(None, sets))


@pytest.mark.parametrize(
    ("metric", "sets", "message"),
    [
        ("eval/acuracy", (), "Did you mean 'eval/accuracy'"),
        ("eval/pass@1", (), "set eval.samples, which is 0"),
        ("eval/pass@8", SAMPLED, "Did you mean 'eval/pass@4'"),
        ("kl/mean", (), "no run of this config has a metric 'kl/mean'"),
        ("accuracy", (), "Did you mean 'eval/accuracy'"),
        ("policy_loss", (), "Did you mean 'policy_loss/loss'"),
        ("reward/meen", (), "Did you mean 'reward/mean'"),
        ("reward/interpretr", (), "There are: reward/check_answer, "),
        ("kl/men", ("train.kl_coef=0.1",), "Did you mean 'kl/mean'"),
        ("policy_loss/los", (), "Did you mean 'policy_loss/loss'"),
        ("policy_loss/clip_fractoin", (), "Did you mean 'policy_loss/clip_fraction'"),
        ("advantage/baselin", ("train.advantage=rae",), "Did you mean 'advantage/baseline'"),
        ("eval/accuracy", ("eval.every=None",), "set eval.every, which is None"),
        ("critic/loss", (), "no run of this config has a metric 'critic/loss'"),
        ("rollout/anything", (), "no run of this config has a metric"),
    ],
)
def test_metrics_that_there_are_not(metric, sets, message):
    with pytest.raises(ConfigError, match=message):
        check_metric(metric, load(None, sets))


def written(folder, monkeypatch, returned):
    (folder / "acme_metrics.py").write_text(
        f"def soft(logps, advantages, mask, old_logps):\n    outside = mask\n    return -logps, {returned}\n"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "acme_metrics", raising=False)
    dovetail.register("policy_loss", "soft", "acme_metrics:soft")


@pytest.mark.parametrize("metric", ["policy_loss/outside", "policy_loss/beyond"])
def test_own_metrics_of_a_component_are_its_own_affair(metric, tmp_path, monkeypatch):
    written(tmp_path, monkeypatch, '{"outside": outside}')
    check_metric(metric, load(None, ["train.policy_loss=soft"]))


def test_a_near_miss_of_a_name_in_a_components_source_is_refused(tmp_path, monkeypatch):
    written(tmp_path, monkeypatch, '{"outside": outside}')
    with pytest.raises(ConfigError, match="Did you mean 'policy_loss/outside'"):
        check_metric("policy_loss/outsid", load(None, ["train.policy_loss=soft"]))


def test_where_names_are_computed_only_the_engines_are_known(tmp_path, monkeypatch):
    written(tmp_path, monkeypatch, '{"outside": outside} | {f"outside_{n}": outside for n in "ab"}')
    config = load(None, ["train.policy_loss=soft"])
    check_metric("policy_loss/outside_a", config)
    with pytest.raises(ConfigError, match="Did you mean 'policy_loss/loss'"):
        check_metric("policy_loss/los", config)
