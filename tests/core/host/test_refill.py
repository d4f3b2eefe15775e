"""Rejected groups are replaced within the limit; groups still missing then are left out of everything."""

import numpy as np

from dovetail.host.completer import Completed
from dovetail.host.refill import refill
from dovetail.host.rewards import Scores
from dovetail.host.sampling import Sampled
from dovetail.protocols import Completions
from dovetail.train.metrics import rollout_metrics


def a_round(number, prompts=3, samples=2, tokens=4):
    """Return a round in which all tokens of prompt p are 10 · number + p."""
    rows = prompts * samples
    labels = np.repeat(10 * number + np.arange(prompts), samples)
    examples = tuple({"prompt": str(10 * number + prompt)} for prompt in range(prompts))
    return Sampled(
        completed=Completed(
            examples=examples,
            asked=examples,
            completions=Completions(
                tokens=np.tile(labels[:, None], (1, tokens)),
                mask=np.ones((rows, tokens), bool),
                logps=np.zeros((rows, tokens)),
                finish=np.full(rows, "eos"),
                versions=np.zeros(rows, int),
            ),
            prompt_tokens=10 * number + np.arange(prompts)[:, None],
            prompt_mask=np.ones((prompts, 1), bool),
        ),
        texts=tuple(str(label) for label in labels),
        scores=Scores(total=labels.astype(float), table=labels[:, None].astype(float), names=("label",)),
        kept=np.ones(rows, bool),
        process_rewards=np.tile(labels[:, None], (1, tokens)).astype(np.float32),
        process_metrics={"steps": labels.astype(float)} | ({"late": np.full(rows, 1.0)} if number else {}),
    )


def keep_labels(*labels):
    return lambda sampled: np.isin(sampled.completed.prompt_tokens[:, 0], labels)


def test_one_round_is_enough_when_all_are_kept():
    found, metrics = refill(a_round, keep_labels(0, 1, 2), rounds=3)
    assert found.completed.prompt_tokens[:, 0].tolist() == [0, 1, 2]
    assert metrics == {"group_filter/kept": 1.0, "group_filter/rounds": 1.0}


def test_further_prompts_replace_rejected_ones_in_order():
    found, metrics = refill(a_round, keep_labels(1, 10, 12), rounds=3)
    assert found.completed.prompt_tokens[:, 0].tolist() == [1, 10, 12]
    assert found.texts == ("1", "1", "10", "10", "12", "12")
    assert found.scores.total.tolist() == [1, 1, 10, 10, 12, 12]
    assert found.kept.all()
    assert metrics == {"group_filter/kept": 0.5, "group_filter/rounds": 2.0}


def test_process_rewards_and_what_they_report_go_with_their_completions():
    found, _ = refill(a_round, keep_labels(1, 10, 12), rounds=3)
    np.testing.assert_array_equal(found.batch()["process_rewards"][:, 0], [1, 1, 10, 10, 12, 12])
    np.testing.assert_array_equal(found.process_metrics["steps"], [1, 1, 10, 10, 12, 12])
    np.testing.assert_array_equal(found.process_metrics["late"], [np.nan, np.nan, 1, 1, 1, 1])
    metrics = rollout_metrics(found)
    assert metrics["process_reward/steps"] == 23 / 3
    assert metrics["process_reward/late"] == 1.0


def test_what_the_bound_leaves_missing_is_masked():
    found, metrics = refill(a_round, keep_labels(11), rounds=1)
    assert found.completed.prompt_tokens[:, 0].tolist() == [11, 0, 1]
    batch = found.batch()
    assert batch["mask"].any(axis=1).tolist() == [True, True, False, False, False, False]
    assert metrics == {"group_filter/kept": 1 / 6, "group_filter/rounds": 2.0}


def test_a_completion_without_a_score_is_masked():
    sampled = a_round(0)
    sampled.scores.total[3] = np.nan
    batch = sampled.batch()
    assert batch["mask"].any(axis=1).tolist() == [True, True, True, False, True, True]
    assert np.isfinite(batch["scores"]).all()
