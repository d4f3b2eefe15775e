"""Rewards `check_answer`, `check_numbers` and `exact_match`, and how they read numbers."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from tests.reward.texts import formatted

from dovetail_reward._numbers import first_number, number, spelled
from dovetail_reward.reward.check_answer import check_answer
from dovetail_reward.reward.check_numbers import check_numbers
from dovetail_reward.reward.exact_match import exact_match


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", "18"),
        (" 18\n", "18"),
        ("18.", "18"),
        ("-18", "-18"),
        ("+18", "18"),
        ("−18", "-18"),
        ("1,234", "1234"),
        ("1,234,567.89", "1234567.89"),
        ("$1,234.50.", "1234.50"),
        ("$ 5", "5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("50%", "50"),
        ("50 %.", "50"),
        (".5", "0.5"),
        ("0.50", "0.5"),
        ("1e3", "1000"),
        ("-2.5E-3", "-0.0025"),
        ("００１８", "18"),
        ("٤٢", "42"),
        ("18446744073709551617", "18446744073709551617"),
        ("1,2", None),
        ("1,2345", None),
        ("12,34", None),
        (",123", None),
        ("1 234", None),
        ("1_000", None),
        ("1.2.3", None),
        ("1..", None),
        ("--5", None),
        ("-$-5", None),
        ("5$", None),
        ("0x10", None),
        ("1/2", None),
        ("²", None),
        ("nan", None),
        ("inf", None),
        ("-Infinity", None),
        ("1e99999999999999999999", None),
        ("eighteen", None),
        ("18 apples", None),
        ("$", None),
        (".", None),
        ("", None),
    ],
)
def test_number(text, value):
    assert number(text) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It is 18, not 20.", "18"),
        ("... 5", "5"),
        ("$1,234 in all", "1234"),
        ("minus -3", "-3"),
        ("10-3", "10"),
        ("x-5", "5"),
        ("(−7)", "-7"),
        ("1,2,3", "1"),
        ("1,2345", "1"),
        ("5. Then 6", "5"),
        ("a .25 share", "0.25"),
        ("nan or inf", None),
        ("none", None),
        ("", None),
    ],
)
def test_first_number(text, value):
    assert first_number(text) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    ("truth", "text"),
    [
        ("18.0", "18.0"),
        (18, "18"),
        (18.0, "18"),
        (-0.5, "-0.5"),
        (2**70, str(2**70)),
        (1e300, str(int(1e300))),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (np.int64(18), "18"),
        (np.float32(18), "18"),
        (np.float32(0.1), "0.1"),
    ],
)
def test_spelled(truth, text):
    assert spelled(truth) == text


@pytest.mark.parametrize(
    ("guess", "truth", "points"),
    [
        # The very text, then the text with white space around.
        ("18", "18", 3.0),
        ("18", 18, 3.0),
        ("18", 18.0, 3.0),
        ("Paris", "Paris", 3.0),
        (" 18", "18", 1.5),
        ("18\n", 18, 1.5),
        ("18", " 18", 1.5),
        # Near: the ends of both ranges belong to them.
        ("18.0", "18", 0.5),
        ("$18.", "18", 0.5),
        ("1,000", "1000", 0.5),
        ("9", "10", 0.5),
        ("11", "10", 0.5),
        ("-11", "-10", 0.5),
        ("8.99", "10", 0.25),
        ("8", "10", 0.25),
        ("12", "10", 0.25),
        ("-8", "-10", 0.25),
        # Wrong numbers.
        ("7.99", "10", -1.0),
        ("12.01", "10", -1.0),
        ("-10", "10", -1.0),
        ("0", "10", -1.0),
        ("1e400", "10", -1.0),
        ("10", "1e400", -1.0),
        # A right answer of zero.
        ("0", "0", 3.0),
        ("0.0", "0", 0.5),
        ("-0", 0, 0.5),
        ("0.001", "0", -1.0),
        ("1", "1e-400", -1.0),
        # No number on one side or both.
        ("eighteen", "18", -0.5),
        ("18", "eighteen", -0.5),
        ("London", "Paris", -0.5),
        ("nan", "18", -0.5),
        ("inf", "18", -0.5),
        ("18", float("nan"), -0.5),
        (" ", "18", -0.5),
        # No format, no truth.
        ("", "18", 0.0),
        ("18", None, None),
    ],
)
def test_check_answer(guess, truth, points):
    assert check_answer([formatted(guess)], [truth]) == [points]


@pytest.mark.parametrize("text", ["18", "<answer>18</answer>", "Well. " + formatted("18"), formatted("18") + "!", ""])
def test_check_answer_without_format(text):
    assert check_answer([text], ["18"]) == [0.0]


@pytest.mark.parametrize(
    ("text", "truth", "points"),
    [
        ("<answer>18</answer>", "18", 1.5),
        ("<answer>18", 18, 1.5),
        (formatted("It is $1,234.00 now"), "1234", 1.5),
        ("<answer>... 18</answer>", "18", 1.5),
        ("<answer>-5</answer>", -5, 1.5),
        ("<answer>-5</answer>", 5, 0.0),
        ("<answer>0</answer>", 0, 1.5),
        ("<answer>17 or 18</answer>", "18", 0.0),
        ("<answer>17</answer><answer>18</answer>", "18", 0.0),
        ("<answer>none</answer> 18", "18", 0.0),
        ("18</answer>", "18", 0.0),
        ("18", "18", 0.0),
        ("", "18", 0.0),
        ("<answer>Paris</answer>", "Paris", 0.0),
        ("<answer>nan</answer>", float("nan"), 0.0),
        ("<answer>18</answer>", None, None),
    ],
)
def test_check_numbers(text, truth, points):
    assert check_numbers([text], [truth]) == [points]


@pytest.mark.parametrize(
    ("text", "truth", "right"),
    [
        ("<answer>18</answer>", "18", 1.0),
        ("<answer> $18.00 </answer>", 18, 1.0),
        ("<answer>1,234</answer>", "1234", 1.0),
        ("<answer>1234</answer>", "1,234", 1.0),
        ("<answer>50%</answer>", "50", 1.0),
        ("<answer>\nParis </answer>", "Paris", 1.0),
        ("I write <answer> and then <answer>18</answer> and stop", "18", 1.0),
        ("<answer>17</answer> no, <answer>18</answer>", "18", 1.0),
        ("<answer>18</answer> no, <answer>17</answer>", "18", 0.0),
        ("<answer>18</answer><answer>", "18", 1.0),
        ("<answer>paris</answer>", "Paris", 0.0),
        ("<answer>18 apples</answer>", "18", 0.0),
        ("<answer>18.01</answer>", "18", 0.0),
        ("<answer>18446744073709551617</answer>", str(2**64), 0.0),
        ("<answer>nan</answer>", float("nan"), 1.0),
        ("<answer>18", "18", 0.0),
        ("18", "18", 0.0),
        ("<answer></answer>", "", 1.0),
        ("<answer></answer>", "18", 0.0),
        ("<answer>18</answer>", None, None),
    ],
)
def test_exact_match(text, truth, right):
    assert exact_match([text], [truth]) == [right]


@pytest.mark.parametrize("reward", [check_answer, check_numbers, exact_match])
def test_columns_of_unequal_length_are_refused(reward):
    with pytest.raises(ValueError, match="shorter"):
        reward(["a", "b"], ["1"])
