"""The sampler's log-probabilities are compared with the trainer's only if both are over the same tokens."""

import numpy as np
import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.errors import ConfigError, PlanError
from dovetail.step.algorithm import assemble
from dovetail.training.loop import train
from dovetail_kit.notices import warnings

TIS = "train.correction=['tis_token']"


def test_what_compares_them_gets_the_trainers_over_the_support():
    plan = load(None, [TIS, "sampling.top_k=50"]).plan
    (call,) = plan.at("corrections")
    assert call.renames == {"logps": "support_logps", "old_logps": "old_support_logps"}
    assert "support" in plan
    assert "old_support_logps" in plan
    assert plan.evaluates("policy", "support_logps", live=False)
    assert not plan.evaluates("policy", "support_logps", live=True), "the ratio of the loss stays over the vocabulary"


@pytest.mark.parametrize("settings", [(), ("sampling.top_p=1.0",), ("sampling.top_k=50", "sampling.logps=vocabulary")])
def test_without_a_cut_in_the_report_the_trainers_are_as_they_were(settings):
    plan = load(None, [TIS, *settings]).plan
    assert "support" not in plan
    assert plan.compared == "logps"


def test_a_field_that_compares_them_is_no_exception():
    """`m2po` ranks the tokens of a mini-batch by a field of its own."""
    config = load(None, ["train.policy_loss=m2po", "sampling.top_k=50"])
    (loss,) = (call for call in config.plan.at("loss_terms") if call.kind.name == "policy_loss")
    assert loss.renames["logps"] == "support_logps"
    assert assemble(config).fields["second_moment_tokens"].renames["old_logps"] == "old_support_logps"
    assert "old_logps" not in config.plan


@pytest.mark.parametrize(
    ("settings", "cut", "ways"),
    [
        (("sampling.top_p=0.9",), "top_p = 0.9", "set sampling.logps = 'vocabulary', or set sampling.top_k to at most 256"),
        (("sampling.top_k=300",), "top_k = 300", "set sampling.logps = 'vocabulary', or set sampling.top_k to at most 256"),
        (("sampling.top_k=50", "train.rollout=vllm"), "top_k = 50", "remove the cut"),
    ],
)  # fmt: skip
def test_who_cannot_be_given_the_like_is_refused_at_once(settings, cut, ways):
    with pytest.raises(PlanError) as refused:
        load(None, [TIS, *settings])
    message = str(refused.value)
    assert message.startswith("train.correction = tis_token compares 'rollout_logps' with 'old_logps'")
    assert f"what sampling.{cut} (--set sampling.{cut.replace(' ', '')}) leaves of the vocabulary" in message
    assert ways in message


def test_what_an_engine_does_not_report_is_refused_at_once():
    with pytest.raises(ConfigError, match=r"--set sampling\.logps=vocabulary: .* with sampling\.top_k: rollout 'vllm'"):
        load(None, ["sampling.logps=vocabulary", "sampling.top_k=50", "train.rollout=vllm"])
    load(None, ["sampling.logps=vocabulary", "sampling.top_k=50", "sampling.temperature=0.0", "train.rollout=vllm"])


def test_an_unmeasured_mismatch_is_told():
    told = [line for line in warnings(load(None, ["sampling.top_p=0.9"])) if "mismatch/ is not measured" in line]
    assert told
    assert told[0].startswith("sampling.top_p: ")
    assert not warnings(load(None, ["sampling.top_p=0.9", "sampling.logps=vocabulary"]))
    assert not warnings(load(None, [TIS, "sampling.top_k=5"]))


CUT = ("sampling.top_k=4", "sampling.top_p=0.9", "sft.steps=0", "train.steps=2", "eval.every=None")


@pytest.mark.slow
@pytest.mark.parametrize("also", [(), ("train.replay=recent",), ("sampling.logps=vocabulary",)])
def test_token_tis_under_a_cut_weighs_tokens_by_one(also, tmp_path):
    """With probabilities over the whole vocabulary, 4 of 300 about equally likely tokens would get the weight 0.01."""
    last = train(load(None, [*TINY, *CUT, TIS, *also]), tmp_path)
    assert last["correction/weight_mean"] == pytest.approx(1.0, abs=0.3 if "replay" in str(also) else 1e-3)
    if not also:
        assert last["mismatch/abs_max"] < 1e-3
        assert np.isfinite(last["policy_loss/loss"])
