"""Observers are called, and one that raises is named; a question has one answer."""

import re

import pluggy
import pytest

from dovetail import hookspecs
from dovetail.errors import PluginError
from dovetail.registry.calls import ask_one, tell


class Watches:
    """An observer that looks for a metric that is not there."""

    @hookspecs.hookimpl
    def dovetail_step_end(self, metrics):
        """Ask for it."""
        return metrics["reward/meen"]


def test_an_observer_that_raises_is_named_with_its_own_line():
    manager = pluggy.PluginManager("dovetail")
    manager.add_hookspecs(hookspecs)
    tell(manager, "dovetail_step_end", phase="rl", step=1, metrics={}, run=None)
    manager.register(Watches(), name="acme-rl:acme_rl")
    line = Watches.dovetail_step_end.__code__.co_firstlineno + 3
    said = f"dovetail_step_end of acme-rl raised KeyError: 'reward/meen' [{__file__}:{line}]; mend it, or set"
    with pytest.raises(PluginError, match=re.escape(f"{said} DOVETAIL_DISABLE=acme-rl")):
        tell(manager, "dovetail_step_end", phase="rl", step=1, metrics={}, run=None)


class Answers:
    """A plugin that samples elsewhere."""

    def __init__(self, answer):
        self.answer = answer

    @hookspecs.hookimpl
    def dovetail_channels(self):
        """Return what opens it."""
        return self.answer


def test_a_question_has_one_answer_and_those_that_give_two_are_named():
    manager = pluggy.PluginManager("dovetail")
    manager.add_hookspecs(hookspecs)
    manager.register(Answers(None), name="acme-none:none")
    assert ask_one(manager, "dovetail_channels", config={}) is None
    manager.register(Answers("ours"), name="dovetail:ours")
    assert ask_one(manager, "dovetail_channels", config={}) == "ours"
    manager.register(Answers("mine"), name="acme-rl:acme_rl")
    assert ask_one(manager, "dovetail_channels", config={}) == "mine"
    manager.register(Answers("theirs"), name="other-rl:other_rl")
    with pytest.raises(
        PluginError, match="by acme-rl and by other-rl, .* switch one off, as in DOVETAIL_DISABLE=other"
    ):
        ask_one(manager, "dovetail_channels", config={})


def test_who_raises_when_asked_is_named():
    manager = pluggy.PluginManager("dovetail")
    manager.add_hookspecs(hookspecs)
    manager.register(Watches(), name="acme-rl:acme_rl")
    with pytest.raises(PluginError, match="dovetail_step_end of acme-rl raised KeyError: 'reward/meen'"):
        ask_one(manager, "dovetail_step_end", phase="rl", step=1, metrics={}, run=None)
