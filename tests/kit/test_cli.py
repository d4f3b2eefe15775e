"""Completion with Tab for the commands of the kit."""

from dovetail_kit.cli import distributions


def test_distributions_with_plugins_are_offered():
    assert distributions("dove") == ["dovetail-rl"]
    assert distributions("no-such-") == []
