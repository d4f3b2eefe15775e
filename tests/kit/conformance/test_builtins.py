"""Every built-in component passes the checks for third parties' components; new components join by registration."""

from __future__ import annotations

import pytest
from tests.kit.conformance.subjects import cases, subject
from tests.sampled import marks

from dovetail_kit.conformance.check import UNWORKED
from dovetail_kit.conformance.verdict import judge, report

COMPILED = ("advantage", "correction", "field", "loss_term", "policy_loss", "process_reward")
"""Kinds whose checks mostly compile something; not every suite checks all of their components."""

TABLE = list(cases())
NAMES = {kind: sorted({component.name for component, _, _ in TABLE if component.kind == kind}) for kind in COMPILED}
SAMPLED = {(kind, name): marks(i, every=25, slow=4) for kind, names in NAMES.items() for i, name in enumerate(names)}
LONG = (
    "advantage/bi_level_gae",
    "loss_term/dpo",
    "optimizer/adafactor",
    "optimizer/muon",
    "process_reward/equations::hostile_texts",
    "reward/math_dapo::hostile_texts",
    "sizing/fit",
    "task/frozen_lake",
    "task/local_search",
)
"""What takes several seconds: compiles much, draws many examples, or asks a process with a time limit."""
STUDIES = ("learns_after_a_failure", "results_belong_to_their_proposals", "zero_is_a_value")
"""What depends on our side of a study, which sampler `gp` shares with `tpe`; its fits take ten seconds in each."""
TRACKERS = ("sink.mlflow", "sink.trackio", "sink.wandb")
"""What is installed for slow tests alone; their own deprecation warnings are not ours to mend."""
OF_VERL = {("gsm8k", "right_whatever_the_number"): "verl removes separators of thousands from the text alone"}
"""What `verl_compatible` takes over from verl, as the component's docstring says."""


def _marks(component, check) -> list[pytest.MarkDecorator]:
    if component.label in TRACKERS:
        return [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
    if component.label == "sampler.gp" and check.name in STUDIES:
        return [pytest.mark.slow, pytest.mark.exhaustive]
    long = check.slow or f"{component.kind}/{component.name}::{check.name}".startswith(LONG)
    return [*[pytest.mark.slow] * long, *SAMPLED.get((component.kind, component.name), [])]


CASES = [
    pytest.param(
        component.kind,
        component.name,
        variant,
        check,
        id=f"{component.kind}/{component.name}{'(verl)' * variant}::{check.name}",
        marks=_marks(component, check),
    )
    for component, variant, check in TABLE
]


@pytest.mark.parametrize(("kind", "name", "variant", "check"), CASES)
def test_it_conforms(kind, name, variant, check):
    tested = subject(kind, name, variant)
    verdict = judge(check, tested)
    if verdict.outcome == "skipped":
        assert UNWORKED not in verdict.seen  # each of ours has a worked example
        pytest.skip(verdict.seen)
    departs = variant and (name, check.name) in OF_VERL
    assert verdict.outcome in (("failed",) if departs else ("passed", "known")), report(check, tested, verdict)


def test_little_is_skipped():
    """A check is skipped only for one of the reasons listed here."""
    found = {}
    for kind, name, variant, check in (case.values for case in CASES):
        if check.name in ("picklable", "one_for_each", "records", "round_trip", "shapes"):
            verdict = judge(check, subject(kind, name, variant))
            if verdict.outcome == "skipped":
                found[f"{kind}.{name}"] = verdict.seen
    assert set(found) <= {"reward.compute_score", "reward.model", "reward.math_verify", "reward.geo3k"} | {
        "tokenizer.huggingface",
        "model.pretrained",
        "adapter.peft",
        "reward.functions",
        "task.dataset",
    }, found
