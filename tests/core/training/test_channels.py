"""What the engine leaves to plugins, and says if no plugin does it."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from tests.core.training.tiny import TINY

from dovetail.config import load
from dovetail.errors import PluginError
from dovetail.hookspecs import hookimpl
from dovetail.registry import plugin_manager
from dovetail.training.channels import InTurn, opening
from dovetail.training.evaluation import evaluator
from dovetail.training.loop import train, warm_start

AHEAD = (*TINY, "train.staleness=2", "train.correction=tis_token")


@pytest.fixture
def nobody(monkeypatch):
    """No plugin answers."""
    monkeypatch.setattr("dovetail.registry.calls.ask_one", lambda *_, **what: None)
    monkeypatch.setattr("dovetail.training.channels.ask_one", lambda *_, **what: None)


def test_programs_that_nobody_runs_elsewhere_take_turns(nobody):
    assert opening(load(None, TINY)) == InTurn.open


def test_a_run_ahead_needs_a_plugin_that_samples_ahead(nobody):
    with pytest.raises(
        PluginError, match=r"train.staleness = 2 \(--set .*\) takes a plugin that answers dovetail_channels"
    ):
        opening(load(None, AHEAD))


def test_a_run_that_evaluates_needs_a_plugin_that_does(nobody):
    assert evaluator(load(None, [*TINY, "eval.every=None"]), None, None) is None
    with pytest.raises(
        PluginError, match=r"eval.every = 2 \(--set .*\) takes a plugin that answers dovetail_evaluator"
    ):
        evaluator(load(None, [*TINY, "eval.every=2"]), None, None)


@pytest.mark.slow
def test_a_warm_start_needs_a_plugin_that_trains_on_demonstrations(nobody, tmp_path):
    with pytest.raises(PluginError, match="sft.steps = .* takes a plugin that answers dovetail_warm_start"):
        train(load(None, TINY), tmp_path / "run", only_sft=True)


class Another:
    """A plugin that does all that the engine leaves to plugins."""

    @hookimpl
    def dovetail_warm_start(self, config):
        """Return what trains the policy."""
        return self.warm

    @hookimpl
    def dovetail_channels(self, config):
        """Return what opens the sampler's program."""
        return self.open

    @hookimpl
    def dovetail_evaluator(self, config, scorer, task):
        """Return what opens the evaluator."""
        return self.evaluate

    def warm(self, run):
        """Return weights."""
        return "trained elsewhere"

    def open(self, *_):
        """Open nothing."""

    def evaluate(self, *_):
        """Open nothing."""


@pytest.fixture
def another():
    """Another package's plugin, beside ours."""
    manager, plugin = plugin_manager(), Another()
    manager.register(plugin, name="acme-rl:acme_rl")
    yield plugin
    manager.unregister(plugin)


def test_what_another_plugin_answers_replaces_ours(another):
    assert opening(load(None, AHEAD)) == another.open
    assert opening(load(None, TINY)) == another.open
    assert evaluator(load(None, [*TINY, "eval.success=None"]), MagicMock(), MagicMock()) == another.evaluate
    assert warm_start(SimpleNamespace(config=load(None, TINY), resumed=None)) == "trained elsewhere"
