from collections.abc import Callable

from dovetail.config import Config, difference

LoadText = Callable[..., Config]


def test_equal_configs_do_not_differ(load_text: LoadText):
    assert difference(load_text("train.steps = 7"), load_text("", "train.steps=7")) == []


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
