"""Finding what lies between tags; rewards `match_format_exactly` and `match_format_approximately`."""

from __future__ import annotations

import random
import re

import pytest
from tests.reward.texts import formatted

from dovetail_reward._format import answer_in_format, first_answer, last_answer
from dovetail_reward.reward.match_format_approximately import match_format_approximately
from dovetail_reward.reward.match_format_exactly import match_format_exactly

SHORT = {"reasoning_start": "<r>", "reasoning_end": "</r>", "answer_start": "<a>", "answer_end": "</a>"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<r>x</r><a>4</a>", "4"),
        ("<r>x</r><a> 4\n</a>", " 4\n"),
        ("\n \t<r>x\n\ny</r> so\n <a>4</a> \n\n", "4"),
        ("Well.\n <r>x</r><a>4</a>\u2003\nDone.", "4"),
        ("<r></r>x</r><a>4</a>", "4"),
        ("<r>x</r>y</r><a>4</a>", "4"),
        ("<r>x</r><a>1</a><a>2</a>", "1</a><a>2"),
        ("<r>x</r><a>1</a>\n<a>2</a>", "1"),
        ("<r>x</r><a></a></a>", "</a>"),
        ("<r><a>1</a></r><a>2</a>", "2"),
        ("Well. <r>x</r><a>4</a>", None),
        ("<r>x</r><a>4</a>.", None),
        ("<r></r><a>4</a>", None),
        ("<r>x</r><a></a>", None),
        ("<a>4</a><r>x</r>", None),
        ("<r>x</r><a>4", None),
        ("<r>x<a>4</a>", None),
        ("x</r><a>4</a>", None),
        ("<R>x</R><A>4</A>", None),
        ("4", None),
        ("", None),
    ],
)
def test_answer_in_format(text, answer):
    assert answer_in_format(text, **SHORT) == answer
    assert match_format_exactly([text], **SHORT) == [0.0 if answer is None else 3.0]


def test_answer_in_format_is_the_regular_expression_that_says_it():
    """The same language and the same capture as the expression, which backtracks."""
    slow = re.compile(r"^\s*<r>.+?</r>.*?<a>(.+?)</a>\s*$", re.MULTILINE | re.DOTALL)
    rng = random.Random(0)
    pieces = ["<r>", "</r>", "<a>", "</a>", " ", "\n", "\x1f", "\r", "4"]
    matched = 0
    for _ in range(10_000):
        words = ["<r>", "4", "</r>", "<a>", "4", "</a>"]
        for _ in range(rng.randint(0, 6)):
            words.insert(rng.randint(0, len(words)), rng.choice(pieces))
        if rng.random() < 0.3:
            del words[rng.randrange(len(words))]
        text = "".join(words)
        match = slow.search(text)
        matched += bool(match)
        assert answer_in_format(text, **SHORT) == (match and match[1]), text
    assert 3_000 < matched < 8_000


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("<a>1</a>", "1", "1"),
        ("<a>1</a> <a>2</a>", "1", "2"),
        ("<a>1<a>2</a></a>", "1<a>2", "2</a>"),
        ("<a>1", "1", None),
        ("<a>1</a> <a>2", "1", "1"),
        ("1</a>", None, None),
        ("</a><a>1", "1", None),
        ("", None, None),
    ],
)
def test_first_and_last_answer(text, first, last):
    tags = {"answer_start": "<a>", "answer_end": "</a>"}
    assert first_answer(text, **tags) == first
    assert last_answer(text, **tags) == last


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (formatted("4"), 2.0),
        ("</answer> <answer> </reasoning> <reasoning>", 2.0),
        (formatted("4") + "<answer>", 1.0),
        ("<answer>4</answer>", 0.0),
        (formatted("4") * 2, -2.0),
        ("<reasoning>", -1.0),
        ("<Reasoning><ANSWER>", -2.0),
        ("", -2.0),
    ],
)
def test_match_format_approximately(text, score):
    assert match_format_approximately([text]) == [score]
