from collections.abc import Callable

from dovetail.config import Config, difference, render_diff, render_show

LoadText = Callable[..., Config]


def test_show_tells_origins_and_what_is_not_used(load_text: LoadText):
    text = render_show(load_text("train.steps = 3\npolicy_loss.grpo.epsilon_low = 0.1\n", "train.policy_loss=gspo"))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "train.steps = 3 # x.gin:1" in lines
    assert "train.policy_loss = 'gspo' # --set train.policy_loss=gspo" in lines
    assert "policy_loss.gspo.epsilon_low = 0.0003 # default" in lines
    assert lines[-2:] == ["# Not used:", "# policy_loss.grpo.epsilon_low (x.gin:2): train.policy_loss is 'gspo'"]


def test_what_is_shown_is_a_config_too(load_text: LoadText):
    config = load_text("train.steps = 3\npolicy_loss.grpo.epsilon_low = 0.1\n", "train.policy_loss=gspo")
    assert load_text(render_show(config)) == config


def test_equal_configs_do_not_differ(load_text: LoadText):
    assert difference(load_text("train.steps = 7"), load_text("", "train.steps=7")) == []
    assert render_diff(load_text(""), load_text("")) == "no difference\n"


def test_a_difference_shows_both_values(load_text: LoadText):
    a = load_text("train.policy_loss = gspo\n")
    b = load_text("train.policy_loss = grpo\ntrain.lr = 0.5\ncritic/optimizer.adamw.b2 = 0.5\n")
    assert difference(a, b) == [
        "train.lr = 0.0001 -> 0.5",
        "train.policy_loss = 'gspo' -> 'grpo'",
        "policy_loss.gspo.epsilon_low = 0.0003 -> (none)",
        "policy_loss.gspo.epsilon_high = 0.0004 -> (none)",
        "critic/optimizer.adamw.b2 = 0.999 -> 0.5",
        "policy_loss.grpo.epsilon_low = (none) -> 0.2",
        "policy_loss.grpo.epsilon_high = (none) -> 0.2",
    ]
    assert render_diff(a, b).splitlines() == difference(a, b)
