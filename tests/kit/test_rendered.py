"""What `dovetail config show`, `config diff` and `explain` print of a config."""

from collections.abc import Callable

import pytest
from tests.tiny_folder import write

from dovetail.config import Config, load
from dovetail.kinds import STAGES
from dovetail_kit.difference import difference
from dovetail_kit.notices import overridden, warnings
from dovetail_kit.rendered import by_stage, render_diff, render_show

TextConfig = Callable[..., Config]


@pytest.fixture
def text_config(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> TextConfig:
    """Load a config from a text, as the file `x.gin`, with overrides."""
    monkeypatch.chdir(str(tmp_path))

    def make(text: str, *overrides: str) -> Config:
        with open("x.gin", "w", encoding="utf-8") as file:
            file.write(text)
        return load("x.gin", overrides)

    return make


def test_a_loss_under_another_aggregation_than_its_paper_s_is_told():
    gspo = "train.policy_loss=gspo"
    said = (
        "train.loss_agg = 'token_mean': policy_loss 'gspo' is the objective of its paper under 'sequence_mean_token_m"
    )
    assert any(line.startswith(said) for line in warnings(load(None, [gspo, "train.loss_agg=token_mean"])))
    assert not warnings(load(None, [gspo, "train.loss_agg=sequence_mean_token_mean"]))


def test_a_learning_rate_for_adapters_is_told_where_all_parameters_of_a_loaded_model_learn(tmp_path):
    write(tmp_path / "tiny")
    loaded = ["train.model=pretrained", "train.tokenizer=huggingface"]
    loaded += [f"{kind}.path={str(tmp_path / 'tiny')!r}" for kind in ("model.pretrained", "tokenizer.huggingface")]
    (said,) = warnings(load(None, [*loaded, "train.lr=1e-4"]))
    assert said.startswith("train.lr = 0.0001 for all parameters of a model that is loaded: 1e-6 to 1e-5 is usual")
    assert not warnings(load(None, [*loaded, "train.lr=1e-6"]))
    assert not warnings(load(None, [*loaded, "train.lr=1e-4", "train.adapter=lora"]))


def test_show_tells_origins_and_what_is_not_used(text_config: TextConfig):
    text = render_show(text_config("train.steps = 3\npolicy_loss.grpo.epsilon_low = 0.1\n", "train.policy_loss=gspo"))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "train.steps = 3 # x.gin:1" in lines
    assert "train.policy_loss = 'gspo' # --set train.policy_loss=gspo" in lines
    assert "policy_loss.gspo.epsilon_low = 0.0003 # default" in lines
    assert lines[-2:] == ["", "# policy_loss.grpo.epsilon_low (x.gin:2) has no effect: train.policy_loss is 'gspo'"]


def test_what_is_shown_is_a_config_too(text_config: TextConfig):
    config = text_config("train.steps = 3\npolicy_loss.grpo.epsilon_low = 0.1\n", "train.policy_loss=gspo")
    assert text_config(render_show(config)) == config


def test_a_difference_is_a_line_for_each_value(text_config: TextConfig):
    a, b = text_config("train.policy_loss = gspo\n"), text_config("train.lr = 0.5\n")
    assert render_diff(a, b).splitlines() == difference(a, b) != []
    assert render_diff(a, a) == "no difference\n"


def test_a_stage_has_its_passes_and_calls(text_config: TextConfig):
    plan = text_config("train.correction = ['tis_token']\n").plan
    assert plan is not None
    ran = {stage.name: said for stage, said in by_stage(plan)}
    assert list(ran) == [stage.name for stage in STAGES]
    assert ran["corrections"] == ["train.correction = tis_token -> is_weights, mask"]
    assert any(said.startswith("policy at collection") for said in ran["passes"])


@pytest.mark.parametrize(("advantage", "written"), [("grpo", "advantages"), ("gae", "advantages, returns")])
def test_a_call_provides_what_something_reads(text_config: TextConfig, advantage: str, written: str):
    plan = text_config(f"train.advantage = '{advantage}'\n").plan
    assert plan is not None
    ran = {stage.name: said for stage, said in by_stage(plan)}
    assert ran["advantages"] == [f"train.advantage = {advantage} -> {written}"]


def test_a_value_of_a_preset_that_a_config_overrides_is_noted(text_config: TextConfig):
    config = text_config("sampling.preset = 'greedy'\nsampling.temperature = 1.0\n")
    (said,) = overridden(config)
    assert said == (
        "sampling_preset.greedy.temperature = 0.0 has no effect: sampling.temperature = 1.0 (x.gin:2) stands"
    )
    assert overridden(text_config("sampling.preset = 'greedy'\n")) == []


def test_a_controller_of_a_coefficient_that_stays_zero_is_told():
    adaptive = "train.kl_controller=adaptive"
    said = (
        "train.kl_controller = 'adaptive' has no effect: it changes a coefficient in proportion, and train.kl_coef is 0"
    )
    assert [line for line in warnings(load(None, [adaptive])) if line.startswith(said)]
    assert not warnings(load(None, [adaptive, "train.kl_coef=0.1"]))
    assert not warnings(load(None, ["train.entropy_controller=adaptive"])), "this one adds to it"
