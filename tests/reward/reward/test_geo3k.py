"""Reward `geo3k`."""

from __future__ import annotations

import importlib.util

import pytest

from dovetail.errors import ConfigError
from dovetail_reward.reward.geo3k import Geo3k

pytestmark = pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed")

THOUGHT = "<think>3·8/2</think> "


@pytest.mark.parametrize(
    ("text", "points"),
    [
        (THOUGHT + r"\boxed{12}", 1.0),
        (THOUGHT + r"so \boxed{12}.", 1.0),
        (r"\boxed{12}", 0.9),
        ("Well, " + THOUGHT + r"\boxed{12}", 0.9),
        (r"<think>\boxed{12}</think>", 0.9),
        (r"<think>\boxed{12}", 0.9),
        (THOUGHT + r"\boxed{24}", 0.1),
        (THOUGHT + r"\boxed{24}" + THOUGHT + r"\boxed{12}", 1.0),
        (THOUGHT + r"\boxed{12", 0.0),
        (THOUGHT + "12", 0.0),
        ("", 0.0),
    ],
)
def test_points(text, points):
    assert Geo3k()([text], ["12"]) == [points]


def test_settings():
    reward = Geo3k(format_score=0.25, reasoning_start="[", reasoning_end="]")
    assert reward([r"[a] \boxed{12}", r"\boxed{12}", r"[a] \boxed{1}"], [12, 12, 12]) == [1.0, 0.75, 0.25]
    assert reward(["", r"\boxed{1}"], [None, None]) == [None, None]


def test_without_the_library_it_is_refused_when_built(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"it needs the library math-verify: pip install .*\[math\]"):
        Geo3k()
