"""Within 10 % is nearly right; what is right is nearly right too."""

import pytest

import dovetail

close, exact = dovetail.get("reward", "close_answer"), dovetail.get("reward", "exact_match")


@pytest.mark.parametrize(
    ("guess", "truth", "expected"),
    [
        ("45", "50", 1.0),
        ("55", "50", 1.0),
        ("44.9", "50", 0.0),
        ("55.1", "50", 0.0),
        ("-45", "-50", 1.0),
        ("45", "-50", 0.0),
        ("0", "0", 1.0),
        ("0.001", "0", 0.0),
        ("$1,100", 1000, 1.0),
        ("Paris", "Paris", 1.0),
        ("London", "Paris", 0.0),
        ("1e999", "1e999", 1.0),
        ("5", "1e999", 0.0),
        ("1", None, None),
    ],
)
def test_relative_error(guess, truth, expected):
    assert close(completions=[f"<answer>{guess}</answer>"], answer=[truth]) == [expected]


def test_the_tolerance_is_a_parameter():
    assert close(completions=["<answer>60</answer>"], answer=["50"], tolerance=0.2) == [1.0]


def test_what_is_right_is_nearly_right():
    texts = [f"<answer>{a}</answer>" for a in ("42", " 42.0 ", "$42", "x")] + ["42"]
    right = exact(completions=texts, answer=["42"] * 5)
    assert all(near >= hit for near, hit in zip(close(completions=texts, answer=["42"] * 5), right, strict=True))
