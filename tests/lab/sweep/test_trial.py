"""Trials are read and planned before any starts; equal trials are merged; different numbers do not split a group."""

import pytest

import dovetail
from dovetail import plan
from dovetail.config import load, run_id
from dovetail.errors import ConfigError, PlanError
from dovetail_lab.sweep import Point, plan_trials
from dovetail_lab.sweep.trial import group_of


def test_a_trial_is_named_by_its_run():
    (trial,) = plan_trials(None, ["train.steps=3"], [Point(("train.lr=0.01",), 4)]).trials
    assert trial.id == run_id(load(None, ["train.steps=3", "train.lr=0.01", "run.seed=4"]))
    assert trial.label == "lr=0.01 seed=4"
    assert trial.config_id == trial.id[: -len("-s4")]


def test_points_that_come_to_the_same_run_are_one_trial_with_what_has_an_effect():
    points = [Point((f"policy_loss.ppo.epsilon_low={e}", "train.policy_loss='gspo'"), 0) for e in (0.1, 0.2)]
    planned = plan_trials(None, [], points)
    assert [trial.overrides for trial in planned.trials] == [("train.policy_loss='gspo'",)]
    assert planned.merged == ((points[1], planned.trials[0]),)


def test_everything_that_is_wrong_is_said_before_anything_starts():
    points = [Point(("train.lr=0.1",), 0), Point(("train.lrr=0.1",), 0), Point(("train.policy_loss='gpso'",), 0)]
    with pytest.raises(ConfigError) as caught:
        plan_trials(None, [], points)
    message = str(caught.value)
    assert "train has no setting 'lrr'. Did you mean 'lr'?" in message
    assert "unknown policy_loss 'gpso'. Did you mean 'gspo'?" in message
    assert "in the trial train.lrr=0.1 run.seed=0" in message


def test_a_plan_that_fails_is_found_too(monkeypatch):
    plan_step = plan.plan_step

    def refuse(config):
        if config.train.lr == 0.2:
            raise PlanError("nobody provides 'sigma'")
        return plan_step(config)

    monkeypatch.setattr(plan, "plan_step", refuse)
    with pytest.raises(ConfigError, match=r"nobody provides 'sigma'\n    in the trial train.lr=0.2"):
        plan_trials(None, [], [Point(("train.lr=0.1",)), Point(("train.lr=0.2",))])


def test_too_many_trials_are_refused():
    points = [Point((f"train.lr={i}",), 0) for i in range(1, 4)]
    with pytest.raises(ConfigError, match=r"the space has 3 trials; raise sweep.max_trials = 2"):
        plan_trials(None, [], points, max_trials=2)


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("train.lr=0.5", True),
        ("policy_loss.grpo.epsilon_low=0.5", True),
        ("run.seed=3", True),
        ("train.kl_coef=0.1", False),
        ("train.group_size=3", False),
        ("train.policy_loss=gspo", False),
    ],
)
def test_numbers_do_not_part_a_group(override, same):
    plain, other = load(None, ["train.policy_loss=grpo"]), load(None, ["train.policy_loss=grpo", override])
    assert (group_of(plain) == group_of(other)) is same


def proven(completions, proof):
    """A reward that reads a column which few tasks have."""
    return [float(each in completion) for completion, each in zip(completions, proof, strict=True)]


def test_a_reward_that_its_task_cannot_serve_is_refused_before_the_first_trial():
    dovetail.register("reward", "proven", proven)
    points = [Point(("train.rewards='exact_match'",)), Point(("train.rewards='proven'",))]
    said = r"the column 'proof', which task arithmetic does not have(.|\n)* in the trial train\.rewards='proven'"
    with pytest.raises(ConfigError, match=said):
        plan_trials(None, [], points)
