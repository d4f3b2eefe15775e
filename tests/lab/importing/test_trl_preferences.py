"""TRL's trainers on pairs become terms of the loss on recorded completions."""

import pytest
from tests.lab.importing.translated import translated

from dovetail.plan.planner import plan_step

SCRIPT = """
from trl import {kind}Config, {kind}Trainer

config = {kind}Config(output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=8, {more})
{kind}Trainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=config, train_dataset=data)
"""


def of(tmp_path, kind, more=""):
    return translated("trl", tmp_path / "train.py", SCRIPT.format(kind=kind, more=more))


def terms(found):
    return {choice.component.name: choice.params for choice in found.config.several("train.loss_terms")}


def test_a_step_has_as_many_pairs_as_an_update_there(tmp_path):
    found = of(tmp_path, "DPO", "max_length=1000, max_steps=300")
    train = found.config.train
    assert (train.prompts, train.group_size, train.micro_batch_size, train.mini_batch_size) == (32, 2, 8, None)
    assert (train.max_prompt_tokens, found.config.sampling.max_tokens) == (500, 500)
    assert (train.steps, train.lr) == (300, 1e-6)
    assert found.config.choice("train.rollout").component.name == "recorded"
    assert found.config.eval.every is None
    assert "ref_logps" in plan_step(found.config)


@pytest.mark.parametrize(
    ("more", "names", "kind"),
    [
        ("", ["dpo"], "sigmoid"),
        ("loss_type='ipo'", ["dpo"], "ipo"),
        ("loss_type=['hinge']", ["dpo"], "hinge"),
        ("loss_type=['sft', 'sigmoid'], loss_weights=[0.5, 1.0]", ["dpo", "preferred_nll"], "sigmoid"),
    ],
)
def test_dpo_by_its_types(tmp_path, more, names, kind):
    found = of(tmp_path, "DPO", f"beta=0.3, {more}")
    assert sorted(terms(found)) == names
    assert (terms(found)["dpo"]["loss_type"], terms(found)["dpo"]["beta"]) == (kind, 0.3)
    if "preferred_nll" in names:
        assert "loss_term.preferred_nll.coef = 0.5" in found.text


def test_what_dpo_does_not_have_here_is_said(tmp_path):
    found = of(
        tmp_path, "DPO", "loss_type=['robust', 'ipo'], label_smoothing=0.1, f_divergence_type='js', eval_steps=9"
    )
    assert list(terms(found)) == ["dpo"]
    assert "there is no 'robust' here" in found.left("loss_type")
    assert "'robust' and 'exo_pair' alone" in found.left("label_smoothing")
    assert "no such variant" in found.left("f_divergence_type")
    assert "choose a reward beside 'recorded' first" in found.left("eval_steps")


def test_a_reference_that_moves(tmp_path):
    found = of(tmp_path, "DPO", "sync_ref_model=True, ref_model_mixup_alpha=1.0, ref_model_sync_steps=64")
    assert "roles.reference = 'renewed'" in found.text
    assert "reference/follower.renewed.every = 64" in found.text


def test_orpo_and_simpo_need_no_reference(tmp_path):
    orpo = of(tmp_path, "ORPO", "beta=0.2")
    assert terms(orpo)["orpo"]["ratio_coef"] == 0.2
    (tmp_path / "train.gin").unlink()
    simpo = of(tmp_path, "CPO", "loss_type='simpo', beta=2.5, simpo_gamma=1.0, cpo_alpha=0.0")
    assert list(terms(simpo)) == ["simpo"]
    assert (terms(simpo)["simpo"]["beta"], terms(simpo)["simpo"]["gamma"]) == (2.5, 1.0)
    for found in (orpo, simpo):
        assert "ref_logps" not in plan_step(found.config)


def test_cpo_itself_is_not_there(tmp_path):
    found = of(tmp_path, "CPO", "loss_type='sigmoid'")
    assert sorted(terms(found)) == ["preferred_nll", "simpo"]
    assert "'simpo' and 'orpo' here" in found.left("loss_type")


def test_a_trainer_alone_has_the_defaults_of_its_config(tmp_path):
    found = translated("trl", tmp_path / "train.py", "DPOTrainer(model='Qwen/Qwen2.5-0.5B', train_dataset=data)\n")
    assert terms(found)["dpo"]["beta"] == 0.1
    assert "set train.task" in found.left("trainer.train_dataset")


def test_a_script_with_grpo_beside_it_is_read_for_that(tmp_path):
    text = "DPOConfig(beta=0.3)\nGRPOConfig(beta=0.2)\nGRPOTrainer(model='Qwen/Qwen2.5-0.5B')\n"
    found = translated("trl", tmp_path / "train.py", text)
    assert found.config.train.kl_coef == 0.2
    assert not terms(found)
