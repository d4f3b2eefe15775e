"""TRL's settings become ours, and the gin file can be read."""

import re

import pytest
from tests.lab.importing.translated import translated

SCRIPT = """
from trl import GRPOConfig, GRPOTrainer

LENGTH = 256
config = GRPOConfig(
    output_dir="out",
    num_generations=4,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    max_completion_length=LENGTH,
    max_steps=300,
    {more}
)
GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=config, reward_funcs=[mine], train_dataset=data)
"""


def of(tmp_path, more=""):
    return translated("trl", tmp_path / "train.py", SCRIPT.format(more=more))


def test_sizes_are_counted_as_ours(tmp_path):
    """A generation has 32 completions, which are used for one update in four passes."""
    found = of(tmp_path)
    assert (found.config.train.prompts, found.config.train.group_size) == (8, 4)
    assert (found.config.train.mini_batch_size, found.config.train.micro_batch_size) == (32, 8)
    assert (found.config.train.steps, found.config.train.epochs) == (300, 1)
    assert found.config.sampling.max_tokens == 256
    assert found.config.train.lr == 1e-6
    assert found.config.choice("train.lr_schedule").component.name == "warmup_linear"


def test_several_updates_of_a_generation(tmp_path):
    found = of(tmp_path, "steps_per_generation=8, num_iterations=2")
    assert (found.config.train.prompts, found.config.train.mini_batch_size) == (16, 32)
    assert (found.config.train.steps, found.config.train.epochs) == (75, 2), "four updates for each of our steps"


@pytest.mark.parametrize(
    ("loss", "name", "aggregation"),
    [
        ("grpo", "grpo", "sequence_mean_token_mean"),
        ("dapo", "grpo", "token_mean"),
        ("bnpo", "grpo", "token_mean"),
        ("dr_grpo", "grpo", "sequence_mean_token_scale"),
        ("cispo", "cispo", "token_mean"),
        ("sapo", "sapo", "sequence_mean_token_mean"),
        ("luspo", "grpo", "sequence_mean_token_sum"),
        ("vespo", "vespo", "token_mean"),
    ],
)
def test_every_loss_type(tmp_path, loss, name, aggregation):
    found = of(tmp_path, f"loss_type='{loss}', epsilon=0.1, epsilon_high=0.3")
    assert found.config.choice("train.policy_loss").component.name == name
    assert found.config.choice("train.loss_agg").component.name == aggregation
    params = found.config.choice("train.policy_loss").params
    if name in ("grpo", "luspo"):
        assert (params["epsilon_low"], params["epsilon_high"]) == (0.1, 0.3)
    if name == "cispo":
        assert params["max_ratio"] == 0.3, "TRL's epsilon_high is the bound itself there"
    if loss == "dr_grpo":
        assert found.config.choice("train.loss_agg").params["normalizer"] == 256.0
    assert found.config.choice("train.advantage").component.name == "grpo"
    assert found.config.choice("train.advantage").params["scale"] == "group", "no loss_type switches scale_rewards"


def test_a_ratio_of_sequences_keeps_its_range(tmp_path):
    params = (
        of(tmp_path, "importance_sampling_level='sequence', epsilon=3e-4").config.choice("train.policy_loss").params
    )
    assert (params["level"], params["epsilon_low"], params["epsilon_high"]) == ("sequence", 3e-4, 3e-4)


def test_masks_and_scales(tmp_path):
    more = "mask_truncated_completions=True, top_entropy_quantile=0.2, off_policy_mask_threshold=0.4,"
    more += " scale_rewards=False, beta=0.01, use_bias_correction_kl=True, delta=4.0, reward_weights=[1.0, 0.5]"
    found = of(tmp_path, more)
    config = found.config
    assert config.setting("train.loss_mask") == ("drop_truncated", "top_entropy", "opsm")
    assert config.several("train.loss_mask")[1].params == {"fraction": 0.2}
    assert config.several("train.loss_mask")[2].params == {"threshold": 0.4}
    assert config.choice("train.advantage").params["scale"] == "none"
    assert (config.train.kl_coef, config.choice("train.kl").component.name) == (0.01, "k3_corrected")
    assert config.choice("train.policy_loss").params["clip_c"] == 4.0
    assert "weights are by name here" in found.left("reward_weights")


@pytest.mark.parametrize(
    ("mode", "name", "params"),
    [
        ("token_truncate", "tis_token", {"upper": 3.0}),
        ("sequence_truncate", "tis_sequence", {"upper": 3.0}),
        ("token_mask", "icepop", {"lower": None, "upper": 3.0}),
        (None, "sequence_mask", {"lower": None, "upper": 3.0, "count_rejected": True}),
    ],
)
def test_vllm_is_corrected_for_as_trl_does(tmp_path, mode, name, params):
    more = "use_vllm=True" + (f", vllm_importance_sampling_mode='{mode}'" if mode else "")
    (chosen,) = of(tmp_path, more).config.several("train.correction")
    assert chosen.component.name == name
    assert chosen.params.items() >= params.items()


def test_a_correction_under_a_cut_is_left_with_the_reason(tmp_path):
    found = of(tmp_path, "use_vllm=True, top_k=50, vllm_importance_sampling_mode='token_truncate'")
    assert not found.config.several("train.correction")
    assert "which are not the trainer's" in found.left("vllm_importance_sampling_mode")


def test_what_cannot_be_carried_is_said_with_place_and_reason(tmp_path):
    found = of(tmp_path, "repetition_penalty=1.1, quantum=7, temperature=choose(), sync_ref_model=True")
    assert "train.py:" in found.text
    assert "temperature, top-k" in found.left("repetition_penalty")
    assert "this translation does not know it" in found.left("quantum")
    assert "computed in the script" in found.left("temperature")
    assert found.config.sampling.temperature == 1.0
    assert "after every step" in found.left("sync_ref_model")
    assert "reward.functions.name = ('mine',)" in found.left("trainer.reward_funcs")
    assert "task.records" in found.left("trainer.train_dataset")
    assert "of its own" in found.left("output_dir")


def test_a_run_s_own_settings(tmp_path):
    """TRL counts updates, of which there are two for each generation, and so for each of our steps."""
    more = "steps_per_generation=8, lr_scheduler_type='cosine', warmup_steps=10, save_steps=50, save_total_limit=3,"
    more += " eval_strategy='steps', eval_steps=100, report_to=['wandb', 'trackio'], project='sums', bf16=True"
    config = of(tmp_path, more).config
    assert config.choice("train.lr_schedule").params["warmup_steps"] == 5
    assert (config.run.checkpoint_every, config.run.keep_checkpoints, config.eval.every) == (25, 3, 50)
    assert not config.eval.at_start
    assert config.run.sinks == ("console", "wandb", "trackio")
    assert config.several("run.sinks")[1].params["project"] == "sums"
    assert config.choice("train.model").params["dtype"] == "bfloat16"


def test_shares_and_none(tmp_path):
    found = of(tmp_path, "warmup_steps=0.1, warmup_ratio=0.2, eval_strategy='no', eval_steps=5, save_strategy='no'")
    assert found.config.choice("train.lr_schedule").params["warmup_ratio"] == 0.1
    assert found.config.eval.every is None
    assert "overrides it" in found.left("warmup_ratio")


@pytest.mark.parametrize(
    ("targets", "modules"),
    [("['q_proj', 'v_proj']", r".*\.(q_proj|v_proj)"), ("'all-linear'", ".*"), ("r'.*q_proj'", ".*q_proj")],
)
def test_target_modules_are_a_regular_expression(targets, modules, tmp_path):
    text = SCRIPT.format(more="") + f"\nLoraConfig(r=8, target_modules={targets})\n"
    found = translated("trl", tmp_path / "train.py", text)
    assert found.config.choice("train.adapter").params["modules"] == modules


@pytest.mark.parametrize(("theirs", "ours"), [("use_rslora", "rank_stabilized"), ("use_dora", "weight_decomposed")])
def test_variants_of_adapters(theirs, ours, tmp_path):
    text = SCRIPT.format(more="") + f"\nLoraConfig(r=8, {theirs}=True)\n"
    (tmp_path / "yaml").mkdir()
    yaml = f"model_name_or_path: some/model\nuse_peft: true\nlora_r: 8\n{theirs}: true\n"
    for file, given in ((tmp_path / "train.py", text), (tmp_path / "yaml" / "grpo.yaml", yaml)):
        chosen = translated("trl", file, given).config.choice("train.adapter")
        assert chosen.params[ours] is True


def test_yaml_with_numbers_that_yaml_takes_for_texts(tmp_path):
    text = (
        "model_name_or_path: some/model\nlearning_rate: 1e-5\nuse_peft: true\nlora_r: 8\nlora_alpha: 16\nbeta: 0.001\n"
    )
    config = translated("trl", tmp_path / "grpo.yaml", text).config
    assert config.train.lr == 1e-5
    assert config.choice("train.adapter").params["rank"] == 8
    assert config.choice("train.model").params["path"] == "some/model"


def test_what_must_be_chosen_is_left_to_fill_in(tmp_path, capsys):
    """The defaults of these settings would train something else without a word."""
    text = of(tmp_path).text
    assert re.search(r"^train.rewards = %FILL_IN_REWARDS +# .*trainer.reward_funcs = '\[mine\]'", text, re.MULTILINE)
    assert re.search(r"^train.task = %FILL_IN_TASK +# .*trainer.train_dataset = 'data'", text, re.MULTILINE)
    assert "train.steps = 300" in text
    number = 1 + next(n for n, line in enumerate(text.splitlines()) if line.startswith("train.rewards = "))
    last = capsys.readouterr().out.splitlines()[-1]
    assert f"train.rewards (line {number})" in last
    assert "train.steps" not in last
    (tmp_path / "own").mkdir()
    epochs = translated("trl", tmp_path / "own" / "train.py", "GRPOConfig(num_train_epochs=2)").text
    assert re.search(r"train.steps = %FILL_IN_STEPS +# fill this in; num_train_epochs = 2.0: epochs x", epochs)


def test_what_was_carried_is_not_listed_as_left(tmp_path):
    more = "top_k=-1, optim='adamw_8bit', mask_truncated_completions=True"
    text = SCRIPT.format(more=more).replace("reward_funcs", "peft_config=LoraConfig(r=8), reward_funcs")
    found = translated("trl", tmp_path / "train.py", text)
    left = found.text.partition("# Not carried over")[2]
    assert "trainer.args" not in left
    assert "trainer.peft_config" not in left
    assert found.config.choice("train.adapter").params["rank"] == 8
    assert re.search(r"sampling.top_k = None +# top_k = -1: all tokens", found.text)
    assert re.search(r"train.optimizer = 'adamw' +# optim = 'adamw_8bit'; here with moments", found.text)
    assert re.search(r"train.loss_mask = \['drop_truncated'\] +# mask_truncated_completions = True", found.text)


def test_arguments_made_elsewhere_are_left(tmp_path):
    found = translated("trl", tmp_path / "train.py", "GRPOTrainer(args=elsewhere(), reward_funcs=[mine])")
    assert "an object of the script" in found.left("trainer.args")


def test_shares_and_epochs_are_not_dropped(tmp_path):
    found = of(tmp_path, "save_steps=0.1, eval_strategy='epoch', report_to=['comet_ml', 'wandb']")
    assert "share of all steps" in found.left("save_steps")
    assert "count steps" in found.left("eval_strategy")
    assert "'comet_ml'" in found.left("report_to")
    assert found.config.run.sinks == ("console", "wandb")
    (tmp_path / "own").mkdir()
    found = of(tmp_path / "own", "save_strategy='epoch', save_steps=10, eval_strategy='steps', eval_steps=0.5")
    assert "count steps" in found.left("save_strategy")
    assert "no effect" in found.left("save_steps")
    assert "share of all steps" in found.left("eval_steps")
    assert found.config.run.checkpoint_every == 20


def test_a_level_that_trl_does_not_have_is_said(tmp_path):
    assert "no such level" in of(tmp_path, "importance_sampling_level='word'").left("importance_sampling_level")


@pytest.mark.parametrize(
    ("more", "dtype"),
    [("", "bfloat16"), ("bf16=False", "float32"), ("bf16=True", "bfloat16"), ("fp16=True", "float32")],
)
def test_trl_computes_in_bfloat16_unless_told_otherwise(tmp_path, more, dtype):
    assert of(tmp_path, more).config.choice("train.model").params["dtype"] == dtype


@pytest.mark.parametrize(("more", "name"), [("", "k3_corrected"), ("use_bias_correction_kl=False,", "k3")])
def test_kl_is_corrected_by_default(tmp_path, more, name):
    found = of(tmp_path, f"{more} beta=0.04")
    assert found.config.choice("train.kl").component.name == name
    assert ("in TRL 1.9 it was False" in found.text) == (not more)


def test_bounds_of_an_entropy_coefficient_are_left(tmp_path):
    found = of(tmp_path, "use_adaptive_entropy=True, entropy_coef_max=0.5")
    assert "no other bound" in found.left("entropy_coef_max")


def test_what_the_script_computes_is_said_to_be_computed(tmp_path):
    found = translated("trl", tmp_path / "train.py", "GRPOTrainer(model=args.model, environment_factory=mine)")
    assert "computed in the script" in found.left("trainer.model")
    assert "train.agent_loop" in found.left("trainer.environment_factory")


def test_luspo_has_the_ratio_of_completions_only_if_asked(tmp_path):
    """TRL's default level is the token, and with it the loss is that of GRPO: so golden/trl.npz has it."""
    found = of(tmp_path, "loss_type='luspo', importance_sampling_level='sequence', epsilon=0.002")
    assert found.config.choice("train.policy_loss").component.name == "luspo"
    assert found.config.choice("train.policy_loss").params["epsilon_low"] == 0.002
    (tmp_path / "own").mkdir()
    assert "unless importance_sampling_level" in of(tmp_path / "own", "loss_type='luspo'").text


def test_a_constant_schedule_has_no_warm_up(tmp_path):
    for number, (kind, ratio) in enumerate((("constant", 0.0), ("constant_with_warmup", 0.1))):
        (tmp_path / str(number)).mkdir()
        found = of(tmp_path / str(number), f"lr_scheduler_type='{kind}', warmup_ratio=0.1")
        assert found.config.choice("train.lr_schedule").params["warmup_ratio"] == ratio
        assert ("no effect" in found.text) == (kind == "constant")


@pytest.mark.parametrize("none", ["None", "0.0"])
def test_no_bound_cuts_nothing(tmp_path, none):
    more = f"max_grad_norm={none}, use_vllm=True, vllm_importance_sampling_clip_max=None"
    config = of(tmp_path, more).config
    assert config.train.max_grad_norm == 1e9
    assert config.several("train.correction")[0].params["upper"] == 1e9
