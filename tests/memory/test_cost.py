"""The figures of `dovetail plan` agree with counting by hand and with a real model."""

from __future__ import annotations

import json

import jax
import pytest
from tests.core.training.tiny import TINY

from dovetail.cli import main
from dovetail.config import load
from dovetail.devices.mesh import Devices
from dovetail.training.models import Models
from dovetail_memory.cost import estimate

REPLAY = ("train.replay=recent", "replay.recent.groups=2")


def test_parameters_are_those_of_the_model():
    config = load(None, TINY)
    cost = estimate(config)
    made = Models(config=config, devices=Devices(None), vocab_size=_vocabulary(config)).policy()[1]
    assert cost.parameters == sum(leaf.size for leaf in jax.tree.leaves(made))
    assert cost.trained == cost.parameters
    assert cost.memory["parameters"] == 4 * cost.parameters
    assert cost.memory["optimizer"] == pytest.approx(2 * cost.memory["parameters"], rel=0.01)  # Adam's two moments
    assert cost.tokens == 4 * 4 * 6
    assert "reference" not in cost.memory


def test_operations_agree_with_counting_by_hand():
    """Two operations per parameter of a product and token: 6N for an update, 2N for sampling (Kaplan et al. 2020)."""
    sizes = ("model.decoder.width=256", "model.decoder.layers=2", "model.decoder.heads=4", "model.decoder.kv_heads=4")
    config = load(None, [*TINY, *sizes, "train.max_prompt_tokens=32", "sampling.max_tokens=32"])
    cost = estimate(config)
    products = cost.parameters - 256 * _vocabulary(config)
    tokens = 4 * 32 + 4 * 4 * 32  # each prompt once, each completion
    head = 2 * 256 * _vocabulary(config) * 4 * 4 * 32
    assert cost.flops["rollout"] == pytest.approx(2 * products * tokens + head, rel=0.1)
    assert cost.flops["update"] == pytest.approx(3 * cost.flops["rollout"], rel=0.15)
    assert "scoring" not in cost.flops


@pytest.mark.slow
def test_a_note_says_where_operations_are_missing():
    plain, blocks = (
        estimate(load(None, [*TINY, f"model.decoder.attention={way!r}"])) for way in ("dense", "blockwise")
    )
    assert not [note for note in plain.notes if "operations" in note]
    (note,) = [note for note in blocks.notes if "operations" in note]
    assert note == "operations in loops (attention in blocks, experts) are counted for one round: there are more"


@pytest.mark.slow
def test_a_mesh_divides_what_each_device_holds():
    sizes = ("model.decoder.width=64", "model.decoder.heads=4", "model.decoder.kv_heads=4")
    alone = estimate(load(None, [*TINY, *sizes]))
    spread = estimate(load(None, [*TINY, *sizes, "mesh.fsdp=2", "mesh.tp=2"]))  # no four devices are needed to plan
    assert spread.memory["parameters"] < 0.3 * alone.memory["parameters"]
    assert spread.flops == alone.flops


@pytest.mark.slow
def test_devices_that_share_a_row_divide_what_its_tokens_take():
    """Whole rows of keys and values are gathered, so that an update takes a little more than the share."""
    one = ("train.prompts=1", "train.max_prompt_tokens=512", "sampling.max_tokens=512", "train.micro_batch_size=1")
    sizes = ("model.decoder.width=64", "model.decoder.heads=4", "model.decoder.remat=none")
    alone, cut = (estimate(load(None, [*TINY, *one, *sizes, f"mesh.cp={cp}"])) for cp in (1, 4))
    assert cut.memory["parameters"] < 0.3 * alone.memory["parameters"]
    (update,) = (name for name in alone.moments if name.startswith("update"))
    assert alone.moments[update] / 4 < cut.moments[update] < alone.moments[update] / 2
    assert cut.moments["sampling"] == pytest.approx(alone.moments["sampling"] / 4, rel=0.01)
    assert cut.flops == alone.flops


@pytest.mark.slow
def test_a_critic_and_a_reference_cost():
    cost = estimate(load(None, [*TINY, "train.advantage=gae", "train.kl_coef=0.1"]))
    assert {"reference", "critic's parameters"} <= cost.memory.keys()
    assert {"scoring", "critic"} <= cost.flops.keys()


@pytest.mark.slow
def test_a_larger_teacher_costs_what_it_is(tmp_path):
    """It runs once per step if it scores the samples, and in every epoch if its logits are compared with the policy's."""
    large = ("model.decoder.width=64", "model.decoder.layers=4", "model.decoder.heads=4", "model.decoder.kv_heads=4")
    alone = estimate(load(None, [*TINY, *large]))
    teacher = ("roles.teacher=frozen", "teacher.model=decoder", *(f"teacher/{each}" for each in large))
    plain = estimate(load(None, [*TINY, "train.epochs=2"]))
    scoring = estimate(load(None, [*TINY, "train.epochs=2", *teacher, "train.loss_terms=['reverse_kl']"]))
    assert scoring.memory["teacher"] == alone.memory["parameters"]
    # with two epochs the default policy loss reads the policy at collection
    assert scoring.flops["scoring"] - plain.flops["scoring"] == pytest.approx(alone.flops["rollout"])
    assert scoring.flops["update"] == plain.flops["update"]
    beside = estimate(load(None, [*TINY, "train.epochs=2", *teacher, "train.loss_terms=['gkd']"]))
    assert beside.flops["update"] - plain.flops["update"] == pytest.approx(2 * alone.flops["rollout"])
    assert beside.flops["scoring"] == plain.flops["scoring"]


def test_without_a_policy_loss_nothing_is_computed_for_one():
    cost = estimate(load(None, [*TINY, "train.policy_loss=zero", "train.loss_terms=['dpo']", "train.monitor=()"]))
    kl = estimate(load(None, [*TINY, "train.policy_loss=reinforce", "train.kl_coef=0.1", "train.monitor=()"]))
    assert cost.flops == kl.flops
    assert cost.memory == kl.memory


@pytest.mark.slow
def test_a_demonstration_costs_one_text_for_each_prompt():
    plain, both = (estimate(load(None, [*TINY, *terms])).flops for terms in ((), ("train.loss_terms=['nll']",)))
    one = estimate(load(None, [*TINY, "train.group_size=1"])).flops["update"]
    assert both["update"] == pytest.approx(plain["update"] + one)


@pytest.mark.slow
def test_greedy_completions_and_answers_cost_one_text_for_each_prompt():
    one = estimate(load(None, [*TINY, "train.group_size=1"])).flops["rollout"]
    plain = estimate(load(None, TINY)).flops
    greedy = estimate(load(None, [*TINY, "train.advantage=remax"])).flops
    assert greedy["rollout"] == pytest.approx(plain["rollout"] + one)
    assert greedy["update"] == plain["update"]
    aligned = ("train.reward_shaping=representation_alignment", "train.schedule=linear")
    answers = estimate(load(None, [*TINY, *aligned])).flops
    assert answers["scoring"] == pytest.approx(plain["rollout"] + one)  # the policy on completions and on answers


@pytest.mark.slow
def test_earlier_completions_are_learnt_from_and_not_sampled():
    on = ("train.correction=['tis_token']", "train.advantage=gae")
    plain, more = (estimate(load(None, [*TINY, *on, *replay])).flops for replay in ((), REPLAY))
    assert more["rollout"] == plain["rollout"]
    for name in ("scoring", "update", "critic"):
        assert more[name] == pytest.approx(1.5 * plain[name])


def test_a_model_beside_the_policy_costs_a_forward_pass_of_every_update():
    plain = estimate(load(None, TINY)).flops
    beside = ("train.kl=full", "train.kl_coef=0.1", "train.epochs=2", "train.policy_loss=reinforce")
    found = estimate(load(None, [*TINY, *beside])).flops
    assert found["update"] == pytest.approx(2 * (plain["update"] + plain["rollout"]))
    assert "scoring" not in found


@pytest.mark.slow
def test_the_command(capsys):
    overrides = [word for override in TINY for word in ("--set", override)]
    assert main(["plan", *overrides, "--set", "mesh.fsdp=64"]) == 0
    table = capsys.readouterr().out
    assert "memory per device" in table
    assert main(["plan", *overrides, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 96


def _vocabulary(config):
    task = config.choice("train.task").bind()
    return config.choice("train.tokenizer").bind().make(task.corpus()).vocab_size
