"""The designs that command lines register, and the command lines that are refused."""

import math

import pytest

from dovetail.errors import ConfigError
from dovetail_lab.ab.design import Arm, Design, Window, changes, parse_stop_rule


def design(*arms: str, **given) -> Design:
    texts = arms or ("ppo:train.policy_loss=ppo", "gspo:train.policy_loss=gspo")
    return Design(arms=tuple(map(Arm.parse, texts)), metric="eval/accuracy", **{"seeds": (0, 1, 2, 3), **given})


def test_an_arm_is_a_name_and_overrides():
    assert Arm.parse("base") == Arm(name="base")
    arm = Arm.parse("x: train.rewards=['a', 'b'], train.lr=1e-4")
    assert arm.overrides == ("train.rewards=['a', 'b']", "train.lr=1e-4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.lr=1", "write NAME:KEY=VALUE"),
        (":train.lr=1", "write NAME:KEY=VALUE"),
        ("a:train.lr", "'train.lr' is not KEY=VALUE"),
        ("a:train.lr=", "is not KEY=VALUE"),
        ("a:run.seed=3", "not part of what a run computes"),
    ],
)
def test_what_is_not_an_arm(text, message):
    with pytest.raises(ConfigError, match=message):
        Arm.parse(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arms": ("a", "a")}, "arm 'a' is there twice"),
        ({"arms": ("a",)}, "two arms or more, 1 given"),
        ({"min_effect": -1.0}, "--min-effect -1.0: a number from 0 on"),
        ({"min_effect": math.nan}, "--min-effect nan"),
        ({"alpha": 1.0}, "--alpha 1.0"),
        ({"looks": 5}, "5 looks at 4 pairs"),
    ],
)
def test_what_is_no_design(given, message):
    arms = given.pop("arms", ())
    with pytest.raises(ConfigError, match=message):
        design(*arms, **given)


def test_an_unknown_control_is_answered_with_the_nearest():
    assert design().with_control("gspo").control.name == "gspo"
    with pytest.raises(ConfigError, match=r"there is no arm 'gpso'\. Did you mean 'gspo'\? Arms: gspo, ppo"):
        design().with_control("gpso")


def test_pairs_are_completed_one_after_another_and_the_first_arm_rotates():
    order = [(arm.name, point.seed) for arm, point in design("a", "b:x=1", "c:x=2").points()]
    assert [seed for _, seed in order] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert [name for name, _ in order[:6]] == ["a", "b", "c", "b", "c", "a"]
    assert sorted(order) == sorted({(name, seed) for name in "abc" for seed in range(4)})


def test_a_design_is_what_its_json_says():
    made = design(looks=2, min_effect=0.02, window=Window("last5"), goal="min").with_control("gspo")
    assert Design.from_json(made.to_json()) == made
    assert changes(made.to_json(), design().to_json())[0] == "control: gspo -> ppo"


@pytest.mark.parametrize(("text", "looks"), [("fixed", 1), ("pocock:4", 4)])
def test_stop_rules(text, looks):
    assert parse_stop_rule(text) == looks


@pytest.mark.parametrize("text", ["pocock", "pocock:0", "obrien:3", ""])
def test_what_is_no_stop_rule(text):
    with pytest.raises(ConfigError, match="write pocock:LOOKS"):
        parse_stop_rule(text)


@pytest.mark.parametrize("text", ["last0", "last0%", "last101%", "first", "10%", ""])
def test_what_is_no_window(text):
    with pytest.raises(ConfigError, match="write last, last5, last10% or all"):
        Window(text)


def test_windows():
    curve = [(0, 0.0), (50, 1.0), (90, 2.0), (100, 4.0)]
    found = {text: Window(text).of(curve, 100) for text in ("last", "last2", "last10%", "last50%", "all")}
    assert found == {"last": 4.0, "last2": 3.0, "last10%": 4.0, "last50%": 3.0, "all": 1.75}
    assert Window("last1%").of([(0, 5.0), (50, 7.0)], 100) == 7.0, "never empty where there are values"
    assert math.isnan(Window("last").of([], 100))
    assert Window("last").of([(10, 1.0), (10, 2.0)], 10) == 2.0, "a step that is recorded again counts once"
