"""A typo in a metric's name is found before the first run."""

import pytest

from dovetail.config import load
from dovetail.errors import ConfigError
from dovetail_lab.ab.metric import check_metric

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
    ],
)
def test_metrics_that_there_are_not(metric, sets, message):
    with pytest.raises(ConfigError, match=message):
        check_metric(metric, load(None, sets))
