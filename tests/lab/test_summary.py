"""The summary of a run that its records give."""

from __future__ import annotations

import json

import pytest

from dovetail_lab.summary import summarise


def summary(folder, *steps: dict[str, float]) -> str:
    records = [{"phase": "rl", "step": step, **metrics} for step, metrics in enumerate(steps, 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in records))
    return summarise(folder)


def scored(mean: float, deviation: float, **others: float) -> dict[str, float]:
    return {"reward/mean": mean, "reward/std": deviation, "reward/mine": mean, **others}


def test_a_run_whose_scores_never_differed_says_that_the_reward_has_taught_nothing(tmp_path):
    said = "in all 2 steps every completion scored 0: no group had a better and a worse one, so the reward has taught nothing"
    text = summary(tmp_path, {"eval/accuracy": 0.5}, scored(0.0, 0.0), scored(0.0, 0.0))
    assert [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("warning")] == [said]
    assert "every completion of a step had the same score" in summary(tmp_path, scored(0.1, 1e-17), scored(1.0, 0.0))


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [{"eval/accuracy": 0.0}],
        [scored(0.0, 0.0), scored(0.1, 0.3)],
        [scored(0.0, float("nan"))],
        [{"reward/mean": 0.0, "reward/std": 0.0}],  # no rewards
        [scored(0.0, 0.0, **{"reward/unscored": 1.0})],
        [scored(0.0, 0.0, **{"process_reward/mine": 0.2})],
    ],
)
def test_other_runs_are_not_warned_of(tmp_path, steps):
    assert "warning" not in summary(tmp_path, *steps)


def test_the_best_value_is_a_number_if_there_is_one(tmp_path):
    text = summary(tmp_path, scored(float("nan"), 0.1), scored(0.25, 0.1), scored(0.125, 0.1))
    assert "reward       nan -> 0.125 after 3 steps (best 0.250 at 2)" in text
    text = summary(tmp_path, scored(float("nan"), 0.1))
    assert "reward       nan -> nan after 1 steps (best nan at 1)" in text
