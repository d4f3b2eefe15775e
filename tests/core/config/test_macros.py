from collections.abc import Callable

from dovetail.config import Config

LoadText = Callable[..., Config]
Complaints = Callable[..., list[str]]


def test_a_macro_stands_for_its_last_value_wherever_it_is_defined(load_text: LoadText):
    config = load_text("train.lr = %lr\nlr = 0.1\ncritic.lr = %lr\n", "lr=0.2")
    assert (config.train.lr, config.critic.lr) == (0.2, 0.2)
    assert config.origins["train.lr"] == "x.gin:1 (%lr at --set lr=0.2)"


def test_macros_nest_in_containers_and_in_macros(load_text: LoadText):
    config = load_text(
        "k = 2\nks = (1, %k)\neval.pass_at = %ks\nreward.assorted.table = {'a': %k}\ntrain.rewards = assorted\n"
    )
    assert config.eval.pass_at == (1, 2)
    assert config.choice("train.rewards[0]").params["table"] == {"a": 2.0}


def test_a_macro_may_hold_a_name(load_text: LoadText):
    assert load_text("train.policy_loss = %loss\nloss = gspo\n").train.policy_loss == "gspo"
    assert load_text("train.kl_in = %where\nwhere = 'loss'\n", "where=reward").train.kl_in == "reward"


def test_an_unknown_macro_is_named_with_the_nearest(complaints: Complaints):
    assert complaints("rate = 1.0\ntrain.lr = %rat\ncritic.lr = %rate\n") == [
        "x.gin:2: unknown macro '%rat'. Did you mean 'rate'? Macros: rate"
    ]


def test_an_unused_macro_is_refused(complaints: Complaints):
    assert complaints("rate = 1.0\n") == [
        "x.gin:1: macro 'rate' is used nowhere. A setting is written SECTION.NAME; `dovetail search rate` looks for one."
    ]


def test_a_setting_without_its_section_is_understood(complaints: Complaints):
    (line,) = complaints("group_size = 4\n")
    assert line == "x.gin:1: macro 'group_size' is used nowhere. Did you mean train.group_size?"


def test_a_macro_cycle_is_refused(complaints: Complaints):
    assert complaints("a = %b\nb = [%a]\ntrain.lr = %a\n") == ["x.gin:2: macro cycle: %a -> %b -> %a"]


def test_a_macro_is_defined_once_in_a_file_and_without_scope(complaints: Complaints):
    assert complaints("a = 1\na = 2\ncritic/b = 3\ntrain.lr = %a\ncritic.lr = %b\n") == [
        "x.gin:2: macro 'a' is already bound at x.gin:1; keep one of the two",
        "x.gin:3: 'critic/b': a macro has no scope",
    ]
