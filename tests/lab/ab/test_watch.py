"""The live table shows which runs have ended, but no results."""

import io

import attrs
import pytest
from rich.console import Console
from tests.lab.ab.stub import ARMS, QUICK, ab

from dovetail_lab.ab.registration import Registration
from dovetail_lab.ab.watch import Table
from dovetail_lab.sweep import State, Store


@pytest.fixture
def store(here, tmp_path):
    ab(*ARMS, *QUICK)
    return Store.open(tmp_path / "ab" / "mine")


def test_the_table_shows_states_and_no_results(store):
    out = io.StringIO()
    console = Console(file=out, width=100)
    registration = Registration.load(store.path)
    states = {trial: store.state(trial) for trial in store.trials}
    kinds = ["running", "failed", "waiting"]
    for trial, kind in zip(store.trials[-3:], kinds, strict=True):
        states[trial] = attrs.evolve(State(), status=kind)
    table = Table(store, registration, console)
    table.say("a run: done", ["its log"])
    table.close()
    out.truncate(0)
    console.print(table.draw(states))
    text = out.getvalue()
    assert "10 of 12 runs" in text
    assert text.count("✓") == 9
    assert text.count("✗") == text.count("·") == 1
    assert "100%" in text, "how far the running one is"
    assert "compared after 6 pairs, not before" in text
    assert "accuracy" not in text
