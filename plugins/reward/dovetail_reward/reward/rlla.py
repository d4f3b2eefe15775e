"""Reward `rlla`: tool calls, compared with the right ones by name, parameters and values."""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from dovetail.registry import declares

_THINK = r"<think>.*?</think>"
_CALLED, _SAID = r"\n<tool_call>\n.*?\n</tool_call>", r"\n<response>.*?</response>"
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_BEST: Final = 3.0
Same = Callable[[Any, Any], bool]
Pairing = Callable[[list[list[float]]], float]

_RIGHT = '<think>so</think>\n<tool_call>\n{"name": "f", "parameters": {"a": 1}}\n</tool_call>'


@declares(
    expected_failures={"odd_answers": "an answer is the text of a whole completion; a number is in the wrong column"},
    range=(-_BEST, _BEST + 1),
    examples=[({"completions": _RIGHT, "answer": _RIGHT}, {"completions": _RIGHT.replace("1", "2"), "answer": _RIGHT})],
)
def rlla(
    completions: Sequence[str], answer: Sequence[str | None], *, verl_compatible: bool = False
) -> list[float | None]:
    r"""Format, 0.0 or 1.0, plus the similarity of the tool calls to the right ones, from -3.0 to 3.0.

        r = format + 6·S/S_max - 3
        S = |N ∩ N*| / |N ∪ N*| + max_P ∑_(c, c*) ∈ P ( |K ∩ K*| / |K ∪ K*| + ∑_(k ∈ K*) [ v_k = v*_k ] )
        S_max = 1 + |calls*| + ∑_(c*) |K*|

    with N the multiset of the names of the calls, K the names of a call's parameters, v their values, * marking the
    right ones, and P a pairing of calls with the same name. The same calls in the same order score 3; no calls or
    invalid JSON score -3; if the right answer has no calls, the second part is 0. Qian et al. 2025, *ToolRL: Reward is
    all tool learning needs*, section 3.3; its data set is called RLLA.

    Args:
        completions: texts without special tokens: `<think>...</think>`, then on a line of its own `<tool_call>`, then a
            call in JSON, `{"name": ..., "parameters": {...}}`, on each line, then `</tool_call>`; and, or instead,
            `<response>...</response>`. The format is right where it has the parts that the right answer has.
        answer: the dataset column with a right completion in this form; where it is None the reward abstains.
        verl_compatible: return verl's scores exactly, including the departures below.

    Raises:
        ValueError: if the right answer has calls that are not of this form.

    Departures:
        verl pairs calls greedily, in order, unlike the paper, and treats `true` and `1` as equal. A call without
        `parameters` makes all calls wrong; in verl only if its name is right.

    >>> right = '<think>so</think>\n<tool_call>\n{"name": "add", "parameters": {"a": 1, "b": 2}}\n</tool_call>'
    >>> rlla([right, right.replace("2", "3"), right.replace("add", "sub"), ""], [right] * 4)
    [4.0, 2.5, -2.0, -3.0]
    """
    correct = _verl_correct if verl_compatible else _correct
    return [
        None if truth is None else _formatted(text, truth) + correct(text, truth)
        for text, truth in zip(completions, answer, strict=True)
    ]


def _formatted(text: str, truth: str) -> float:
    pattern, tags = _THINK, []
    for tag, part in (("tool_call", _CALLED), ("response", _SAID)):
        if f"<{tag}>" in truth:
            pattern += part
            tags += [f"<{tag}>", f"</{tag}>"]
    once = all(text.count(tag) == 1 for tag in tags)
    return float(once and re.match(f"{pattern}$", text, re.DOTALL) is not None)


def _correct(text: str, truth: str) -> float:
    return _graded(text, truth, pair=_best_pairing, same=_same_value)


def _verl_correct(text: str, truth: str) -> float:
    return _graded(text, truth, pair=_pairing_in_order, same=operator.eq)


def _graded(text: str, truth: str, *, pair: Pairing, same: Same) -> float:
    if _OPEN not in truth:
        return 0.0
    expected, calls = _calls(truth), _calls(text)
    if expected is None:
        raise ValueError(f"the right answer has calls that are not JSON with name and parameters: {truth[:200]!r}")
    if calls is None:
        return -_BEST
    if same(calls, expected):
        return _BEST
    table = [[_likeness(call, right, same) for call in calls] for right in expected]
    found = _shared([call["name"] for call in expected], [call["name"] for call in calls]) + pair(table)
    most = 1 + sum(1 + len(call["parameters"]) for call in expected)
    return 2 * _BEST * found / most - _BEST


def _calls(text: str) -> list[dict[str, Any]] | None:
    """Return the calls in a text's first block; None without a block, or if a line of it is not a call."""
    _, opened, rest = text.partition(_OPEN)
    if not opened or _CLOSE not in text:
        return None
    try:
        calls = [json.loads(line) for line in rest.partition(_CLOSE)[0].strip().split("\n")]
    except (ValueError, RecursionError):
        return None
    return calls if all(map(_is_call, calls)) else None


def _is_call(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("name"), str) and isinstance(call.get("parameters"), dict)


def _likeness(call: dict[str, Any], right: dict[str, Any], same: Same) -> float:
    if call["name"] != right["name"]:
        return 0.0
    given, wanted = call["parameters"], right["parameters"]
    values = sum(1.0 for key, value in wanted.items() if key in given and same(given[key], value))
    return _shared(list(wanted), list(given)) + values


def _shared(some: list[str], others: list[str]) -> float:
    """Return |A ∩ B| / |A ∪ B| of two multisets of words; 1 if both are empty."""
    both = (Counter(some) & Counter(others)).total()
    either = len(some) + len(others) - both
    return both / either if either else 1.0


def _best_pairing(table: list[list[float]]) -> float:
    """Return the greatest sum of entries with no two in the same row or column."""
    if len(table) == 1:
        return max(table[0])
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(table, maximize=True)
    return sum(table[row][column] for row, column in zip(rows, columns, strict=True))


def _pairing_in_order(table: list[list[float]]) -> float:
    """Return the sum of entries chosen greedily, row by row, among the columns that are left."""
    total, left = 0.0, set(range(len(table[0])))
    for row in table:
        best = max(left, key=lambda column: (row[column], -column), default=None)
        if best is not None and row[best] > 0:
            left.remove(best)
            total += row[best]
    return total


def _same_value(value: Any, other: Any) -> bool:
    """Whether two values are equal in JSON, where `true` is not 1."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same_value(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same_value, value, other))
    return isinstance(value, bool) == isinstance(other, bool) and value == other
