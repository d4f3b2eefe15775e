"""`dovetail play`: a person in the model's place, and the model itself."""

import io

import pytest
from tests.core.training.tiny import TINY

from dovetail.cli import main


@pytest.fixture
def typed(monkeypatch):
    return lambda *lines: monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_a_person_plays_an_environment_and_sees_what_each_turn_was_worth(typed, capsys):
    typed("8", "12", "10", "11", "9")
    assert main(["play", "guess_number"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "--- the model reads\nA number from 1 to 16.\nyou> 8\n--- the model reads\nhigher\nyou> 12\n"
    )
    assert said.endswith("ended    done, after 5 turns\nrewards  0, 0, 0, 0, 1   of each turn\nscore    1\n")


def test_a_turn_of_several_lines_calls_a_tool(typed, capsys):
    typed(
        '<tool_call>{"name": "calculator",\\',
        '"arguments": {"expression": "152 * 157 + 312"}}</tool_call>',
        "<answer>24176</answer>",
    )
    assert main(["play", "calculation"]) == 0
    said = capsys.readouterr().out
    assert "<result>24176</result>" in said
    assert "ended    answered, after 2 turns" in said
    assert said.endswith("reward   1   exact_match\nscore    1\n")


def test_a_single_turn_is_scored_as_in_training(typed, capsys):
    typed("<answer>30</answer>")
    assert main(["play", "quickstart"]) == 0
    assert capsys.readouterr().out == (
        "--- the model reads\n6 + 24=\nyou> <answer>30</answer>\n\nended    eos\nreward   1   exact_match\nscore    1\n"
    )


def test_input_that_ends_too_early_and_a_prompt_that_is_not_there_are_one_line(typed, capsys):
    typed("8")
    assert main(["play", "guess_number"]) == 1
    assert capsys.readouterr().err == "error: the input ended before the episode did\n"
    assert main(["play", "guess_number", "--index", "9999999"]) == 1
    assert "error: --index 9999999: the eval split has " in capsys.readouterr().err


def test_the_model_plays_and_nothing_it_writes_commands_the_terminal(capsys):
    config = [part for override in (*TINY, "sampling.max_tokens=40") for part in ("--set", override)]
    assert main(["play", "quickstart", "--watch", *config]) == 0
    said = capsys.readouterr().out
    assert said.startswith("--- the model reads\n")
    assert "--- the model writes\n" in said
    assert "score    " in said
    assert all(c.isprintable() or c == "\n" for c in said)


def test_a_reward_without_its_column_is_refused_as_by_explain(tmp_path, capsys):
    (tmp_path / "data.jsonl").write_text('{"prompt": "6 + 24=", "result": "30"}\n' * 4)
    chosen = ["train.task=records", f"task.records.path={tmp_path}/data.jsonl", "train.rewards=['exact_match']"]
    chosen += [f"task.records.eval_path={tmp_path}/data.jsonl"]
    options = [part for override in chosen for part in ("--set", override)]
    said = []
    for command in ("explain", "play"):
        assert main([command, "quickstart", *options]) == 1
        said.append(capsys.readouterr().err)
    assert "reads the column 'answer', which task records does not have" in said[1]
    assert said[0].partition("always there")[0] == said[1].partition("always there")[0]
