"""The suite catches mistakes: every broken component fails the check that is declared for it."""

from __future__ import annotations

import re

import jax
import pytest
from tests.kit.conformance import (
    mutants_alone,
    mutants_answers,
    mutants_apart,
    mutants_batches,
    mutants_bounds,
    mutants_contrasts,
    mutants_corners,
    mutants_data,
    mutants_digits,
    mutants_directions,
    mutants_episodes,
    mutants_kept,
    mutants_late,
    mutants_limits,
    mutants_loops,
    mutants_losses,
    mutants_manners,
    mutants_meanings,
    mutants_memory,
    mutants_named,
    mutants_others,
    mutants_phrases,
    mutants_pools,
    mutants_pulls,
    mutants_ranges,
    mutants_rates,
    mutants_reports,
    mutants_said,
    mutants_sampling,
    mutants_settings,
    mutants_sizings,
    mutants_slips,
    mutants_slow_import,
    mutants_spellings,
    mutants_sweeps,
    mutants_terms,
    mutants_trees,
    mutants_turned,
    mutants_turns,
    mutants_variants,
    mutants_weights,
    mutants_words,
)
from tests.kit.conformance.mutants import MUTANTS
from tests.sampled import sampled

from dovetail_kit.conformance.check import checks
from dovetail_kit.conformance.subject import Subject
from dovetail_kit.conformance.suites import devices, texts
from dovetail_kit.conformance.verdict import judge, report

MODULES = (
    mutants_alone,
    mutants_answers,
    mutants_apart,
    mutants_batches,
    mutants_bounds,
    mutants_contrasts,
    mutants_corners,
    mutants_data,
    mutants_digits,
    mutants_directions,
    mutants_episodes,
    mutants_kept,
    mutants_late,
    mutants_limits,
    mutants_loops,
    mutants_losses,
    mutants_manners,
    mutants_named,
    mutants_meanings,
    mutants_memory,
    mutants_others,
    mutants_phrases,
    mutants_pools,
    mutants_pulls,
    mutants_ranges,
    mutants_rates,
    mutants_reports,
    mutants_said,
    mutants_sampling,
    mutants_settings,
    mutants_sizings,
    mutants_slips,
    mutants_slow_import,
    mutants_spellings,
    mutants_sweeps,
    mutants_terms,
    mutants_trees,
    mutants_turned,
    mutants_turns,
    mutants_variants,
    mutants_weights,
    mutants_words,
)


@pytest.mark.parametrize(
    "mutant",
    sampled([pytest.param(m, id=m.id, marks=[pytest.mark.slow] if m.slow else []) for m in MUTANTS], every=2),
)
def test_it_is_caught(mutant, monkeypatch):
    monkeypatch.setattr(texts, "SECONDS", 0.5)
    monkeypatch.setattr(devices, "SLOW_IMPORT_SECONDS", 0.2)
    (check,) = (each for each in checks(mutant.kind) if each.name == mutant.check)
    assert check.applies(mutant.component)
    subject = Subject(mutant.component)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as third parties have it
        verdict = judge(check, subject)
    assert verdict.outcome == "failed", verdict
    # A check that fails because of a slip in the mutant has caught nothing; but some mutants are meant to raise.
    raised = re.match(r"\w+Error(?=: )", verdict.seen)
    assert (raised[0] if raised else "") == mutant.raises, verdict
    text = report(check, subject, verdict)
    parts = (
        mutant.component.label,
        "claimed:",
        "seen:",
        "means:",
        "fix:",
        "where:",
        mutant.target.__module__.split(".")[-1],
    )
    assert [part for part in parts if part not in text] == []


def test_every_check_catches_something():
    """The checks of rollout engines are tested in `tests/kit/rollout`."""
    caught = {(mutant.kind, mutant.check) for mutant in MUTANTS}
    tried = {
        check
        for check in checks()
        for kind, name in caught
        if name == check.name and (not check.kinds or kind in check.kinds)
    }
    assert {check.name for check in set(checks()) - tried if check.kinds != ("rollout",)} == set()


def test_there_are_more_than_a_hundred():
    assert len(MUTANTS) > 100
    assert {m.target.__module__ for m in MUTANTS} == {module.__name__ for module in MODULES}
