"""Find the answer that a completion states in LaTeX, and compare answers regardless of typography."""

from __future__ import annotations

import re
from decimal import Decimal

from dovetail_reward._numbers import number
from dovetail_reward._verl import hendrycks

LONGEST_ANSWER = 1000
"""Answers with more characters are not read; the longest right answer in MATH has 159."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_STATED = re.compile(r"answer\s*:\s*(?=\S)([^\n]*)", re.IGNORECASE)
_TYPOGRAPHY = (
    (re.compile(r"\{,\}|\\[,;:! ]"), ""),
    (re.compile(r"\\(sqrt|[dt]?frac)\s+"), r"\\\1"),
    (re.compile(r"^\s*\\(?:text|textbf|textrm|mbox|mathrm)\{([^{}]*)\}\s*$"), r"\1"),
    (re.compile(r"(?<=\d)\s*(?:\\(?:text|textrm|mbox)\{[^{}]*\}|\\mathrm\{[^{}]{2,}\})(?:\^\{?\d\}?)?\s*$"), ""),
    (re.compile(r"\\?%"), ""),
)
_HALF = Decimal("0.5")
_MATHS = re.compile(r"\$\$?([^$]*)\$\$?|\\\((.*)\\\)", re.DOTALL)


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last box of a text, `\boxed{a}`, `\fbox{a}` or `\boxed a`; None without one.

    Braces are matched; escaped ones do not count. If the last box is not closed, or has more than `LONGEST_ANSWER`
    characters, there is no answer.

    >>> boxed_answer(r"\boxed{4} so $\boxed{\frac{1}{2}}$"), boxed_answer(r"$\boxed 4$"), boxed_answer(r"\boxed{4")
    ('\\frac{1}{2}', '4', None)
    """
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    begin = boxes[-1].end()
    rest = text[begin : begin + LONGEST_ANSWER + 2].lstrip(" ")
    if rest.startswith("{"):
        return _group(rest)
    bare = re.split(r"[$\n]", rest, maxsplit=1)[0].strip()
    return bare or None


def _group(text: str) -> str | None:
    depth = 0
    for brace in _BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0 and brace[0] == "}":
            return text[1 : brace.start()]
    return None


def stated_answer(text: str) -> str | None:
    """Return the text from the last `Answer:`, in upper or lower case, to the end of its line; None without one.

    >>> stated_answer("Answer: 43. No!\\nanswer : 42 "), stated_answer("Answer:"), stated_answer("42")
    ('42', None, None)
    """
    stated = _STATED.findall(text)
    return stated[-1].strip() if stated and len(stated[-1]) <= LONGEST_ANSWER else None


def bare(answer: str) -> str:
    r"""Strip white space, `$...$`, asterisks and a final period from an answer.

    >>> bare(" **42**."), bare(r"$\frac12$."), bare("."), bare("** 72.")
    ('42', '\\frac12', '', '72')
    """
    answer = answer.strip("* \t\n").removesuffix(".").strip("* \t\n")
    match = _MATHS.fullmatch(answer)
    return bare(match[1] or match[2] or "") if match else answer


def same_answer(guess: str, truth: str) -> bool:
    r"""Tell whether two answers differ only in typography, or are numbers of equal value.

    >>> same_answer(r"\dfrac12", "1/2"), same_answer("1{,}000.0", "1000"), same_answer(r"5\text{ cm}^2", "5")
    (True, True, True)
    >>> same_answer("2/4", "1/2"), same_answer("(1,2)", "(2,1)"), same_answer("", "0")
    (False, False, False)
    """
    guess, truth = _tidy(guess), _tidy(truth)
    value = number(guess)
    return guess == truth or (value is not None and value == number(truth))


def _tidy(answer: str) -> str:
    answer = bare(answer)
    for pattern, replacement in _TYPOGRAPHY:
        answer = pattern.sub(replacement, answer)
    try:
        tidy = hendrycks(answer)
    except ValueError:
        tidy = "".join(answer.split())
    return r"\frac{1}{2}" if number(tidy) == _HALF else tidy
