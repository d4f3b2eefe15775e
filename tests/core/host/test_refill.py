"""Rejected groups are replaced within the limit; groups still missing then are left out of everything."""

from functools import partial

import numpy as np

from dovetail.host.completer import Completed
from dovetail.host.refill import refill
from dovetail.host.rewards import Scores
from dovetail.host.sampling import Sampled
from dovetail.protocols import Completions
from dovetail.training.metrics import rollout_metrics


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


def refilled(keep, rounds, **options):
    found = refill(a_round, keep, 3, rounds, **options)
    return found.chosen, found.metrics


def test_one_round_is_enough_when_all_are_kept():
    found, metrics = refilled(keep_labels(0, 1, 2), rounds=3)
    assert found.completed.prompt_tokens[:, 0].tolist() == [0, 1, 2]
    assert metrics == {"group_filter/kept": 1.0, "group_filter/rounds": 1.0}


def test_further_prompts_replace_rejected_ones_in_order():
    found, metrics = refilled(keep_labels(1, 10, 12), rounds=3)
    assert found.completed.prompt_tokens[:, 0].tolist() == [1, 10, 12]
    assert found.texts == ("1", "1", "10", "10", "12", "12")
    assert found.scores.total.tolist() == [1, 1, 10, 10, 12, 12]
    assert found.kept.all()
    assert metrics == {"group_filter/kept": 0.5, "group_filter/rounds": 2.0}


def test_process_rewards_and_what_they_report_go_with_their_completions():
    found, _ = refilled(keep_labels(1, 10, 12), rounds=3)
    np.testing.assert_array_equal(found.batch()["process_rewards"][:, 0], [1, 1, 10, 10, 12, 12])
    np.testing.assert_array_equal(found.process_metrics["steps"], [1, 1, 10, 10, 12, 12])
    np.testing.assert_array_equal(found.process_metrics["late"], [np.nan, np.nan, 1, 1, 1, 1])
    metrics = rollout_metrics(found)
    assert metrics["process_reward/steps"] == 23 / 3
    assert metrics["process_reward/late"] == 1.0


def test_what_the_bound_leaves_missing_is_masked():
    found, metrics = refilled(keep_labels(11), rounds=1)
    assert found.completed.prompt_tokens[:, 0].tolist() == [11, 0, 1]
    batch = found.batch()
    assert batch["mask"].any(axis=1).tolist() == [True, True, False, False, False, False]
    assert metrics == {"group_filter/kept": 1 / 6, "group_filter/rounds": 2.0}


def labels(sampled):
    return [] if sampled is None else sampled.completed.prompt_tokens[:, 0].tolist()


def test_groups_left_over_come_first_in_the_next_step_and_every_group_is_counted():
    """Three groups are wanted of rounds of five; of the second step's round all but the last are refused."""
    wide = partial(a_round, prompts=5)
    first = refill(wide, keep_labels(0, 1, 2, 3, 4), 3, rounds=3)
    assert [labels(first.chosen), labels(first.over)] == [[0, 1, 2], [3, 4]]
    later = refill(lambda number: wide(number + 1), keep_labels(14), 3, rounds=3, over=first.over)
    assert [labels(later.chosen), labels(later.over)] == [[3, 4, 14], []]
    assert later.chosen.kept.all()
    counts = [{name.split("/")[1]: count for name, count in each.counts.items()} for each in (first, later)]
    assert counts == [
        {"drawn": 5, "used": 3, "over": 2, "refused": 0},
        {"drawn": 5, "used": 3, "over": 0, "refused": 4},
    ]
    assert later.metrics == {"group_filter/kept": 1 / 5, "group_filter/rounds": 1}, (
        "what is left over was counted before"
    )


def test_a_step_that_earlier_ones_have_left_enough_for_samples_nothing():
    over = a_round(7, prompts=4)
    found = refill(a_round, keep_labels(), 3, rounds=3, over=over)
    assert [labels(found.chosen), labels(found.over)] == [[70, 71, 72], [73]]
    assert found.metrics == {"group_filter/rounds": 0}
    assert [found.counts[f"group_filter/{name}"] for name in ("drawn", "used", "over", "refused")] == [0, 3, 1, 0]


def test_a_completion_without_a_score_is_masked():
    sampled = a_round(0)
    sampled.scores.total[3] = np.nan
    batch = sampled.batch()
    assert batch["mask"].any(axis=1).tolist() == [True, True, True, False, True, True]
    assert np.isfinite(batch["scores"]).all()
