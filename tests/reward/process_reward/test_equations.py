"""`equations` finds calculations, works them out, and puts the credit on the token that ends each, whatever the tokens."""

import math

import numpy as np
import pytest

from dovetail_reward._equations import find_equations
from dovetail_reward.process_reward.equations import equations


def found(text):
    return [(each.text, each.holds) for each in find_equations(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 + 4 = 7", True),
        ("3 + 4 = 8", False),
        ("5 − 3 = 2", True),
        ("5 x 3 = 15", True),
        ("2 · 3 = 6", True),
        ("7 ÷ 2 = 3.5", True),
        ("48/2=24", True),
        ("(48+2)*3=150", True),
        ("2 + 3 * 4 = 20", False),
        ("3 - -3 = 6", True),
        ("-3 + 5 = 2", True),
        ("-(3+4)*2 = -14", True),
        ("12 = 7 + 5", True),
        ("1,000 + 2,000 = 3,000", True),
        ("$5 * 3 = $15", True),
        ("20% * 50 = 10", True),
        (".5*10=5", True),
        ("0.1 + 0.2 = 0.3", True),
        ("10 / 3 = 3.33", True),
        ("10 / 3 = 3.34", False),
        ("10 / 3 = 3", False),
        ("1 / 3 = 33.3%", True),
        ("5/0 = 0", False),
    ],
)
def test_an_equation_is_worked_out_exactly(text, expected):
    assert found(text) == [(text, expected)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7 = 7",
        "x = 7",
        "2x + 3 = 9",
        "x - 3 + 4 = 7",
        "4 + 1 = 2x + 1",
        "f(2) + 3 = 9",
        "2^3 + 1 = 9",
        "2**3 = 8",
        "4! + 1 = 25",
        "2(3+4) = 14",
        "2 (3+4) = 14",
        "(2) 3 + 4 = 7",
        "3.4.5 + 1 = 6.5",
        "1,2 + 3 = 5",
        "3 + 4 = 7cm",
        "3 + 4 = 7²",
        "3 + 4 => 7",
        "3 + 4 == 7",
        "3 + 4 <= 9",
        "1 + = 2",
        "((3 + 4) = 7 + )",
        "3 + 4\n= 7",
        "9" * 65 + " + 1 = 2",
        "1+" * 40 + "1 = 41",
    ],
)
def test_what_is_not_plainly_an_equation_between_numbers_is_left_alone(text):
    assert found(text) == []


def test_it_is_found_among_words():
    assert found("She has <<3*4=12>>12 and (2 + 2 = 4) apples.\n- 3 + 4 = 7\nSo -3 + 5 = 2.") == [
        ("3*4=12", True),
        ("2 + 2 = 4", True),
        ("3 + 4 = 7", True),
        ("-3 + 5 = 2", True),
    ]


def test_a_chain_is_an_equation_for_each_equals_sign():
    assert found("2*3+4 = 6+4 = 10") == [("2*3+4 = 6+4", True), ("6+4 = 10", True)]
    assert found("1+1=2 2+2=5") == [("1+1=2", True), ("2+2=5", False)]
    assert found("3 + 4 = 7 + 5 = 12") == [("3 + 4 = 7 + 5", False), ("7 + 5 = 12", True)]


def ends_of(*tokens):
    return np.cumsum([len(token) for token in tokens]).tolist()


@pytest.mark.parametrize(
    ("tokens", "credited"),
    [
        (["3 + 4 = 7", " so", ""], 0),
        (["3 + 4 =", " 7 so", ""], 1),
        (["3", " + 4", " = ", "7", " so", ""], 3),
        (["3 + 4 = ", "7", " so", ""], 1),
        (list("3 + 4 = 7 so"), 8),
        (["3 + 4 = 7 so"], 0),
    ],
)
def test_the_credit_is_at_the_token_that_ends_it_whatever_the_tokens(tokens, credited):
    (values,), _ = equations(["".join(tokens)], [ends_of(*tokens)])
    assert np.flatnonzero(values).tolist() == [credited]
    assert values[credited] == 1.0
    assert len(values) == len(tokens)


def test_bytes_of_a_character_that_come_one_by_one_move_nothing():
    # é in two tokens: the first shows a replacement character, so that both texts are as long
    (values,), _ = equations(["né 1+1=2."], [[2, 2, 3, 8, 9]])
    assert values == [0.0, 0.0, 0.0, 1.0, 0.0]
    # an emoji whose bytes show as two characters before they are one: no length is reached for good before the last
    (values,), _ = equations(["1+1=2"], [[3, 6, 4, 5]])
    assert values == [0.0, 0.0, 0.0, 1.0]


def test_two_that_end_in_one_token_add_up():
    (values,), _ = equations(["1+1=2 1+2=4 2+2=4"], [[17]])
    assert values == [1.0]


def test_a_repeated_equation_counts_once():
    (values,), metrics = equations(["1+1=2 1 + 1 = 2 1+1=3 1+1=3"], [[5, 15, 21, 27]])
    assert values == [1.0, 0.0, -1.0, 0.0]
    assert metrics == {"count": [2.0], "right": [0.5]}


def test_the_credit_is_a_hyperparameter():
    (values,), _ = equations(["1+1=2 1+1=3"], [[5, 11]], right=0.0, wrong=-0.5)
    assert values == [0.0, -0.5]


def test_a_completion_without_equations_or_tokens():
    values, metrics = equations(["hello", ""], [[2, 5, 5], []])
    assert values == [[0.0, 0.0, 0.0], []]
    assert metrics["count"] == [0.0, 0.0]
    assert all(math.isnan(share) for share in metrics["right"])
