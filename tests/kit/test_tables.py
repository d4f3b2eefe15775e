"""Tables are folded where they are wider than the terminal."""

import sys

import pytest

from dovetail.cli import main
from dovetail_kit.tables import folded

ROWS = [
    ("field", "provided by", "read by"),
    ("logps", "forward pass: policy", "train.policy_loss = ppo, train.kl = k1"),
    ("mask", "the engine", "-"),
]


@pytest.mark.parametrize("width", [0, 67, 200])
def test_what_fits_is_left_as_it_is(width):
    assert folded(ROWS, width) == [
        "field  provided by           read by",
        "logps  forward pass: policy  train.policy_loss = ppo, train.kl = k1",
        "mask   the engine            -",
    ]


def test_the_last_column_is_folded_if_it_has_room():
    assert folded(ROWS, 55) == [
        "field  provided by           read by",
        "logps  forward pass: policy  train.policy_loss = ppo,",
        "                             train.kl = k1",
        "mask   the engine            -",
    ]


def test_in_a_narrow_terminal_no_character_is_lost():
    lines = folded(ROWS, 40)
    assert max(map(len, lines)) <= 40
    said = "".join("".join(lines).split())
    for word in ("forward", "policy", "train.policy_loss", "train.kl", "engine"):
        assert word in said


def test_explain_fits_into_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["explain", "ppo"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
