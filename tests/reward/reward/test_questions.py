"""Rewards `exact_match_qa` and `f1_qa`."""

from __future__ import annotations

import pytest

import dovetail
from dovetail_reward.reward._questions import normal, spellings
from dovetail_reward.reward.exact_match_qa import exact_match_qa
from dovetail_reward.reward.f1_qa import f1_qa


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("The  Eiffel-Tower!", "eiffeltower"),
        ("An answer; a THE an", "answer"),
        ("theater", "theater"),
        ("北京。", "北京。"),
        ("", ""),
    ],
)
def test_normal(text, form):
    assert normal(text) == form


def test_spellings():
    assert spellings("ab") == ["ab"]
    assert spellings(("a", 2.0)) == ["a", "2"]
    assert spellings(3) == ["3"]


@pytest.mark.parametrize(
    ("guess", "truths", "whole", "contained"),
    [
        ("paris.", "Paris", 1.0, 1.0),
        ("the Paris", ["London", "Paris"], 1.0, 1.0),
        ("It is Paris indeed", "Paris", 0.1, 1.0),
        ("parish", "Paris", 0.1, 0.1),
        ("New   York City", "new york", 0.1, 1.0),
        ("1789", 1789, 1.0, 1.0),
        ("a", "a", 1.0, 1.0),
        ("a", "the", 0.1, 0.1),
        ("", "", 1.0, 1.0),
        ("Paris", [], 0.1, 0.1),
        ("Paris", None, None, None),
    ],
)
def test_exact_match_qa(guess, truths, whole, contained):
    text = f"<answer>{guess}</answer>"
    assert exact_match_qa([text], [truths], format_score=0.1) == [whole]
    assert exact_match_qa([text], [truths], format_score=0.1, match="contained") == [contained]


def test_without_an_answer_even_the_format_is_worth_nothing():
    assert exact_match_qa(["Paris", "<answer>Paris"], ["Paris"] * 2, format_score=0.1) == [0.0, 0.0]
    assert exact_match_qa(["Paris", "<answer>Paris"], ["Paris"] * 2, format_score=0.1, verl_compatible=True) == [0, 0]
    assert f1_qa(["Paris", "<answer>Paris"], ["Paris"] * 2) == [0.0, 0.0]


def test_verl_quarters_the_score_of_many_tags():
    text = "<answer>Paris</answer>"
    for tags, score in ((9, 1.0), (10, 0.25)):
        assert exact_match_qa([text + "</answer>" * tags], ["Paris"], verl_compatible=True) == [score]


@pytest.mark.parametrize(
    ("guess", "truths", "score"),
    [
        ("Eiffel tower", "the Eiffel Tower", 1.0),
        ("tower", "Eiffel Tower", 2 / 3),
        ("very very tall", "very tall", 0.8),
        ("tower", ["Eiffel Tower", "tower"], 1.0),
        ("London", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("the", "a", 1.0),
        ("Paris", [], 0.0),
        ("Paris", None, None),
    ],
)
def test_f1_qa(guess, truths, score):
    assert f1_qa([f"<answer>{guess}</answer>"], [truths]) == [score if score is None else pytest.approx(score)]


def test_alias():
    assert dovetail.get("reward", "search_r1") is dovetail.get("reward", "exact_match_qa")
