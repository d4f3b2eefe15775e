from collections.abc import Callable
from typing import Annotated, Any

import attrs
import pytest
from annotated_types import Ge

from dovetail.config import Config, Sft, load
from dovetail.errors import ConfigError
from dovetail.registry import Origin, Registry

LoadText = Callable[..., Config]
Complaints = Callable[..., list[str]]
ACME = Origin("acme-rl", "2.0", "tests")


def other(mask: Any) -> Any:
    return mask


def test_without_a_file_everything_is_default(load_text: LoadText):
    config = load_text("")
    assert config.sft == Sft()
    assert config.origins["train.lr"] == "default"


def test_settings_come_from_the_file_and_overrides_go_before(load_text: LoadText):
    config = load_text("train.steps = 3\ntrain.lr = 1\nrun.folder = 'a'\n", "train.steps=4", "run.folder=runs/b")
    assert (config.train.steps, config.train.lr, config.run.folder) == (4, 1.0, "runs/b")
    assert isinstance(config.train.lr, float)
    assert config.origins["train.steps"] == "--set train.steps=4"
    assert config.origins["train.lr"] == "x.gin:2"


def test_the_last_override_counts(load_text: LoadText):
    assert load_text("", "train.steps=1", "train.steps=2").train.steps == 2


@pytest.mark.parametrize("name", ["'dr_grpo'", "'dr-grpo'", "dr-grpo", "dr_grpo", "dovetail/dr-grpo"])
def test_a_name_is_quoted_or_bare_with_either_dash(load_text: LoadText, name: str):
    config = load_text(f"train.policy_loss = {name}\n")
    assert config.train.policy_loss.rpartition("/")[2] == "dr_grpo"
    assert config.choice("train.policy_loss").component.name == "dr_grpo"


def test_an_alias_becomes_the_name(load_text: LoadText):
    assert load_text("train.kl = k3\n").train.kl == "low_var"


def test_several_names_keep_their_order(load_text: LoadText):
    config = load_text("train.rewards = [length, 'assorted']\n")
    assert config.train.rewards == ("length", "assorted")
    assert [choice.component.name for choice in config.several("train.rewards")] == ["length", "assorted"]


def test_one_name_may_stand_for_a_tuple_of_one(load_text: LoadText):
    assert load_text("", "run.sinks=console").train.rewards == load_text("train.rewards = 'check_answer'").train.rewards
    assert load_text("", "run.sinks=console").run.sinks == ("console",)
    assert load_text("run.sinks = []").several("run.sinks") == ()


def test_an_unknown_name_says_where_and_what_is_known(complaints: Complaints):
    assert complaints("\ntrain.policy_loss = 'gpso'\n") == [
        "x.gin:2: unknown policy_loss 'gpso'. Did you mean 'gspo'? Known: dr_grpo, grpo, gspo."
    ]
    assert complaints("", "train.policy_loss=gpso")[0].startswith("--set train.policy_loss=gpso: unknown policy_loss")
    assert complaints("train.rewards = (length, lenght)")[0].startswith("x.gin:1: unknown reward 'lenght'.")


def test_an_unknown_default_is_reported_as_such(bare: Registry):
    with pytest.raises(ConfigError, match=r"default of train.task: unknown task 'arithmetic'. Known: \(none\)."):
        load(None, registry=bare)


def test_none_in_words_is_understood(complaints: Complaints):
    (line,) = complaints("", "train.correction=none")
    assert line.endswith("Did you mean None?")


def test_an_ambiguous_name_asks_which(registry: Registry, complaints: Complaints, load_text: LoadText):
    registry.add("policy_loss", "gspo", other, origin=ACME)
    (line,) = complaints("train.policy_loss = gspo")
    assert line.startswith("x.gin:1: policy_loss 'gspo' is registered by dovetail")
    assert line.endswith("say which: 'dovetail/gspo' or 'acme-rl/gspo'")
    config = load_text("train.policy_loss = acme-rl/gspo")
    assert config.train.policy_loss == "acme-rl/gspo"
    assert config.choice("train.policy_loss").component.origin is ACME


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.stpes = 3", "x.gin:1: train has no setting 'stpes'. Did you mean 'steps'?"),
        (
            "train.temperature = 1.0",
            "x.gin:1: train has no setting 'temperature'. Did you mean sampling.temperature or eval.",
        ),
        (
            "train.zzz = 3",
            "x.gin:1: train has no setting 'zzz'. `dovetail search zzz` looks for it, also by its name in",
        ),
        (
            "train.gradient_accumulation_steps = 2",
            "x.gin:1: train has no setting 'gradient_accumulation_steps'. Did you mean train.micro_batch_size?",
        ),
        ("train.warm_start_steps = 0", "x.gin:1: train has no setting 'warm_start_steps'. Did you mean sft.steps?"),
        ("warm_start.steps = 0", "x.gin:1: unknown section 'warm_start'. Did you mean sft.steps? Sections: critic"),
        ("optim.lr = 1e-5", "x.gin:1: unknown section 'optim'. Did you mean train.lr? Sections: critic, eval, "),
        ("trian.steps = 3", "x.gin:1: unknown section 'trian'. Did you mean 'train'? Sections: critic, eval, "),
        (
            "policy_loss.gspo = 3",
            "x.gin:1: 'policy_loss' is a kind: write train.policy_loss = NAME to choose one,"
            " policy_loss.NAME.PARAMETER = value to set a parameter",
        ),
        ("critic/train.lr = 3", "x.gin:1: 'critic/train.lr': a setting has no scope; write train.lr"),
        ("train.a.b.c = 3", "x.gin:1: 'train.a.b.c' has too many parts; write section.field = value or kind.name."),
        ("train.steps = 'many'", "x.gin:1: train.steps: expected int >= 0, got 'many'."),
        ("train.steps = True", "x.gin:1: train.steps: expected int >= 0, got True."),
        (
            "train.steps = many",
            "x.gin:1: train.steps: many is not quoted, but this is not a component's name; expected int >= 0.",
        ),
        ("run.folder = runs/a", "x.gin:1: run.folder: runs/a is not quoted, but this is not a component's name;"),
        ("train.kl_in = 'los'", "x.gin:1: train.kl_in: expected 'loss' or 'reward', got 'los'. Did you mean 'loss'?"),
        ("train.policy_loss = 3", "x.gin:1: train.policy_loss: expected str, got 3."),
        ("train.policy_loss = None", "x.gin:1: train.policy_loss: expected str, got None."),
        ("train.rewards = [length, 3]", "x.gin:1: train.rewards: expected tuple[str, ...], got [length, 3]."),
        ("train.rewards = [length, 'length']", "x.gin:1: train.rewards: 'length' is named twice."),
        ("train.kl = k3\nrun.sinks = [console, dovetail/console]", "x.gin:2: run.sinks: 'console' is named twice."),
        (
            "train.steps = 1\ntrain:\n  steps = 2\n",
            "x.gin:3: train.steps is already bound at x.gin:1; keep one of the two",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(complaints: Complaints, text: str, said: str):
    (line,) = complaints(text)
    assert line.startswith(said)


def test_a_range_that_settings_state_is_checked(registry: Registry, complaints: Complaints):
    @attrs.frozen(kw_only=True)
    class Ranged:
        steps: Annotated[int, Ge(0)] = 1
        needed: int

    registry.sections["sft"] = attrs.evolve(registry.sections["sft"], target=Ranged)
    assert complaints("sft.steps = -1") == [
        "x.gin:1: sft.steps: expected int >= 0, got -1.",
        "sft.needed: it has no default: set it",
    ]
