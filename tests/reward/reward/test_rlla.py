"""Reward `rlla`."""

from __future__ import annotations

import json

import pytest

from dovetail_reward.reward.rlla import rlla


def text(*calls, said: str | None = None) -> str:
    lines = "\n".join(call if isinstance(call, str) else json.dumps(call) for call in calls)
    block = f"\n<tool_call>\n{lines}\n</tool_call>" if calls else ""
    return f"<think>x</think>{block}" + (f"\n<response>{said}</response>" if said else "")


def f(**parameters):
    return {"name": "f", "parameters": parameters}


def g(**parameters):
    return {"name": "g", "parameters": parameters}


@pytest.mark.parametrize(
    ("guess", "right", "points"),
    [
        (text(f(a=1)), text(f(a=1)), 4.0),
        (text(f(a=1), g()), text(f(a=1), g()), 4.0),
        # names 1 of 1, keys 1 of 1, values 0 of 1; of 1 + 1 + 1
        (text(f(a=2)), text(f(a=1)), 1 + 6 * 2 / 3 - 3),
        # another name: nothing
        (text(g(a=1)), text(f(a=1)), -2.0),
        # one call too many: names 1 of 2, keys and value right; of 1 + 1 + 1
        (text(f(a=1), g()), text(f(a=1)), 1 + 6 * 2.5 / 3 - 3),
        # the other order is as good, but for nothing: all names, keys and values
        (text(g(), f(a=1)), text(f(a=1), g()), 4.0),
        # words and spaces in JSON do not count
        (text('{"parameters" : {"a":1}, "name": "f"}'), text(f(a=1)), 4.0),
        (text(f(a=1.0)), text(f(a=1)), 4.0),
        # no calls, or none that can be read
        ("<think>x</think>", text(f(a=1)), -3.0),
        (text("f(1)"), text(f(a=1)), -2.0),
        (text("[" * 100_000), text(f(a=1)), -2.0),
        (text(f(a=1), "[]"), text(f(a=1)), -2.0),
        (text({"name": "f"}), text(f(a=1)), -2.0),
        (text({"name": ["f"], "parameters": {}}), text(f(a=1)), -2.0),
        # the format
        (text(f(a=1)) + "\n", text(f(a=1)), 4.0),
        (text(f(a=1)) + " so", text(f(a=1)), 3.0),
        (text(f(a=1), said="so"), text(f(a=1)), 3.0),
        (text(f(a=1), said="so"), text(f(a=1), said="other"), 4.0),
        (text(said="so"), text(said="other"), 1.0),
        (text(), text(), 1.0),
        (text(f(a=1)) + text(f(a=1)), text(f(a=1)), 3.0),
    ],
)
def test_points(guess, right, points):
    assert rlla([guess], [right]) == [pytest.approx(points)]


def test_calls_of_one_name_are_paired_as_well_as_can_be():
    right, guess = text(f(a=1, b=1), f(a=1, b=2)), text(f(a=1, b=2), f(a=1, b=1))
    assert rlla([guess], [right]) == [4.0]
    # In order the first right call takes the first guess that shares most, and here leaves the worse one.
    right, guess = text(f(a=1), f(a=2)), text(f(b=1), f(a=1))
    assert rlla([guess], [right]) == rlla([guess], [right], verl_compatible=True)
    right, guess = text(f(a=1, b=0), f(a=1)), text(f(a=1), f(a=9))
    best, greedy = rlla([guess], [right]), rlla([guess], [right], verl_compatible=True)
    assert best[0] == pytest.approx(1 + 6 * (1 + 0.5 + 0 + 1 + 1) / 6 - 3)
    assert greedy[0] == pytest.approx(1 + 6 * (1 + 0.5 + 1 + 1 + 0) / 6 - 3)


def test_true_is_not_1():
    assert rlla([text(f(a=True))], [text(f(a=1))]) == [pytest.approx(2.0)]
    assert rlla([text(f(a=[True]))], [text(f(a=[1]))]) == [pytest.approx(2.0)]
    assert rlla([text(f(a=True))], [text(f(a=1))], verl_compatible=True) == [4.0]


def test_cells():
    assert rlla(["", ""], [None, None]) == [None, None]
    with pytest.raises(ValueError, match="the right answer has calls that are not JSON with name and parameters"):
        rlla([""], [text("oops")])
