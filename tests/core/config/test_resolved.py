import pickle
from collections.abc import Callable

import pytest

from dovetail.config import Choice, Config, floats, in_few_lines, statics
from dovetail.errors import ConfigError, UnknownNameError
from dovetail.registry import Registry

LoadText = Callable[..., Config]


def test_floats_are_traced_unless_marked_static(load_text: LoadText):
    choice = load_text("optimizer.adamw.b1 = 0\n").choice("train.optimizer")
    assert floats(choice) == {"b1": 0.0, "b2": 0.999}
    assert statics(choice) == {"k": 1, "decay": 0.0}


def test_a_float_that_is_none_is_static(load_text: LoadText):
    choice = load_text("value_loss.ppo.clip = None\n").choice("critic.value_loss")
    assert floats(choice) == {}
    assert statics(choice) == {"clip": None, "half": True}


def test_a_choice_binds_its_parameters(load_text: LoadText):
    assert load_text("train.kl = k3\nkl.k3.clamp = 2\n").choice("train.kl").bind()("a", "b") == ("a", "b", 2.0)
    task = load_text("train.task = jsonl\ntask.jsonl.path = 'a'\n").choice("train.task").bind()
    assert (task.path, task.limit) == ("a", 10)  # pyright: ignore[reportFunctionMemberAccess]


def test_an_empty_slot_has_no_choice(load_text: LoadText):
    config = load_text("")
    with pytest.raises(KeyError, match=r"'train.group_filter' chooses no component"):
        config.choice("train.group_filter")
    with pytest.raises(KeyError, match="Did you mean 'train.policy_loss'"):
        config.choice("train.policy_los")


def test_a_setting_is_read_by_its_path(load_text: LoadText):
    config = load_text("train.steps = 7\n")
    assert config.setting("train.steps") == config.train.steps == 7
    with pytest.raises(KeyError, match=r"'train.step' is not a setting. Did you mean 'train.steps'"):
        config.setting("train.step")
    with pytest.raises(KeyError, match=r"'trian.steps' is not a setting. Did you mean 'train.steps'"):
        config.setting("trian.steps")


def test_a_slot_holds_none_one_or_several(load_text: LoadText):
    config = load_text("train.rewards = (length, assorted)\n")
    assert [choice.component.name for choice in config.several("train.rewards")] == ["length", "assorted"]
    assert config.several("train.policy_loss") == (config.choice("train.policy_loss"),)
    assert config.several("train.group_filter") == config.several("train.correction") == ()


def test_a_component_outside_any_slot_is_given_with_its_defaults(load_text: LoadText, registry: Registry):
    config = load_text("policy_loss.grpo.epsilon_low = 0.5\ntrain.policy_loss = grpo\n")
    assert config.component("policy_loss", "grpo").params["epsilon_low"] == 0.5
    gspo = config.component("policy_loss", "gspo")
    assert gspo == Choice(component=registry.get("policy_loss", "gspo"), params=dict(gspo.component.params))
    with pytest.raises(ConfigError, match=r"task.jsonl is needed: task.jsonl.path has no default, set it"):
        config.component("task", "jsonl")
    with pytest.raises(UnknownNameError, match="unknown field 'prob'"):
        config.component("field", "prob")


def test_no_list_or_dict_is_shared_by_two_configs(load_text: LoadText):
    text = "train.rewards = (assorted,)\n"
    first = load_text(text).several("train.rewards")[0].params
    first["nested"].append((1.0, {}))
    first["table"]["a"] = 1.0
    again = load_text(text).several("train.rewards")[0].params
    assert (again["nested"], again["table"]) == ([], {})


def test_equality_is_about_values_not_origins(load_text: LoadText):
    written = load_text("train.steps = 7\npolicy_loss.gspo.epsilon_low = 0.1\n")
    assert written == load_text("", "train.steps=7")
    assert written != load_text("train.steps = 8\n")
    assert load_text("kl.k3.clamp = 1\ntrain.kl = k3") != load_text("train.kl = k3")


def test_what_goes_to_other_processes_pickles(load_text: LoadText):
    """Engines in processes of their own receive the sampling settings, and workers receive parameters."""
    config = load_text("sampling.max_tokens = 7\n")
    assert pickle.loads(pickle.dumps(config.sampling)) == config.sampling
    params = config.choice("train.optimizer").params
    assert pickle.loads(pickle.dumps(params)) == params


def test_bindings_without_effect_of_one_file_and_reason_share_a_line(load_text: LoadText):
    text = "optimizer.adamw.b1 = 0.5\noptimizer.adamw.b2 = 0.5\n"
    sets = ("policy_loss.gspo.epsilon_low=4", "policy_loss.gspo.epsilon_high=4")
    config = load_text(f"{text}train.optimizer = sgd\n", "critic.optimizer=sgd", "sft.optimizer=sgd", *sets)
    joined, *alone = in_few_lines(config.unused)
    assert joined.startswith(
        "optimizer.adamw.b1 and optimizer.adamw.b2 (x.gin:1, 2) have no effect: train.optimizer is"
    )
    assert [line.partition(": ")[0] for line in alone] == [
        f"{s.partition('=')[0]} (--set {s}) has no effect" for s in sets
    ]
