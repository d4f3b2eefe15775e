"""What reads columns of a task is checked before a run, as far as its data is there."""

import json

import pytest

import dovetail
from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.run.sources import nothing_looked_up, stands_for
from dovetail_lab.sweep.columns import check_known_columns


def proven(completions, proof):
    """A reward that reads a column which few tasks have."""
    return [float(each in completion) for completion, each in zip(completions, proof, strict=True)]


@pytest.fixture(autouse=True)
def registered():
    dovetail.register("reward", "proven", proven)


FAR = ("train.task=dataset", "task.dataset.path=acme/problems")


def test_a_reward_whose_column_the_task_lacks_is_refused_without_a_run():
    config = load(None, ["train.rewards=proven"])
    with pytest.raises(PlanError, match="reads the column 'proof', which task arithmetic does not have"):
        check_known_columns(config)
    check_known_columns(load(None, ["train.rewards=exact_match"]))


def test_a_check_of_evaluations_is_looked_at_only_if_there_are_any():
    sets = ["train.rewards=exact_match", "eval.partial=proven"]
    with pytest.raises(PlanError, match="reward proven .* reads"):
        check_known_columns(load(None, sets))
    check_known_columns(load(None, [*sets, "eval.every=None"]))


def test_the_first_record_of_a_file_says_what_there_is(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"prompt": "1 + 1", "question": "?"}) + "\n")
    here = ["train.task=records", f"task.records.path='{file}'"]
    with pytest.raises(
        PlanError, match=r"exact_match of .* reads the column 'answer', which task records does not have"
    ):
        check_known_columns(load(None, ["train.rewards=exact_match", *here]))


@pytest.mark.parametrize(
    "elsewhere", [("train.task=records", "task.records.path='gone.jsonl'"), ("train.task=records",), FAR]
)
def test_data_that_is_not_here_is_no_reason_to_say_anything(elsewhere):
    check_known_columns(load(None, ["train.rewards=proven", *elsewhere]))


def test_names_on_a_network_are_not_looked_up():
    with nothing_looked_up(), pytest.raises(DataError, match="acme/tiny is on a network"):
        stands_for("acme/tiny", lambda: pytest.fail("looked up"))
    assert stands_for("acme/tiny", lambda: "here") == "here"


def test_a_task_is_opened_once_for_many_configs():
    tasks = {}
    for lr in ("1e-3", "1e-4"):
        check_known_columns(load(None, ["train.rewards=exact_match", f"train.lr={lr}"]), tasks)
    assert len(tasks) == 1


def test_a_column_of_roles_that_the_task_lacks_is_refused_if_something_reads_it():
    sets = ["train.rewards=exact_match", "train.role_column=answre"]
    check_known_columns(load(None, sets))
    with pytest.raises(ConfigError, match=r"train.role_column = 'answre' is not a column.*Did you mean 'answer'"):
        check_known_columns(load(None, [*sets, "train.advantage=rae"]))


@pytest.mark.parametrize(
    ("chosen", "setting"),
    [
        (("train.tools=('calculator',)",), "tools"),
        (("train.interaction=guess_number", "train.task=guess_number", "train.rewards=()"), "interaction"),
    ],
)
def test_explain_refuses_what_is_only_called_in_episodes(chosen, setting, capsys):
    assert main(["explain", "quickstart", *(word for each in chosen for word in ("--set", each))]) == 1
    assert f"train.{setting} is set, and train.agent_loop = 'single_turn' never calls it" in capsys.readouterr().err


def test_explain_refuses_what_train_refuses(capsys):
    assert main(["explain", "quickstart", "--set", "train.rewards=proven"]) == 1
    assert "reads the column 'proof', which task arithmetic does not have" in capsys.readouterr().err
