"""Whole runs with episodes of several turns: records, rewards of turns, and resumption."""

from pathlib import Path

import numpy as np
import pytest
from tests.core.training.cut_off import cut_off
from tests.core.training.test_loop import assert_same_parameters
from tests.core.training.tiny import TINY

import dovetail
from dovetail.cli import main
from dovetail.config import load
from dovetail.errors import ConfigError, PlanError
from dovetail.kinds.episodes import Episodes
from dovetail.run.files import read_lines
from dovetail.spans import Span
from dovetail.training.loop import train
from dovetail.training.metrics import episode_metrics

GUESSING = (
    *TINY,
    "train.task=guess_number",
    "task.guess_number.largest=4",
    "train.agent_loop=tool_agent",
    "train.interaction=guess_number",
    "interaction.guess_number.message='\\n{hint}\\n'",
    "interaction.guess_number.guesses=3",
    "agent_loop.tool_agent.max_turns=3",
    "agent_loop.tool_agent.max_turn_tokens=4",
    "train.max_prompt_tokens=24",
    "sampling.max_tokens=40",
    "train.rewards=['short']",
    "eval.success=won",
    "train.steps=2",
    "sft.steps=100",
    "sft.lr=2e-2",
    "eval.every=2",
    "run.checkpoint_every=1",
    "run.sinks=()",
)


def short(conversations):
    """A reward that reads whole episodes."""
    return [0.1 * (len(messages) < 3) for messages in conversations]


def won(states, number):
    """A check that reads the world's last state."""
    return [float(state.number == n and state.guesses < 3) for state, n in zip(states, number, strict=True)]


@pytest.fixture(autouse=True)
def components():
    dovetail.register("reward", "short", short)
    dovetail.register("reward", "won", won)


def run(folder: Path, *overrides: str) -> list[dict]:
    train(load(None, [*GUESSING, *overrides]), folder)
    return [line for line in read_lines(folder / "metrics.jsonl") if "reward/mean" in line]


def assert_played_again(folder, capsys):
    """A recorded episode is played again without the model; a record that says something else is noticed."""
    play = ["play", "--replay", "--run", str(folder)]
    assert main(play) == 0
    assert capsys.readouterr().out.endswith("\nthe same as in the record\n")
    samples = folder / "samples.jsonl"
    whole = samples.read_text()
    samples.write_text(whole.replace('"ended": "', '"ended": "un'))
    assert main(play) == 1
    said = capsys.readouterr().out
    assert "\nended: " in said
    assert "U+FFFD" not in said
    samples.write_text(whole.replace('"content": "', '"content": "\\ufffd').replace('"ended": "', '"ended": "un'))
    assert main(play) == 1
    said = capsys.readouterr()
    assert "the model wrote bytes that are not text, and the record has U+FFFD in their place" in said.out + said.err
    samples.write_text(whole)
    assert main([*play, "--index", "99"]) == 1
    assert "has no episode of this prompt; it has 0, " in capsys.readouterr().err


def test_the_engines_figures_of_episodes_stand():
    """An interaction may use the same names."""
    episodes = Episodes(
        turn_rewards=np.zeros((2, 2)),
        turn_mask=np.array([[True, True], [True, False]]),
        anchor_ids=np.full((2, 2), -1),
        void_turns=np.zeros((2, 2), bool),
        tool_calls=np.array([0, 1]),
        tool_errors=np.zeros(2, int),
        ends=np.array(["done", "done"]),
        failed=np.zeros(2, bool),
        conversations=((), ()),
        states=(None, None),
        metrics={"turns_mean": np.array([9.0, 9.0]), "luck": np.array([0.5, np.nan])},
    )
    found = episode_metrics(episodes)
    assert (found["episode/turns_mean"], found["episode/luck"], found["episode/ended/done"]) == (1.5, 0.5, 1.0)


@pytest.mark.slow
def test_a_run_leaves_its_episodes_and_goes_on_bit_for_bit(tmp_path, monkeypatch, capsys):
    lines = run(tmp_path / "whole")
    for line in lines:
        assert 1 < line["episode/turns_mean"] <= 3
        ends = {name: value for name, value in line.items() if name.startswith("episode/ended/")}
        assert sum(ends.values()) == pytest.approx(1)
        assert line["reward/mean"] == pytest.approx(line["episode/turn_rewards"] + line["reward/short"])
    sample = next(iter(read_lines(tmp_path / "whole" / "samples.jsonl")))
    assert sample["messages"][0]["role"] == "assistant"
    assert len(sample["turn_rewards"]) == sum(message["role"] == "assistant" for message in sample["messages"])
    assert_played_again(tmp_path / "whole", capsys)
    spans = [Span(*span) for line in read_lines(tmp_path / "whole" / "spans.jsonl") for span in line["spans"]]
    answered = [span for span in spans if span.program == "tools"]
    sampled = [span for span in spans if span.name in ("rollout", "eval")]
    assert answered
    assert all(any(s.began <= span.began and span.ended <= s.ended for s in sampled) for span in answered)
    with cut_off(1):
        run(tmp_path / "stopped")
    assert run(tmp_path / "stopped") == lines
    assert_same_parameters(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (
            ("train.agent_loop=single_turn", "train.rewards=()", "eval.success=None"),
            ConfigError,
            "train.interaction is set, and train.agent_loop = 'single_turn' never calls it",
        ),
        (
            ("train.agent_loop=single_turn", "eval.success=None"),
            PlanError,
            "reward short of .* reads the column 'conversations', which task guess_number does not have",
        ),
        (
            ("train.task=arithmetic", "train.rewards=()", "eval.success=None"),
            PlanError,
            r"interaction\.guess_number of dovetail .* reads the column 'number', which task arithmetic .*guess_number.py:\d+\]$",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, overrides, error, message):
    with pytest.raises(error, match=message):
        train(load(None, [*GUESSING, *overrides]), tmp_path)


def test_fields_of_turns_need_a_loop_with_turns():
    def by_turn(turn_rewards, mask):
        """Estimator."""
        return mask * turn_rewards.sum()

    dovetail.register("advantage", "by_turn", by_turn)
    with pytest.raises(PlanError) as caught:
        load(None, ["train.advantage=by_turn"])
    assert str(caught.value) == (
        "train.advantage = session/by_turn reads 'turn_rewards', which an agent loop with turns provides; set train.agent_loop to"
        " 'tool_agent'"
    )
    assert "turn_rewards" in load(None, ["train.advantage=by_turn", *GUESSING]).plan
