"""What the engine leaves to plugins, and says if no plugin does it."""

import pytest
from tests.core.train.tiny import TINY

from dovetail.config import load
from dovetail.errors import PluginError
from dovetail.train.channels import InTurn, opening
from dovetail.train.evaluation import evaluator
from dovetail.train.loop import train

AHEAD = (*TINY, "train.staleness=2", "train.correction=tis_token")


@pytest.fixture
def nobody(monkeypatch):
    """No plugin answers."""
    monkeypatch.setattr("dovetail.registry.calls.ask_one", lambda *_, **what: None)
    monkeypatch.setattr("dovetail.train.channels.ask_one", lambda *_, **what: None)


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
