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
_STATED = re.compile(r"answer(?:\s+is)?[*_`\s]*+[:：][*_`\s]*+(?=\S)", re.IGNORECASE)
_DISPLAY = re.compile(r"(?:\\\[(?:(?!\\[\[\]]).)*\\\]|\$\$[^$]*\$\$)[ \t.*_]*$", re.DOTALL | re.MULTILINE)
_SAID = re.compile(r"^(?:the )?(?:final )?answer is:? *|\s*I hope it is correct\.?\s*$", re.IGNORECASE)
_REMARK = re.compile(r"\s\((?:since|because|as|rounded|i\.e\.)\s(?:[^()]|\([^()]*\))*\)[.*\s]*$")

_SYMBOLS = str.maketrans({"−": "-", "±": r"\pm", "π": r"\pi", "°": "", "~": "", "€": "", "£": "", "¥": ""})
_NO_UNIT = (
    "am and are base bc bce billion ce dozen east else half hundred if is less million mod no none north not or"
    " otherwise pm quarter remainder south than thousand trillion undefined west when where"
)
"""Words that change or qualify the number before them, unlike a unit."""
_IS_UNIT = rf"(?![^{{}}]*(?:\d|(?<![a-zA-Z])(?:[ap]\.\s?m\.?|{_NO_UNIT.replace(' ', '|')})(?![a-zA-Z])))"
_UNIT = re.compile(
    rf"\s*(?:\\(?:text|textrm|mbox)\{{{_IS_UNIT}[^{{}}]*\}}|\\mathrm\{{{_IS_UNIT}(?![ie]\}})[^{{}}]+\}})"
    r"(?:\^\{?\d\}?)?\s*$",
    re.IGNORECASE,
)
_MEASURED = re.compile(r"\d|\\pi")
"""What may have a unit: in `\\text{Ann}\\text{ Lee}` there is none."""
_SCALE = re.compile(r"\b(?:hundred|thousand|million|billion|trillion|dozen|[ap]\.?m)\b", re.IGNORECASE)
_SPACE = re.compile(r"\{,\}|\\[,;:! ]")
_TYPOGRAPHY = (
    (re.compile(r"\\(sqrt|[dt]?frac)\s+"), r"\\\1"),
    (re.compile(r"\\([dt]?frac\d)\s+(?=\d)"), r"\\\1"),
    (re.compile(r"\\(?:text|textbf|textrm|mbox|mathrm)\{([^{}]*)\}"), r"\1"),
    (re.compile(r"([\^_])\{(\w)\}(?!\w)"), r"\1\2"),  # x^{2}3 stays: without TeX, x^23 is another power
    (re.compile(r"\\text\{\s+"), r"\\text{"),  # or else `hendrycks` takes all that follows for a unit
    # `hendrycks` leaves out white space, also what sets numbers apart: 3 1/2 is not 31/2, and 12 13 is not 1213.
    (re.compile(r"(?<=\d)\s+(\d+)/(\d+)\s*$"), r"\\frac{\1}{\2}"),
    (re.compile(r"(?<=\d)\s+(?=\d)(?!\d{3}(?!\d))"), ";"),
    (re.compile(r"\\?%"), ""),
    (re.compile(r"^\s*\(\s*([A-Z])\s*\)\s*$"), r"\1"),
)
_NEGATIVE = re.compile(r"^\\frac\{-((?:\\sqrt\{\w+\}|[\w\\])+)\}(\{[^{}]*\})")
_HALF = Decimal("0.5")
_MATHS = re.compile(r"\$\$?([^$]*)\$\$?|\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL)


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
    r"""Return what a text states after its last `Answer:` or `answer is:`, in upper or lower case; None without one.

    That is the last box that follows, or without one a formula in `\[...\]` or `$$...$$`, or else the first line that
    has more than marks of emphasis, without a remark in parentheses such as `(since ...)` at its end.

    >>> stated_answer("Answer: 43. No!\nanswer : 42 "), stated_answer("Answer:"), stated_answer("42")
    ('42', None, None)
    >>> stated_answer("**Answer:**\n\\[\n\\boxed{42}\n\\]"), stated_answer("**Answer**: 42 (since 42 = 6 * 7)")
    ('42', '42')
    """
    stated = list(_STATED.finditer(text))
    if not stated:
        return None
    begin = stated[-1].end()
    boxed = boxed_answer(text[begin:])
    if boxed is not None:
        return boxed
    rest = text[begin : begin + LONGEST_ANSWER + 2]
    display = _DISPLAY.match(rest)
    line = display[0] if display else rest.partition("\n")[0]
    return _REMARK.sub("", _SAID.sub("", line)).strip() if len(line) <= LONGEST_ANSWER else None


def bare(answer: str) -> str:
    r"""Strip white space, `$...$`, `\(...\)`, `\[...\]`, asterisks, backticks and a final period from an answer.

    >>> bare(" **42**."), bare(r"$\frac12$."), bare("."), bare("** 72."), bare(r"`\[ 42 \]`")
    ('42', '\\frac12', '', '72', '42')
    """
    answer = answer.strip("*` \t\n")
    answer = answer.removesuffix(".").removesuffix("。").strip("*` \t\n")
    match = _MATHS.fullmatch(answer)
    return bare(match[1] or match[2] or match[3] or "") if match else answer


def same_answer(guess: str, truth: str) -> bool:
    r"""Tell whether two answers differ only in typography or in a unit at the end, or are numbers of equal value.

    >>> same_answer(r"\dfrac12", "1/2"), same_answer("1{,}000.0", "1000"), same_answer(r"5\text{ cm}^2", "5")
    (True, True, True)
    >>> same_answer("2/4", "1/2"), same_answer("(1,2)", "(2,1)"), same_answer(r"5\text{ million}", "5")
    (False, False, False)
    """
    guess, truth = _tidy(guess), _tidy(truth)
    value = number(guess)
    return guess == truth or (value is not None and value == number(truth))


def same_scale(guess: str, truth: str) -> bool:
    """Tell whether the same words for a size or half of the day are in both answers, such as million and p.m.

    >>> same_scale("2.5 million", "2.5"), same_scale("11:30 a.m.", "11:30 am"), same_scale("5 cm", "5")
    (False, True, True)
    """
    ours, theirs = ([word.lower().replace(".", "") for word in _SCALE.findall(each)] for each in (guess, truth))
    return ours == theirs


def _tidy(answer: str) -> str:
    answer = _SPACE.sub("", bare(answer).translate(_SYMBOLS))
    unit = _UNIT.search(answer)
    if unit and _MEASURED.search(answer, 0, unit.start()):
        answer = answer[: unit.start()]
    for pattern, replacement in _TYPOGRAPHY:
        answer = pattern.sub(replacement, answer)
    answer = answer.strip().removesuffix(".")
    try:
        tidy = hendrycks(answer)
    except ValueError:
        tidy = "".join(answer.split())
    value = number(tidy)
    if value in (_HALF, -_HALF):
        return r"\frac{1}{2}" if value == _HALF else r"-\frac{1}{2}"
    return _NEGATIVE.sub(r"-\\frac{\1}\2", tidy)
