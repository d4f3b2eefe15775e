"""Exact equivalents of verl's scorers of mathematics, including their quirks; used by `verl_compatible`."""

from __future__ import annotations

import re

_REPLACED = (
    ("\n", ""),
    (r"\!", ""),
    (r"\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    (r"\left", ""),
    (r"\right", ""),
    (r"^{\circ}", ""),
    (r"^\circ", ""),
    (r"\$", ""),
)
_AFTER_UNITS = ((r"\%", ""), (" .", " 0."), ("{.", "{0."))
_UNIT = r"\text{ "


def hendrycks(text: str) -> str:
    r"""Normalise an answer of MATH as in Hendrycks et al. 2021.

    Fractions become `\frac{a}{b}`, roots `\sqrt{a}`; white space, `\left` and `\right`, degrees, dollar and percent
    signs, a unit in `\text{ ...}`, and a left-hand side of one or two characters are removed.

    Raises:
        ValueError: where the algorithm fails: two units, an empty `\sqrt` or `\frac`, or a single slash that is not
            between integers.

    >>> hendrycks(r"x = \dfrac12"), hendrycks(r"90^\circ"), hendrycks("1/2"), hendrycks(r"5\text{ cm}")
    ('\\frac{1}{2}', '90', '\\frac{1}{2}', '5')
    """
    for old, new in _REPLACED:
        text = text.replace(old, new)
    if text.count(_UNIT) > 1:
        raise ValueError("two units")
    text = text.partition(_UNIT)[0]
    for old, new in _AFTER_UNITS:
        text = text.replace(old, new)
    text = "0" + text if text.startswith(".") else text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = _fractions(_roots(text).replace(" ", ""))
    return r"\frac{1}{2}" if text == "0.5" else _slash(text)


def _roots(text: str) -> str:
    head, *arguments = text.split(r"\sqrt")
    if "" in arguments:
        raise ValueError("a root of nothing")
    return head + "".join(rf"\sqrt{a}" if a[0] == "{" else rf"\sqrt{{{a[0]}}}{a[1:]}" for a in arguments)


def _fractions(text: str) -> str:
    head, *arguments = text.split(r"\frac")
    if "" in arguments:
        raise ValueError("a fraction of nothing")
    if any(len(a) == 1 and a != "{" for a in arguments):
        return text
    return head + "".join(rf"\frac{_braced(a)}" for a in arguments)


def _braced(argument: str) -> str:
    if argument[0] == "{":
        return argument
    top, bottom, rest = argument[0], argument[1], argument[2:]
    return f"{{{top}}}{{{rest}" if bottom == "{" else f"{{{top}}}{{{bottom}}}{rest}"


def _slash(text: str) -> str:
    if text.count("/") != 1:
        return text
    top, bottom = map(int, text.split("/"))
    return rf"\frac{{{top}}}{{{bottom}}}" if text == f"{top}/{bottom}" else text


def boxed_in_math(text: str) -> str | None:
    r"""Return the answer that verl's scorer of MATH finds, or None: `\boxed a` if there is one, else `\boxed{a}`.

    >>> boxed_in_math(r"\boxed{4} or \boxed{2}"), boxed_in_math(r"\boxed 4$ or \boxed{2}"), boxed_in_math(r"\fbox{4}")
    ('2', '4', None)
    """
    if r"\boxed " in text:
        return text.rpartition(r"\boxed ")[2].partition("$")[0]
    start = text.rfind(r"\boxed")
    return _braces(text, start + len(r"\boxed")) if start >= 0 else None


def boxed_in_dapo(text: str) -> str | None:
    r"""Return the content of the last `\boxed{`, as verl's scorer of DAPO finds it; None if it is not closed.

    >>> boxed_in_dapo(r"\boxed{\frac{1}{2}}"), boxed_in_dapo(r"\boxed 4"), boxed_in_dapo(r"\boxed{4")
    ('\\frac{1}{2}', None, None)
    """
    start = text.rfind(r"\boxed{")
    return _braces(text, start + len(r"\boxed")) if start >= 0 else None


def _braces(text: str, start: int) -> str | None:
    if text[start : start + 1] != "{":
        return None
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return text[start + 1 : match.start()]
    return None
