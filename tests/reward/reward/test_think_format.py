"""`think_format` against the scores of TRL's `think_format_reward` on the same texts."""

import pytest

import dovetail
from dovetail_reward.reward.think_format import think_format

OF_TRL = {
    "<think>\nso\n</think>\n42": 1.0,
    "<think></think>": 1.0,
    "<think>so</think>42</think>": 1.0,
    "<think>so\n42": 0.0,
    "so</think>42": 0.0,
    " <think>so</think>42": 0.0,
    "\n<think>so</think>42": 0.0,
    "<think>so</think><think>more</think>": 0.0,
    "<think>so</think>\n42\n<think>": 0.0,
    "<think><think>so</think>": 0.0,
    "<Think>so</Think>": 0.0,
    "<think>so< /think>": 0.0,
    "": 0.0,
}


def test_the_scores_of_trl():
    assert dict(zip(OF_TRL, think_format(list(OF_TRL)), strict=True)) == OF_TRL


def test_a_prompt_that_has_opened_the_reasoning():
    texts = ["so</think>42", "</think>42", "<think>so</think>42", "so"]
    assert think_format(texts, opened=True) == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("texts", [["[r]so[/r]42", "<think>so</think>42"]])
def test_tags_are_taken_literally(texts):
    assert think_format(texts, start="[r]", end="[/r]") == [1.0, 0.0]


def test_trls_name_leads_to_it():
    assert dovetail.get("reward", "think_format_reward").name == "think_format"
