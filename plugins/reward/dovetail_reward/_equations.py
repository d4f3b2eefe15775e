"""Find equations between numbers in a text, and evaluate them exactly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final, Literal

import attrs

_PIECES: Final = re.compile(
    r"""(?P<number>[$€£]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?%?|[$€£]?(?<!\d)\.\d+%?)
    |(?P<operator>[-+*/−·×÷]|(?<=[\d)\s])[xX](?=\s*+\(*+\s*+[$€£]?\.?\d))
    |(?P<open>\()|(?P<close>\))|(?P<equals>=)
    |(?P<word>[^\W\d]\w*)
    |(?P<other>[^\s]|\n)""",
    re.VERBOSE,
)
_SPELT: Final = str.maketrans({"−": "-", "·": "*", "×": "*", "x": "*", "X": "*", "÷": "/"})
_BINDS: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "sign +": 3, "sign -": 3}
_MANY: Final = 64
"""Numbers with more digits and sides with more pieces are not read, because exact arithmetic on arbitrarily long text
could take arbitrarily long."""

Sort = Literal["number", "operator", "open", "close", "equals", "word", "other"]


@attrs.frozen
class _Piece:
    """A token of the text, a number or an operator, and its position."""

    text: str
    sort: Sort
    start: int
    end: int

    @property
    def value(self) -> Fraction:
        """The exact value of a number: 1,000 without its comma, 5% as 1/20."""
        return Fraction(re.sub(r"[^\d.]", "", self.text)) / (100 if self.text.endswith("%") else 1)

    @property
    def rounding(self) -> Fraction:
        """Half a unit of the last decimal place of a number; zero if it has none."""
        decimals = len(self.text.rstrip("%").partition(".")[2])
        return Fraction(1, 2 * 10**decimals * (100 if self.text.endswith("%") else 1)) if decimals else Fraction(0)


@attrs.frozen
class Equation:
    """An equation with at least one operator; `end` is the length of the text up to and including it."""

    text: str
    end: int
    holds: bool


def find_equations(text: str) -> Iterator[Equation]:
    """Yield the equations between numbers in a text, in order.

    Each `=` yields an equation between the numbers, operators and brackets on its two sides, if at least one side has
    an operator. It yields none if it is next to a variable, a power, or anything else that cannot be parsed.

    >>> [(each.text, each.holds) for each in find_equations("She has 3 + 4 = 7, or <<7*2=15>>15. x + 1 = 2")]
    [('3 + 4 = 7', True), ('7*2=15', False)]
    """
    pieces = [
        _Piece(match[0].translate(_SPELT) if match.lastgroup == "operator" else match[0], *_place(match))
        for match in _PIECES.finditer(text)
    ]
    for index, piece in enumerate(pieces):
        if piece.sort == "equals":
            left, right = _left_of(pieces, index), _right_of(pieces, index)
            holds = _holds(left, right) if left and right else None
            if holds is not None:
                yield Equation(text[left[0].start : right[-1].end], right[-1].end, holds)


def _place(match: re.Match[str]) -> tuple[Sort, int, int]:
    sort: Sort = match.lastgroup  # pyright: ignore[reportAssignmentType]
    return sort, match.start(), match.end()


_INSIDE: Final = ("number", "operator", "open", "close")


def _left_of(pieces: Sequence[_Piece], index: int) -> Sequence[_Piece]:
    """Return the side that ends before a piece; empty if that is ambiguous."""
    start, depth = index, 0
    while start and pieces[start - 1].sort in _INSIDE and not (start < index and _two_numbers(pieces, start)):
        depth += (pieces[start - 1].sort == "close") - (pieces[start - 1].sort == "open")
        if depth < 0:  # a bracket around the equation
            break
        start -= 1
    before, side = pieces[start - 1] if start else None, pieces[start:index]
    apart = side[0].start - before.end if before and side else 0
    if not _is_readable(side) or (before and _is_part(before, apart)):
        return ()
    if before and apart == 0 and before.text in (".", ","):  # the end of a number that is not one
        return ()
    if side[0].sort != "operator" or (before and before.sort == "equals"):
        return side
    spaced = len(side) > 1 and side[1].start > side[0].end
    if before is None or before.text == "\n":
        return side[1:] if spaced else side  # the dash before a line of a list is not a sign
    return () if spaced or before.text in "}]|)" else side


def _right_of(pieces: Sequence[_Piece], index: int) -> Sequence[_Piece]:
    """Return the side that begins after a piece; empty if that is ambiguous."""
    end, depth = index + 1, 0
    while end < len(pieces) and pieces[end].sort in _INSIDE and not _two_numbers(pieces, end):
        depth += (pieces[end].sort == "open") - (pieces[end].sort == "close")
        if depth < 0:
            break
        end += 1
    after, side = pieces[end] if end < len(pieces) else None, pieces[index + 1 : end]
    if not _is_readable(side) or (after and _is_part(after, after.start - side[-1].end)):
        return ()
    return side


def _two_numbers(pieces: Sequence[_Piece], index: int) -> bool:
    """Whether a number follows another, as one equation follows another on a line."""
    return pieces[index - 1].sort == "number" and pieces[index].sort == "number"


def _is_readable(side: Sequence[_Piece]) -> bool:
    return 0 < len(side) <= _MANY and all(len(piece.text) <= _MANY for piece in side)


def _is_part(neighbour: _Piece, apart: int) -> bool:
    """Whether the text next to a side belongs to its formula: a variable, an attached unit, or a power."""
    if neighbour.sort == "word":
        return apart == 0 or len(neighbour.text) == 1
    return neighbour.text in "^!√\\"


def _holds(left: Sequence[_Piece], right: Sequence[_Piece]) -> bool | None:
    """Return whether two sides are equal; None if they cannot be parsed, or neither has an operator.

    A side that is a single number with decimal places may be rounded to them; whole numbers are exact.
    """
    try:
        on_left, on_right = _work_out(left), _work_out(right)
    except ZeroDivisionError:
        return False
    if on_left is None or on_right is None or not (on_left[1] or on_right[1]):
        return None
    (a, of_a), (b, of_b) = on_left, on_right
    rounding = right[-1].rounding if not of_b else left[-1].rounding if not of_a else 0
    return abs(a - b) <= rounding


def _work_out(side: Sequence[_Piece]) -> tuple[Fraction, int] | None:
    """Return the value of a side and its number of operators, not counting signs; None if it is not well formed.

    Raises:
        ZeroDivisionError: if something is divided by zero.
    """
    values: list[Fraction] = []
    waiting: list[str] = []
    wants_number, operators = True, 0
    for piece in side:
        if wants_number != (piece.sort in ("number", "open") or (wants_number and piece.text in "+-")):
            return None
        if piece.sort == "number":
            values.append(piece.value)
            wants_number = False
        elif piece.sort == "open":
            waiting.append("(")
        elif piece.sort == "close":
            _apply(values, waiting, 0)
            if not waiting:
                return None
            waiting.pop()
        elif wants_number:
            waiting.append(f"sign {piece.text}")
        else:
            _apply(values, waiting, _BINDS[piece.text])
            waiting.append(piece.text)
            wants_number, operators = True, operators + 1
    if wants_number:
        return None
    _apply(values, waiting, 0)
    return None if waiting else (values[0], operators)


def _apply(values: list[Fraction], waiting: list[str], binds: int) -> None:
    """Apply the pending operators of at least this precedence, back to the last open bracket."""
    while waiting and waiting[-1] != "(" and _BINDS[waiting[-1]] >= binds:
        operator, right = waiting.pop(), values.pop()
        left = Fraction(0) if operator.startswith("sign") else values.pop()
        match operator[-1]:
            case "+":
                values.append(left + right)
            case "-":
                values.append(left - right)
            case "*":
                values.append(left * right)
            case _:
                values.append(left / right)
