"""The values in which two configs differ."""

from dovetail.config import load
from dovetail_kit.difference import difference


def test_equal_configs_do_not_differ(tmp_path):
    (tmp_path / "a.gin").write_text("train.steps = 7\n")
    assert difference(load(tmp_path / "a.gin"), load(None, ["train.steps=7"])) == []


def test_a_difference_shows_both_values():
    a = load(None, ["train.advantage=gae", "train.policy_loss=gspo"])
    b = load(None, ["train.advantage=gae", "train.policy_loss=ppo", "train.lr=0.5", "critic/optimizer.adamw.b2=0.5"])
    assert difference(a, b) == [
        "train.lr = 0.0001 -> 0.5",
        "train.policy_loss = 'gspo' -> 'ppo'",
        "policy_loss.gspo.epsilon_low = 0.0003 -> (none)",
        "policy_loss.gspo.epsilon_high = 0.0004 -> (none)",
        "critic/optimizer.adamw.b2 = 0.999 -> 0.5",
        "policy_loss.ppo.epsilon_low = (none) -> 0.2",
        "policy_loss.ppo.epsilon_high = (none) -> 0.2",
        "policy_loss.ppo.clip_c = (none) -> None",
        "policy_loss.ppo.level = (none) -> 'token'",
    ]
