"""Texts that rewards must handle, because policies in training write them."""

from __future__ import annotations

import re
from typing import Final


def _formatted(answer: str) -> str:
    return f"<reasoning>6·7</reasoning><answer>{answer}</answer>"


LONG: Final = 200_000
MARKS: Final = '<{[(":=,|'
"""What a piece of a text may begin with, or end with, that a reward looks for."""
READABLE: Final = LONG // 4
"""Characters of a text that looks right at first: what compares it with the answer may take time for each of them."""
DIGITS: Final = 400
HOSTILE: Final = {
    "empty": "",
    "one tag over and over": "<reasoning>" * (LONG // 11),
    "two tags in turn": "<reasoning></reasoning>" * (LONG // 23),
    "all but the last tag": "<reasoning>x</reasoning><answer>y" * (LONG // 33),
    "no line ends with the last tag": "<reasoning>x</reasoning><answer>" + "1</answer>." * (LONG // 11),
    "closing tags first": "</answer></reasoning>" * (LONG // 21),
    "white space before every tag": (" " * 50 + "<reasoning>") * (LONG // 61),
    "white space after every tag": "<reasoning>x</reasoning><answer>y" + ("</answer>" + " " * 50 + ".") * (LONG // 60),
    "white space alone": " \t\u2003\n" * (LONG // 4),
    "a number without end": _formatted("9" * LONG),
    "a number that does not end well": _formatted("9" * LONG + "x"),
    "commas": _formatted(",".join(["123"] * (LONG // 4)) + "x"),
    "periods": _formatted("." * LONG),
    "digits and periods": _formatted("1." * (LONG // 2)),
    "signs": _formatted("-$+" * (LONG // 3)),
    "exponents": _formatted("1e" * (LONG // 2)),
    "an enormous exponent": _formatted("1e" + "9" * 1000),
    "lone surrogates": _formatted("\ud800\udc00\udfff"),
    "NUL and friends": _formatted("\x00\x1f\x85\u2028\u200b\ufeff"),
    "combining marks and right to left": _formatted("\u202e24\u0301"),
    "superscript and roman digits": _formatted("²Ⅳ½"),
    "boxes that open": r"\boxed{" * (LONG // 7),
    "boxes in boxes": r"\boxed{" * (LONG // 8) + "}" * (LONG // 8),
    "a box of braces": r"\boxed{" + "{}" * (LONG // 2) + "}",
    "fractions": r"\boxed{" + r"\frac" * (LONG // 5) + "}",
    "roots": r"\boxed{" + r"\sqrt" * (LONG // 5) + "}",
    "units": r"\boxed{" + r"5\text{ " * 100 + "}",
    "dollars": "Answer: " + "$" * LONG,
    "answers": "Answer: " * (LONG // 8),
    "answers without end": "Answer" + " " * LONG,
    "a tower of powers": r"\boxed{9^{9^{9^9}}}",
    "an object that does not end": '{"answer": {"value": 42, ',
    "a list that does not end": '["42", ',
    "brackets": "[" * 5000,
    "number signs": "#" * LONG,
    "number signs before white space": "#### " * (LONG // 5),
}
"""Texts on which a careless regular expression takes minutes, or a careless conversion raises."""

TRUTHS: Final = ("42", 42, 0, -1.5, "", "Paris", "inf", "nan", "1e400", None)
"""Values that the answers of a dataset may have."""


def made_of(completion: str) -> dict[str, str]:
    """Return hostile texts made of one that a component can read: its beginnings over and over, and huge numbers.

    >>> list(made_of("<b>7</b>"))
    ["up to '<', over and over", 'all of it, over and over', 'numbers of 400 digits']
    """
    parts = {f"up to '{mark}'": completion[: completion.index(mark) + 1] for mark in MARKS if mark in completion}
    parts |= {"all of it": completion} if completion else {}
    found = {f"{name}, over and over": part * (READABLE // len(part)) for name, part in parts.items()}
    # such a whole number can be read, and is too large for a float
    huge = re.sub(r"\d+", "9" * DIGITS, completion)
    return found | ({f"numbers of {DIGITS} digits": huge} if huge != completion else {})
