"""The config is a config, and what it chooses is ours."""

from dovetail.config import dump, load
from dovetail.shipped import find

CONFIG = find("dovetail-acme/acme")


def test_it_plans_the_field_of_this_package():
    plan = load(CONFIG).plan
    entry = next(entry for entry in plan.entries if entry.field == "old_top_probability")
    assert entry.origin.startswith("dovetail-acme")
    assert entry.readers == ["train.advantage = dovetail-acme/hesitant"]


def test_the_resolved_config_says_whose_components_these_are():
    text = dump(load(CONFIG))
    assert "train.policy_loss = 'dovetail-acme/soft_clip'" in text
    assert "train.rewards = ('exact_match', 'dovetail-acme/near_miss')" in text


def test_its_task_goes_with_it():
    assert load(CONFIG, ["train.task=dovetail-acme/sequences"]).plan
