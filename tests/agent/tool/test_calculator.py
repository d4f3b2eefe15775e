"""Tool `calculator`: exact arithmetic and nothing else."""

import pytest

from dovetail_agent.tool.calculator import calculator


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("417 * 283 + 506", "118517"),
        ("-(2 + 3)", "-5"),
        ("1/3", "0.333333"),
        ("0.1 + 0.2", "0.3"),
        ("10 / 4", "2.5"),
        (" 7 ", "7"),
    ],
)
def test_results(expression, result):
    assert calculator(expression) == result


def test_digits():
    assert calculator("2 / 3", digits=2) == "0.67"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1e300 * 1e300 / 7", "beyond the largest number"),
        ("1 / 0", "division by zero"),
        ("__import__('os')", "only numbers"),
        ("9 ** 9 ** 9", "only numbers"),
        ("True + 1", "only numbers"),
        ("1 +", "not an expression"),
        ("(" * 150, "not an expression"),
        ("1" * 300, "has 300 characters"),
        ("'a' * 9", "only numbers"),
    ],
)
def test_anything_else_is_refused(expression, message):
    with pytest.raises(ValueError, match=message):
        calculator(expression)
