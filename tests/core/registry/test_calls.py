"""Observers are called, and one that raises is named."""

import re

import pluggy
import pytest

from dovetail import hookspecs
from dovetail.errors import PluginError
from dovetail.registry.calls import tell


class Watches:
    """An observer that looks for a metric that is not there."""

    @hookspecs.hookimpl
    def dovetail_step_end(self, metrics):
        """Ask for it."""
        return metrics["reward/meen"]


def test_an_observer_that_raises_is_named_with_its_own_line():
    manager = pluggy.PluginManager("dovetail")
    manager.add_hookspecs(hookspecs)
    tell(manager, "dovetail_step_end", phase="rl", step=1, metrics={})
    manager.register(Watches(), name="acme-rl:acme_rl")
    line = Watches.dovetail_step_end.__code__.co_firstlineno + 3
    said = f"dovetail_step_end of acme-rl raised KeyError: 'reward/meen' [{__file__}:{line}]; mend it, or set"
    with pytest.raises(PluginError, match=re.escape(f"{said} DOVETAIL_DISABLE=acme-rl")):
        tell(manager, "dovetail_step_end", phase="rl", step=1, metrics={})
