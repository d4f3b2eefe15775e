"""verl's settings become ours, and the gin file can be read."""

import re

import pytest
from tests.lab.importing.translated import translated

QUICKSTART = """
set -x
MODEL=Qwen/Qwen2.5-0.5B-Instruct
PYTHONUNBUFFERED=1 python3 -m verl.trainer.main_ppo \\
    data.train_files=$HOME/data/gsm8k/train.parquet \\
    data.train_batch_size=256 \\
    data.max_prompt_length=512 \\
    data.max_response_length=512 \\
    actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=${{MINI:-64}} \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \\
    critic.optim.lr=1e-5 \\
    critic.model.path=$MODEL \\
    algorithm.kl_ctrl.kl_coef=0.001 \\
    trainer.n_gpus_per_node=1 \\
    trainer.total_epochs=15 {more} $@
"""


def of(tmp_path, more=""):
    return translated("verl", tmp_path / "run.sh", QUICKSTART.format(more=more))


def test_ppo_with_a_critic(tmp_path):
    found = of(tmp_path)
    train, critic = found.config.train, found.config.critic
    assert (train.prompts, train.group_size, train.mini_batch_size, train.micro_batch_size) == (256, 1, 64, 4)
    assert (train.max_prompt_tokens, found.config.sampling.max_tokens) == (512, 512)
    assert (train.lr, critic.lr) == (1e-6, 1e-5)
    assert found.config.choice("train.model").params["path"] == "Qwen/Qwen2.5-0.5B-Instruct"
    assert found.config.choice("critic.model").params["path"] == "Qwen/Qwen2.5-0.5B-Instruct"
    loss = found.config.choice("train.policy_loss")
    assert loss.component.name == "ppo"
    assert loss.params["clip_c"] == 3.0, "verl's dual clip is always on"
    assert found.config.choice("critic.value_loss").params["clip_value"] == 0.5
    assert found.config.choice("train.optimizer").params["weight_decay"] == 0.01
    assert train.kl_coef == 0.0, "kl_coef has no effect unless use_kl_in_reward is set"
    assert "it has no effect" in found.left("algorithm.kl_ctrl.kl_coef")
    assert train.steps == 7, "it was filled in"
    assert re.search(
        r"train.steps = %FILL_IN_STEPS +# fill this in; trainer.total_epochs = 15: epochs x \(rows", found.text
    )
    assert re.search(r"train.rewards = %FILL_IN_REWARDS +# fill this in; verl chooses a function", found.text)
    assert "rollout.vllm.flags" in found.left("actor_rollout_ref.rollout.gpu_memory_utilization")


def test_data_rewards_and_turns(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info): return 1\n"
    )
    more = f"""data.val_files=['a.parquet','b.parquet'] custom_reward_function.path={tmp_path}/mine.py \\
    actor_rollout_ref.rollout.multi_turn.enable=True actor_rollout_ref.rollout.multi_turn.max_assistant_turns=5 \\
    actor_rollout_ref.rollout.multi_turn.tool_config_path=tools.yaml actor_rollout_ref.actor.optim.lr_warmup_steps=10 \\
    trainer.logger='["console","wandb"]' trainer.project_name=sums"""
    found = of(tmp_path, more)
    config = found.config
    task = config.choice("train.task")
    assert (task.component.name, task.params["path"]) == ("records", "~/data/gsm8k/train.parquet")
    assert task.params["prompt_column"] == "prompt"
    assert config.choice("train.rewards[0]").params["ground_truth_column"] == "reward_model.ground_truth"
    assert config.choice("train.agent_loop").params["max_turns"] == 5
    assert "dovetail-environments/verl" in found.left("actor_rollout_ref.rollout.multi_turn.tool_config_path")
    assert task.params["eval_path"] == ("a.parquet", "b.parquet")
    assert config.choice("train.lr_schedule").params["warmup_steps"] == 10
    assert config.run.sinks == ("console", "wandb")


def test_grpo_with_kl_in_the_loss_on_several_devices(tmp_path):
    more = """algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False actor_rollout_ref.rollout.n=5 \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_type=low_var_kl \\
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm actor_rollout_ref.actor.clip_ratio_high=0.28 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=2 trainer.total_training_steps=100 trainer.test_freq=5 trainer.val_before_train=False """
    config = of(tmp_path, more).config
    assert (config.eval.every, config.eval.at_start) == (5, False)
    assert (config.train.group_size, config.train.mini_batch_size, config.train.micro_batch_size) == (5, 320, 64)
    assert config.mesh.fsdp == 16
    assert config.choice("train.advantage").params["scale"] == "none"
    assert (config.train.kl_in, config.train.kl_coef, config.choice("train.kl").component.name) == ("loss", 0.001, "k3")
    assert config.choice("train.loss_agg").params["normalizer"] == 512.0
    params = config.choice("train.policy_loss").params
    assert (params["epsilon_low"], params["epsilon_high"]) == (0.2, 0.28)
    assert (config.train.steps, config.eval.every) == (100, 5)


@pytest.mark.parametrize("where", ["", "fsdp_config."])
def test_devices_that_share_a_row_are_no_further_rows(tmp_path, where):
    more = f"""actor_rollout_ref.actor.{where}ulysses_sequence_parallel_size=4 trainer.n_gpus_per_node=8 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 critic.ulysses_sequence_parallel_size=4 """
    found = of(tmp_path, more)
    assert (found.config.mesh.fsdp, found.config.mesh.cp, found.config.train.micro_batch_size) == (2, 4, 4)
    assert "divided by ulysses_sequence_parallel_size" in found.text
    assert "mesh.cp" in found.left("critic.ulysses_sequence_parallel_size")


def test_a_row_on_one_device_sets_nothing(tmp_path):
    found = of(tmp_path, "actor_rollout_ref.actor.ulysses_sequence_parallel_size=1 trainer.n_gpus_per_node=8 ")
    assert "mesh.cp" not in found.text
    assert found.config.mesh.fsdp == 8


@pytest.mark.parametrize(
    ("more", "name", "params"),
    [
        ("actor_rollout_ref.actor.tis_imp_ratio_cap=2.5", "tis_token", {"upper": 2.5}),
        (
            "algorithm.rollout_correction.rollout_is=token algorithm.rollout_correction.rollout_is_threshold=4",
            "tis_token",
            {"upper": 4.0},
        ),
        (
            "algorithm.rollout_correction.rollout_is=sequence"
            " algorithm.rollout_correction.rollout_is_batch_normalize=True",
            "tis_sequence",
            {"upper": 2.0, "normalize": True},
        ),
    ],
)
def test_the_sampler_is_corrected_for_under_its_old_and_its_new_name(tmp_path, more, name, params):
    (chosen,) = of(tmp_path, more).config.several("train.correction")
    assert chosen.component.name == name
    assert chosen.params.items() >= params.items()


def test_kl_in_the_reward_and_a_reward_function(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return 0.0\n")
    more = f"algorithm.use_kl_in_reward=True algorithm.kl_ctrl.type=adaptive custom_reward_function.path={own}"
    more += " algorithm.filter_groups.enable=True algorithm.filter_groups.max_num_gen_batches=4"
    config = of(tmp_path, more).config
    assert (config.train.kl_in, config.train.kl_coef, config.choice("train.kl").component.name) == (
        "reward",
        0.001,
        "k1",
    )
    assert config.choice("train.kl_controller").params == {"target": 0.1, "horizon": 10000.0}
    assert config.several("train.rewards")[0].params["path"] == str(own)
    assert config.choice("train.group_filter").component.name == "nonzero_variance"
    assert config.train.refill_rounds == 3


def test_dynamic_sampling_with_larger_batches_and_without_padding(tmp_path):
    more = """algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=16 actor_rollout_ref.model.use_remove_padding=True \\
    algorithm.filter_groups.enable=True algorithm.filter_groups.metric=acc data.gen_batch_size=768 \\
    algorithm.filter_groups.max_num_gen_batches={most} actor_rollout_ref.actor.use_dynamic_bsz=True {own}"""
    found = of(tmp_path, more.format(most=10, own=""))
    train = found.config.train
    assert (train.prompts, train.oversample, train.refill_rounds, train.packing) == (256, 512, 9, True)
    assert [each.component.name for each in found.config.several("train.correction")] == ["tis_token"]
    assert "compares the completions' scores" in found.left("algorithm.filter_groups.metric")
    assert "train.length_buckets" in found.left("actor_rollout_ref.actor.use_dynamic_bsz")
    (tmp_path / "own").mkdir()
    own = "algorithm.rollout_correction.rollout_is=sequence data.gen_batch_size=256"
    found = of(tmp_path / "own", more.format(most=0, own=own))
    assert found.config.train.oversample is None
    assert [each.component.name for each in found.config.several("train.correction")] == ["tis_sequence"]
    assert "without a limit" in found.left("algorithm.filter_groups.max_num_gen_batches")


@pytest.mark.parametrize(
    ("more", "name", "params"),
    [
        ("lora_rank=8 {m}.target_modules=[q_proj,v_proj]", "lora", {"rank": 8, "modules": r".*\.(q_proj|v_proj)"}),
        (
            "lora_rank=8 {m}.target_modules=all-linear {m}.lora_adapter_path=null",
            "lora",
            {"alpha": 16.0, "modules": ".*"},
        ),
        ("lora_rank=8 {m}.lora_adapter_path=/models/warm", "peft", {"path": "/models/warm"}),
    ],
)
def test_adapters(tmp_path, more, name, params):
    model = "actor_rollout_ref.model"
    chosen = of(tmp_path, f"{model}.{more.format(m=model)}").config.choice("train.adapter")
    assert chosen.component.name == name
    assert chosen.params.items() >= params.items()


@pytest.mark.parametrize(
    ("mode", "name"),
    [("vanilla", "ppo"), ("gspo", "gspo"), ("sapo", "sapo"), ("gpg", "reinforce"), ("clip_cov", "clip_cov"),
     ("kl_cov", "kl_cov"), ("geo_mean", "gmpo"), ("cispo", "cispo")],
)  # fmt: skip
def test_every_loss_mode(tmp_path, mode, name):
    config = of(tmp_path, f"actor_rollout_ref.actor.policy_loss.loss_mode={mode}").config
    assert config.choice("train.policy_loss").component.name == name


def test_its_gspo_has_an_aggregation_of_its_own(tmp_path):
    settings = "actor_rollout_ref.actor.policy_loss.loss_mode=gspo actor_rollout_ref.actor.loss_agg_mode=token-mean"
    config = of(tmp_path, settings).config
    assert config.choice("train.loss_agg").component.name == "sequence_mean_token_mean"


def test_the_yaml_of_a_run(tmp_path):
    text = (
        "data:\n  train_batch_size: 32\nalgorithm:\n  adv_estimator: rloo\nactor_rollout_ref:\n  rollout:\n    n: 4\n"
    )
    config = translated("verl", tmp_path / "config.yaml", text).config
    assert (config.train.prompts, config.train.group_size) == (32, 4)
    assert config.choice("train.advantage").component.name == "rloo"


def test_steps_of_epochs_are_counted_where_the_data_is_there(tmp_path):
    data = tmp_path / "train.jsonl"
    data.write_text('{"prompt": "a"}\n' * 10)
    text = f"python x.py data.train_files={data} data.train_batch_size=4 trainer.total_epochs=3 trainer.nnodes=1"
    (tmp_path / "own").mkdir()
    found = translated("verl", tmp_path / "own" / "run.sh", text)
    assert found.config.train.steps == 6, "a batch that is not whole is dropped"
    filtered = translated("verl", tmp_path / "run.sh", f"{text} data.filter_overlong_prompts=True")
    assert "train.steps = %FILL_IN_STEPS" in filtered.text, "how many prompts are left is not known"


def test_the_engine_and_a_cut_that_cuts_nothing(tmp_path):
    found = of(tmp_path, "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.top_k=-1")
    assert found.config.choice("train.rollout").component.name == "vllm"
    assert found.config.sampling.top_k is None
    assert re.search(r"sampling.top_k = None +# actor_rollout_ref.rollout.top_k = -1", found.text)


def test_a_script_calculates_its_lengths(tmp_path):
    """Recipes write 2048 as 1024 * 2; what only the shell could run is said to be computed, and is no setting."""
    script = """max_response_length=$((1024 * (2 + 6)))
    half=$((max_response_length / 2))
    export stamp=$(date +%s)
    python3 -m verl.trainer.main_ppo \\
        data.max_response_length=${max_response_length} `# data.max_prompt_length=7)` \\
        actor_rollout_ref.model.path=$stamp
    """
    found = translated("verl", tmp_path / "run.sh", script)
    assert found.config.sampling.max_tokens == 8192
    assert found.config.train.max_prompt_tokens == 512, "verl's default: the other one is in a comment"
    assert "computed in the script" in found.left("actor_rollout_ref.model.path")
    assert "stamp = " not in found.text
    assert "#   half" not in found.text


@pytest.mark.parametrize(
    "value", ["1024 * 2 ** 99999", "1 << 99", "7 / 0", "RANDOM % 7", "9223372036854775807 + 1", "("]
)
def test_arithmetic_that_is_not_understood_is_computed(tmp_path, value):
    script = f"length=$(({value}))\npython x.py data.train_batch_size=8 data.max_response_length=$length\n"
    found = translated("verl", tmp_path / "run.sh", script)
    assert found.config.sampling.max_tokens == 512
    assert "computed in the script" in found.left("data.max_response_length")


def test_what_has_another_meaning_here_is_said(tmp_path):
    actor = "actor_rollout_ref.actor"
    more = f"""algorithm.adv_estimator=grpo {actor}.use_kl_loss=True {actor}.kl_loss_type=full \\
    {actor}.optim.warmup_style=polynomial trainer.logger=[console,swanlab] trainer.test_freq=-1 \\
    {actor}.optim.betas=[0.9,0.95] """
    found = of(tmp_path, more)
    assert "there is no such KL" in found.left(f"{actor}.kl_loss_type")
    assert "names lr_schedule" in found.left(f"{actor}.optim.warmup_style")
    assert "swanlab" in found.left("trainer.logger")
    assert "has no effect" in found.left("algorithm.kl_ctrl.kl_coef")
    assert found.config.eval.every is None, "verl evaluates only if test_freq is positive"
    assert found.config.choice("train.optimizer").params["b2"] == 0.95


def test_the_older_name_of_a_schedule_comes_first(tmp_path):
    """In the YAML that a run writes both are there; verl warns of the older one, and takes it."""
    text = "actor_rollout_ref:\n  actor:\n    optim: {lr_scheduler_type: constant, warmup_style: STYLE}\n"
    for style, name in (("cosine", "warmup_cosine"), ("null", "constant")):
        (tmp_path / name).mkdir()
        found = translated("verl", tmp_path / name / "config.yaml", text.replace("STYLE", style))
        assert found.config.choice("train.lr_schedule").component.name == name


def test_values_that_the_yaml_takes_from_elsewhere_are_computed(tmp_path):
    text = "data: {max_response_length: 100}\nactor_rollout_ref:\n  model: {path: '${oc.env:MODEL}'}\n"
    text += "  rollout: {n: '${oc.select:data.n,4}'}\n"
    found = translated("verl", tmp_path / "config.yaml", text)
    assert "computed" in found.left("actor_rollout_ref.model.path")
    assert "computed" in found.left("actor_rollout_ref.rollout.n")
    assert "model.pretrained" not in found.text


@pytest.mark.parametrize(
    ("kind", "name"), [("k3+", "k3_plus"), ("low_var_kl+", "k3_plus"), ("k1+", "k1_plus"), ("mse", "k2")]
)
def test_a_plus_changes_the_gradient_of_kl(tmp_path, kind, name):
    actor = "actor_rollout_ref.actor"
    config = of(tmp_path, f"{actor}.use_kl_loss=True {actor}.kl_loss_type={kind}").config
    assert config.choice("train.kl").component.name == name


def test_an_evaluation_that_samples_has_its_cuts(tmp_path):
    values = "actor_rollout_ref.rollout.val_kwargs"
    more = f"{values}.temperature=0.7 {values}.top_p=0.9 {values}.top_k=-1 {values}.n=4"
    (tmp_path / "greedy").mkdir()
    found = of(tmp_path, f"{more} {values}.do_sample=True")
    assert (found.config.eval.samples, found.config.eval.temperature) == (4, 0.7)
    assert (found.config.eval.top_p, found.config.eval.top_k) == (0.9, None)
    assert "greedy" in of(tmp_path / "greedy", more).left(f"{values}.top_p")


@pytest.mark.parametrize(
    ("given", "bounds"),
    [("", (0.2, 0.2)), ("low=0.15", (0.15, 0.2)), ("low=null {actor}.clip_ratio_high=0.3", (0.1, 0.3))],
)
def test_one_clip_ratio_counts_only_where_a_bound_is_null(tmp_path, given, bounds):
    actor = "actor_rollout_ref.actor"
    more = f"{actor}.clip_ratio=0.1 " + (f"{actor}.clip_ratio_{given.format(actor=actor)}" if given else "")
    found = of(tmp_path, more)
    params = found.config.choice("train.policy_loss").params
    assert (params["epsilon_low"], params["epsilon_high"]) == bounds
    if 0.1 not in bounds:
        assert "no effect" in found.left(f"{actor}.clip_ratio")
