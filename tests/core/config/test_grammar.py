import math

import pytest

from dovetail.config.grammar import PARSE_ERRORS, Macro, Word, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1_000", 1000),
        ("1e-3", 1e-3),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("True", True),
        ("None", None),
        ("'a' \"b\"", "ab"),
        (r"'\u00e9\n'", "é\n"),
        ("('a')", "a"),
        ("('a',)", ("a",)),
        ("()", ()),
        ("[1, (2, -3.5), {'a': None}]", [1, (2, -3.5), {"a": None}]),
        ("%lr", Macro("lr")),
        ("gspo", Word("gspo", free=True)),
        ("dr-grpo", Word("dr-grpo", free=True)),
        ("acme-rl/gspo_2", Word("acme-rl/gspo_2", free=True)),
        ("[gspo, 'x']", [Word("gspo", free=True), "x"]),
    ],
)
def test_a_value_is_a_literal_a_word_or_a_macro(text: str, value: object):
    assert parse_value(text) == value


def test_a_negative_zero_keeps_its_sign():
    assert math.copysign(1, parse_value("-0.0")) == -1


def test_nan_is_a_number_word():
    assert math.isnan(parse_value("nan"))


@pytest.mark.parametrize(
    "text", ["", "1 2", "1,", "[1", "a - b", "-'x'", "-inf-x", "{[1]: 2}", "f'x'", "1\n2", "@run()", "$"]
)
def test_what_is_not_exactly_one_value_is_refused(text: str):
    with pytest.raises(PARSE_ERRORS):
        parse_value(text)
