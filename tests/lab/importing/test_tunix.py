"""tunix's settings become ours, and the gin file can be read."""

import pytest
from tests.lab.importing.translated import translated

from dovetail.cli import main

YAML = """
model_config:
  model_id: "google/gemma-2-2b-it"
  rng_seed: 42
  mesh:
    shape: "(1,4)"
    axis_names: "('fsdp','tp')"
actor_model_config:
  lora_config:
    rank: 64
    alpha: 64.0
    module_path: ".*q_einsum"
batch_size: 2
num_batches: 3738
rl_training_config:
  actor_optimizer_config:
    peak_value: 3e-6
    schedule_type: "warmup_cosine_decay_schedule"
    warmup_ratio: 0.1
    b2: 0.99
    weight_decay: 0.1
    max_grad_norm: 0.1
  eval_every_n_steps: 10
  max_steps: 1869
rollout_config:
  total_generation_steps: 768
  max_prompt_length: 256
  temperature: 0.9
  top_p: 1.0
  top_k: 50
rollout_engine: "vanilla"
grpo_config:
  num_generations: 4
  num_iterations: 1
  beta: 0.08
  epsilon: 0.15
reward_functions:
  - gsm8k.py
"""


def test_grpo(tmp_path):
    found = translated("tunix", tmp_path / "gemma.yaml", YAML)
    config = found.config
    assert (config.train.prompts, config.train.group_size, config.train.steps) == (2, 4, 1869)
    params = config.choice("train.policy_loss").params
    assert config.choice("train.policy_loss").component.name == "grpo"
    assert (params["epsilon_low"], params["epsilon_high"]) == (0.15, 0.15), "epsilon belongs to the loss that is used"
    assert (config.train.kl_coef, config.choice("train.kl").component.name) == (0.08, "k1")
    assert "zero expected gradient" in found.text
    assert config.choice("train.loss_agg").component.name == "sequence_mean_token_mean"
    assert (config.train.lr, config.train.max_grad_norm) == (3e-6, 0.1)
    assert "does not read it" in found.text, "so that its gradients are not clipped"
    assert config.choice("train.lr_schedule").params == {"warmup_ratio": 0.1, "warmup_steps": None, "end": 0.0}
    assert (config.mesh.fsdp, config.mesh.tp) == (1, 4)
    assert config.choice("train.adapter").params["alpha"] == 64.0
    assert (config.sampling.max_tokens, config.sampling.top_k, config.sampling.top_p) == (768, 50, None)
    assert "task.gsm8k" in found.left("reward_functions")
    assert "Hugging Face names" in found.left("actor_model_config.lora_config.module_path")


def test_steps_off_policy_are_batches_ahead_and_corrected_for(tmp_path):
    text = (
        "from tunix.rl.agentic.agentic_grpo_learner import GRPOConfig\nconfig = GRPOConfig(num_generations=4, {more})\n"
    )
    found = translated("tunix", tmp_path / "a.py", text.format(more="off_policy_steps=2"))
    assert found.config.train.staleness == 2
    assert [each.component.name for each in found.config.several("train.correction")] == ["tis_token"]
    corrected = text.format(more="off_policy_steps=1, sampler_is='token', sampler_is_threshold=3.0")
    (chosen,) = translated("tunix", tmp_path / "b.py", corrected).config.several("train.correction")
    assert chosen.params["upper"] == 3.0
    assert translated("tunix", tmp_path / "c.py", text.format(more="off_policy_steps=0")).config.train.staleness == 0


def test_a_script_overrides_the_file_that_it_names(tmp_path):
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "gemma.yaml").write_text(YAML)
    script = "batch_size=${batch_size:-8}\npython3 -m tunix.cli.grpo_main \\\n"
    script += "  override_config_file=examples/gemma.yaml \\\n  batch_size=$batch_size \\\n  grpo_config.beta=0.0\n"
    config = translated("tunix", tmp_path / "run.sh", script).config
    assert (config.train.prompts, config.train.kl_coef, config.train.group_size) == (8, 0.0, 4)


def test_a_script_of_ppo(tmp_path):
    text = "config = PPOConfig(num_iterations=2, gae_lambda=0.9, epsilon=0.2, epsilon_c=3.0, beta=0.05)\n"
    text += "training = RLTrainingConfig(mini_batch_size=4, actor_optimizer=optax.adamw(1e-6), eval_every_n_steps=10)\n"
    found = translated("tunix", tmp_path / "ppo.py", text)
    config = found.config
    assert config.choice("train.advantage").params["lam"] == 0.9
    assert config.choice("train.policy_loss").params["clip_c"] == 3.0
    assert (config.train.kl_in, config.choice("train.kl").component.name) == ("reward", "k3")
    assert config.choice("critic.value_loss").params["clip_value"] == 0.2
    assert (config.train.epochs, config.train.mini_batch_size) == (2, 4)
    assert "optax" in found.left("rl_training_config.actor_optimizer")


def test_every_class_has_its_defaults(tmp_path):
    def of(name):
        return translated("tunix", tmp_path / f"{name}.py", f"{name}(num_generations=4)\n").config

    grpo, dapo, dr_grpo = of("GRPOConfig"), of("DAPOConfig"), of("DrGRPOConfig")
    assert (grpo.train.kl_coef, dapo.train.kl_coef, dr_grpo.train.kl_coef) == (0.04, 0.0, 0.04)
    assert [each.choice("train.policy_loss").params["epsilon_high"] for each in (grpo, dapo)] == [0.2, 0.28]
    assert dapo.choice("train.loss_agg").component.name == "token_mean"
    assert dr_grpo.choice("train.advantage").component.name == "dr_grpo"
    assert dr_grpo.choice("train.loss_agg").params["normalizer"] == 64.0
    assert {each.train.group_size for each in (grpo, dapo, dr_grpo)} == {4}
    assert (grpo.sampling.max_tokens, grpo.train.max_prompt_tokens, grpo.sampling.top_k) == (64, 64, None)


def test_a_command_line_has_the_defaults_of_its_first_file(tmp_path):
    config = translated("tunix", tmp_path / "a.yaml", "grpo_config:\n  num_generations: 4\n").config
    assert (config.train.kl_coef, config.sampling.top_k, config.sampling.max_tokens) == (0.08, 50, 768)


def test_the_section_of_agents(tmp_path):
    text = "training_mode: agentic_grpo\nagentic_grpo_config: {num_generations: 8, beta: 0.001, epsilon_high: 0.28}\n"
    config = translated("tunix", tmp_path / "a.yaml", f"{text}grpo_config: {{num_generations: 2}}\n").config
    assert (config.train.group_size, config.train.kl_coef) == (8, 0.001)
    assert config.choice("train.policy_loss").params["epsilon_high"] == 0.28


def test_a_command_s_last_word_is_a_setting_and_a_comment_is_none(tmp_path):
    script = """steps=$(awk "BEGIN {print 3 * 4}")
    python -m tunix.cli.grpo_main tunix/cli/base_config.yaml \\
        `# (used when rollout_engine=vllm)` \\
        grpo_config.num_generations=4 \\
        rl_training_config.max_steps=$steps \\
        batch_size=32
    """
    found = translated("tunix", tmp_path / "run.sh", script)
    assert found.config.train.prompts == 32
    assert found.config.choice("train.rollout").component.name == "vanilla"
    assert "computed in the script" in found.left("rl_training_config.max_steps")
    assert "#   steps" not in found.text


def test_what_has_no_translation_is_said(tmp_path):
    text = "grpo_config: {loss_algo: other, kl_loss_mode: kl, kl_clamp_value: 10.0}\n"
    text += "rl_training_config: {actor_optimizer_config: {warmup_steps: 0}}\n"
    found = translated("tunix", tmp_path / "a.yaml", text)
    assert "no such loss" in found.left("grpo_config.loss_algo")
    assert "can be clamped" in found.left("grpo_config.kl_clamp_value")
    (tmp_path / "own").mkdir()
    found = translated("tunix", tmp_path / "own" / "a.yaml", "grpo_config: {kl_loss_mode: full}\n")
    assert "no such KL" in found.left("grpo_config.kl_loss_mode")


def test_a_bound_that_is_null_is_the_other_one_s(tmp_path):
    config = translated("tunix", tmp_path / "a.yaml", "grpo_config: {epsilon: 0.1, epsilon_high: null}\n").config
    assert config.choice("train.policy_loss").params["epsilon_high"] == 0.1


def test_the_rate_of_an_optimiser_that_a_script_makes_is_filled_in(tmp_path):
    text = "GRPOConfig(num_generations=4)\nRLTrainingConfig(actor_optimizer=optax.adamw(1e-6))\n"
    text = translated("tunix", tmp_path / "a.py", text).text
    assert "train.lr = %FILL_IN_LR" in text
    assert "optax.adamw(1e-06)" in text
    assert "lr_schedule" not in text, "they would be the defaults of a command line"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "", "settings are read from .json, .py, .sh, .yaml, .yml, not from '.toml'"),
        ("a.py", "x = 1", "there are no settings in it; a Python script is read for calls of"),
        ("a.py", "def (", "invalid syntax"),
        ("a.yaml", "a: [", "expected"),
        ("a.sh", "override_config_file=none.yaml", "it overrides 'none.yaml', which is in none of the folders"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, capsys, name, text, message):
    (tmp_path / name).write_text(f"python x.py {text}" if name.endswith(".sh") else text)
    assert main(["import-config", "tunix", str(tmp_path / name), "--out", str(tmp_path / "o.gin")]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_nothing_is_written_over(tmp_path, capsys):
    translated("tunix", tmp_path / "gemma.yaml", YAML)
    out = str(tmp_path / "gemma.gin")
    assert main(["import-config", "tunix", str(tmp_path / "gemma.yaml"), "--out", out]) == 1
    assert "exists already" in capsys.readouterr().err


def test_a_sum_over_tokens_is_divided_by_the_rows_of_a_batch(tmp_path):
    """No setting of tunix has another `norm`; without one the sum was left undivided."""
    text = "grpo_config: {loss_agg_mode: sequence-mean-token-sum-norm}\n"
    config = translated("tunix", tmp_path / "a.yaml", text).config
    assert config.choice("train.loss_agg").component.name == "sequence_mean_token_sum"
