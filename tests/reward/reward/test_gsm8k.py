"""Reward `gsm8k`, and how it reads numbers."""

from __future__ import annotations

from decimal import Decimal

import pytest

from dovetail_reward._numbers import last_number, leading_number
from dovetail_reward.reward.gsm8k import gsm8k


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72 is it", "72"),
        ("-5.", "-5"),
        ("−$1,234.50", "-1234.5"),
        (".5", "0.5"),
        (r"1{,}234 and 5", "1234"),
        (r"$1\,234$", "1234"),
        ("x 72", None),
        (" 72", None),
        ("", None),
    ],
)
def test_leading_number(text, value):
    assert leading_number(text) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    "text", ["1/2", "1 / 2", "3 1/2", "1:30", "1,5", "1,00,000", "1.2.3", "10^3", "10^{3}", "2*3", r"2 \times 3"]
)
def test_a_number_that_goes_on_as_another_is_not_read(text):
    value = leading_number(text)
    assert value is not None
    assert value.is_nan()


@pytest.mark.parametrize(
    ("text", "value"),
    [("5 or 1,234.", "1234"), ("... 7 ...", "7"), ("10-3", "3"), ("it is (−3)", "-3"), ("none", None), ("", None)],
)
def test_last_number(text, value):
    assert last_number(text) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    ("text", "truth", "strict", "flexible"),
    [
        ("6·7\n#### 42", "42", 1.0, 1.0),
        ("#### 42\n" + " " * 1000, "42", 1.0, 1.0),
        ("#### 42" + " So it is 42." * 100, 42, 1.0, 1.0),
        ("#### 41\n#### 42", "42", 1.0, 1.0),
        ("#### 42\n#### 41", "42", 0.1, 0.1),
        ("####\n42", "42", 0.0, 1.0),
        ("#### about 42", "42", 0.0, 1.0),
        ("#### 42 or 43", "42", 1.0, 0.1),
        ("It is 42", "42", 0.0, 1.0),
        ("#### 1/2", "0.5", 0.1, 0.1),
        ("#### 1/2", "1", 0.1, 0.1),
        ("#### 12:30", "12", 0.1, 0.1),
        ("#### 72 ####", "72", 1.0, 1.0),
        ("#### 72\n####", "72", 1.0, 1.0),
        ("#### 72\n\n#### End of solution", "72", 1.0, 1.0),
        ("##### 72", "72", 1.0, 1.0),
        ("#### **72**", "72", 1.0, 1.0),
        (r"#### \$72", "72", 1.0, 1.0),
        (r"#### \boxed{72}", "72", 1.0, 1.0),
        (r"#### $\boxed{-72}$", "-72", 1.0, 1.0),
        ("#### €72", "72", 1.0, 1.0),
        (r"#### 1{,}234", "1234", 1.0, 1.0),
        ("#### 72\n#### 71 ####", "72", 0.1, 0.1),
        ("#### 72 times", "72", 1.0, 1.0),
        ("#### 42.000", 42.0, 1.0, 1.0),
        ("#### 1234", "$1,234", 1.0, 1.0),
        ("#### 42", "Paris", 0.1, 0.1),
        ("#### none", "42", 0.0, 0.0),
        ("", "42", 0.0, 0.0),
        ("#### 42", None, None, None),
    ],
)
def test_gsm8k(text, truth, strict, flexible):
    assert gsm8k([text], [truth], format_score=0.1) == [strict]
    assert gsm8k([text], [truth], format_score=0.1, method="flexible") == [flexible]


def test_verl_reads_three_hundred_characters():
    text = "#### 42" + " " * 294
    assert gsm8k([text, text[:-1]], ["42"] * 2, verl_compatible=True) == [0.0, 1.0]
    assert gsm8k([text, text[:-1]], ["42"] * 2) == [1.0, 1.0]
