"""What a completion answers: equal answers are equal texts."""

import pytest

import dovetail

CASES = {
    "tagged": ["<answer>1,234</answer>", "<answer>1234.0</answer> <answer> $1234 </answer>", "so <answer>1234"],
    "last_number": ["it is 1,234", "3 + 1231 = 1234.00", "none"],
    "boxed": [r"\boxed{1,234}", r"\boxed{7} \boxed{1234.0}", "1234"],
}


@pytest.mark.parametrize("name", CASES)
def test_a_number_is_one_answer_however_it_is_written(name):
    assert dovetail.get("answer", name)(CASES[name]) == ["1234", "1234", None]


@pytest.mark.parametrize("name", dovetail.names("answer"))
def test_every_answer_is_a_text_or_none(name):
    texts = ["", "<answer></answer>", r"\boxed{}", "0", "-0.0", "1e99", "<answer>\n</answer>", "\ud83d"]
    answers = dovetail.get("answer", name)(texts)
    assert len(answers) == len(texts)
    assert all(answer is None or answer for answer in answers)
    assert name in CASES


@pytest.mark.parametrize(("first", "second"), [("0", "-0"), ("1e3", "1000"), ("1e40", "1" + "0" * 40), ("50%", "50")])
def test_equal_numbers_are_equal_answers(first, second):
    one, other = dovetail.get("answer", "tagged")([f"<answer>{text}</answer>" for text in (first, second)])
    assert one == other


@pytest.mark.parametrize(("first", "second"), [(2**100, 2**100 + 1), ("0." + "3" * 29, "0." + "3" * 30)])
def test_numbers_that_differ_in_their_last_digit_are_different_answers(first, second):
    one, other = dovetail.get("answer", "tagged")([f"<answer>{number}</answer>" for number in (first, second)])
    assert one != other
