"""`relative_length` compares the completions of a group, and never those of different groups."""

import numpy as np
import pytest

from dovetail_reward.reward.relative_length import relative_length


def ids(*lengths):
    return [[7] * length for length in lengths]


RIGHT, WRONG = "<answer>42</answer>", "<answer>7</answer>"


def test_a_case_computed_by_hand():
    texts = [RIGHT, RIGHT, RIGHT, WRONG, WRONG]
    found = relative_length(texts, ids(10, 15, 20, 10, 20), [0] * 5, ["42"] * 5)
    assert found == [0.5, 0.0, -0.5, 0.0, -0.5]


def test_groups_are_apart_and_may_be_interleaved_and_ragged():
    lengths, groups = (10, 100, 20, 300, 200), [3, -1, 3, -1, -1]
    found = relative_length([RIGHT] * 5, ids(*lengths), groups, [42] * 5)
    assert found == [0.5, 0.5, -0.5, -0.5, 0.0]


def test_a_group_of_one_length_has_nothing_to_compare():
    assert relative_length([RIGHT, WRONG], ids(5, 5), [0, 0], ["42", "42"]) == [0.0, 0.0]
    assert relative_length([RIGHT], ids(5), [0], ["42"]) == [0.0]
    assert relative_length([], [], [], []) == []


def test_without_a_right_answer_it_abstains_and_is_still_compared_with():
    assert relative_length([RIGHT, RIGHT, RIGHT], ids(1, 2, 3), [0] * 3, [None, 42, 42]) == [None, 0.0, -0.5]


def test_an_empty_completion_is_short_and_wrong():
    assert relative_length([RIGHT, ""], ids(4, 0), [0, 0], ["42", "42"]) == [-0.5, 0.0]
    assert relative_length(["", RIGHT], ids(0, 4), [0, 0], ["", ""]) == [0.0, -0.5], "no answer is never right"


@pytest.mark.parametrize(
    ("finds", "text"),
    [("tagged", "<answer>1,000</answer>"), ("boxed", r"\boxed{1000}"), ("last_number", "it is 1000.0")],
)
def test_where_the_answer_stands(finds, text):
    assert relative_length([text, ""], ids(1, 9), [0, 0], [1000, 1000], finds=finds) == [0.5, -0.5]


def test_the_order_of_the_completions_is_of_no_matter():
    rng = np.random.default_rng(0)
    lengths, groups, texts = rng.integers(1, 50, 12), rng.integers(0, 3, 12), rng.choice([RIGHT, WRONG], 12)
    order = rng.permutation(12)
    found = relative_length(texts.tolist(), ids(*lengths), groups.tolist(), ["42"] * 12)
    again = relative_length(texts[order].tolist(), ids(*lengths[order]), groups[order].tolist(), ["42"] * 12)
    assert again == [found[row] for row in order]
